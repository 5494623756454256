//! The type of untrusted text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Text that a third party wrote, such as the error message of a server.
///
/// The type doesn't implement `Display`, so that no message of the host contains the text by
/// mistake. [`Content::untrusted`](crate::Content::untrusted) converts the text to a part of an
/// answer, which the host fences for a model. `cargo xtask tidy` lists the files that may
/// [read](Self::read_untrusted) the text.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UntrustedText(String);

impl UntrustedText {
    /// Marks a text as untrusted.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Checks whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text for a fence, or for a person who sees its origin.
    pub fn read_untrusted(&self) -> &str {
        &self.0
    }
}

/// Shows only the length, so that logs don't contain the text.
impl fmt::Debug for UntrustedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UntrustedText({} bytes)", self.0.len())
    }
}
