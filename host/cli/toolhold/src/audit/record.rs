//! Shows a record of the audit log to people, without control characters, because the log may
//! contain untrusted text.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;
use toolhold_core::text::{counted, cut, neutral_line};

use crate::shown;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

/// The most bytes of arguments or of a URL on a line.
const MAX_ARGUMENTS: usize = 100;

/// The most bytes of a request's error.
const MAX_REASON: usize = 200;

pub(super) fn line(out: &mut impl Write, record: &Value) -> io::Result<()> {
    let kind = field(record, "kind");
    let time = field(record, "ts");
    if matches!(kind.as_str(), "egress" | "request") {
        return request(out, record);
    }
    if !matches!(kind.as_str(), "intent" | "outcome" | "approval" | "inquiry" | "command") {
        // All other records are about the log itself.
        let note = match record["note"].as_str() {
            Some(note) => format!(": {}", neutral_line(note)),
            None => String::new(),
        };
        return writeln!(out, "{FAINT}{time}  {kind}{note}{FAINT:#}");
    }

    let (word, style) = match (kind.as_str(), field(record, "result").as_str()) {
        ("intent", _) => ("begins".to_owned(), FAINT),
        ("command", "allowed") => (format!("command of {}", field(record, "chosen_by")), FAINT),
        ("command", _) => (format!("refused to {}", field(record, "chosen_by")), WARNING),
        ("inquiry", _) if record["answer"].is_null() => ("asks".to_owned(), STRONG),
        ("inquiry", _) => (field(record, "answer"), STRONG),
        ("approval", _) => {
            (format!("{} by {}", field(record, "answer"), field(record, "approved_by")), STRONG)
        }
        (_, "success") => ("success".to_owned(), GOOD),
        (_, "blocked") => (field(record, "error_category"), WARNING),
        (_, _) => (field(record, "error_category"), BAD),
    };
    let tool = if record["tool"].is_string() {
        field(record, "tool")
    } else {
        format!("{} (no such tool)", field(record, "asked"))
    };
    let arguments = neutral_line(&record["arguments"].to_string());
    let short = cut(&arguments, MAX_ARGUMENTS);
    let more = if short.len() < arguments.len() { "…" } else { "" };
    let duration = duration(record);
    let call = field(record, "call");
    writeln!(
        out,
        "{FAINT}{time}{FAINT:#}  {style}{word}{style:#}  {STRONG}{tool}{STRONG:#} {short}{more}\
         {duration}  {FAINT}{call}{FAINT:#}"
    )
}

fn duration(record: &Value) -> String {
    let Some(millis) = record["duration_ms"].as_f64() else { return String::new() };
    // `from_secs_f64` panics if the number is negative or too large.
    let duration = Duration::from_secs_f64(millis.clamp(0.0, 1e12) / 1e3);
    format!("  {}", shown::time(duration))
}

/// Writes the record of a network request on one line. If a call makes many requests, only the
/// first have records of their own. The last record then has the number of the others, in
/// `more_requests`.
fn request(out: &mut impl Write, record: &Value) -> io::Result<()> {
    let time = field(record, "ts");
    if let Some(more) = record["more_requests"].as_u64() {
        let more = counted(more, "more request");
        let call = field(record, "call");
        return writeln!(out, "{FAINT}{time}  {more}  {call}{FAINT:#}");
    }
    let (result, style) = match (record["result"].as_str(), record["status"].as_u64()) {
        (Some("success"), Some(status)) => (status.to_string(), FAINT),
        (Some("blocked"), _) => ("blocked".to_owned(), WARNING),
        _ => ("failed".to_owned(), BAD),
    };
    let reason = match record["reason"].as_str() {
        Some(reason) => format!(" ({})", neutral_line(cut(reason, MAX_REASON))),
        None => String::new(),
    };
    let method = field(record, "method");
    let whole_url = field(record, "url");
    let url = cut(&whole_url, MAX_ARGUMENTS);
    let duration = duration(record);
    // A request outside a call has no call ID, so its purpose is shown.
    let origin_key = if record["call"].is_null() { "purpose" } else { "call" };
    let origin = field(record, origin_key);
    writeln!(
        out,
        "{FAINT}{time}{FAINT:#}  {style}{result}{style:#}  {method} {url}{reason}{duration}  \
         {FAINT}{origin}{FAINT:#}"
    )
}

fn field(record: &Value, key: &str) -> String {
    neutral_line(record[key].as_str().unwrap_or_default())
}

pub(super) fn write_fields(out: &mut impl Write, record: &Value) -> io::Result<()> {
    let Some(fields) = record.as_object() else { return Ok(()) };
    for (key, value) in fields {
        let text = match value.as_str() {
            Some(text) => neutral_line(text),
            None => neutral_line(&value.to_string()),
        };
        writeln!(out, "{FAINT}{:16}{FAINT:#} {text}", neutral_line(key))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).expect("a vector takes everything");
        anstream::adapter::strip_str(&String::from_utf8_lossy(&out)).to_string()
    }

    #[test]
    fn record_is_one_line_without_control_characters() {
        let record = json!({
            "ts": "T", "kind": "outcome", "call": "c-1", "tool": "read\n\u{202e}", "arguments": { "path": "a\u{9b}b".repeat(100) },
            "result": "blocked", "error_category": "policy_blocked", "duration_ms": 1.5
        });
        let line = printed(|out| line(out, &record));
        assert!(
            line.starts_with("T  policy_blocked  read \u{fffd} {\"path\":\"a\u{fffd}b")
                && line.ends_with("…  1.5 ms  c-1\n"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
        let request = json!({
            "ts": "T", "kind": "egress", "call": "c-1", "method": "GET", "url": "https://a.example/\n\u{202e}", "result": "blocked",
            "reason": "denied_domains = \"a.example\"\u{9b}"
        });
        let line = printed(|out| super::line(out, &request));
        assert_eq!(
            line,
            "T  blocked  GET https://a.example/ \u{fffd} (denied_domains = \"a.example\"\u{fffd})  c-1\n"
        );
        let own = json!({
            "ts": "T", "kind": "request", "purpose": "plugin\n", "method": "GET", "url": "https://a.example/\u{202e}", "result": "success",
            "status": 200, "duration_ms": 1.5
        });
        let line = printed(|out| super::line(out, &own));
        assert_eq!(line, "T  200  GET https://a.example/\u{fffd}  1.5 ms  plugin \n");
        let strange = printed(|out| super::line(out, &json!({ "kind": 3, "duration_ms": -1e300 })));
        assert_eq!(strange.lines().count(), 1);
        let whole = printed(|out| write_fields(out, &record));
        assert!(
            whole.contains("kind             outcome\n") && !whole.contains('\u{9b}'),
            "{whole}"
        );
    }
}
