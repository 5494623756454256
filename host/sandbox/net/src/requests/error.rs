//! The reasons why Toolhold's own requests fail or are refused, and the remedies.

use std::fmt;
use std::time::Duration;

use toolhold_contract::text::{cut, in_words, neutral_line};

/// Bytes of a library's or the system's own words in an error.
const WORDS: usize = 300;

/// The reason why a request failed, or why its answer ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The URL isn't valid.
    #[error("the URL can't be used: {0}")]
    Url(String),
    /// A rule refuses the request. The request was not sent.
    #[error("{target} is refused: {rule}. {remedy}")]
    Blocked {
        /// The origin, and the address if the rule is about that.
        target: String,
        /// The rule.
        rule: String,
        /// The remedy.
        remedy: OutboundRemedy,
    },
    /// There were too many redirects.
    #[error("there were more than {0} redirects in a row, the limit")]
    Redirects(usize),
    /// A redirect that can't be followed.
    #[error("the answer of {from} is a redirect that can't be followed: {why}")]
    Redirect {
        /// The origin that answered.
        from: String,
        /// The fault.
        why: String,
    },
    /// Requests can't be made.
    #[error("requests can't be made: {0}")]
    Setup(String),
    /// The name couldn't be resolved.
    #[error("{0} can't be resolved: {1}")]
    Name(String, String),
    /// No connection, no valid certificate, or no valid answer.
    #[error("{0} can't be reached: {1}")]
    Connection(String, String),
    /// No data arrived before the idle timeout.
    #[error("{0} sent nothing for {time}, the limit", time = in_words(*.1))]
    Idle(String, Duration),
    /// The answer wasn't complete in time.
    #[error("the answer of {0} took longer than {time}, the limit", time = in_words(*.1))]
    Time(String, Duration),
    /// The answer is too large.
    #[error("the answer of {0} has more than {1} bytes, the limit")]
    TooLarge(String, u64),
    /// The answer is compressed, although the request didn't ask for this.
    #[error("the answer of {0} is encoded as `{1}`; only unencoded answers are read")]
    Encoded(String, String),
    /// The answer ended early or broke off.
    #[error("the answer of {0} is incomplete: {1}")]
    Incomplete(String, String),
    /// The request can't be recorded.
    #[error(
        "a request to {0} can't be recorded, so its answer isn't used: {1}. `toolhold doctor` says how to fix it"
    )]
    Unrecorded(String, String),
}

/// The remedy for a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundRemedy {
    /// Configure the origin or name it in the command.
    NameIt,
    /// Write the URL with https.
    UseHttps,
    /// Let the name of this machine resolve to a loopback address.
    ResolveLocally,
    /// No configuration can allow the request.
    Nothing,
}

impl fmt::Display for OutboundRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NameIt => {
                "Only an address that is configured or named by hand may be private or use http, and a redirect to it is never followed."
            }
            Self::UseHttps => "Write the URL with https.",
            Self::ResolveLocally => {
                "Let `localhost` resolve to a loopback address, for example in /etc/hosts."
            }
            Self::Nothing => "No configuration key can change this.",
        })
    }
}

impl OutboundError {
    /// Checks whether a rule refused the request. A refused request was not sent.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// Checks whether the request would be allowed if the operator had named the place.
    pub fn is_unnamed(&self) -> bool {
        matches!(self, Self::Blocked { remedy: OutboundRemedy::NameIt, .. })
    }

    /// Returns the text for the record: the rule for a refusal, otherwise the message.
    pub(crate) fn record_text(&self) -> String {
        match self {
            Self::Blocked { rule, .. } => rule.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the error of the client for a request to an origin.
    pub(crate) fn from_client(origin: &str, error: reqwest::Error) -> Self {
        // The client's message contains the URL with its query, which may contain a secret.
        let error = error.without_url();
        if let Some(own) = find_own(&error) {
            return own;
        }
        let reason = innermost_cause(&error);
        if error.is_body() || error.is_decode() {
            Self::Incomplete(origin.to_owned(), reason)
        } else {
            Self::Connection(origin.to_owned(), reason)
        }
    }
}

/// Searches the causes of an error for an error of this crate.
fn find_own(error: &(dyn std::error::Error + 'static)) -> Option<OutboundError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<OutboundError>() {
            return Some(own.clone());
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            // `source` of an I/O error skips its inner error, so the inner error is checked first.
            let inner = io.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
            if let Some(own) = inner.and_then(find_own) {
                return Some(own);
            }
        }
        next = error.source();
    }
    None
}

/// Returns the innermost cause of an error in one line of limited length.
fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    words(&last.to_string())
}

/// Returns untrusted text in one line of limited length.
pub(crate) fn words(text: &str) -> String {
    neutral_line(cut(text, WORDS))
}
