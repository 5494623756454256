//! Tips for frequent mistakes on command lines: subcommands of other programs, and missing quotes.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use toolhold_core::text::{shell_word, toml};

/// The arguments of the tool `bash`. Any other option belongs to the shell command.
const BASH_ARGUMENTS: [&str; 4] = ["timeout", "network", "background", "description"];

/// Replaces clap's guesses in `error` by a tip for the command line. Returns `error` unchanged if
/// there is no tip, or if the guess of clap is better.
pub(super) fn with_tip(mut error: clap::Error, line: &[OsString]) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let words: Option<Vec<&str>> = line.iter().map(|word| word.to_str()).collect();
    let Some(words) = words else {
        return error;
    };
    // If clap knows a similar option, the word is a misspelt option of `toolhold call`, and not an
    // argument of the tool. For `bash`, the word is probably a part of the command.
    let is_near_option = error.get(ContextKind::SuggestedArg).is_some();
    let is_call = words.starts_with(&["call"]);
    let is_call_of_bash = words.starts_with(&["call", "bash"]);
    if is_near_option && is_call && !is_call_of_bash {
        return error;
    }
    let Some(tip) = tip(&words) else {
        return error;
    };
    for guess in [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
        ContextKind::Suggested,
    ] {
        error.remove(guess);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn tip(words: &[&str]) -> Option<String> {
    let tip = match words {
        ["install" | "add", rest @ ..] | ["plugin", "install", rest @ ..] if has_operand(rest) => {
            format!("to install a plugin: {}", command("plugin add", rest))
        }
        ["uninstall" | "remove", rest @ ..] | ["plugin", "uninstall", rest @ ..] => {
            format!("to remove a plugin: {}", command("plugin remove", rest))
        }
        ["plugin", "new", name, rest @ ..]
            if !name.starts_with('-') && !rest.contains(&"--lang") =>
        {
            let new = command("plugin new", &[*name]);
            format!("the language is missing: {new} --lang rust (or python, javascript, c, go)")
        }
        ["plugin", "create" | "init", name, rest @ ..] if !name.starts_with('-') => {
            let new = command("plugin new", &[*name]);
            if rest.contains(&"--lang") {
                format!("to make a plugin: {new} {}", quoted(rest))
            } else {
                format!("to make a plugin: {new} --lang rust (or python, javascript, c, go)")
            }
        }
        ["plugin", "create" | "init", ..] => {
            "to make a plugin: toolhold plugin new NAME --lang rust (or python, javascript, c, go)"
                .into()
        }
        ["config", "set", rest @ ..] => return tip_to_set(rest),
        ["config", "get", ..] => "to print every key with its value: toolhold config show".into(),
        ["config", "edit", ..] => "`toolhold config show` names the file to edit".into(),
        ["call", tool, rest @ ..] => return tip_for_call(tool, rest),
        ["mcp", "add", name, rest @ ..] if has_operand(rest) && !rest.contains(&"--") => {
            let start = command("mcp add", &[*name]);
            format!("put `--` before the command: {start} -- {}", quoted(rest))
        }
        ["approvals", "approve" | "accept", rest @ ..] => command("approvals allow", rest),
        ["approvals", "reject", rest @ ..] => command("approvals deny", rest),
        ["approvals", "list", rest @ ..] => command("approvals", rest),
        ["jobs", "list", rest @ ..] => command("jobs", rest),
        ["jobs", "kill", rest @ ..] => command("jobs stop", rest),
        ["help", "call", tool] => command("tools", &[*tool]),
        ["sessions", rest @ ..] => command("run sessions", rest),
        ["daemon", rest @ ..] => command("tasks daemon", rest),
        ["key", rest @ ..] => command("plugin key", rest),
        ["bundle", rest @ ..] => command("plugin bundle", rest),
        ["ceiling", rest @ ..] => command("config ceiling", rest),
        ["completions", rest @ ..] => command("generate completions", rest),
        ["login", rest @ ..] => command("mcp login", rest),
        _ => return None,
    };
    Some(tip)
}

fn has_operand(words: &[&str]) -> bool {
    words.first().is_some_and(|word| !word.starts_with('-'))
}

fn command(subcommand: &str, rest: &[&str]) -> String {
    let line = format!("toolhold {subcommand} {}", quoted(rest));
    line.trim_end().to_owned()
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    quoted.join(" ")
}

/// Answers the words after `toolhold config set`, such as `tools.call 60`, with the line for
/// `toolhold.toml`. Returns `None` for words other than a key with a value.
fn tip_to_set(rest: &[&str]) -> Option<String> {
    let (key, value) = match rest {
        [pair] => pair.split_once('=')?,
        [key, value] | [key, "=", value] => (*key, *value),
        _ => return None,
    };
    let is_toml = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value);
    let shown = if is_toml { value.to_owned() } else { toml(value) };
    let line = match key.rsplit_once('.') {
        Some((table, key)) => format!("[{table}] {key} = {shown}"),
        None => format!("{key} = {shown}"),
    };
    let pair = shell_word(&format!("{key}={value}"));
    Some(format!(
        "write `{line}` into your toolhold.toml (`toolhold config show` prints its path); for one \
         command: --set {pair}"
    ))
}

/// Corrects `rest`, the words after `toolhold call TOOL`, if they have an option with a name.
/// Otherwise, returns `None`. The first option becomes an argument of the tool. For `bash`, an
/// unknown option is probably meant for the command, so the tip quotes the whole command.
fn tip_for_call(tool: &str, rest: &[&str]) -> Option<String> {
    let index = rest.iter().position(|word| word.starts_with('-') && *word != "-")?;
    let option = rest[index].strip_prefix("--").unwrap_or_default();
    let name = option.split('=').next().unwrap_or_default();
    if tool == "bash" && !BASH_ARGUMENTS.contains(&name) {
        let line = shell_word(&rest.join(" "));
        return Some(format!("quote the command: toolhold call bash {line}"));
    }
    if name.is_empty() {
        return None;
    }

    let mut words = Vec::new();
    for word in &rest[..index] {
        // A command without a key is possible only without other arguments.
        let is_command = tool == "bash" && !word.contains('=');
        if is_command {
            words.push(shell_word(&format!("command={word}")));
        } else {
            words.push(shell_word(word));
        }
    }
    let next_word = rest.get(index + 1).copied();
    let value = value_of_option(option, next_word);
    words.push(shell_word(&format!("{name}={value}")));
    let arguments = words.join(" ");
    Some(format!("arguments are KEY=VALUE: toolhold call {} {arguments}", shell_word(tool)))
}

fn value_of_option<'w>(option: &'w str, next_word: Option<&'w str>) -> &'w str {
    if let Some((_, value)) = option.split_once('=') {
        return value;
    }
    // An option without a value switches something on.
    let Some(next_word) = next_word else { return "true" };
    let is_next_argument = next_word.starts_with('-') || next_word.contains('=');
    if is_next_argument { "true" } else { next_word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse_line;

    /// Parses the words of a line, in which quotes hold a word together.
    fn error_of(line: &str) -> String {
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            if index % 2 == 1 {
                words.push(OsString::from(part));
            } else {
                words.extend(part.split_whitespace().map(OsString::from));
            }
        }
        parse_line(words).expect_err("the line is wrong").to_string()
    }

    #[test]
    fn every_mistyped_command_has_its_tip() {
        for (line, tip) in [
            ("install x.wasm", "to install a plugin: toolhold plugin add x.wasm"),
            ("plugin install x.wasm", "to install a plugin: toolhold plugin add x.wasm"),
            ("uninstall notes", "to remove a plugin: toolhold plugin remove notes"),
            ("config set tools.call 60", "write `[tools] call = 60` into your toolhold.toml"),
            ("config set tools.call 60", "for one command: --set tools.call=60"),
            ("config set tools.autonomy=ask", "`[tools] autonomy = \"ask\"`"),
            ("config get tools.call", "to print every key with its value: toolhold config show"),
            ("call bash ls -la", "quote the command: toolhold call bash 'ls -la'"),
            ("call bash git log --oneline", "toolhold call bash 'git log --oneline'"),
            ("call bash 'ls' --timeout 5", "toolhold call bash command=ls timeout=5"),
            ("call bash 'ls -a' --timeout=5", "toolhold call bash 'command=ls -a' timeout=5"),
            ("call grep fn --hidden", "arguments are KEY=VALUE: toolhold call grep fn hidden=true"),
            ("mcp add github npx -y x", "toolhold mcp add github -- npx -y x"),
            (
                "plugin new foo",
                "toolhold plugin new foo --lang rust (or python, javascript, c, go)",
            ),
            ("plugin create foo", "to make a plugin: toolhold plugin new foo --lang rust (or"),
            ("plugin init foo --lang c", "to make a plugin: toolhold plugin new foo --lang c"),
            ("plugin init", "to make a plugin: toolhold plugin new NAME --lang rust"),
            ("approvals approve 1", "toolhold approvals allow 1"),
            ("approvals list", "toolhold approvals"),
            ("approvals list --json", "toolhold approvals --json"),
            ("jobs list", "toolhold jobs"),
            ("help call read", "toolhold tools read"),
            ("sessions list", "toolhold run sessions list"),
            ("daemon", "toolhold tasks daemon"),
            ("key new me", "toolhold plugin key new me"),
            ("bundle create x", "toolhold plugin bundle create x"),
            ("ceiling show", "toolhold config ceiling show"),
            ("completions bash", "toolhold generate completions bash"),
        ] {
            let error = error_of(line);
            assert!(
                error.contains(&format!("tip: {tip}")) || error.contains(tip),
                "{line}: {error}"
            );
            assert_eq!(error.matches("tip:").count(), 1, "{line}: {error}");
        }
    }

    #[test]
    fn other_mistakes_keep_the_guess_of_the_parser() {
        for line in ["cal", "plugin install --bad", "config shw", "call read --jsn=1 -"] {
            let error = error_of(line);
            assert!(!error.contains("to install"), "{line}: {error}");
        }
        // An option isn't taken for the name.
        let error = error_of("plugin new --language python");
        assert!(!error.contains("plugin new --language --lang"), "{error}");
        assert!(error_of("cal").contains("'call'"));
        assert!(error_of("call read --jsn=1 -").contains("'--json'"));
    }

    #[test]
    fn words_of_the_line_are_quoted_in_the_tip() {
        let error = error_of("install 'a b; rm'");
        assert!(error.contains("toolhold plugin add 'a b; rm'"), "{error}");
        let error = error_of("call grep fn '--qq;rm' 'b c'");
        assert!(error.contains("toolhold call grep fn 'qq;rm=b c'"), "{error}");
    }
}
