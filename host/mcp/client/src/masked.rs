//! Removes the secrets that an upstream server knows from its answer, also as a terminal would show
//! them.
//!
//! Marks take the place of secrets in the bytes that a server sends. A control sequence inside a
//! secret, such as a colour that begins in its middle, hides the secret, and the host removes such
//! sequences later. So texts with control sequences are looked at in the form that is shown.

use serde_json::Value;
use toolhold_core::text::shown;
use toolhold_core::{Body, Content, Failure, Outcome, Output};

use crate::gate::ConnectionEnd;

/// The outcome with marks in place of the secrets that the server knows.
pub(crate) fn masked(outcome: Outcome, ended: &ConnectionEnd) -> Outcome {
    match outcome {
        Ok(Output { content, structured, meta }) => Ok(Output {
            content: parts(content, ended),
            structured: structured.map(|value| json(value, ended)),
            meta,
        }),
        Err(failure) => Err(Failure {
            content: parts(failure.content, ended),
            structured: failure.structured.map(|value| json(value, ended)),
            ..failure
        }),
    }
}

fn parts(content: Vec<Content>, ended: &ConnectionEnd) -> Vec<Content> {
    let parts = content.into_iter().map(|part| match part.body {
        Body::Text(body) => Content { body: Body::Text(text(body, ended)), ..part },
        Body::Link(link) => Content { body: Body::Link(text(link, ended)), ..part },
        body @ Body::Bytes(_) => Content { body, ..part },
    });
    parts.collect()
}

fn json(value: Value, ended: &ConnectionEnd) -> Value {
    match value {
        Value::String(one) => Value::String(text(one, ended)),
        Value::Array(items) => items.into_iter().map(|item| json(item, ended)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields.map(|(key, value)| (text(key, ended), json(value, ended))).collect(),
            )
        }
        other => other,
    }
}

fn text(text: String, ended: &ConnectionEnd) -> String {
    if !text.contains(['\u{1b}', '\u{9b}']) {
        return text;
    }
    let plain = shown(text, false);
    String::from_utf8_lossy(&ended.without_secrets(plain.into_bytes())).into_owned()
}
