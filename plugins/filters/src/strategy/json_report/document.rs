//! Shortens reports that are one JSON document: of jest, vitest, mocha, Playwright,
//! pytest-json-report and ESLint.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::reports_failure;
use crate::text;

/// A program whose reports are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    EsLint,
    Jest,
    Mocha,
    Playwright,
    Pytest,
}

fn kind(report: &Value) -> Option<Kind> {
    match report {
        Value::Array(files) => {
            let are_files = files
                .iter()
                .all(|file| file["filePath"].is_string() && file["messages"].is_array());
            (!files.is_empty() && are_files).then_some(Kind::EsLint)
        }
        Value::Object(report) => {
            if has_all(report, &["testResults", "numFailedTests"]) {
                Some(Kind::Jest)
            } else if has_all(report, &["tests", "summary"])
                && (report.contains_key("exitcode") || report.contains_key("root"))
            {
                Some(Kind::Pytest)
            } else if has_all(report, &["stats", "suites", "config"]) {
                Some(Kind::Playwright)
            } else if has_all(report, &["stats", "failures", "passes"]) {
                Some(Kind::Mocha)
            } else {
                None
            }
        }
        _ => None,
    }
}

fn has_all(report: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter().all(|key| report.contains_key(*key))
}

/// The text with a shorter document. `None` if there is no known document.
pub(super) fn shorten(before: &[&str], rest: &[&str]) -> Option<String> {
    let rest = rest.join("\n");
    let mut stream = serde_json::Deserializer::from_str(&rest).into_iter::<Value>();
    let mut report = stream.next()?.ok()?;
    let after = &rest[stream.byte_offset()..];
    let kind = kind(&report)?;
    let mut pruner = Pruner { kind, left_out: 0 };
    pruner.prune(&mut report);
    let mut out = String::with_capacity(rest.len() / 4);
    before.iter().for_each(|line| text::push_line(&mut out, line));
    write_lines(&mut out, &report);
    if pruner.left_out > 0 {
        let entries = if pruner.left_out == 1 { "entry" } else { "entries" };
        let _ = writeln!(out, "... ({} {entries} without failures left out) ...", pruner.left_out);
    }
    let after = after.trim_start_matches('\n');
    if !after.is_empty() {
        text::push_line(&mut out, after);
    }
    Some(out)
}

/// Writes each value of the document, and each entry of its lists, in a line of its own.
fn write_lines(out: &mut String, report: &Value) {
    match report {
        Value::Array(entries) => write_list(out, entries),
        Value::Object(fields) => {
            out.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                let comma = if at > 0 { ",\n" } else { "" };
                let _ = write!(out, "{comma}{}:", Value::from(key.as_str()));
                match value {
                    Value::Array(entries) if entries.len() > 1 => write_list(out, entries),
                    value => {
                        let _ = write!(out, "{value}");
                    }
                }
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
    out.push('\n');
}

fn write_list(out: &mut String, entries: &[Value]) {
    out.push('[');
    for (at, entry) in entries.iter().enumerate() {
        let _ = write!(out, "{}\n{entry}", if at > 0 { "," } else { "" });
    }
    out.push(']');
}

struct Pruner {
    kind: Kind,
    left_out: usize,
}

impl Pruner {
    /// Leaves out entries of lists that passed, and fields without use. The depth is bounded by
    /// that of the parser.
    fn prune(&mut self, value: &mut Value) {
        match value {
            Value::Array(entries) => {
                let before = entries.len();
                entries.retain(|entry| !self.has_passed(entry));
                self.left_out += before - entries.len();
                entries.iter_mut().for_each(|entry| self.prune(entry));
                // A suite of Playwright without tests.
                entries.retain(|entry| {
                    self.kind != Kind::Playwright
                        || !["title", "file"].iter().all(|key| entry.get(*key).is_some())
                        || ["specs", "suites", "tests", "ok"]
                            .iter()
                            .any(|key| entry.get(*key).is_some())
                });
            }
            Value::Object(fields) => {
                let kind = self.kind;
                if kind == Kind::Mocha {
                    self.left_out +=
                        fields.get("passes").and_then(Value::as_array).map_or(0, Vec::len);
                }
                drop_doubled(kind, fields);
                fields.retain(|key, value| !is_useless(kind, key, value));
                fields.values_mut().for_each(|value| self.prune(value));
                // Nothing that failed is in a list that is empty now.
                fields
                    .retain(|_, value| value.as_array().is_none_or(|entries| !entries.is_empty()));
            }
            Value::String(text) => {
                if let Some(shorter) = super::shorten_text(text) {
                    *text = shorter;
                }
            }
            _ => {}
        }
    }

    /// Whether an entry of a list passed, and nothing in it failed.
    fn has_passed(&self, entry: &Value) -> bool {
        let Value::Object(fields) = entry else { return false };
        let passed = match self.kind {
            Kind::EsLint => {
                fields.get("messages").and_then(Value::as_array).is_some_and(Vec::is_empty)
            }
            // A passing test of mocha has an empty error.
            Kind::Mocha => {
                fields.contains_key("fullTitle")
                    && fields.get("err").and_then(Value::as_object).is_some_and(Map::is_empty)
            }
            Kind::Playwright => fields.get("ok") == Some(&Value::Bool(true)),
            Kind::Jest | Kind::Pytest => ["status", "outcome"].iter().any(|key| {
                let status = fields.get(*key).and_then(Value::as_str);
                matches!(status, Some("passed" | "skipped" | "pending" | "todo" | "disabled"))
            }),
        };
        passed && !has_failure(entry)
    }
}

/// Whether anything in a value says that it failed.
fn has_failure(value: &Value) -> bool {
    match value {
        Value::String(text) => reports_failure(text),
        Value::Array(entries) => entries.iter().any(has_failure),
        Value::Object(fields) => fields.iter().any(|(key, value)| match (key.as_str(), value) {
            // The names of tests don't say how they ended.
            (
                "title" | "fullTitle" | "fullName" | "name" | "nodeid" | "file" | "filePath",
                Value::String(_),
            ) => false,
            ("keywords" | "ancestorTitles" | "source", _) => false,
            ("status" | "outcome" | "state", Value::String(status)) => matches!(
                status.as_str(),
                "failed"
                    | "error"
                    | "broken"
                    | "timedOut"
                    | "interrupted"
                    | "unexpected"
                    | "flaky"
                    | "xpassed"
            ),
            ("failureMessages" | "errors", Value::Array(list)) => !list.is_empty(),
            ("errorCount" | "fatalErrorCount" | "warningCount", count) => count != &Value::from(0),
            ("crash" | "longrepr" | "error", value) => !value.is_null(),
            (_, value) => has_failure(value),
        }),
        _ => false,
    }
}

/// Whether a field says nothing about a failure.
fn is_useless(kind: Kind, key: &str, value: &Value) -> bool {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    is_empty
        || match kind {
            Kind::EsLint => matches!(
                key,
                "source"
                    | "output"
                    | "fix"
                    | "suggestions"
                    | "usedDeprecatedRules"
                    | "messageId"
                    | "nodeType"
                    | "suppressedMessages"
                    | "endLine"
                    | "endColumn"
            ),
            Kind::Jest => matches!(
                key,
                "ancestorTitles"
                    | "failureDetails"
                    | "snapshot"
                    | "coverageMap"
                    | "startTime"
                    | "endTime"
                    | "startAt"
                    | "retryReasons"
                    | "invocations"
                    | "numPassingAsserts"
                    | "title"
                    | "meta"
                    | "tags"
                    | "duration"
            ),
            Kind::Pytest => {
                matches!(key, "keywords" | "environment" | "created" | "duration")
                    || matches!(key, "setup" | "teardown") && !has_failure(value)
            }
            // Every failed test is listed among the failures too.
            Kind::Mocha => matches!(key, "tests" | "passes" | "speed" | "currentRetry"),
            Kind::Playwright => matches!(
                key,
                "config"
                    | "workerIndex"
                    | "parallelIndex"
                    | "shardIndex"
                    | "startTime"
                    | "body"
                    | "id"
                    | "projectId"
            ),
        }
}

/// Leaves out what another field says too: the message of a file in jest repeats those of its
/// tests, and pytest's report of a failure shows its traceback.
fn drop_doubled(kind: Kind, fields: &mut Map<String, Value>) {
    if kind == Kind::Pytest && fields.get("longrepr").is_some_and(Value::is_string) {
        fields.shift_remove("traceback");
    }
    let tests = fields.get("assertionResults").and_then(Value::as_array);
    let has_messages = tests.into_iter().flatten().any(|test| {
        test["failureMessages"].as_array().is_some_and(|messages| !messages.is_empty())
    });
    if kind == Kind::Jest && has_messages {
        fields.shift_remove("message");
    }
}
