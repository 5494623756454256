//! Removes an upstream server's secrets from its answers.
//!
//! A control sequence inside a secret, such as a colour, hides the secret from a search of the
//! bytes. A terminal would still show the secret. Texts with control sequences are therefore
//! searched in the form that a terminal shows.

use serde_json::{Map, Value};
use toolhold_core::text::shown;
use toolhold_core::{Body, Content, Failure, Outcome, Output};

use crate::gate::ConnectionState;

/// Redacts the secrets that contain control sequences in the texts of an outcome. All other secrets
/// are already redacted.
pub(crate) fn mask_outcome(outcome: Outcome, connection_state: &ConnectionState) -> Outcome {
    match outcome {
        Ok(Output { content, structured, meta }) => Ok(Output {
            content: mask_parts(content, connection_state),
            structured: structured.map(|value| mask_json(value, connection_state)),
            meta,
        }),
        Err(failure) => Err(Failure {
            content: mask_parts(failure.content, connection_state),
            structured: failure.structured.map(|value| mask_json(value, connection_state)),
            ..failure
        }),
    }
}

/// Redacts secrets in the texts and links of an answer.
fn mask_parts(content: Vec<Content>, connection_state: &ConnectionState) -> Vec<Content> {
    let mut masked_parts = Vec::new();
    for part in content {
        let body = match part.body {
            Body::Text(text) => Body::Text(mask_text(text, connection_state)),
            Body::Link(link) => Body::Link(mask_text(link, connection_state)),
            bytes @ Body::Bytes(_) => bytes,
        };
        masked_parts.push(Content { body, ..part });
    }
    masked_parts
}

/// Redacts secrets in the strings and keys of a JSON value.
fn mask_json(value: Value, connection_state: &ConnectionState) -> Value {
    match value {
        Value::String(text) => Value::String(mask_text(text, connection_state)),
        Value::Array(items) => {
            items.into_iter().map(|item| mask_json(item, connection_state)).collect()
        }
        Value::Object(fields) => {
            let mut masked_fields = Map::new();
            for (key, value) in fields {
                let masked_key = mask_text(key, connection_state);
                masked_fields.insert(masked_key, mask_json(value, connection_state));
            }
            Value::Object(masked_fields)
        }
        other => other,
    }
}

/// Redacts the secrets that a text shows after its control sequences are removed.
fn mask_text(text: String, connection_state: &ConnectionState) -> String {
    // All control sequences start with one of these two characters.
    if !text.contains(['\u{1b}', '\u{9b}']) {
        return text;
    }
    let as_lines = false;
    let plain = shown(text, as_lines);
    String::from_utf8_lossy(&connection_state.without_secrets(plain.into_bytes())).into_owned()
}
