//! The reasons why a plugin's request fails, and the obstacles that the operator can remove.

use std::io;

use toolhold_contract::Denial;

/// The reason why a request failed, or why its answer ended early.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A rule denies the request.
    #[error("{0}")]
    Refused(Box<Denial>),
    /// No job of the session serves the request yet.
    #[error("{0}")]
    NoJob(Box<Denial>),
    /// A rule denies an address of the request's host.
    #[error("{0}")]
    Address(Box<Denial>),
    /// The URL isn't valid.
    #[error("the URL isn't valid: {0}")]
    Url(String),
    /// The request's headers are too large.
    #[error("the request's headers have more than {0} bytes, the limit")]
    RequestHeaders(usize),
    /// The request's body is too large.
    #[error("the request's body has more than {0} bytes, the limit")]
    RequestBody(u64),
    /// Reading the request's body from the guest failed.
    #[error("the request's body can't be read: {0}")]
    RequestBodyBroken(String),
    /// The call has reached its limit of requests.
    #[error("the call has made {0} requests, the limit")]
    Requests(u32),
    /// There were too many redirects in a row.
    #[error("the request had more than {0} redirects in a row, the limit")]
    Redirects(u32),
    /// A secret for the request can't be read.
    #[error("the secret {0} can't be read: {1}")]
    Secret(String, String),
    /// A setting for requests can't be used.
    #[error("requests can't be made: {0}")]
    Setup(String),
    /// The plugin has too many concurrent requests or connections, and none of them ended in time.
    #[error("the plugin has too many requests at the same time")]
    Busy,
    /// The name can't be resolved.
    #[error("the host name can't be resolved: {0}")]
    Name(String),
    /// Resolving the name took too long.
    #[error("resolving the host name took too long")]
    NameTimeout,
    /// The host refused the connection.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// The host didn't answer.
    #[error("connecting took too long")]
    ConnectionTimeout,
    /// The connection failed or broke for another reason.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The proxy doesn't connect to the host.
    #[error("the connection through the proxy failed: {0}")]
    Proxy(String),
    /// The server's certificate isn't valid for the host.
    #[error("the server's certificate is not valid: {0}")]
    Certificate(String),
    /// The TLS handshake failed.
    #[error("the TLS connection failed: {0}")]
    Tls(String),
    /// The answer, or its next piece, took too long. Contains a text with the host's limit, or
    /// `None` if the guest set the limit.
    #[error("the response took too \
             long{}", .0.as_ref().map_or_else(String::new, |bound| format!(": {bound}")))]
    Timeout(Option<String>),
    /// The answer's headers are too large.
    #[error("the response's headers are too large")]
    Headers,
    /// The answer's body is too large.
    #[error("the response has more than {0} bytes, the limit")]
    Body(u64),
    /// The connection closed before the end of the answer.
    #[error("the response is incomplete")]
    Incomplete,
    /// The answer's content encoding isn't supported, or its data isn't valid.
    #[error("the response's content encoding can't be decoded: {0}")]
    Coding(String),
    /// The answer isn't valid HTTP.
    #[error("the response isn't valid HTTP: {0}")]
    Protocol(String),
}

/// A reason for a failed request that only the operator learns and can fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The request took too long. Contains a text with the limit.
    TimeLimit(String),
    /// Requests can't be made. Contains the reason.
    Setup(String),
}

impl Error {
    pub(super) fn from_client(error: &hyper_util::client::legacy::Error) -> Self {
        Self::from_sources(error).unwrap_or_else(|| Self::Connection(error.to_string()))
    }

    pub(super) fn from_hyper(error: &hyper::Error) -> Self {
        Self::from_sources(error).unwrap_or_else(|| Self::Protocol(error.to_string()))
    }

    pub(super) fn from_reader(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            Some(own) => own.clone(),
            None => Self::Coding(error.to_string()),
        }
    }

    /// Returns the most specific error in the chain of causes.
    fn from_sources(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut remaining = Some(error);
        let mut fallback = None;
        while let Some(error) = remaining {
            if let Some(own) = error.downcast_ref::<Self>() {
                return Some(own.clone());
            }
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::from_tls(tls));
            }
            if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
                fallback = Self::from_hyper_kind(hyper).or(fallback);
            }
            if let Some(io) = error.downcast_ref::<io::Error>() {
                // `source` of an I/O error skips its inner error, so the inner error is checked
                // first.
                let inner = io.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
                if let Some(error) = inner.and_then(Self::from_sources) {
                    return Some(error);
                }
                fallback = fallback.or(Some(Self::from_connection(io)));
            }
            remaining = error.source();
        }
        fallback
    }

    fn from_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(reason) => Self::Certificate(reason.to_string()),
            other => Self::Tls(other.to_string()),
        }
    }

    /// Returns the error for this kind of error of the HTTP library, or `None` for other kinds.
    fn from_hyper_kind(error: &hyper::Error) -> Option<Self> {
        if error.is_parse_too_large() {
            Some(Self::Headers)
        } else if error.is_parse() {
            Some(Self::Protocol(error.to_string()))
        } else if error.is_incomplete_message() {
            Some(Self::Incomplete)
        } else if error.is_timeout() {
            Some(Self::Timeout(None))
        } else {
            None
        }
    }

    pub(super) fn from_connection(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            io::ErrorKind::TimedOut => Self::ConnectionTimeout,
            io::ErrorKind::UnexpectedEof => Self::Incomplete,
            _ => Self::Connection(error.to_string()),
        }
    }

    /// Returns the text for the report: the rule of a denial, or the message of another error.
    pub(super) fn record_text(&self) -> String {
        match self {
            Self::Refused(denial) | Self::Address(denial) => denial.rule.clone(),
            other => other.to_string(),
        }
    }

    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match self {
            Self::Timeout(Some(bound)) => Some(Obstacle::TimeLimit(bound.clone())),
            Self::Setup(_) => Some(Obstacle::Setup(self.to_string())),
            _ => None,
        }
    }

    /// Returns the denial if a rule denied the request.
    pub fn denial(&self) -> Option<&Denial> {
        match self {
            Self::Refused(denial) | Self::NoJob(denial) | Self::Address(denial) => Some(denial),
            _ => None,
        }
    }
}
