//! Variables that have programs run something else, or something more.

use super::calculated::{Rule, holds};
use super::word::Word;

/// What comes of setting a variable.
pub(super) enum Sets {
    /// Nothing that is known of.
    Nothing,
    /// What it is set to will be started.
    Command,
    /// Something that can't be told.
    Unclear(&'static str),
}

/// What these are set to, a program starts: git its editor, a shell its prompt's commands.
const COMMANDS: [&str; 22] = [
    "BROWSER",
    "EDITOR",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "PROMPT_COMMAND",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SYSTEMD_PAGER",
    "VISUAL",
    "RSYNC_RSH",
];

/// These have another program, or other code, run under a name that says nothing of it.
const MATTERS: [&str; 8] = [
    "BASH_ENV",
    "ENV",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "GIT_EXEC_PATH",
    "IFS",
];

/// Whether a variable matters to which programs run.
pub(super) fn matters(name: &str) -> bool {
    let name = name.split(['[', '+']).next().unwrap_or_default();
    MATTERS.contains(&name)
        || COMMANDS.contains(&name)
        || name.starts_with("BASH_FUNC_")
        || is_pair_of_git(name)
}

/// What comes of `NAME=value`.
pub(super) fn sets(name: &str, value: &Word) -> Sets {
    let name = name.split(['[', '+']).next().unwrap_or_default();
    let evaluates = value.text.contains("$(") || value.text.contains('`');
    if name == "IFS" {
        return Sets::Nothing;
    }
    if name == "PATH" && is_longer_path(value) {
        return Sets::Nothing;
    }
    if MATTERS.contains(&name) || name.starts_with("BASH_FUNC_") || is_pair_of_git(name) {
        return Sets::Unclear(
            "a variable is set in it that has other programs run, or other code in them",
        );
    }
    if COMMANDS.contains(&name) {
        return if value.text.is_empty() { Sets::Nothing } else { Sets::Command };
    }
    let prompts = match name {
        "PS0" | "PS1" | "PS2" => evaluates || value.is_unknown(),
        "PS4" => holds(Rule::Trace) && is_evaluated(value),
        _ => false,
    };
    if prompts || value.text.contains('[') && evaluates && name != "PS4" {
        return Sets::Unclear("a text in it is evaluated where it is used");
    }
    Sets::Nothing
}

/// Whether `set -x` would start something by a prompt: a command in it, or one in what a variable
/// holds.
fn is_evaluated(prompt: &Word) -> bool {
    let text = prompt.text.as_str();
    let index =
        text.split('[').skip(1).any(|index| !index.starts_with(|c: char| c.is_ascii_digit()));
    let name = text.split("${").skip(1).any(|inner| {
        inner.starts_with('!') || inner.split('}').next().is_some_and(|inner| inner.contains('@'))
    });
    let slice = text
        .split("${")
        .skip(1)
        .any(|inner| inner.split_once(':').is_some_and(|(_, more)| !more.starts_with(['+', '-'])));
    prompt.is_unknown()
        || text.contains("$(")
        || text.contains('`')
        || text.contains("$[")
        || text.contains('$') && (index || name || slice)
}

/// Whether the folders of programs are those that there were, and behind them others: what was
/// found is found as before.
fn is_longer_path(value: &Word) -> bool {
    value.raw.trim_start_matches("PATH=").trim_start_matches('"').starts_with("$PATH:")
        || value.raw.trim_start_matches("PATH=").trim_start_matches('"').starts_with("${PATH}:")
}

/// `GIT_CONFIG_COUNT` and its like: a key of git's may be a program.
fn is_pair_of_git(name: &str) -> bool {
    name.starts_with("GIT_CONFIG")
}
