//! The reason why a server can't be used, or why it refused a call. The host's text and the
//! server's text are separate.

use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Category, Failure, UntrustedText};

/// Longest text of a server in bytes. Longer texts are cut.
const MAX_SERVER_TEXT: usize = 2048;

#[derive(Clone, Debug, Default)]
pub(crate) struct Reason {
    own: String,
    said: UntrustedText,
    hint: Option<String>,
}

impl Reason {
    /// Makes a reason without a text of the server.
    pub(crate) fn new(own: impl Into<String>) -> Self {
        Self { own: own.into(), ..Self::default() }
    }

    /// Makes a reason with a text of the server, `said`. The host's text, `own`, comes before it.
    pub(crate) fn said(own: impl Into<String>, said: &str) -> Self {
        let said = UntrustedText::new(neutral_line(cut(said, MAX_SERVER_TEXT)));
        Self { own: own.into(), said, hint: None }
    }

    pub(crate) fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// Makes the failure of a call whose message says that `what` failed, and why. The server's
    /// text becomes a separate part, because it is untrusted.
    pub(crate) fn failure(&self, category: Category, what: &str) -> Failure {
        let message = self.join_with_hint([what, &self.own]);
        Failure::new(category, neutral_line(&message)).with_words(self.said.clone())
    }

    /// Formats both texts in one line, for a person at a terminal.
    pub(crate) fn for_person(&self) -> String {
        self.join_with_hint([&self.own, self.said.read_untrusted()])
    }

    /// Joins the parts that aren't empty, and adds the hint.
    fn join_with_hint(&self, parts: [&str; 2]) -> String {
        let full_parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let joined = full_parts.join(": ");
        match &self.hint {
            Some(hint) => format!("{joined}; {hint}"),
            None => joined,
        }
    }
}

impl<E: std::error::Error> From<E> for Reason {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
