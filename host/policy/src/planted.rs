//! Files that other programs run or obey later, outside of any sandbox.

use std::path::Path;

/// Folders whose files run later, by the names of the path.
const FOLDERS: [&[&str]; 22] = [
    &[".circleci"],
    &[".claude"],
    &[".config", "autostart"],
    &[".config", "fish"],
    &[".config", "systemd"],
    &[".cursor"],
    &[".devcontainer"],
    &[".direnv"],
    &[".git", "hooks"],
    &[".githooks"],
    &[".github", "actions"],
    &[".github", "workflows"],
    &[".husky"],
    &[".idea"],
    &[".ssh"],
    &[".venv", "bin"],
    &[".vscode"],
    &["env", "bin"],
    &["node_modules", ".bin"],
    &["venv", "bin"],
    &[".zed"],
    &[".woodpecker"],
];

/// Files that run later, or that make something else run.
const FILES: [&[&str]; 38] = [
    &[".bash_login"],
    &[".bash_logout"],
    &[".bash_profile"],
    &[".bashrc"],
    &[".cargo", "config"],
    &[".cargo", "config.toml"],
    &[".drone.yml"],
    &[".envrc"],
    // A file or a folder that is put there names or is a repository, with its configuration.
    &[".git"],
    &[".git", "config"],
    &[".git", "info", "attributes"],
    &[".gitattributes"],
    &[".gitconfig"],
    &[".gitlab-ci.yml"],
    &[".gitmodules"],
    &[".kshrc"],
    &[".lefthook.yml"],
    &[".mcp.json"],
    &[".mise.toml"],
    &[".npmrc"],
    &[".pnpmfile.cjs"],
    &[".pre-commit-config.yaml"],
    &[".profile"],
    &[".tool-versions"],
    &[".travis.yml"],
    &[".vimrc"],
    &[".yarnrc"],
    &[".yarnrc.yml"],
    &[".zlogin"],
    &[".zprofile"],
    &[".zshenv"],
    &[".zshrc"],
    &["Jenkinsfile"],
    &["azure-pipelines.yml"],
    &["bitbucket-pipelines.yml"],
    &["lefthook.yml"],
    &["mise.toml"],
    &["sitecustomize.py"],
];

/// Whether other programs run or obey a file later, outside of any sandbox: a shell, an editor,
/// git, or a server that builds the project.
pub fn runs_later(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().map(|name| name.to_str().unwrap_or_default()).collect();
    let Some((_, folders)) = names.split_last() else { return false };
    // Git doesn't run the samples that it puts there.
    if path.extension().is_some_and(|extension| extension == "sample") {
        return false;
    }
    FILES.iter().any(|file| names.ends_with(file))
        || FOLDERS.iter().any(|folder| folders.windows(folder.len()).any(|part| part == *folder))
}

/// Whether a link stands for a folder in which files run later, or is on the way to one.
pub fn link_runs_later(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let hidden = || FOLDERS.iter().chain(&FILES).filter(|parts| parts[0].starts_with('.'));
    let beside = path.with_file_name("");
    hidden().any(|parts| parts.len() > 1 && parts[0] == name)
        || FOLDERS.iter().any(|parts| *parts == [name])
        || runs_later(path)
        || FOLDERS.iter().any(|parts| parts.last() == Some(&name) && beside.ends_with(parts[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_place_of_their_folders_are_known() {
        for path in ["/w/.vscode", "/w/.github", "/w/.github/workflows", "/w/.venv", "/w/.envrc"] {
            assert!(link_runs_later(Path::new(path)), "{path}");
        }
        for path in ["/w/node_modules", "/w/env", "/w/bin", "/w/src/main.rs", "/w/.cache"] {
            assert!(!link_runs_later(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn files_that_run_later_are_known_at_every_depth() {
        for path in [
            "/w/.envrc",
            "/w/sub/.vscode/tasks.json",
            "/w/.git/hooks/pre-commit",
            "/w/.github/workflows/ci.yml",
            "/w/.venv/bin/python",
            "/home/u/.ssh/authorized_keys",
        ] {
            assert!(runs_later(Path::new(path)), "{path}");
        }
        for path in ["/w/src/main.rs", "/w/vscode/x", "/w/.git/index", "/w/bin/run", "/w/.vscode"] {
            assert!(!runs_later(Path::new(path)), "{path}");
        }
        // They run when a person builds the project, as all of its sources do.
        for path in ["/w/Makefile", "/w/conftest.py", "/w/setup.py", "/w/build.rs"] {
            assert!(!runs_later(Path::new(path)), "{path}");
        }
    }
}
