//! Errors of requests, with the messages and categories that hosts and models act on.

use std::fmt::{self, Display};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use url::Url;

use super::Response;
use crate::{Category, Failure};

/// The greatest number of bytes of a URL that an error shows.
const MAX_SHOWN: usize = 300;

/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Why there is no answer. `?` converts it to a [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    /// The kind of error.
    pub kind: HttpErrorKind,
    /// The message for people.
    pub message: String,
}

/// The kinds of errors of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpErrorKind {
    /// The URL, the method or a header isn't valid.
    Invalid,
    /// A rule of the operator or of the host refuses the request. The host reports which rule.
    Denied,
    /// The name has no address, or no name server answered.
    Dns,
    /// The server was not reached, or it closed the connection.
    Connection,
    /// The server's certificate isn't valid, or it supports no common version of TLS.
    Tls,
    /// The request took too long.
    Timeout,
    /// The request or its answer is too large.
    TooLarge,
    /// The answer breaks the protocol.
    Malformed,
    /// A redirect was not followed: there were too many, or the target is not allowed.
    Redirect,
    /// Any other error.
    Failed,
}

impl HttpError {
    pub(super) fn new(kind: HttpErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Puts the URL before the message, without parts that may be secret.
    pub(super) fn at(mut self, url: &Url) -> Self {
        self.message = format!("{}: {}", display_url(url), self.message);
        self
    }
}

impl Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HttpError {}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        use Category::{InvalidParameters, NetworkError, PermanentFailure, ServerError, Timeout};
        let (category, code, advice) = match error.kind {
            HttpErrorKind::Invalid => (InvalidParameters, "invalid-request", ""),
            HttpErrorKind::Denied => (PermanentFailure, "not-permitted", ""),
            HttpErrorKind::Dns => (NetworkError, "dns", "Check the name of the host."),
            HttpErrorKind::Connection => (NetworkError, "connection", ""),
            HttpErrorKind::Tls => {
                (PermanentFailure, "tls", "The server can't be trusted. Use another source.")
            }
            HttpErrorKind::Timeout => (Timeout, "timed-out", ""),
            HttpErrorKind::TooLarge => (PermanentFailure, "too-large", "Request a smaller part."),
            HttpErrorKind::Malformed => (PermanentFailure, "malformed-answer", ""),
            HttpErrorKind::Redirect => {
                (PermanentFailure, "redirect", "To continue, request the URL that it leads to.")
            }
            HttpErrorKind::Failed => (ServerError, "http", ""),
        };
        let failure = Self::new(category, error.message).with_code(code);
        if advice.is_empty() { failure } else { failure.with_suggestion(advice) }
    }
}

/// The failure for a status other than 200 to 299.
pub(super) fn from_status(response: &Response) -> Failure {
    use Category::{InvalidParameters, PermanentFailure, RateLimited, ServerError, Timeout};
    let status = response.status;
    let (category, words, advice) = match status {
        300..400 => (PermanentFailure, "a redirect that was not followed", ""),
        400 | 422 => (
            InvalidParameters,
            "the server says that the request isn't valid",
            "Check the URL, the headers and the body.",
        ),
        401 => (
            PermanentFailure,
            "the server needs a login",
            "Use another source, or ask the operator for access: no tool can log in.",
        ),
        402 | 403 | 451 => (
            PermanentFailure,
            "the server refuses access",
            "Use another source: the same request is refused again.",
        ),
        404 | 410 => {
            (PermanentFailure, "the page is missing", "Look up the URL instead of guessing it.")
        }
        405 => (PermanentFailure, "the server doesn't allow this method", ""),
        408 => (Timeout, "the server stopped waiting for the request", ""),
        429 => (RateLimited, "too many requests", "Send requests less often."),
        500..600 => (ServerError, "the server failed", ""),
        _ => (PermanentFailure, "the server can't answer the request", ""),
    };
    let place = Url::parse(&response.url)
        .map_or_else(|_| String::new(), |url| format!("{}: ", display_url(&url)));
    let mut failure = Failure::new(category, format!("{place}status {status}, {words}"))
        .with_code(format!("http-{status}"));
    if matches!(category, RateLimited | ServerError | Timeout) {
        failure.retry_after = response.retry_after();
    }
    if advice.is_empty() { failure } else { failure.with_suggestion(advice) }
}

/// Scheme, host and path of a URL. The query and the user information may hold secrets, so they are
/// left out.
fn display_url(url: &Url) -> String {
    let mut shown = url.origin().ascii_serialization();
    shown.push_str(url.path());
    if shown.len() > MAX_SHOWN {
        shown.truncate(shown.floor_char_boundary(MAX_SHOWN));
        shown.push('…');
    }
    shown
}

/// Parses `Retry-After`: seconds, or a date in the format that RFC 9110 requires of senders.
pub(super) fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    let wanted = if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() {
        value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Duration::from_secs(date(value)?).saturating_sub(now)
    };
    Some(wanted.min(MAX_RETRY_AFTER))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = number(words.next()?, 31)?;
    let month = MONTHS.iter().position(|name| Some(*name) == text.get(8..11))? as u64 + 1;
    words.next()?;
    let year = number(words.next()?, 9999).filter(|year| *year >= 1970)?;
    let mut clock = words.next()?.split(':');
    let hour = number(clock.next()?, 60)?;
    let minute = number(clock.next()?, 60)?;
    let second = number(clock.next()?, 60)?;
    // Days since 1970. The year starts in March here, so that the leap day is its last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    Some((days.checked_sub(719_469)?) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(text: &str, most: u64) -> Option<u64> {
    text.parse::<u64>().ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_are_parsed() {
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        for none in [
            "",
            "tomorrow",
            "Sun, 06 Xyz 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994",
            "é, 06 é Nov",
        ] {
            assert_eq!(date(none), None, "{none}");
        }
    }

    #[test]
    fn retry_after_is_honoured_up_to_an_hour() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("99999999999999999999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("Sun, 06 Nov 9994 08:49:37 GMT"), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(retry_after("-1"), None);
    }

    #[test]
    fn error_shows_its_url_without_secret_parts() {
        let at = |url: &str| {
            HttpError::new(HttpErrorKind::Timeout, "late").at(&Url::parse(url).unwrap()).message
        };
        assert_eq!(
            at("https://me:word@example.com:8443/a/b?token=1#part"),
            "https://example.com:8443/a/b: late"
        );
        assert_eq!(at("http://example.com"), "http://example.com/: late");
        let long = at(&format!("https://example.com/{}", "a".repeat(1000)));
        assert!(long.len() < 320 && long.ends_with("a…: late"), "{long}");
    }

    #[test]
    fn status_decides_the_category() {
        for (status, category) in [
            (304, Category::PermanentFailure),
            (401, Category::PermanentFailure),
            (403, Category::PermanentFailure),
            (404, Category::PermanentFailure),
            (408, Category::Timeout),
            (410, Category::PermanentFailure),
            (400, Category::InvalidParameters),
            (422, Category::InvalidParameters),
            (429, Category::RateLimited),
            (500, Category::ServerError),
            (503, Category::ServerError),
            (999, Category::PermanentFailure),
        ] {
            let headers = vec![("retry-after".to_owned(), "3".to_owned())];
            let url = "https://example.com/a?token=1".to_owned();
            let response = Response {
                status,
                url,
                headers,
                body: Vec::new(),
                cut: false,
                redirects: Vec::new(),
            };
            let failure = response.error_for_status().unwrap_err();
            assert_eq!(
                (failure.category, failure.code),
                (category, Some(format!("http-{status}").into()))
            );
            assert_eq!(
                failure.retry_after.is_some(),
                !matches!(category, Category::PermanentFailure | Category::InvalidParameters),
                "{status}"
            );
            assert!(
                failure.message.starts_with("https://example.com/a: status ")
                    && !failure.message.contains("token")
            );
        }
    }
}
