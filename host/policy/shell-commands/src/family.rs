//! The beginning of a command for which people usually write a rule: `git status` of `git status
//! -s`.

use super::{Command, CommandAnalysis, Risk};

/// Programs and their subcommands that do the same with all options: they show something, or build
/// and test the project. `git log` isn't here, since its `--output` writes any text into any file.
/// `cargo tree` isn't here, since its `--config` starts any program.
const FAMILIES: [(&[&str], &[&str]); 4] = [
    (&["cargo"], &["bench", "build", "check", "clippy", "doc", "fmt", "test"]),
    (&["git"], &["describe", "ls-files", "ls-tree", "rev-parse", "status"]),
    (&["go"], &["build", "fmt", "test", "version"]),
    (&["npm", "pnpm", "yarn"], &["list", "ls", "test"]),
];

/// Returns the program and the subcommand of a command, such as `git status`, if a rule may allow
/// all commands that begin with these two words. Returns `None` unless the text is one command of
/// low risk without redirections and substitutions.
pub fn command_family(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let program = words.next()?;
    let subcommand = words.next()?;
    // A command of only two words has no family. A rule for `git diff` alone would have the pattern
    // `git diff*`, which also matches `git diff-evil`.
    words.next()?;
    let is_known = FAMILIES.iter().any(|(programs, subcommands)| {
        programs.contains(&program) && subcommands.contains(&subcommand)
    });
    if is_known && is_harmless(text) { Some(format!("{program} {subcommand}")) } else { None }
}

/// Checks whether a text is one resolved command of low risk that neither destroys something nor
/// needs the network.
fn is_harmless(text: &str) -> bool {
    let command = Command::read(text);
    let CommandAnalysis { commands, unresolved, substitutes } = command.analysis();
    let [single] = &commands[..] else { return false };
    if unresolved.is_some() || substitutes || !command.redirects.is_empty() {
        return false;
    }
    single.class == Risk::Low && single.destructive.is_none() && !single.needs_network
}

#[cfg(test)]
mod tests {
    use super::command_family;

    #[test]
    fn family_is_the_program_and_its_harmless_subcommand() {
        for (text, family) in [
            ("git status --short", Some("git status")),
            ("git status", None),
            ("git  ls-files -m", Some("git ls-files")),
            ("cargo test --workspace", Some("cargo test")),
            ("npm test unit", Some("npm test")),
            // These commands change something, or do with other options.
            ("git log --oneline -5", None),
            ("git diff HEAD", None),
            ("cargo tree -d", None),
            ("go vet ./...", None),
            ("git branch", None),
            ("git push origin main", None),
            ("cargo publish", None),
            ("npm install", None),
            // These commands start what another word names.
            ("npm run build", None),
            ("cargo run", None),
            // The text is more than one command, or its words aren't plain.
            ("git status && rm -rf x", None),
            ("git status > log", None),
            ("git status $(rm x)", None),
            ("git -C .. status", None),
            ("/usr/bin/git status", None),
            ("git $SUB", None),
            ("git 'status'", None),
            ("ls -l", None),
            ("git", None),
            ("", None),
        ] {
            assert_eq!(command_family(text).as_deref(), family, "{text}");
        }
    }
}
