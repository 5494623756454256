//! The beginning of a command that a rule is usually written for: `git status` of `git status -s`.

use super::{Command, CommandAnalysis, Risk};

/// Programs and their subcommands of low risk whatever their options are: they show something, or
/// build and test the project.
const FAMILIES: [(&[&str], &[&str]); 4] = [
    (&["cargo"], &["bench", "build", "check", "clippy", "doc", "fmt", "metadata", "test", "tree"]),
    (
        &["git"],
        &[
            "blame",
            "describe",
            "diff",
            "log",
            "ls-files",
            "ls-tree",
            "rev-parse",
            "shortlog",
            "show",
            "status",
        ],
    ),
    (&["go"], &["build", "fmt", "list", "test", "vet", "version"]),
    (&["npm", "pnpm", "yarn"], &["list", "ls", "test"]),
];

/// Returns the program and the subcommand of a command, `git status`, if a rule may allow all
/// commands that begin like this. Returns `None` unless the text is one command of low risk without
/// redirections and substitutions.
pub fn command_family(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let program = words.next()?;
    let subcommand = words.next()?;
    // A pattern that also matched the subcommand alone would match `git diff-evil` too.
    words.next()?;
    let is_known = FAMILIES.iter().any(|(programs, subcommands)| {
        programs.contains(&program) && subcommands.contains(&subcommand)
    });
    if is_known && is_harmless(text) { Some(format!("{program} {subcommand}")) } else { None }
}

/// Checks whether a text is one resolved command of low risk, which neither destroys something nor
/// needs the network.
fn is_harmless(text: &str) -> bool {
    let command = Command::read(text);
    let CommandAnalysis { commands, unresolved, substitutes } = command.analysis();
    let [only] = &commands[..] else { return false };
    let is_low = only.class == Risk::Low && only.destructive.is_none() && !only.needs_network;
    is_low && unresolved.is_none() && !substitutes && command.redirects.is_empty()
}

#[cfg(test)]
mod tests {
    use super::command_family;

    #[test]
    fn family_is_the_program_and_its_harmless_subcommand() {
        for (text, family) in [
            ("git status --short", Some("git status")),
            ("git status", None),
            ("git  log --oneline -5", Some("git log")),
            ("cargo test --workspace", Some("cargo test")),
            ("npm test unit", Some("npm test")),
            // These commands change something, or do with other options.
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
