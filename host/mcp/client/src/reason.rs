//! The reasons why a server can't be used, or refused a call: the host's own words, and apart from
//! them the server's words.

use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Category, Failure, UntrustedText};

/// Most bytes of a server's words.
const MAX_WORDS: usize = 2048;

/// A reason in the host's words, with the server's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reason {
    own: String,
    said: UntrustedText,
    hint: Option<String>,
}

impl Reason {
    /// A reason of the host alone.
    pub(crate) fn new(own: impl Into<String>) -> Self {
        Self { own: own.into(), ..Self::default() }
    }

    /// A reason that the server gave. `own`: the host's words before it.
    pub(crate) fn said(own: impl Into<String>, said: &str) -> Self {
        let said = UntrustedText::new(neutral_line(cut(said, MAX_WORDS)));
        Self { own: own.into(), said, hint: None }
    }

    /// Adds advice.
    pub(crate) fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// A failure of a call: the host's words are its message, and those of the server a part of its
    /// own.
    pub(crate) fn failure(&self, category: Category, what: &str) -> Failure {
        let parts = [what, &self.own].into_iter().filter(|part| !part.is_empty());
        let mut message = parts.collect::<Vec<_>>().join(": ");
        if let Some(hint) = &self.hint {
            message = format!("{message}; {hint}");
        }
        Failure::new(category, neutral_line(&message)).with_words(self.said.clone())
    }

    /// All of it in one line, for a person at a terminal.
    pub(crate) fn for_person(&self) -> String {
        let parts = [&*self.own, self.said.read_untrusted()];
        let said = parts.into_iter().filter(|part| !part.is_empty());
        let mut line = said.collect::<Vec<_>>().join(": ");
        if let Some(hint) = &self.hint {
            line = format!("{line}; {hint}");
        }
        line
    }
}

impl<E: std::error::Error> From<E> for Reason {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
