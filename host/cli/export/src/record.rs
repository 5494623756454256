//! Reads the fields and the severity of a record of the audit for export. Others may have written
//! the file, so nothing in it is relied on.

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
    /// Returns the fields of a record; none if its line isn't JSON.
    pub(crate) fn from_record(record: &'a LogRecord) -> Self {
        let values = match serde_json::from_slice(&record.line) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        Self { record, values }
    }

    /// Its line as it is in the log.
    pub(crate) fn line(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(&self.record.line)
    }

    /// Returns a field.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns a field that is a text, on one line and without characters that steer a terminal.
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

    /// Returns the time of the record. 1970 if it has no time.
    fn time(&self) -> SystemTime {
        let time =
            self.get("ts").and_then(Value::as_str).and_then(|ts| ts.parse::<Timestamp>().ok());
        time.map_or(SystemTime::UNIX_EPOCH, from_timestamp)
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
        let flagged = self.get("injection_flagged").is_some() || self.get("denials").is_some();
        match self.get("result").and_then(Value::as_str) {
            Some("error" | "timeout") => Severity::Error,
            Some("blocked") => Severity::Warning,
            _ if flagged || self.record.missing > 0 || self.get("torn").is_some() => {
                Severity::Warning
            }
            _ => Severity::Info,
        }
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
