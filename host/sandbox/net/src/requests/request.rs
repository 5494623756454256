//! A request of Toolhold's own as its sender builds it: its purpose, credential, limits, and who
//! chose its URL.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use crate::requests::error::OutboundError;
use crate::requests::rules;

/// The limits of one request with all its redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most time from the beginning to the end of the answer.
    pub time: Duration,
    /// The most time without any data. Sending the request, until the answer begins, counts too.
    pub idle: Duration,
    /// The most bytes of the answer's body.
    pub bytes: u64,
}

/// For small answers.
impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), idle: Duration::from_secs(10), bytes: 1 << 20 }
    }
}

/// A header with a secret, for one origin alone.
#[derive(Clone)]
pub struct Credential {
    origin: String,
    name: HeaderName,
    value: HeaderValue,
}

impl Credential {
    /// The value of the header `authorization` for requests to the origin of a URL, and to no
    /// other one.
    pub fn new(url: &Url, value: HeaderValue) -> Self {
        Self::in_header(url, AUTHORIZATION, value)
    }

    /// The same for a header with another name.
    pub fn in_header(url: &Url, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self { origin: rules::origin(url), name, value }
    }

    pub(crate) fn for_origin(&self, origin: &str) -> Option<(&HeaderName, &HeaderValue)> {
        (self.origin == origin).then_some((&self.name, &self.value))
    }
}

/// Without the secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A request of Toolhold's own.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) purpose: &'static str,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) credentials: Vec<Credential>,
    /// The origins that the operator named.
    pub(crate) named: Vec<String>,
    pub(crate) limits: Limits,
    /// Whether redirects are followed.
    pub(crate) follows: bool,
}

impl Request {
    /// A GET of a URL that the operator configured or named: its host may be private. `purpose`
    /// stands in the record.
    ///
    /// # Errors
    ///
    /// [`OutboundError::Url`] or [`OutboundError::Blocked`]: the URL can't be requested.
    pub fn get(purpose: &'static str, url: &str) -> Result<Self, OutboundError> {
        Self::new(purpose, Method::GET, url)
    }

    /// A request with another method to a URL that the operator configured or named. Redirects
    /// aren't followed unless the method is GET or HEAD.
    ///
    /// # Errors
    ///
    /// Like [`Self::get`].
    pub fn new(purpose: &'static str, method: Method, url: &str) -> Result<Self, OutboundError> {
        let url = rules::parse(url)?;
        let named = vec![rules::origin(&url)];
        let request = Self::unnamed(purpose, method, url, named);
        rules::check_scheme(&request.url, &request.named)?;
        Ok(request)
    }

    /// A request to a URL that a server chose. Its host may not be private, unless the operator
    /// named the same origin in `named`.
    ///
    /// # Errors
    ///
    /// Like [`Self::get`].
    pub fn chosen_by_server(
        purpose: &'static str,
        method: Method,
        url: &str,
        named: &[&Url],
    ) -> Result<Self, OutboundError> {
        let url = rules::parse(url)?;
        let named = named.iter().map(|url| rules::origin(url)).collect();
        let request = Self::unnamed(purpose, method, url, named);
        rules::check_scheme(&request.url, &request.named)?;
        Ok(request)
    }

    fn unnamed(purpose: &'static str, method: Method, url: Url, named: Vec<String>) -> Self {
        Self {
            purpose,
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            credentials: Vec::new(),
            named,
            limits: Limits::default(),
            follows: true,
        }
    }

    /// Without following redirects: one is an error. For requests whose headers or body are for
    /// their own origin alone.
    #[must_use]
    pub fn stay(mut self) -> Self {
        self.follows = false;
        self
    }

    /// With a header, which has no secret: every hop gets it.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// With a secret for its own origin. Of several in one header, the last one is sent.
    #[must_use]
    pub fn credential(mut self, credential: Option<Credential>) -> Self {
        self.credentials.extend(credential);
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// With other limits than the usual ones.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Its URL.
    pub fn url(&self) -> &Url {
        &self.url
    }
}
