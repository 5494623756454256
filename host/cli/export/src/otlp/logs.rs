//! Makes OTLP logs from audit records.

use std::time::SystemTime;

use serde_json::Value as Json;
use toolhold_core::audit::LogRecord;
use toolhold_core::text::neutral_line;

use super::encoding::{Message, Value};
use super::{any, attribute, count, resource, scope, text, texts};
use crate::names;
use crate::record::{Fields, Severity};
use crate::time::nanos;

/// Makes an `ExportLogsServiceRequest`, or `LogsData` for a file, which is the same message. OTLP
/// defines the numbers and names of the fields.
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

/// Makes the log entry of a record. The body is the unchanged line, because a receiver computes the
/// line's hash. OTLP defines the numbers and names of the fields.
fn log(record: &LogRecord, now: u64) -> Message {
    let fields = Fields::from_record(record);
    // OpenTelemetry defines the numbers of severities.
    let (severity_number, severity) = match fields.severity() {
        Severity::Info => (9, "INFO"),
        Severity::Warning => (13, "WARN"),
        Severity::Error => (17, "ERROR"),
        Severity::Fatal => (21, "FATAL"),
    };
    Message::new()
        .with(1, "timeUnixNano", Value::Fixed(fields.time_nanos()))
        .with(11, "observedTimeUnixNano", Value::Fixed(now))
        .with(2, "severityNumber", Value::Number(severity_number))
        .with_text(3, "severityText", severity)
        .with_message(5, "body", any(Value::Text(fields.line().into_owned())))
        .with_all(6, "attributes", attributes(record, &fields))
        .with_text(12, "eventName", format!("{}{}", names::RECORD, fields.kind()))
}

fn attributes(record: &LogRecord, fields: &Fields<'_>) -> Vec<Message> {
    let mut attributes = vec![
        count(names::SEQ, record.position.seq),
        text(names::HASH, &*record.position.hash),
        text(names::PREVIOUS, &*record.previous),
        text(names::CHAIN, if record.intact { "intact" } else { "broken" }),
    ];
    if record.missing > 0 {
        attributes.push(count(names::MISSING, record.missing));
    }
    for (key, name) in [("tool", names::TOOL), ("call", names::CALL_ID), ("user", names::USER)] {
        if let Some(value) = fields.text(key) {
            attributes.push(text(name, value));
        }
    }
    if let Some(Json::Array(groups)) = fields.get("groups") {
        let groups = groups.iter().filter_map(Json::as_str).map(neutral_line);
        attributes.push(texts(names::GROUPS, groups));
    }
    // The body already has all fields of the record. They are attributes too, so that people can
    // search for them.
    for (key, value) in fields.entries() {
        // The entry already contains these fields, under names that OpenTelemetry or `names`
        // defines.
        if matches!(key, "seq" | "hash" | "ts") {
            continue;
        }
        if let Some(value) = plain_value(value) {
            attributes.push(attribute(format!("{}{key}", names::RECORD), value));
        }
    }
    attributes
}

/// Returns a simple value of a record as an attribute's value. Returns `None` for `null`, lists and
/// objects.
fn plain_value(value: &Json) -> Option<Value> {
    match value {
        Json::String(text) => Some(Value::Text(neutral_line(text))),
        Json::Bool(flag) => Some(Value::Bool(*flag)),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Some(Value::Int(integer)),
            None => number.as_f64().map(Value::Double),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}
