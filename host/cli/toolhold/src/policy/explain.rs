//! `toolhold policy explain`: shows the decision on an earlier call, as the audit log has it.

use std::fmt::Write as _;
use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::Trail;
use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;

use crate::error::Error;
use crate::exit::Exit;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

pub(super) fn run(id: &str, json: bool) -> Result<Exit, Error> {
    let trail = Trail::open(&Folders::from_environment()?)?;
    let records = trail.of_call(id)?;
    // The record `outcome` has the most fields, but an interrupted call has no `outcome`.
    let outcome = records.iter().rfind(|record| record["kind"] == json!("outcome"));
    let Some(last) = outcome.or(records.last()) else {
        let id = neutral_line(id);
        return Err(Error::Usage(format!(
            "the audit log has no call {id}; `toolhold audit tail` lists calls with their ids"
        )));
    };
    if json {
        let object = json!({ "decision": decision_as_json(last), "records": records });
        writeln!(std::io::stdout().lock(), "{object:#}")?;
    } else {
        write!(anstream::stdout().lock(), "{}", text(last, &records))?;
    }
    Ok(Exit::Success)
}

/// Returns the fields of a record about the decision.
fn decision_as_json(record: &Value) -> Value {
    let mut fields = serde_json::Map::new();
    for key in [
        "verdict",
        "gate",
        "rule",
        "place",
        "approved_by",
        "approval_scope",
        "adversarial_policy_decision",
    ] {
        if let Some(value) = record.get(key) {
            fields.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(fields)
}

/// Describes the decision on a call and the call's result. `records` are all records of the call,
/// and `record` is the record of its outcome, or else its last record.
fn text(record: &Value, records: &[Value]) -> String {
    // If the tool is unknown, the record only has the requested name.
    let tool = field(record, "tool").or_else(|| field(record, "asked")).unwrap_or_default();
    let when = field(record, "ts").unwrap_or_default();
    let (style, word) = match record["verdict"].as_str() {
        Some("allow") => (GOOD, "allowed"),
        Some("ask") => (WARNING, "held for approval"),
        Some(_) => (BAD, "denied"),
        None => (WARNING, "not decided"),
    };
    let mut text = format!("{when}: the call of `{tool}` was {style}{word}{style:#}");
    match field(record, "gate") {
        Some(gate) => text += &format!(" at the gate `{gate}`.\n"),
        None => text += ", because the call was invalid.\n",
    }
    add_line(&mut text, "rule", field(record, "rule"));
    add_line(&mut text, "place", field(record, "place"));
    add_line(&mut text, "a model said", field(record, "adversarial_policy_decision"));
    add_line(&mut text, "a person", approval(record, records));
    add_line(&mut text, "arguments", Some(neutral_line(&record["arguments"].to_string())));
    let result = match record["result"].as_str() {
        Some("success") => Some("success".to_owned()),
        Some(_) => field(record, "error").or_else(|| field(record, "error_category")),
        None => Some("unknown: only the start of the call is recorded".to_owned()),
    };
    add_line(&mut text, "result", result);
    let _ = writeln!(
        text,
        "{FAINT}`toolhold policy check` shows the current decision about such a call.{FAINT:#}"
    );
    text
}

/// Describes the person's answer about a call, if it is recorded. `records` are all records of the
/// call, and `last` is the record of its outcome, or else its last record.
fn approval(last: &Value, records: &[Value]) -> Option<String> {
    for record in records.iter().rev() {
        if let Some(answer) = field(record, "answer")
            && let Some(by) = field(record, "approved_by")
        {
            return Some(format!("said {answer} ({by})"));
        }
    }
    // The person approved this call during an earlier call, so no record of this call has an
    // answer.
    let by = field(last, "approved_by")?;
    Some(format!("had approved the call before ({by})"))
}

fn field(record: &Value, key: &str) -> Option<String> {
    record[key].as_str().map(neutral_line)
}

fn add_line(text: &mut String, name: &str, value: Option<String>) {
    if let Some(value) = value {
        let _ = writeln!(text, "  {STRONG}{name}{STRONG:#}: {value}");
    }
}
