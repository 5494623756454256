//! Starts git with switches that keep a repository from running its programs.
//!
//! A repository says in its own configuration which programs git runs: hooks, a file system
//! monitor, converters and filters of files, merge drivers, transports. Whoever made the repository
//! wrote that configuration. So each command switches those programs off, and where git has no
//! switch, it isn't started: see [`programs`](crate::programs). The operator's grant has the same
//! switches, word for word: without them, the host doesn't start git either.

use toolhold_sdk::process::{self, Finished};
use toolhold_sdk::{Failure, Promises, config};

/// The switches between `git` and each subcommand.
///
/// An embedded bare repository is one that a checkout has put into a subfolder.
pub const SWITCHES: [&str; 10] = [
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "maintenance.auto=false",
    "-c",
    "safe.bareRepository=explicit",
];

/// The switches that a diff needs in addition, so that git compares the files themselves.
pub const PLAIN_DIFF: [&str; 5] = [
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--submodule=short",
    "--ignore-submodules=dirty",
];

/// Bytes of git's standard output that are read.
const MAX_OUTPUT: u32 = 512 * 1024;

/// Characters of a revision, a name or a message.
const MAX_NAME: usize = 256;

/// The tools that only look. They start a program, which a read-only tool can't, so the host counts
/// them as acting.
pub const LOOKS: Promises = Promises { additive: true, idempotent: true, ..Promises::NONE };

/// The tools that change a repository, and nothing beyond this machine.
pub const CHANGES: Promises = Promises { closed_world: true, ..Promises::NONE };

/// A subcommand in a repository.
pub struct Git {
    arguments: Vec<String>,
    pub directory: Option<String>,
    /// Whether it may take locks: one that only looks writes nothing.
    pub locks: bool,
}

impl Git {
    /// A subcommand that only looks. `directory`: a folder of the repository; `None`: the working
    /// directory.
    pub fn look(subcommand: &str, directory: Option<String>) -> Self {
        Self { arguments: vec![subcommand.to_owned()], directory, locks: false }
    }

    /// A subcommand that changes the repository.
    pub fn change(subcommand: &str, directory: Option<String>) -> Self {
        Self { locks: true, ..Self::look(subcommand, directory) }
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds what a caller named as a revision. It can't be an option.
    pub fn revision(self, argument: &str, text: Option<String>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(self) };
        check(argument, &text)?;
        Ok(self.args([text]))
    }

    /// Adds paths, after which there are no options.
    pub fn paths(self, paths: Vec<String>) -> Self {
        self.args(["--"]).args(paths)
    }

    /// Starts it, whatever the repository names, and waits for its end.
    ///
    /// # Errors
    ///
    /// If it isn't started.
    pub fn start(self) -> Result<Finished, Failure> {
        Ok(self.command()?.run()?)
    }

    /// The command with its switches.
    ///
    /// # Errors
    ///
    /// If the settings can't be read.
    pub fn command(self) -> Result<process::Command, Failure> {
        let mut command = process::Command::program("git")
            .args(SWITCHES)
            .args(self.arguments)
            .output_limit(MAX_OUTPUT)
            // A repository can promise objects that a program of its choice would bring.
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C.UTF-8")
            .env("GIT_OPTIONAL_LOCKS", if self.locks { "1" } else { "0" });
        for (key, variables) in [
            ("author_name", ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"]),
            ("author_email", ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]),
        ] {
            let value: Option<String> = config::get(key)?;
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                command =
                    variables.into_iter().fold(command, |command, name| command.env(name, &value));
            }
        }
        if let Some(directory) = self.directory {
            command = command.directory(directory);
        }
        Ok(command)
    }
}

/// Refuses a text that git could take for an option, or that isn't one line.
pub fn check(argument: &str, text: &str) -> Result<(), Failure> {
    let length = text.chars().count();
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if length > MAX_NAME {
        format!("is {length} characters; the limit is {MAX_NAME}")
    } else if text.starts_with('-') {
        "begins with `-`, which is for options".to_owned()
    } else if text.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::invalid(format!("{argument} {why}"))
        .with_suggestion("give the name of a branch, a tag or a commit"))
}

/// The failure of a command that didn't succeed.
pub fn failure(finished: &Finished) -> Failure {
    let output = &finished.output;
    // Some refusals stand on standard output: that nothing is staged, for example.
    let printed = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let shown: String = String::from_utf8_lossy(printed).trim().chars().take(2000).collect();
    let message = match finished.exit_code {
        Some(code) if shown.is_empty() => format!("git exited with {code}"),
        Some(_) => shown,
        None => format!("git was ended: {:?}", finished.ending),
    };
    let code = if message.contains("not a git repository") { "not-a-repository" } else { "git" };
    let failure = Failure::permanent(code, message);
    if finished.notices.is_empty() {
        return failure;
    }
    failure.with_suggestion(finished.notices.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_options() {
        for name in ["main", "HEAD~1", "a..b", ":/text with spaces", "HEAD:src/lib.rs"] {
            assert!(check("revision", name).is_ok(), "{name}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for name in ["", "-x", "--output=x", "a\nb", "a\0", &long] {
            assert!(check("revision", name).is_err(), "{name:?}");
        }
    }
}
