//! Makes OTLP logs of the records of the audit.

use std::time::SystemTime;

use serde_json::Value as Json;
use toolhold_core::audit::LogRecord;

use super::encoding::{Message, Value};
use super::{any, attribute, resource, scope, text};
use crate::names;
use crate::record::{Fields, Severity};
use crate::time::nanos;

/// Returns a request with records: `ExportLogsServiceRequest`. A file has the same message under
/// the name `LogsData`.
pub(crate) fn request(records: &[LogRecord], instance: &str) -> Message {
    let now = nanos(SystemTime::now());
    let logs = records.iter().map(|record| log(record, now)).collect();
    let scope_logs = Message::new().with_message(1, "scope", scope(names::AUDIT_SCOPE)).with_all(
        2,
        "logRecords",
        logs,
    );
    let resource_logs = Message::new().with_message(1, "resource", resource(instance)).with_all(
        2,
        "scopeLogs",
        vec![scope_logs],
    );
    Message::new().with_all(1, "resourceLogs", vec![resource_logs])
}

/// Makes the log entry of one record. Its body is the unchanged line, so that a receiver can
/// compute the hash.
fn log(record: &LogRecord, now: u64) -> Message {
    let fields = Fields::from_record(record);
    let (number, severity) = match fields.severity() {
        Severity::Info => (9, "INFO"),
        Severity::Warning => (13, "WARN"),
        Severity::Error => (17, "ERROR"),
        Severity::Fatal => (21, "FATAL"),
    };
    Message::new()
        .with(1, "timeUnixNano", Value::Fixed(fields.time_nanos()))
        .with(11, "observedTimeUnixNano", Value::Fixed(now))
        .with(2, "severityNumber", Value::Number(number))
        .with_text(3, "severityText", severity)
        .with_message(5, "body", any(Value::Text(fields.line().into_owned())))
        .with_all(6, "attributes", attributes(record, &fields))
        .with_text(12, "eventName", format!("{}{}", names::RECORD, fields.kind()))
}

fn attributes(record: &LogRecord, fields: &Fields<'_>) -> Vec<Message> {
    let mut attributes = vec![
        attribute(names::SEQ, Value::Int(i64::try_from(record.position.seq).unwrap_or(i64::MAX))),
        text(names::HASH, &*record.position.hash),
        text(names::PREVIOUS, &*record.previous),
        text(names::CHAIN, if record.intact { "intact" } else { "broken" }),
    ];
    if record.missing > 0 {
        let missing = i64::try_from(record.missing).unwrap_or(i64::MAX);
        attributes.push(attribute(names::MISSING, Value::Int(missing)));
    }
    for (key, name) in [("tool", names::TOOL), ("call", names::CALL_ID)] {
        if let Some(value) = fields.text(key) {
            attributes.push(text(name, value));
        }
    }
    // The body has all fields in their original form. The attributes are for searching.
    for (key, value) in fields.entries() {
        if matches!(key, "seq" | "hash" | "ts") {
            continue;
        }
        if let Some(value) = plain_value(value) {
            attributes.push(attribute(format!("{}{key}", names::RECORD), value));
        }
    }
    attributes
}

/// Converts a JSON value. Returns `None` for `null`, lists and objects.
fn plain_value(value: &Json) -> Option<Value> {
    match value {
        Json::String(text) => Some(Value::Text(toolhold_core::text::neutral_line(text))),
        Json::Bool(flag) => Some(Value::Bool(*flag)),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Some(Value::Int(integer)),
            None => number.as_f64().map(Value::Double),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}
