//! One of Toolhold's own requests, as the sender builds it: purpose, credential, limits, and the
//! origin of the URL.

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
    /// The most time from the beginning to the end of the answer.
    pub time: Duration,
    /// The longest time without data. This includes the time from sending the request to the first
    /// byte of the answer.
    pub idle: Duration,
    /// The most bytes of the answer's body.
    pub bytes: u64,
}

/// The default limits are for small answers.
impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), idle: Duration::from_secs(10), bytes: 1 << 20 }
    }
}

/// A header with a secret for a single origin.
#[derive(Clone)]
pub struct Credential {
    origin: String,
    name: HeaderName,
    value: HeaderValue,
}

impl Credential {
    /// Makes a value of the header `authorization` that is only sent to the origin of a URL.
    pub fn new(url: &Url, value: HeaderValue) -> Self {
        Self::in_header(url, AUTHORIZATION, value)
    }

    /// Makes a value of a header with another name for requests to the origin of a URL.
    pub fn in_header(url: &Url, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self { origin: rules::origin(url), name, value }
    }

    /// Puts the secret into the headers of a request, if the request goes to the secret's origin.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap, origin: &str) {
        if self.origin == origin {
            headers.insert(&self.name, self.value.clone());
        }
    }
}

/// The output leaves out the secret.
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
    /// Makes a GET request to a URL that the operator configured or named, so its host may be
    /// private. The record contains `purpose`.
    ///
    /// # Errors
    ///
    /// [`OutboundError::Url`] or [`OutboundError::Blocked`] if the URL can't be requested.
    pub fn get(purpose: &'static str, url: &str) -> Result<Self, OutboundError> {
        Self::new(purpose, Method::GET, url)
    }

    /// Makes a request with another method to a URL that the operator configured or named.
    /// Redirects are only followed if the method is GET or HEAD.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::get`].
    pub fn new(purpose: &'static str, method: Method, url: &str) -> Result<Self, OutboundError> {
        let url = rules::parse(url)?;
        let named = vec![rules::origin(&url)];
        Self::checked(purpose, method, url, named)
    }

    /// Makes a request to a URL that a server chose. Its host may not be private, unless the
    /// operator named the same origin in `named`.
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

    /// Makes a redirect an error. Use this for headers or bodies that must stay with their origin.
    #[must_use]
    pub fn stay(mut self) -> Self {
        self.follows = false;
        self
    }

    /// Adds a header without a secret. Every hop sends the header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Adds a secret for a single origin. If several secrets use the same header, the last one is
    /// sent.
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

    /// Sets limits that differ from the default.
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
