//! Reads the fields and the severity of an audit record. The content of the log is untrusted.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Map, Value};
use toolhold_core::audit::LogRecord;

use crate::time::{from_timestamp, nanos};

/// The most bytes of a kind. A longer kind counts as unknown.
const MAX_KIND: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Info,
    /// Something was denied or is suspicious.
    Warning,
    /// The call failed.
    Error,
    /// The log was changed.
    Fatal,
}

pub(crate) struct Fields<'a> {
    record: &'a LogRecord,
    values: Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Parses a record's line. A line that isn't a JSON object has no fields.
    pub(crate) fn from_record(record: &'a LogRecord) -> Self {
        let values = match serde_json::from_slice(&record.line) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        Self { record, values }
    }

    pub(crate) fn line(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(&self.record.line)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns a string field on one line, without control characters.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.as_str().map(toolhold_core::text::neutral_line)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the kind of the record, or `unknown` if the kind isn't a short word.
    pub(crate) fn kind(&self) -> String {
        let kind = self.text("kind").unwrap_or_default();
        let is_short = (1..=MAX_KIND).contains(&kind.len());
        let is_word = kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_short && is_word { kind } else { "unknown".to_owned() }
    }

    /// Returns the time, or 1970 if the record has no valid time.
    fn time(&self) -> SystemTime {
        let text = self.get("ts").and_then(Value::as_str).unwrap_or_default();
        match text.parse::<Timestamp>() {
            Ok(timestamp) => from_timestamp(timestamp),
            Err(_) => SystemTime::UNIX_EPOCH,
        }
    }

    /// Returns the time in nanoseconds since 1970.
    pub(crate) fn time_nanos(&self) -> u64 {
        nanos(self.time())
    }

    pub(crate) fn severity(&self) -> Severity {
        if !self.record.intact {
            return Severity::Fatal;
        }
        let result = self.get("result").and_then(Value::as_str);
        if let Some("error" | "timeout") = result {
            return Severity::Error;
        }
        if result == Some("blocked") || self.record.missing > 0 {
            return Severity::Warning;
        }
        let mut suspicious_fields = ["injection_flagged", "denials", "torn"].iter();
        let is_suspicious = suspicious_fields.any(|key| self.get(key).is_some());
        if is_suspicious { Severity::Warning } else { Severity::Info }
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
