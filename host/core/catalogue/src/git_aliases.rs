//! Expands git aliases in a command. Rules apply to the command that an alias runs, so that command
//! is decided on, too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toolhold_data_dir::{Repository, read_regular};
use toolhold_policy::commands::Command;

/// Bytes of a configuration that are read.
const MAX_BYTES: u64 = 1 << 20;

/// Configurations that others include, and aliases that use others.
const MAX_FILES: usize = 20;
const MAX_STEPS: usize = 10;

/// Maximum number of expanded commands. An untrusted repository may have any number of aliases.
const MAX_COMMANDS: usize = 100;

/// Maximum number of directories of a command that are searched for a repository.
const MAX_DIRECTORIES: usize = 10;

/// A command with an unknown program, which needs approval.
const UNKNOWN: &str = "$alias";

/// Checks whether a command runs git with a subcommand that isn't one of its usual ones.
pub(crate) fn may_be_used(text: &str) -> bool {
    text.contains("git") && Command::read(text).git_commands().next().is_some()
}

/// Returns the commands that the aliases in a command run, including aliases that use other
/// aliases. Reads files, so it blocks.
pub(crate) fn expand(directory: &Path, home: Option<&Path>, text: &str) -> Vec<String> {
    let other_directories = Command::read(text).directories();
    // If the command changes its directory too often, the directories aren't searched, and the
    // command is unknown.
    if other_directories.len() > MAX_DIRECTORIES {
        return vec![UNKNOWN.to_owned()];
    }
    let mut aliases_by_directory = vec![read_aliases(directory, home)];
    for other in &other_directories {
        aliases_by_directory.push(read_aliases(&directory.join(other), home));
    }

    let mut commands = Vec::new();
    let mut unexpanded: Vec<(String, usize)> = vec![(text.to_owned(), 0)];
    while let Some((text, steps)) = unexpanded.pop() {
        for (name, arguments) in Command::read(&text).git_commands() {
            let name = name.to_lowercase();
            for aliases in &aliases_by_directory {
                let Some(alias) = aliases.get(&name) else { continue };
                let expansion = match alias.strip_prefix('!') {
                    Some(script) => format!("{script} {arguments}"),
                    None => format!("git {alias} {arguments}"),
                };
                let command = expansion.trim_end().to_owned();
                if commands.contains(&command) {
                    continue;
                }
                if steps == MAX_STEPS || commands.len() == MAX_COMMANDS {
                    commands.push(UNKNOWN.to_owned());
                    return commands;
                }
                unexpanded.push((command.clone(), steps + 1));
                commands.push(command);
            }
        }
    }
    commands
}

/// Returns all aliases by their lower-case names. An alias of the repository replaces one of the
/// user.
fn read_aliases(directory: &Path, home: Option<&Path>) -> HashMap<String, String> {
    let root = directory
        .ancestors()
        .find(|directory| directory.join(".git").symlink_metadata().is_ok())
        .unwrap_or(directory);
    let repository = Repository::find(root);

    // Aliases in later files replace those in earlier files.
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    if let Some(home) = home {
        files.push(home.join(".config/git/config"));
        files.push(home.join(".gitconfig"));
    }
    for name in ["config", "config.worktree"] {
        files.extend(repository.part(name).map(Path::to_owned));
    }

    // `git push` itself starts this command.
    let mut aliases = HashMap::from([("send-pack".to_owned(), "push".to_owned())]);
    let mut files_read = 0;
    while !files.is_empty() && files_read < MAX_FILES {
        let file = files.remove(0);
        files_read += 1;
        let Ok(bytes) = read_regular(&file, MAX_BYTES) else { continue };
        for (key, value) in read_entries(&String::from_utf8_lossy(&bytes)) {
            if let Some(name) = key.strip_prefix("alias.") {
                aliases.insert(name.to_owned(), value);
            } else if key == "include.path" {
                let path = match (value.strip_prefix("~/"), home) {
                    (Some(below), Some(home)) => home.join(below),
                    _ => file.with_file_name(value),
                };
                files.insert(0, path);
            }
        }
    }
    aliases
}

/// Returns the keys of a git configuration in lower case, with their values. A conditional include
/// is treated like one without a condition.
fn read_entries(text: &str) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut section = String::new();
    let joined_lines = text.replace("\\\r\n", "").replace("\\\n", "");
    for line in joined_lines.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let title = header.split(']').next().unwrap_or_default().to_lowercase();
            section = match title.split_once(|letter: char| letter.is_whitespace() || letter == '.')
            {
                Some(("includeif", _)) => "include".to_owned(),
                Some(("alias", name)) => format!("alias.{}", name.trim().trim_matches('"')),
                Some((section, _)) => format!("{section}.*"),
                None => title,
            };
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().to_lowercase();
            let key = match section.strip_prefix("alias.") {
                Some(name) if key == "command" => format!("alias.{name}"),
                _ => format!("{section}.{key}"),
            };
            entries.push((key, unquote(value.trim())));
        }
    }
    entries
}

/// Removes the quotes, escapes and comment from a value.
fn unquote(value: &str) -> String {
    let mut text = String::new();
    let mut is_quoted = false;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => break,
            '\\' => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_behind_aliases_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir(root.join(".git")).expect("a folder is made");
        let config = "[core]\n\tbare = false\n[Alias]\n  yolo = push --force # now\n\twipe = \"!rm -rf \\\"$HOME\\\"\"\n  twice = yolo origin\n[include]\n\tpath = more\n[alias \"Own\"]\n\tcommand = !id\n";
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
