//! Reads the fields and the severity of an audit record for export. Other people may have written
//! the file, so its content isn't trusted.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Map, Value};
use toolhold_core::audit::LogRecord;

use crate::time::{from_timestamp, nanos};

/// The severity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Info,
    /// Refused, or suspicious.
    Warning,
    /// Failed.
    Error,
    /// The log was changed.
    Fatal,
}

/// A record with its fields.
pub(crate) struct Fields<'a> {
    record: &'a LogRecord,
    values: Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Reads the fields of a record. There are no fields if the record's line isn't a JSON object.
    pub(crate) fn from_record(record: &'a LogRecord) -> Self {
        let values = match serde_json::from_slice(&record.line) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        Self { record, values }
    }

    /// Returns the line of the record from the log.
    pub(crate) fn line(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(&self.record.line)
    }

    /// Returns a field.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns a string field on one line, without terminal control characters.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.as_str().map(toolhold_core::text::neutral_line)
    }

    /// Returns all fields.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the record's kind.
    pub(crate) fn kind(&self) -> String {
        let kind = self.text("kind").unwrap_or_default();
        let is_word = !kind.is_empty()
            && kind.len() <= 32
            && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_word { kind } else { "unknown".to_owned() }
    }

    /// Returns the time of the record, or 1970 if it has no valid time.
    fn time(&self) -> SystemTime {
        let text = self.get("ts").and_then(Value::as_str).unwrap_or_default();
        match text.parse::<Timestamp>() {
            Ok(timestamp) => from_timestamp(timestamp),
            Err(_) => SystemTime::UNIX_EPOCH,
        }
    }

    /// Returns the time of the record, in nanoseconds since 1970.
    pub(crate) fn time_nanos(&self) -> u64 {
        nanos(self.time())
    }

    /// Returns the severity of the record.
    pub(crate) fn severity(&self) -> Severity {
        if !self.record.intact {
            return Severity::Fatal;
        }
        let result = self.get("result").and_then(Value::as_str);
        if let Some("error" | "timeout") = result {
            return Severity::Error;
        }
        let has_warning = result == Some("blocked")
            || self.record.missing > 0
            || ["injection_flagged", "denials", "torn"].iter().any(|key| self.get(key).is_some());
        if has_warning { Severity::Warning } else { Severity::Info }
    }
}

#[cfg(test)]
mod tests {
    use toolhold_core::audit::LogPosition;

    use super::*;

    #[test]
    fn kind_of_two_words_keeps_its_name() {
        for (kind, expected) in [
            ("job_begin", "job_begin"),
            ("outcome", "outcome"),
            ("Outcome", "unknown"),
            ("a b", "unknown"),
            ("", "unknown"),
        ] {
            let record = LogRecord {
                line: format!("{{\"kind\":\"{kind}\"}}").into_bytes(),
                position: LogPosition::default(),
                previous: String::new(),
                intact: true,
                missing: 0,
            };
            assert_eq!(Fields::from_record(&record).kind(), expected);
        }
    }
}
