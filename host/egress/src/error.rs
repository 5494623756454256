//! What may become of a request.

use std::io;

use berth_contract::Denial;

/// Why a request has no answer, or an answer no end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A rule refuses the request.
    #[error("{0}")]
    Refused(Box<Denial>),
    /// A rule refuses an address of its host.
    #[error("{0}")]
    Address(Box<Denial>),
    /// It names no place.
    #[error("its URL can't be used: {0}")]
    Url(String),
    /// Its headers have more bytes than they may have.
    #[error("its headers have more than {0} bytes")]
    RequestHeaders(usize),
    /// Its body has more bytes than it may have.
    #[error("its body has more than {0} bytes")]
    RequestBody(u64),
    /// Its body broke off.
    #[error("its body broke off: {0}")]
    RequestBodyBroken(String),
    /// The call has made all requests that it may make.
    #[error("the call has made {0} requests, which is all that it may make")]
    Requests(u32),
    /// One redirect too many.
    #[error("it comes behind {0} redirects, which is all that are followed")]
    Redirects(u32),
    /// A secret that belongs into it can't be read.
    #[error("the secret {0} can't be read: {1}")]
    Secret(String, String),
    /// What the operator set up for requests can't be used.
    #[error("requests can't be made here: {0}")]
    Setup(String),
    /// Other requests of the plugin took too long for it to begin.
    #[error("the plugin has as many requests under way as it may have")]
    Busy,
    /// No such name.
    #[error("the name can't be looked up: {0}")]
    Name(String),
    /// Nobody answered what the name's addresses are.
    #[error("looking the name up took too long")]
    NameTimeout,
    /// The host has nothing that listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// The host doesn't answer.
    #[error("connecting took too long")]
    ConnectionTimeout,
    /// Another reason why there is no connection, or no longer one.
    #[error("no connection: {0}")]
    Connection(String),
    /// The proxy doesn't let it through.
    #[error("the proxy doesn't let it through: {0}")]
    Proxy(String),
    /// The host can't show that it is the one.
    #[error("the server's certificate is not valid: {0}")]
    Certificate(String),
    /// What it speaks is no TLS that is spoken here.
    #[error("no secure connection could be made: {0}")]
    Tls(String),
    /// The answer took too long, or its next piece did: by this bound of the host's; None by the
    /// guest's own.
    #[error("the answer took too long{}", .0.as_ref().map_or_else(String::new, |bound| format!(": {bound}")))]
    Timeout(Option<String>),
    /// The answer's headers have more bytes than they may have.
    #[error("the answer's headers are too large")]
    Headers,
    /// The answer's body has more bytes than it may have.
    #[error("the answer has more than {0} bytes")]
    Body(u64),
    /// The answer broke off.
    #[error("the answer broke off")]
    Incomplete,
    /// The answer is packed in a way that nobody asked for, or badly.
    #[error("the answer's encoding can't be read: {0}")]
    Coding(String),
    /// The answer is none.
    #[error("the answer is not HTTP: {0}")]
    Protocol(String),
}

/// Why a request of a call failed, where the operator can do something about that and a guest can't
/// know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It took longer than it may, and by which bound.
    Late(String),
    /// No request can be made, and why.
    Setup(String),
}

impl Error {
    /// What the client makes of a request that got no answer.
    pub(super) fn from_client(error: &hyper_util::client::legacy::Error) -> Self {
        Self::from_sources(error).unwrap_or_else(|| Self::Connection(error.to_string()))
    }

    /// What the end of a body means that is no end.
    pub(super) fn from_body(error: &hyper::Error) -> Self {
        Self::from_sources(error).unwrap_or_else(|| Self::Protocol(error.to_string()))
    }

    /// The error that one of a reader is.
    pub(super) fn from_reader(error: &io::Error) -> Self {
        let own = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        own.cloned().unwrap_or_else(|| Self::Coding(error.to_string()))
    }

    fn from_sources(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        let mut least = None;
        while let Some(error) = next {
            if let Some(own) = error.downcast_ref::<Self>() {
                return Some(own.clone());
            }
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(match tls {
                    rustls::Error::InvalidCertificate(reason) => {
                        Self::Certificate(reason.to_string())
                    }
                    other => Self::Tls(other.to_string()),
                });
            }
            if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
                least = match () {
                    () if hyper.is_parse_too_large() => Some(Self::Headers),
                    () if hyper.is_parse() => Some(Self::Protocol(hyper.to_string())),
                    () if hyper.is_incomplete_message() => Some(Self::Incomplete),
                    () if hyper.is_timeout() => Some(Self::Timeout(None)),
                    () => least,
                };
            }
            if let Some(io) = error.downcast_ref::<io::Error>() {
                // What it holds is not among its sources, but theirs are.
                let inner = io.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
                if let Some(found) = inner.and_then(Self::from_sources) {
                    return Some(found);
                }
                least = least.or(Some(Self::from_connection(io)));
            }
            next = error.source();
        }
        least
    }

    /// Why there is no connection, or no longer one.
    pub(super) fn from_connection(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::ConnectionRefused,
            io::ErrorKind::TimedOut => Self::ConnectionTimeout,
            io::ErrorKind::UnexpectedEof => Self::Incomplete,
            _ => Self::Connection(error.to_string()),
        }
    }

    /// What stands in the record: the rule of a refusal, else the words.
    pub(super) fn recorded(&self) -> String {
        match self {
            Self::Refused(denial) | Self::Address(denial) => denial.rule.clone(),
            other => other.to_string(),
        }
    }

    /// What the operator can do something about.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match self {
            Self::Timeout(Some(bound)) => Some(Obstacle::Late(bound.clone())),
            Self::Setup(_) => Some(Obstacle::Setup(self.to_string())),
            _ => None,
        }
    }

    /// The refusal of a rule.
    pub fn denial(&self) -> Option<&Denial> {
        match self {
            Self::Refused(denial) | Self::Address(denial) => Some(denial),
            _ => None,
        }
    }
}
