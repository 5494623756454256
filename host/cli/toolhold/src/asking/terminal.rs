//! Asks for approval at the terminal.

use std::io::{BufRead, Write};

use toolhold_core::{Always, Question, Reply, Scope, WiderRules};

use super::shown;
use crate::ask::Dialogue;
use crate::error::Error;

/// Asks until the answer is valid. Enter denies the call. `by` is the approver's name in the audit
/// log.
pub(crate) fn ask_until_answered<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    question: &Question,
    by: &str,
) -> Result<Reply, Error> {
    dialogue.print(shown::question(question).trim_end())?;
    let has_always = matches!(question.always, Always::Writes(_));
    let choice = if has_always { "[y/session/always/N]" } else { "[y/session/N]" };
    loop {
        let answer = dialogue.ask(&format!("Allow it? {choice}"))?;
        if let Some(reason) = reason_after_no(&answer) {
            return Ok(Reply::No { by: by.to_owned(), reason: reason.to_owned() });
        }
        if let Some(scope) = scope_of(&answer, question) {
            return Ok(Reply::Yes { scope, by: by.to_owned() });
        }
        if answer.trim().is_empty() {
            return Ok(Reply::No { by: by.to_owned(), reason: String::new() });
        }
        let approved = if question.host.is_some() { "this host" } else { "the same call" };
        let always = if has_always { " always," } else { "" };
        dialogue.print(&format!(
            "  Please answer y (this call), session ({approved} in this session),{always} or n. \
             You can add a reason: no, REASON."
        ))?;
    }
}

/// Returns the scope of an approval such as `session tool`. Returns `None` for any other answer,
/// and for an approval that the question doesn't offer.
fn scope_of(answer: &str, question: &Question) -> Option<Scope> {
    let lower = answer.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let wider_approvals = question.wider.as_ref();
    let has_wider = wider_approvals.is_some();
    let always_tool = wider_approvals.and_then(WiderRules::tool);
    let always_all = wider_approvals.and_then(WiderRules::all);
    match words[..] {
        ["y" | "yes"] => Some(Scope::Once),
        ["s" | "session"] => Some(Scope::Session),
        ["s" | "session", "tool"] if has_wider => Some(Scope::SessionTool),
        ["s" | "session", "all"] if has_wider => Some(Scope::SessionSource),
        // These answers write a permanent rule, so a single letter isn't enough.
        ["always"] if matches!(question.always, Always::Writes(_)) => Some(Scope::Always),
        ["always", "tool"] if always_tool.is_some() => Some(Scope::AlwaysTool),
        ["always", "all"] if always_all.is_some() => Some(Scope::AlwaysSource),
        _ => None,
    }
}

/// Returns the reason in a denial such as `no, use the other file`, or `None` if the answer isn't a
/// denial.
fn reason_after_no(answer: &str) -> Option<&str> {
    const SEPARATORS: [char; 3] = [' ', ',', ':'];
    let trimmed = answer.trim();
    let word_end = trimmed.find(SEPARATORS).unwrap_or(trimmed.len());
    let (word, reason) = trimmed.split_at(word_end);
    if word.eq_ignore_ascii_case("n") || word.eq_ignore_ascii_case("no") {
        Some(reason.trim_start_matches(SEPARATORS))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn question(always: Value) -> Question {
        let decision = json!({ "verdict": "ask", "gate": "permissions", "rule": "a rule", "place": "a place", "remedy": "" });
        let subject = json!({ "kind": "path", "access": "write", "text": "/w/real" });
        let question = json!({
            "id": "1", "session": "s", "fingerprint": "0".repeat(64), "tool": "write", "provider": "file", "subjects": [subject],
            "arguments": { "path": "/w/link", "content": "one\ntwo\u{9b}31m", "list": [1, "\u{202e}"] }, "decision": decision,
            "attachments": [{ "media_type": "text/plain", "bytes": 3, "sha256": "ab", "text": "att" }], "always": always,
        });
        serde_json::from_value(question).expect("it is a question")
    }

    #[track_caller]
    fn reply(always: Value, input: &str) -> Option<Reply> {
        ask_until_answered(
            &mut Dialogue::between(input.as_bytes(), Vec::new()),
            &question(always),
            "terminal",
        )
        .ok()
    }

    #[test]
    fn invalid_answer_is_asked_again_and_end_of_input_is_no_answer() {
        let (rule, none) = (
            json!({ "writes": { "tool": "write", "pattern": "/w/real", "file": "/c/toolhold.toml" } }),
            json!({ "unavailable": "no" }),
        );
        let yes = |scope| Some(Reply::Yes { scope, by: "terminal".to_owned() });
        let because =
            |reason: &str| Some(Reply::No { by: "terminal".to_owned(), reason: reason.to_owned() });
        let no = because("");
        for (input, expected) in [
            ("y\n", yes(Scope::Once)),
            (" Session \n", yes(Scope::Session)),
            ("\n", no.clone()),
            ("sure\nn\n", no.clone()),
            ("No, use the other file\n", because("use the other file")),
            ("n because it is mine\n", because("because it is mine")),
            ("none of it\n\n", no.clone()),
        ] {
            assert_eq!(reply(rule.clone(), input), expected, "{input:?}");
            assert_eq!(reply(none.clone(), input), expected, "{input:?}");
        }
        assert_eq!(reply(rule.clone(), "always\n"), yes(Scope::Always));
        assert_eq!(reply(none, "always\nn\n"), no, "what is not offered is no answer");
        assert_eq!(reply(rule.clone(), ""), None);
        assert_eq!(reply(rule, "sure"), None);
    }

    #[test]
    fn wider_answers_are_taken_only_if_they_are_offered() {
        let rule =
            json!({ "tool": "git__*", "pattern": "*", "is_glob": true, "file": "/c/t.toml" });
        let offered = |wider: Value| Question {
            wider: serde_json::from_value(wider).expect("it is an offer"),
            ..question(json!({ "unavailable": "no" }))
        };
        let all = offered(json!({ "all": rule }));
        let none = offered(Value::Null);
        for (answer, scope) in [
            ("session tool", Some(Scope::SessionTool)),
            ("Session  All", Some(Scope::SessionSource)),
            ("always all", Some(Scope::AlwaysSource)),
            ("always tool", None),
            ("always", None),
            ("all", None),
            ("y all", None),
        ] {
            assert_eq!(scope_of(answer, &all), scope, "{answer}");
            assert_eq!(scope_of(answer, &none), None, "{answer}");
        }
    }

    #[test]
    fn question_on_a_terminal_shows_the_action_without_controls() {
        let shown = shown::question(&question(
            json!({ "writes": { "tool": "write", "pattern": "/w/real", "file": "/c/toolhold.toml" } }),
        ));
        assert_eq!(
            anstream::adapter::strip_str(&shown).to_string(),
            "write needs approval (file)\n  acts on: writes \"/w/real\"\n  path: \"/w/link\"\n  list: [1, \"\\U0000202E\"]\n  \
             content:\n  │ one\n  │ two\\u{9b}31m\n  attachment 0: text/plain, 3 bytes, SHA-256 ab\n  attachment 0:\n  │ att\n  \
             why: a rule, a place\n  always writes into /c/toolhold.toml:\n  │ [[tools.permissions.write]]\n  │ pattern = \"/w/real\"\n  │ exact = true\n  │ action = \"allow\"\n"
        );
    }
}
