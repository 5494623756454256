//! A part of an answer, or an attachment, as a Rust plugin makes and reads it.

/// One part of an answer, or an attachment of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The part itself.
    pub body: Body,
    /// RFC 2046 media type. `None` means `text/plain` for text and `application/octet-stream` for
    /// bytes.
    pub media_type: Option<String>,
    /// Whether its text is not the plugin's own: a model gets it inside a fence, and knows that it
    /// has nothing to follow. All text of a tool that doesn't promise `closed_world` is
    /// fenced anyway.
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

/// The text parts among `content`, joined by line ends.
pub(crate) fn joined_text(content: &[Content]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    texts.join("\n")
}
