//! The output of a tool: its parts, its structured value, and the mark of untrusted text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::UntrustedText;

/// The output of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The parts, in order.
    pub content: Vec<Content>,
    /// A JSON value that matches the tool's output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl Output {
    /// Creates an output with one text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], ..Self::default() }
    }

    /// Returns the text parts, joined by line ends.
    pub fn joined_text(&self) -> String {
        joined_text(&self.content)
    }
}

pub(crate) fn joined_text(content: &[Content]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}

/// One part of an answer, or an attachment of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// The part itself.
    #[serde(flatten)]
    pub body: Body,
    /// The RFC 2046 media type. The default is `text/plain` or `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// A JSON object for fields that this type doesn't have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl Content {
    /// The key in `meta` that marks untrusted text.
    pub const UNTRUSTED: &str = "toolhold:untrusted";

    /// Checks whether the part is marked as untrusted.
    pub fn is_untrusted(&self) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta[Self::UNTRUSTED] == true)
    }

    /// Creates a part of plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { body: Body::Text(text.into()), media_type: None, meta: None }
    }

    /// Creates a part that is marked as untrusted.
    pub fn untrusted(text: &UntrustedText) -> Self {
        let meta = Some(serde_json::json!({ Self::UNTRUSTED: true }));
        Self { meta, ..Self::text(text.read_untrusted()) }
    }

    /// Returns the text. Returns `None` if the part isn't text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) => Some(text),
            Body::Bytes(_) | Body::Link(_) => None,
        }
    }

    /// Removes characters that could control a terminal ([`text::neutral`](crate::text::neutral)).
    /// Parts that aren't text don't change.
    #[must_use]
    pub fn neutralised(self) -> Self {
        let body = match self.body {
            Body::Text(text) => Body::Text(crate::text::neutral_owned(text)),
            Body::Link(uri) => Body::Link(crate::text::neutral_line(&uri)),
            bytes @ Body::Bytes(_) => bytes,
        };
        Self {
            body,
            media_type: self.media_type.map(|name| crate::text::neutral_line(&name)),
            meta: self.meta.map(crate::text::neutral_json),
        }
    }

    /// Returns the length of the part in bytes, without its type and meta.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Text(text) | Body::Link(text) => text.len(),
            Body::Bytes(bytes) => bytes.len(),
        }
    }

    /// Checks whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The content of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Text for a model or a person.
    Text(String),
    /// Other content, such as an image or an archive. In JSON, it is encoded in base64.
    Bytes(#[serde(with = "base64_text")] Vec<u8>),
    /// A URI that the caller can read through the host.
    Link(String),
}

/// Standard base64 with padding (RFC 4648, section 4), as JSON front ends use it.
mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
