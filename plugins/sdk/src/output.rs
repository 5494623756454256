use serde::Serialize;
use serde_json::{Map, Value};

use crate::Failure;

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

/// One part of an answer, or an attachment of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The part itself.
    pub body: Body,
    /// RFC 2046 media type. `None` means `text/plain` for text and `application/octet-stream` for
    /// bytes.
    pub media_type: Option<String>,
    /// Whether its text is not the plugin's own: a model gets it inside a fence, and knows that it
    /// has nothing to follow. All text of a tool that is `open_world` is fenced anyway.
    pub untrusted: bool,
}

impl Content {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { body: Body::Text(text.into()), media_type: None, untrusted: false }
    }

    /// Bytes with their media type: `image/png`.
    pub fn bytes(bytes: impl Into<Vec<u8>>, media_type: impl Into<String>) -> Self {
        Self {
            body: Body::Bytes(bytes.into()),
            media_type: Some(media_type.into()),
            untrusted: false,
        }
    }

    /// A URI that the caller may read through the host.
    pub fn link(uri: impl Into<String>) -> Self {
        Self { body: Body::Link(uri.into()), media_type: None, untrusted: false }
    }

    /// Text that others wrote. A model gets it inside a fence.
    pub fn untrusted(text: impl Into<String>) -> Self {
        Self { untrusted: true, ..Self::text(text) }
    }

    /// The text, if this part is a text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) => Some(text),
            Body::Bytes(_) | Body::Link(_) => None,
        }
    }

    /// The bytes of a text or of binary content. `None` for a link.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Text(text) => Some(text.as_bytes()),
            Body::Bytes(bytes) => Some(bytes),
            Body::Link(_) => None,
        }
    }
}

/// The content of a part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Text for a model or a person.
    Text(String),
    /// Binary content, such as an image or an archive.
    Bytes(Vec<u8>),
    /// A URI.
    Link(String),
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

/// The text parts among `content`, joined by line ends.
pub(crate) fn joined_text(content: &[Content]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}
