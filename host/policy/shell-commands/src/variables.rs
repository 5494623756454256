//! Decides whether setting a variable makes programs run other code.

use super::calculated::{Rule, applies};
use super::programs::SHELLS;
use super::word::Word;

/// The effect of setting a variable.
pub(super) enum Effect {
    /// No known effect.
    Nothing,
    /// The value is started as a command.
    Command,
    /// The effect isn't known.
    Unclear(&'static str),
}

/// Variables whose value is started as a program, for example as an editor or pager.
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

/// Variables that change which program or code runs under a name.
const CODE: [&str; 8] = [
    "BASH_ENV",
    "ENV",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "GIT_EXEC_PATH",
    "IFS",
];

/// Checks whether a variable affects which programs run.
pub(super) fn affects_programs(name: &str) -> bool {
    let name = name.split(['[', '+']).next().unwrap_or_default();
    CODE.contains(&name)
        || COMMANDS.contains(&name)
        || name == "SHELL"
        || name.starts_with("BASH_FUNC_")
        || is_git_config(name)
}

/// Returns the effect of `NAME=value`.
pub(super) fn effect(name: &str, value: &Word) -> Effect {
    let name = name.split(['[', '+']).next().unwrap_or_default();
    let evaluates = value.text.contains("$(") || value.text.contains('`');
    if name == "IFS" {
        return Effect::Nothing;
    }
    if name == "PATH" && is_longer_path(value) {
        return Effect::Nothing;
    }
    if CODE.contains(&name) || name.starts_with("BASH_FUNC_") || is_git_config(name) {
        return Effect::Unclear("it sets a variable that changes which programs or which code run");
    }
    if COMMANDS.contains(&name) {
        return if value.text.is_empty() { Effect::Nothing } else { Effect::Command };
    }
    // Other programs start the value of `SHELL` with a command as an argument.
    if name == "SHELL" && !is_shell(value) {
        return Effect::Unclear("it sets SHELL to a program that isn't a known shell");
    }
    // All other values may be used as an index.
    let is_evaluated = match name {
        "PS0" | "PS1" | "PS2" => evaluates || value.is_unknown(),
        "PS4" => applies(Rule::Trace) && is_evaluated_by_trace(value),
        _ => evaluates && value.text.contains('['),
    };
    if is_evaluated {
        return Effect::Unclear("it sets a string that is evaluated later");
    }
    Effect::Nothing
}

/// Checks whether a value names a known shell.
fn is_shell(value: &Word) -> bool {
    let name = value.text.rsplit('/').next().unwrap_or_default();
    !value.open && SHELLS.contains(&name)
}

/// Checks whether a prompt would start a command with `set -x`. The command may be in the prompt or
/// in the value of a variable.
fn is_evaluated_by_trace(prompt: &Word) -> bool {
    let text = prompt.text.as_str();
    if prompt.is_unknown() || text.contains("$(") || text.contains('`') || text.contains("$[") {
        return true;
    }
    if !text.contains('$') {
        return false;
    }
    let has_index =
        text.split('[').skip(1).any(|index| !index.starts_with(|c: char| c.is_ascii_digit()));
    let mut expansions = text.split("${").skip(1);
    has_index
        || expansions.any(|expansion| {
            let inner = expansion.split('}').next().unwrap_or_default();
            let is_indirect = expansion.starts_with('!') || inner.contains('@');
            let slice = expansion.split_once(':').map(|(_, slice)| slice);
            is_indirect || slice.is_some_and(|slice| !slice.starts_with(['+', '-']))
        })
}

/// Checks whether the value of `PATH` is the old value with more folders at its end. With such a
/// value, known programs are still found at the same place.
fn is_longer_path(value: &Word) -> bool {
    let path = value.raw.trim_start_matches("PATH=").trim_start_matches('"');
    path.starts_with("$PATH:") || path.starts_with("${PATH}:")
}

/// Checks whether a variable, such as `GIT_CONFIG_COUNT`, can set git keys whose values are
/// programs.
fn is_git_config(name: &str) -> bool {
    name.starts_with("GIT_CONFIG")
}
