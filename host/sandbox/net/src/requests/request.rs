//! One of Toolhold's own requests, with its credentials and limits.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use crate::requests::error::OutboundError;
use crate::requests::rules;

/// The limits of one request, including its redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit from the start of the request to the end of the answer.
    pub time: Duration,
    /// Maximum time without data, also before the first byte of the answer.
    pub idle: Duration,
    /// Maximum number of bytes of the answer's body. A longer body fails.
    pub bytes: u64,
}

/// Limits for small answers.
impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), idle: Duration::from_secs(10), bytes: 1 << 20 }
    }
}

/// A header with a secret for one origin.
#[derive(Clone)]
pub struct Credential {
    origin: String,
    name: HeaderName,
    value: HeaderValue,
}

impl Credential {
    /// Creates an `authorization` header that is sent only to the origin of a URL.
    pub fn new(url: &Url, value: HeaderValue) -> Self {
        Self::in_header(url, AUTHORIZATION, value)
    }

    /// Creates a header with another name that is sent only to the origin of a URL.
    pub fn in_header(url: &Url, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self { origin: rules::origin(url), name, value }
    }

    /// Inserts the header if `origin` is the origin of the secret.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap, origin: &str) {
        if self.origin == origin {
            headers.insert(&self.name, self.value.clone());
        }
    }
}

/// Doesn't show the secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// One of Toolhold's own requests.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) purpose: &'static str,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) named: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) follows: bool,
}

impl Request {
    /// Creates a GET request to a URL that the operator configured or named. Its host may be
    /// private. The record contains `purpose`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL can't be requested.
    pub fn get(purpose: &'static str, url: &str) -> Result<Self, OutboundError> {
        Self::new(purpose, Method::GET, url)
    }

    /// Creates a request to a URL that the operator configured or named. Only redirects of GET and
    /// HEAD are followed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::get`].
    pub fn new(purpose: &'static str, method: Method, url: &str) -> Result<Self, OutboundError> {
        let url = rules::parse(url)?;
        let named = vec![rules::origin(&url)];
        Self::checked(purpose, method, url, named)
    }

    /// Makes a request to a URL that a server chose. `named` are URLs that the operator named. The
    /// host of the request may be private only if one of these URLs has the same origin.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::get`].
    pub fn chosen_by_server(
        purpose: &'static str,
        method: Method,
        url: &str,
        named: &[&Url],
    ) -> Result<Self, OutboundError> {
        let url = rules::parse(url)?;
        let named = named.iter().map(|url| rules::origin(url)).collect();
        Self::checked(purpose, method, url, named)
    }

    /// Creates a request if its scheme is allowed. `named` are the origins that the operator named.
    fn checked(
        purpose: &'static str,
        method: Method,
        url: Url,
        named: Vec<String>,
    ) -> Result<Self, OutboundError> {
        rules::check_scheme(&url, &named)?;
        Ok(Self {
            purpose,
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            credentials: Vec::new(),
            named,
            limits: Limits::default(),
            follows: true,
        })
    }

    /// Makes a redirect an error. Use this for headers or bodies that no other origin may get.
    #[must_use]
    pub fn stay(mut self) -> Self {
        self.follows = false;
        self
    }

    /// Adds a header without a secret. It is also sent after a redirect.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Adds a secret for one origin. If several secrets use the same header, the last one is sent.
    #[must_use]
    pub fn credential(mut self, credential: Option<Credential>) -> Self {
        self.credentials.extend(credential);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the URL.
    pub fn url(&self) -> &Url {
        &self.url
    }
}
