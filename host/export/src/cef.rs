//! Records in ArcSight's Common Event Format (CEF), one a line.
//!
//! The receiver splits a line at `|` and ` key=`, so a text of a record must not be able to end its
//! field or to begin another.

use serde_json::Value;
use toolhold_core::audit::LogRecord;
use toolhold_core::text::{cut, neutral_line};

use crate::record::{Fields, Severity};

/// Fields of a record that are texts, each with its key in CEF and that key's length limit.
const TEXTS: [(&str, &str, usize); 13] = [
    ("call", "externalId", 40),
    ("tool", "act", 63),
    ("asked", "act", 63),
    ("caller_id", "suser", 1023),
    ("front_end", "sproc", 1023),
    ("result", "outcome", 63),
    ("method", "requestMethod", 1023),
    ("url", "request", 1023),
    ("host", "dhost", 1023),
    ("error", "msg", 1023),
    ("note", "msg", 1023),
    ("approved_by", "duser", 1023),
    ("reason", "reason", 1023),
];

/// The custom texts, with their labels. The hash is `cs1`, the arguments are `cs4`.
const CUSTOM: [(&str, &str, &str); 5] = [
    ("session", "cs2", "session"),
    ("rule", "cs3", "rule"),
    ("plugin", "cs5", "plugin"),
    ("digest", "cs6", "digest"),
    ("adversarial_policy_decision", "flexString1", "adversarial_policy_decision"),
];

/// Bytes of a custom text.
const MAX_CUSTOM: usize = 4000;

/// The line of a record, with its line end.
pub(crate) fn line(record: &LogRecord) -> String {
    let fields = Fields::from_record(record);
    let kind = fields.kind();
    let result = fields.text("result").filter(|_| kind != "rollback");
    let class = result.as_ref().map_or_else(|| kind.clone(), |result| format!("{kind}:{result}"));
    let severity = match fields.severity() {
        Severity::Info if kind == "approval" => 4,
        Severity::Info => 2,
        Severity::Warning => 6,
        Severity::Error => 5,
        Severity::Fatal => 10,
    };
    let mut line = format!(
        "CEF:0|Toolhold|toolhold|{}|{}|{}|{severity}|",
        header(env!("CARGO_PKG_VERSION")),
        header(&class),
        header(&name(&kind, &fields)),
    );
    let mut extension = Extension { line: &mut line, is_first: true };
    extension.add("rt", &(fields.time_nanos() / 1_000_000).to_string());
    extension.add("cn1", &record.position.seq.to_string());
    extension.add("cn1Label", "seq");
    extension.add("cs1", &record.position.hash);
    extension.add("cs1Label", "hash");
    extension.add("cat", if record.intact { "intact" } else { "broken" });
    for (key, name, most) in TEXTS {
        if let Some(text) = fields.text(key) {
            extension.add(name, cut(&text, most));
        }
    }
    if fields.get("error").is_none()
        && let Some(code) = fields.text("error_category")
    {
        extension.add("reason", &code);
    }
    for (key, name, label) in CUSTOM {
        if let Some(text) = fields.text(key) {
            extension.add(name, cut(&text, MAX_CUSTOM));
            extension.add(&format!("{name}Label"), label);
        }
    }
    if let Some(arguments) = fields.get("arguments") {
        extension.add("cs4", cut(&neutral_line(&arguments.to_string()), MAX_CUSTOM));
        extension.add("cs4Label", "arguments");
    }
    if let Some(path) = path(&fields) {
        extension.add("filePath", cut(&path, 1023));
    }
    if let Some(address) = fields.text("address") {
        let address = cut(&address, 64);
        match address.contains(':') {
            true => {
                extension.add("c6a3", address);
                extension.add("c6a3Label", "address");
            }
            false => extension.add("dst", address),
        }
    }
    for (key, name, label) in
        [("duration_ms", "cn2", "duration_ms"), ("exit_code", "cn3", "exit_code")]
    {
        // CEF takes whole numbers here.
        if let Some(number) = fields.get(key).and_then(Value::as_f64) {
            extension.add(name, &format!("{:.0}", number.clamp(-1e15, 1e15)));
            extension.add(&format!("{name}Label"), label);
        }
    }
    for (key, name) in [("bytes", "out"), ("response_bytes", "in"), ("status", "flexNumber1")] {
        if let Some(number) = fields.get(key).and_then(Value::as_u64) {
            extension.add(name, &number.to_string());
        }
    }
    if fields.get("status").is_some() {
        extension.add("flexNumber1Label", "status");
    }
    if let Some(host) = crate::machine::host_name() {
        extension.add("dvchost", cut(&host, 100));
    }
    line.push('\n');
    line
}

/// What happened, for a person.
fn name(kind: &str, fields: &Fields<'_>) -> String {
    let result = fields.text("result").unwrap_or_default();
    match (kind, result.as_str()) {
        ("intent", _) => "Tool call begins".to_owned(),
        ("outcome", "success") => "Tool call succeeded".to_owned(),
        ("outcome", "blocked") => "Tool call refused".to_owned(),
        ("outcome", _) => "Tool call failed".to_owned(),
        ("approval", _) => "Approval answered".to_owned(),
        ("inquiry", _) => "Question of a tool".to_owned(),
        ("command", "blocked") => "Command of a tool refused".to_owned(),
        ("command", _) => "Command of a tool".to_owned(),
        ("egress", "blocked") => "Request refused".to_owned(),
        ("egress", _) => "Request".to_owned(),
        ("job_begin", _) => "Command in the background begins".to_owned(),
        ("job_end", "success") => "Command in the background succeeded".to_owned(),
        ("job_end", _) => "Command in the background failed".to_owned(),
        ("rollback", _) => "Tool call undone".to_owned(),
        _ => format!("Audit log: {kind}"),
    }
}

/// The first path that the call acts on.
fn path(fields: &Fields<'_>) -> Option<String> {
    let is_path = |subject: &&Value| subject["kind"] == "path";
    let subject = fields.get("subjects")?.as_array()?.iter().find(is_path)?;
    subject["text"].as_str().map(neutral_line)
}

/// A text of the header, where `|` ends a field.
fn header(text: &str) -> String {
    escaped(text, '|')
}

/// The last part of a line: `key=value key=value`.
struct Extension<'a> {
    line: &'a mut String,
    is_first: bool,
}

impl Extension<'_> {
    fn add(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        if !std::mem::take(&mut self.is_first) {
            self.line.push(' ');
        }
        self.line.push_str(key);
        self.line.push('=');
        // A parser that splits at ` key=` needs no more: `=` in a value is escaped.
        self.line.push_str(escaped(value, '=').trim());
    }
}

/// A text on one line, in which a backslash comes before each `special` and each backslash.
fn escaped(text: &str, special: char) -> String {
    let text = neutral_line(text);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\\' || c == special {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use toolhold_core::audit::LogPosition;

    use super::*;

    fn record(value: &Value) -> LogRecord {
        LogRecord {
            line: value.to_string().into_bytes(),
            position: LogPosition { seq: 7, hash: "ab".repeat(32) },
            previous: "00".repeat(32),
            intact: true,
            missing: 0,
        }
    }

    /// Reads a line as a receiver does, by the rules of the format: unescaped `|` ends a field of
    /// the header, and a word before an unescaped `=` is a key.
    fn parse(line: &str) -> (Vec<String>, BTreeMap<String, String>) {
        let (mut header, mut field, mut rest) = (Vec::new(), String::new(), line.chars());
        while header.len() < 7 {
            match rest.next().expect("the header is whole") {
                '\\' => field.extend(rest.next()),
                '|' => header.push(std::mem::take(&mut field)),
                c => field.push(c),
            }
        }
        let (mut keys, mut text) = (BTreeMap::new(), String::new());
        let (mut key, mut last_space) = (None::<String>, 0);
        while let Some(c) = rest.next() {
            match c {
                '\\' => text.extend(rest.next()),
                '=' => {
                    let next = text.split_off(last_space).trim().to_owned();
                    if let Some(key) = key.replace(next) {
                        let before = keys.insert(key, std::mem::take(&mut text).trim().to_owned());
                        assert_eq!(before, None, "a key comes once");
                    }
                    (text, last_space) = (String::new(), 0);
                }
                ' ' => {
                    last_space = text.len();
                    text.push(c);
                }
                c => text.push(c),
            }
        }
        keys.insert(key.expect("there is a key"), text.trim().to_owned());
        (header, keys)
    }

    #[test]
    fn record_has_its_header_and_its_place_in_the_chain() {
        let line = line(&record(&json!({
            "ts": "2026-03-01T12:00:00.000001Z", "kind": "outcome", "call": "c-1", "tool": "read", "result": "blocked",
            "subjects": [{ "kind": "path", "access": "read", "text": "/w/.env" }], "arguments": { "path": "/w/.env" },
            "rule": "deny_read = \"**/.env\"", "duration_ms": 1.5, "bytes": 10, "session": "s", "error_category": "policy_blocked"
        })));
        assert!(line.starts_with("CEF:0|Toolhold|toolhold|"), "{line}");
        let (header, keys) = parse(line.trim_end());
        assert_eq!(header[4..], ["outcome:blocked", "Tool call refused", "6"]);
        for (key, expected) in [
            ("rt", "1772366400000"),
            ("cn1", "7"),
            ("cn1Label", "seq"),
            ("cs1", &*"ab".repeat(32)),
            ("act", "read"),
            ("externalId", "c-1"),
            ("filePath", "/w/.env"),
            ("cs3", "deny_read = \"**/.env\""),
            ("cs4", "{\"path\":\"/w/.env\"}"),
            ("reason", "policy_blocked"),
            ("cn2", "2"),
            ("out", "10"),
        ] {
            assert_eq!(keys.get(key).map(String::as_str), Some(expected), "{key} in {line}");
        }
    }

    #[test]
    fn hostile_text_stays_in_its_field() {
        let hostile = "x|y\\|z a=b act=fake cn1=1 \r\nCEF:0|Evil|\u{202e}\u{9b}\u{0}\u{2028}end\\";
        let value = json!({
            "ts": hostile, "kind": hostile, "result": hostile, "tool": hostile, "call": hostile, "session": hostile,
            "rule": hostile, "error": hostile, "url": hostile, "host": hostile, "arguments": { hostile: hostile },
            "subjects": [{ "kind": "path", "text": hostile }, 5], "address": hostile, "duration_ms": -1e300, "bytes": -5,
        });
        let line = line(&record(&value));
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(line.trim_end().chars().all(|c| !c.is_control()), "{line:?}");
        assert!(!line.contains(['\u{202e}', '\u{2028}', '\u{9b}']), "{line:?}");
        let (header, keys) = parse(line.trim_end());
        assert_eq!((header[1].as_str(), header[6].as_str()), ("Toolhold", "2"), "{line}");
        assert_eq!(keys["cn1"], "7");
        assert!(keys["act"].starts_with("x|y\\|z a=b act=fake"), "{keys:?}");
        assert!(keys["cs4"].contains("cn1=1"), "{keys:?}");
        let known = [
            "act",
            "c6a3",
            "c6a3Label",
            "cat",
            "cn1",
            "cn1Label",
            "cn2",
            "cn2Label",
            "cs1",
            "cs1Label",
            "cs2",
            "cs2Label",
            "cs3",
            "cs3Label",
            "cs4",
            "cs4Label",
            "dhost",
            "dvchost",
            "externalId",
            "filePath",
            "msg",
            "outcome",
            "request",
            "rt",
        ];
        let unknown: Vec<_> = keys.keys().filter(|key| !known.contains(&key.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {line}");
    }

    #[test]
    fn long_texts_are_cut_and_broken_records_are_severe() {
        let long = "é".repeat(100_000);
        let value = json!({ "kind": "outcome", "error": long, "arguments": long, "url": long, "tool": long });
        let broken = LogRecord { intact: false, ..record(&value) };
        let line = line(&broken);
        assert!(line.len() < 10_000, "{}", line.len());
        let (header, keys) = parse(line.trim_end());
        assert_eq!((header[6].as_str(), keys["cat"].as_str()), ("10", "broken"));
        let not_json = LogRecord { line: b"\xff{".to_vec(), ..record(&json!({})) };
        assert!(super::line(&not_json).starts_with("CEF:0|Toolhold|toolhold|"));
    }
}
