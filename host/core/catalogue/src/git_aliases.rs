//! Expands git aliases in a command, because an untrusted repository could hide a denied command in
//! an alias.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toolhold_data_dir::{GitEntry, Repository, git_entries, read_regular};
use toolhold_policy::commands::Command;

/// Maximum number of bytes that are read from a configuration file.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of configuration files with includes, and of nested aliases.
const MAX_FILES: usize = 20;
const MAX_DEPTH: usize = 10;

/// Maximum number of expanded commands, because an untrusted repository may have any number of
/// aliases.
const MAX_COMMANDS: usize = 100;

/// Maximum number of directories in one command that are searched for a repository.
const MAX_DIRECTORIES: usize = 10;

/// A command with an unknown program, which needs approval.
const UNKNOWN: &str = "$alias";

/// Checks whether a command runs git with a subcommand that may be an alias.
pub(crate) fn may_be_used(text: &str) -> bool {
    text.contains("git") && Command::read(text).git_commands().next().is_some()
}

/// Returns the commands that the aliases in a command run, including nested aliases. Blocks.
pub(crate) fn expand(directory: &Path, home: Option<&Path>, text: &str) -> Vec<String> {
    let other_directories = Command::read(text).directories();
    // A command with more directories counts as unknown.
    if other_directories.len() > MAX_DIRECTORIES {
        return vec![UNKNOWN.to_owned()];
    }
    let mut aliases_by_directory = vec![read_aliases(directory, home)];
    for other in &other_directories {
        aliases_by_directory.push(read_aliases(&directory.join(other), home));
    }

    let mut commands = Vec::new();
    // Commands that may contain aliases, each with the number of aliases around it.
    let mut unexpanded: Vec<(String, usize)> = vec![(text.to_owned(), 0)];
    while let Some((next_text, depth)) = unexpanded.pop() {
        for (name, arguments) in Command::read(&next_text).git_commands() {
            let lower_name = name.to_lowercase();
            for aliases in &aliases_by_directory {
                let Some(alias) = aliases.get(&lower_name) else { continue };
                let expansion = match alias.strip_prefix('!') {
                    Some(script) => format!("{script} {arguments}"),
                    None => format!("git {alias} {arguments}"),
                };
                let command = expansion.trim_end().to_owned();
                if commands.contains(&command) {
                    continue;
                }
                if depth == MAX_DEPTH || commands.len() == MAX_COMMANDS {
                    commands.push(UNKNOWN.to_owned());
                    return commands;
                }
                unexpanded.push((command.clone(), depth + 1));
                commands.push(command);
            }
        }
    }
    commands
}

/// Returns all aliases by their lower-case names. Aliases of the repository come after aliases of
/// the user and replace them.
fn read_aliases(directory: &Path, home: Option<&Path>) -> HashMap<String, String> {
    let mut files = configuration_files(directory, home);
    // `git send-pack` does the work of `git push`, so rules for `push` must apply.
    let mut aliases = HashMap::from([("send-pack".to_owned(), "push".to_owned())]);
    let mut files_read = 0;
    while !files.is_empty() && files_read < MAX_FILES {
        let file = files.remove(0);
        files_read += 1;
        let Ok(bytes) = read_regular(&file, MAX_BYTES) else { continue };
        for entry in git_entries(&String::from_utf8_lossy(&bytes)) {
            let GitEntry { section, subsection, name, value } = entry;
            match (section.as_str(), subsection.as_deref(), name.as_str()) {
                ("alias", None, alias) => {
                    aliases.insert(alias.to_owned(), value);
                }
                ("alias", Some(alias), "command") => {
                    aliases.insert(alias.to_lowercase(), value);
                }
                // Conditional includes are followed without a check of their condition.
                ("include", None, "path") | ("includeif", Some(_), "path") => {
                    let included = match (value.strip_prefix("~/"), home) {
                        (Some(path_in_home), Some(home)) => home.join(path_in_home),
                        _ => file.with_file_name(value),
                    };
                    // The included file comes before the remaining files.
                    files.insert(0, included);
                }
                _ => {}
            }
        }
    }
    aliases
}

/// Returns git's configuration files. Aliases in later files replace aliases in earlier files.
fn configuration_files(directory: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    if let Some(home) = home {
        files.push(home.join(".config/git/config"));
        files.push(home.join(".gitconfig"));
    }
    // A folder before `..` may not exist until the command runs, so the path's ancestors are
    // searched as written.
    let mut folders = directory.ancestors();
    let root = folders.find(|folder| folder.join(".git").symlink_metadata().is_ok());
    let repository = Repository::find(root.unwrap_or(directory));
    for name in ["config", "config.worktree"] {
        files.extend(repository.part(name).map(Path::to_owned));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_behind_aliases_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir(root.join(".git")).expect("a folder is made");
        let config = "[core]\n\tbare = false\n[Alias]\n  yolo = push --force # now\n\twipe = \"!rm -rf \\\"$HOME\\\"\"\n  twice = yolo origin\n[include]\n\tpath = more\n[alias \"Own\"]\n\tcommand = !id\n[alias] near = gc\n";
        std::fs::write(root.join(".git/config"), config).expect("it is written");
        std::fs::write(root.join(".git/more"), "[alias]\nfar=ls-remote \\\n  x\n")
            .expect("it is written");
        std::fs::write(root.join(".gitconfig"), "[alias]\nyolo = status\nmine = clean -fdx\n")
            .expect("it is written");
        for (command, expected) in [
            ("git yolo origin main", &["git push --force origin main"][..]),
            ("cd x && git -C . --no-pager wipe", &["rm -rf \"$HOME\""]),
            ("git twice", &["git yolo origin", "git push --force origin"]),
            ("git FAR", &["git ls-remote   x"]),
            ("git mine", &["git clean -fdx"]),
            ("git own", &["id"]),
            ("git near", &["git gc"]),
            ("git -C . send-pack origin", &["git push origin"]),
            ("git unknown; git push", &[]),
        ] {
            assert_eq!(expand(root, Some(root), command), expected, "{command}");
        }
        let other = root.join("other");
        std::fs::create_dir_all(other.join(".git")).expect("a folder is made");
        std::fs::write(other.join(".git/config"), "[alias]\nyolo = push --mirror\n")
            .expect("it is written");
        for command in
            ["git -C other yolo", "cd other && git yolo", "git --git-dir=other/.git yolo"]
        {
            let found = expand(root, Some(root), command);
            assert!(found.contains(&"git push --mirror".to_owned()), "{command}: {found:?}");
        }
        // The folder before `..` doesn't exist yet, and no folder above has a repository.
        let plain = tempfile::tempdir().expect("a folder");
        std::fs::rename(&other, plain.path().join("other")).expect("it is moved");
        for command in [
            "mkdir x && cd x && cd ../other && git yolo",
            "mkdir new && cd new/../other && git yolo",
        ] {
            let found = expand(plain.path(), None, command);
            assert!(found.contains(&"git push --mirror".to_owned()), "{command}: {found:?}");
        }
        let far = format!("{}git yolo", "cd .; ".repeat(20));
        assert_eq!(expand(root, Some(root), &far), [UNKNOWN]);
        let endless = "[alias]\nround = \"!git round 1; git round 2; git round 3\"\n";
        std::fs::write(root.join(".git/config"), endless).expect("it is written");
        let found = expand(root, None, "git round");
        assert!(found.len() <= MAX_COMMANDS + 1 && found.ends_with(&[UNKNOWN.to_owned()]));
        assert!(Command::read(UNKNOWN).unclear.is_some());
        assert!(may_be_used("git yolo") && !may_be_used("git push") && !may_be_used("ls"));
    }
}
