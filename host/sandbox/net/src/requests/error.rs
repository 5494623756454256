//! The reasons why Toolhold's own requests fail, and the remedies.

use std::fmt;
use std::time::Duration;

use toolhold_contract::text::{cut, in_words, neutral_line};

/// Maximum length of an error of a library or the system, in bytes. A longer text is cut.
const WORDS: usize = 300;

/// The reason why a request failed, or why its answer ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The URL isn't valid.
    #[error("the URL isn't valid: {0}")]
    Url(String),
    /// A rule refuses the request, which isn't sent.
    #[error("the request to {target} is denied: {rule}. {remedy}")]
    Blocked {
        /// The origin. Also the address, if the rule is about an address.
        target: String,
        /// The rule.
        rule: String,
        /// The remedy.
        remedy: OutboundRemedy,
    },
    /// There were too many redirects.
    #[error("the request had more than {0} redirects in a row, the limit")]
    Redirects(usize),
    /// A redirect can't be followed.
    #[error("the redirect from {from} can't be followed: {why}")]
    Redirect {
        /// The origin that answered.
        from: String,
        /// The fault of the redirect.
        why: String,
    },
    /// Requests can't be made.
    #[error("no request can be sent: {0}")]
    Setup(String),
    /// The name can't be resolved.
    #[error("{0} can't be resolved: {1}")]
    Name(String, String),
    /// There is no connection, no valid certificate, or no valid answer.
    #[error("{0} can't be reached: {1}")]
    Connection(String, String),
    /// No data arrived before the idle timeout.
    #[error("{0} sent nothing for {time}, the limit", time = in_words(*.1))]
    Idle(String, Duration),
    /// The answer wasn't complete in time.
    #[error("the response of {0} took longer than {time}, the limit", time = in_words(*.1))]
    Time(String, Duration),
    /// The answer is too large.
    #[error("the response of {0} has more than {1} bytes, the limit")]
    TooLarge(String, u64),
    /// The answer is compressed, although the request didn't allow this.
    #[error(
        "the response of {0} has the content encoding `{1}`; only unencoded responses are supported"
    )]
    Encoded(String, String),
    /// The answer ended early or broke off.
    #[error("the response of {0} is incomplete: {1}")]
    Incomplete(String, String),
    /// The request can't be recorded.
    #[error(
        "the request to {0} can't be recorded in the audit log, so the response is discarded: {1}. \
         `toolhold doctor` shows the fix"
    )]
    Unrecorded(String, String),
}

/// The remedy for a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboundRemedy {
    /// Configure the origin, or name it in the command.
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
                "Private addresses and http are only allowed for an address that you configure or \
                 name yourself, never for the target of a redirect."
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
    /// Checks whether a rule refused the request, which wasn't sent.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// Checks whether the request would be allowed if the operator had named its origin.
    pub fn is_unnamed(&self) -> bool {
        matches!(self, Self::Blocked { remedy: OutboundRemedy::NameIt, .. })
    }

    /// Returns the text for the record: the rule of a refusal, or the message.
    pub(crate) fn record_text(&self) -> String {
        match self {
            Self::Blocked { rule, .. } => rule.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the error for a failed request of the HTTP client.
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

/// Returns the first [`OutboundError`] in a chain of causes.
fn find_own(error: &(dyn std::error::Error + 'static)) -> Option<OutboundError> {
    let mut remaining = Some(error);
    while let Some(error) = remaining {
        if let Some(own) = error.downcast_ref::<OutboundError>() {
            return Some(own.clone());
        }
        // `source` of an I/O error skips its inner error, so the inner error is searched first.
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            let inner = io.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
            if let Some(own) = inner.and_then(find_own) {
                return Some(own);
            }
        }
        remaining = error.source();
    }
    None
}

/// Returns the innermost cause of an error, as one line. A long text is cut.
fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    one_line(&last.to_string())
}

/// Returns untrusted text as one line. A long text is cut.
pub(crate) fn one_line(text: &str) -> String {
    neutral_line(cut(text, WORDS))
}
