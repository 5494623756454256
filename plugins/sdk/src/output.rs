//! The answer of a Rust plugin's tool: its parts and its value for programs.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::content::{Content, joined_text};
use crate::failure::Failure;

/// The answer of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The parts, in order. They have at most 8 MiB in all.
    pub content: Vec<Content>,
    /// The answer for programs: a JSON value that fits the tool's output schema.
    pub structured: Option<Value>,
    /// Whether the parts that the call [emitted](crate::Call::emit) come first in the answer. So a
    /// tool gives a long answer without holding all of it.
    pub after_emitted: bool,
    /// A JSON object for the calling program, not for models. Its keys have a prefix, such as
    /// `example.com/rows`. At most 64 KiB.
    pub meta: Option<Value>,
}

impl Output {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::from(Content::text(text))
    }

    /// An answer that is a JSON value for programs and the same JSON as text for models.
    ///
    /// # Errors
    ///
    /// If JSON can't represent `value`, such as a map whose keys aren't strings.
    pub fn json(value: &impl Serialize) -> Result<Self, Failure> {
        let value = serde_json::to_value(value)?;
        let part = Content {
            media_type: Some("application/json".to_owned()),
            ..Content::text(value.to_string())
        };
        Ok(Self { structured: Some(value), ..Self::from(part) })
    }

    /// Sets the value for programs.
    ///
    /// # Errors
    ///
    /// As [`json`](Self::json).
    pub fn with_structured(mut self, value: &impl Serialize) -> Result<Self, Failure> {
        self.structured = Some(serde_json::to_value(value)?);
        Ok(self)
    }

    /// Sets a value for the calling program, which models don't see.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        let meta = self.meta.get_or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(fields) = meta {
            fields.insert(key.into(), value.into());
        }
        self
    }

    /// Lets the answer begin with the parts that the call has emitted.
    #[must_use]
    pub fn after_emitted(mut self) -> Self {
        self.after_emitted = true;
        self
    }

    /// Adds a part.
    #[must_use]
    pub fn with(mut self, part: Content) -> Self {
        self.content.push(part);
        self
    }

    /// The text parts, joined by line ends.
    pub fn joined_text(&self) -> String {
        joined_text(&self.content)
    }
}

impl From<Content> for Output {
    fn from(part: Content) -> Self {
        Self { content: vec![part], ..Self::default() }
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// Appends a notice in brackets to a text, on a line of its own: `[Stopped at 100 matching
/// lines.]`.
pub fn add_notice(text: &mut String, notice: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push('[');
    text.push_str(notice);
    text.push_str("]\n");
}
