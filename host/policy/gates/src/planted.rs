//! Recognises files that other programs, outside of any sandbox, later run or use as configuration.
//! An example is a git hook.

use std::path::Path;

/// Folders of files that run later, as successive names in a path.
const FOLDERS: [&[&str]; 32] = [
    &[".bun", "bin"],
    &[".cargo", "bin"],
    &[".circleci"],
    &[".claude"],
    &[".config", "autostart"],
    &[".config", "environment.d"],
    &[".config", "fish"],
    &[".config", "git"],
    &[".config", "nvim"],
    &[".config", "systemd"],
    &[".cursor"],
    &[".deno", "bin"],
    &[".devcontainer"],
    &[".direnv"],
    &["env", "bin"],
    &[".git", "hooks"],
    &[".githooks"],
    &[".github", "actions"],
    &[".github", "workflows"],
    &["go", "bin"],
    &[".husky"],
    &[".idea"],
    &[".local", "bin"],
    &[".local", "share", "applications"],
    &["node_modules", ".bin"],
    &[".ssh"],
    &[".venv", "bin"],
    &["venv", "bin"],
    &[".vscode"],
    &[".woodpecker"],
    &[".yarn", "releases"],
    &[".zed"],
];

/// Files that run later, or that make other files run, as the last names of a path.
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
    // A `.git` file or folder is a repository or refers to a repository. Both have configuration.
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

/// Checks whether a shell, an editor, git, a build server or another program later runs a file or
/// uses it as configuration, outside of any sandbox.
pub fn runs_later(path: &Path) -> bool {
    let names = names_of(path);
    let Some((name, folders)) = names.split_last() else { return false };
    // Git creates samples in its `hooks` folder, but doesn't run them.
    if path.extension().is_some_and(|extension| extension == "sample") {
        return false;
    }
    let is_known_file = FILES.iter().any(|file| names.ends_with(file));
    if is_known_file || name.ends_with(".code-workspace") || is_in_repository(&names) {
        return true;
    }
    // A folder of the list may have several names, such as `.local/bin`.
    FOLDERS.iter().any(|folder| folders.windows(folder.len()).any(|part| part == *folder))
}

/// Returns the names of a path. A name that isn't UTF-8 becomes empty, because no list contains it.
fn names_of(path: &Path) -> Vec<&str> {
    path.iter().map(|name| name.to_str().unwrap_or_default()).collect()
}

/// Checks whether git runs a file below `.git`, or uses the file as configuration of the
/// repository, of a worktree or of a submodule. [`FILES`] and [`FOLDERS`] contain the ordinary
/// configuration and hooks of a repository.
fn is_in_repository(names: &[&str]) -> bool {
    let Some(git_index) = names.iter().position(|name| *name == ".git") else { return false };
    match &names[git_index + 1..] {
        ["commondir" | "config.worktree"] => true,
        ["modules" | "worktrees", inner @ .., name] => {
            ["commondir", "config", "config.worktree", "gitdir"].contains(name)
                || inner.contains(&"hooks")
        }
        _ => false,
    }
}

/// Checks whether a file belongs to a package that a package manager unpacked. Such files have no
/// effect unless the package is used.
pub fn is_unpacked(path: &Path) -> bool {
    let names = names_of(path);
    for pair in names.windows(2) {
        match pair {
            // Shells run the programs in this folder, so they have an effect.
            ["node_modules", ".bin"] => {}
            ["node_modules", _] | [".cargo", "git" | "registry"] | [".npm", "_cacache"] => {
                return true;
            }
            _ => {}
        }
    }
    let is_go_module = names.windows(3).any(|part| part == ["go", "pkg", "mod"]);
    let is_python_package = names.contains(&"site-packages");
    is_go_module || is_python_package
}

/// Checks whether a link at `path` replaces a folder of files that run later, or a parent of such a
/// folder.
pub fn link_runs_later(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    // A link `.config` can lead to another `.config/git`.
    let is_hidden_parent = name.starts_with('.')
        && FOLDERS.iter().chain(&FILES).any(|parts| parts.len() > 1 && parts[0] == name);
    if is_hidden_parent || runs_later(path) {
        return true;
    }

    // The path of a link may itself be a folder of the list, such as `.ssh` or `.git/hooks`.
    let Some(parent) = path.parent() else { return false };
    for parts in FOLDERS {
        let is_single_name = *parts == [name];
        let ends_with_parts = parts.last() == Some(&name) && parent.ends_with(parts[0]);
        if is_single_name || ends_with_parts {
            return true;
        }
    }
    false
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
            "/home/u/.local/bin/toolhold",
            "/home/u/.cargo/bin/cargo",
            "/home/u/.config/git/config",
            "/home/u/.local/share/applications/browser.desktop",
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
