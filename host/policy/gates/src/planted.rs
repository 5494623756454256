//! Recognises files that other programs later run or use as configuration outside of any sandbox,
//! such as git hooks.

use std::path::Path;

/// Folders with files that run later, as the names in their path.
const FOLDERS: [&[&str]; 23] = [
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
    &[".woodpecker"],
    &[".yarn", "releases"],
    &[".zed"],
];

/// Files that run later, or that make other files run.
const FILES: [&[&str]; 53] = [
    &[".autoenv"],
    &[".bash_login"],
    &[".bash_logout"],
    &[".bash_profile"],
    &[".bashrc"],
    &[".cargo", "config"],
    &[".cargo", "config.toml"],
    &[".codex", "config.toml"],
    &[".dir-locals.el"],
    &[".drone.yml"],
    &[".envrc"],
    &[".exrc"],
    &[".gdbinit"],
    &[".gemini", "settings.json"],
    // A file or folder with this name is a repository or refers to one. Both have configuration.
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
    &[".nvim.lua"],
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
    &["AGENTS.md"],
    &["CLAUDE.md"],
    &["GEMINI.md"],
    &["Jenkinsfile"],
    &["azure-pipelines.yml"],
    &["bitbucket-pipelines.yml"],
    &["filters.toml"],
    &["flake.nix"],
    &["lefthook.yml"],
    &["mise.toml"],
    &["opencode.json"],
    &["shell.nix"],
    &["sitecustomize.py"],
    &["toolhold.toml"],
];

/// Checks whether other programs later run a file or use it as configuration outside of any
/// sandbox. Examples are a shell, an editor, git, and a server that builds the project.
pub fn runs_later(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().map(|name| name.to_str().unwrap_or_default()).collect();
    let Some((name, folders)) = names.split_last() else { return false };
    // Git doesn't run the samples that it creates in this folder.
    if path.extension().is_some_and(|extension| extension == "sample") {
        return false;
    }
    FILES.iter().any(|file| names.ends_with(file))
        || name.ends_with(".code-workspace")
        || is_in_repository(&names)
        || FOLDERS.iter().any(|folder| folders.windows(folder.len()).any(|part| part == *folder))
}

/// Checks whether git runs a file of a repository or uses it as configuration. Includes files of a
/// submodule or a worktree.
fn is_in_repository(names: &[&str]) -> bool {
    let Some(git) = names.iter().position(|name| *name == ".git") else { return false };
    match &names[git + 1..] {
        ["commondir" | "config.worktree"] => true,
        ["modules" | "worktrees", inner @ .., name] => {
            ["commondir", "config", "config.worktree", "gitdir"].contains(name)
                || inner.contains(&"hooks")
        }
        _ => false,
    }
}

/// Checks whether a file is a part of a package that a package manager has unpacked. Such files
/// have no effect unless the package is used.
pub fn is_unpacked(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().map(|name| name.to_str().unwrap_or_default()).collect();
    let is_module = names.windows(2).any(|part| part[0] == "node_modules" && part[1] != ".bin");
    is_module
        || names.contains(&"site-packages")
        || names.windows(3).any(|part| part == ["go", "pkg", "mod"])
        || names
            .windows(2)
            .any(|part| matches!(part, [".cargo", "git" | "registry"] | [".npm", "_cacache"]))
}

/// Checks whether a link replaces a folder in which files run later, or a parent of such a folder.
pub fn link_runs_later(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let mut hidden = FOLDERS.iter().chain(&FILES).filter(|parts| parts[0].starts_with('.'));
    let is_on_way = hidden.any(|parts| parts.len() > 1 && parts[0] == name);
    if is_on_way || runs_later(path) {
        return true;
    }
    let parent = path.with_file_name("");
    FOLDERS.iter().any(|parts| {
        let is_end = parts.last() == Some(&name) && parent.ends_with(parts[0]);
        is_end || *parts == [name]
    })
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
    fn files_of_packages_are_no_plants() {
        for path in [
            "/w/node_modules/left-pad/.travis.yml",
            "/w/.venv/lib/python3.13/site-packages/x/.github/workflows/ci.yml",
            "/home/u/.cargo/registry/src/index/x-1.0.0/.github/workflows/ci.yml",
        ] {
            assert!(is_unpacked(Path::new(path)), "{path}");
        }
        for path in ["/w/node_modules/.bin/tsc", "/w/.venv/bin/python", "/w/mod/cache/.envrc"] {
            assert!(!is_unpacked(Path::new(path)), "{path}");
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
            "/w/.git/commondir",
            "/w/.git/config.worktree",
            "/w/.git/modules/a/b/config",
            "/w/.git/modules/a/hooks/pre-commit",
            "/w/.git/worktrees/one/commondir",
            "/w/all.code-workspace",
            "/w/sub/AGENTS.md",
        ] {
            assert!(runs_later(Path::new(path)), "{path}");
        }
        for path in [
            "/w/src/main.rs",
            "/w/vscode/x",
            "/w/.git/index",
            "/w/.git/refs/heads/config",
            "/w/.git/worktrees/one/HEAD",
            "/w/bin/run",
            "/w/.vscode",
        ] {
            assert!(!runs_later(Path::new(path)), "{path}");
        }
        // They run when a person builds the project, as all of its sources do.
        for path in ["/w/Makefile", "/w/conftest.py", "/w/setup.py", "/w/build.rs"] {
            assert!(!runs_later(Path::new(path)), "{path}");
        }
    }
}
