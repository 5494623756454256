//! Removes secrets that an upstream server knows from its answer, even if only a terminal would
//! show them.
//!
//! The bytes of secrets in an answer are replaced with marks. A control sequence inside a secret,
//! such as a colour, hides the secret, and the host removes these sequences only later. For this
//! reason, texts with control sequences are searched in the form that is shown.

use serde_json::Value;
use toolhold_core::text::shown;
use toolhold_core::{Body, Content, Failure, Outcome, Output};

use crate::gate::ConnectionEnd;

/// Replaces the secrets that the server knows by marks in an outcome.
pub(crate) fn mask_outcome(outcome: Outcome, ended: &ConnectionEnd) -> Outcome {
    match outcome {
        Ok(Output { content, structured, meta }) => Ok(Output {
            content: mask_parts(content, ended),
            structured: structured.map(|value| mask_json(value, ended)),
            meta,
        }),
        Err(failure) => Err(Failure {
            content: mask_parts(failure.content, ended),
            structured: failure.structured.map(|value| mask_json(value, ended)),
            ..failure
        }),
    }
}

fn mask_parts(content: Vec<Content>, ended: &ConnectionEnd) -> Vec<Content> {
    let masked = content.into_iter().map(|part| {
        let body = match part.body {
            Body::Text(text) => Body::Text(mask_text(text, ended)),
            Body::Link(link) => Body::Link(mask_text(link, ended)),
            bytes @ Body::Bytes(_) => bytes,
        };
        Content { body, ..part }
    });
    masked.collect()
}

fn mask_json(value: Value, ended: &ConnectionEnd) -> Value {
    match value {
        Value::String(text) => Value::String(mask_text(text, ended)),
        Value::Array(items) => items.into_iter().map(|item| mask_json(item, ended)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, value)| (mask_text(key, ended), mask_json(value, ended))).collect()
        }
        other => other,
    }
}

fn mask_text(text: String, ended: &ConnectionEnd) -> String {
    if !text.contains(['\u{1b}', '\u{9b}']) {
        return text;
    }
    let plain = shown(text, false);
    String::from_utf8_lossy(&ended.without_secrets(plain.into_bytes())).into_owned()
}
