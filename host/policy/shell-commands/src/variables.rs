//! Decides whether a variable makes programs run other code.

use super::calculated::Rule;
use super::programs::SHELLS;
use super::word::Word;

pub(super) enum Effect {
    Nothing,
    /// Other programs start the value as a command.
    Command,
    Unclear(&'static str),
}

/// Variables whose value is started as a program, such as an editor or a pager.
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

/// Checks whether a variable changes which programs or which code run. `target` is the name with an
/// optional index or `+`, as in `NAME[index]=` or `NAME+=`.
pub(super) fn affects_programs(target: &str) -> bool {
    let name = target.split(['[', '+']).next().unwrap_or_default();
    let is_listed = CODE.contains(&name) || COMMANDS.contains(&name) || name == "SHELL";
    is_listed || name.starts_with("BASH_FUNC_") || is_git_config(name)
}

/// Returns the effect of an assignment on the programs that run. `target` has the form of
/// [`affects_programs`].
pub(super) fn effect(target: &str, value: &Word) -> Effect {
    let name = target.split(['[', '+']).next().unwrap_or_default();
    // `IFS` only changes how expansions are split into words, and the analysis treats every
    // expansion as unknown anyway.
    if name == "IFS" {
        return Effect::Nothing;
    }
    if name == "PATH" && is_longer_path(value) {
        return Effect::Nothing;
    }
    if CODE.contains(&name) || name.starts_with("BASH_FUNC_") || is_git_config(name) {
        return Effect::Unclear(
            "the command sets a variable that changes which programs or which code run",
        );
    }
    if COMMANDS.contains(&name) {
        return if value.text.is_empty() { Effect::Nothing } else { Effect::Command };
    }
    // Programs start the value of `SHELL` with a command as its argument.
    if name == "SHELL" && !is_shell(value) {
        return Effect::Unclear("the command sets SHELL to a program that isn't a known shell");
    }
    // Shells evaluate prompts. Shells also evaluate an index, and the value of any other variable
    // may become an index.
    let has_substitution = value.text.contains("$(") || value.text.contains('`');
    let is_evaluated = match name {
        "PS0" | "PS1" | "PS2" => has_substitution || value.is_unknown(),
        "PS4" => Rule::Trace.is_enabled() && is_evaluated_by_trace(value),
        _ => has_substitution && value.text.contains('['),
    };
    if is_evaluated {
        return Effect::Unclear("the command sets a string that is evaluated later");
    }
    Effect::Nothing
}

fn is_shell(value: &Word) -> bool {
    let name = value.text.rsplit('/').next().unwrap_or_default();
    !value.open && SHELLS.contains(&name)
}

/// Checks whether bash may start a command when it expands this prompt for `set -x`.
fn is_evaluated_by_trace(prompt: &Word) -> bool {
    let text = prompt.text.as_str();
    if prompt.is_unknown() || text.contains("$(") || text.contains('`') || text.contains("$[") {
        return true;
    }
    if !text.contains('$') {
        return false;
    }
    // The first part is the text before the first index.
    for index in text.split('[').skip(1) {
        // The shell evaluates an index that isn't a number.
        if !index.starts_with(|c: char| c.is_ascii_digit()) {
            return true;
        }
    }
    text.split("${").skip(1).any(is_evaluated_expansion)
}

/// Checks whether an expansion may evaluate a value as code. `text` starts after the `${`.
fn is_evaluated_expansion(text: &str) -> bool {
    let inner = text.split('}').next().unwrap_or_default();
    if text.starts_with('!') || inner.contains('@') {
        return true;
    }
    // `${x:+y}` and `${x:-y}` are default values. Other texts after `:` are arithmetic.
    match text.split_once(':') {
        Some((_, after_colon)) => !after_colon.starts_with(['+', '-']),
        None => false,
    }
}

/// Checks whether the value of `PATH` only adds folders after the old value. Known programs are
/// then still found in the same folders.
fn is_longer_path(value: &Word) -> bool {
    let path = value.raw.trim_start_matches("PATH=").trim_start_matches('"');
    path.starts_with("$PATH:") || path.starts_with("${PATH}:")
}

/// Checks whether a variable, such as `GIT_CONFIG_COUNT`, can set keys of git whose values are
/// programs.
fn is_git_config(name: &str) -> bool {
    name.starts_with("GIT_CONFIG")
}
