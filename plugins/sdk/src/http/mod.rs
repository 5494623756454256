//! Requests of a Rust plugin to the network. The plugin asks for them in its manifest:
//! `http = "reason"`. The operator names the hosts that it may reach.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use toolhold_sdk::Failure;
//! use toolhold_sdk::http::Request;
//!
//! # fn main() -> Result<(), Failure> {
//! let answer = Request::get("https://api.example.com/items?page=1")
//!     .header("accept", "application/json")
//!     .timeout(Duration::from_secs(10))
//!     .max_body(256 * 1024)
//!     .send()?
//!     .error_for_status()?;
//! let items: serde_json::Value = serde_json::from_slice(&answer.body)?;
//! # Ok(())
//! # }
//! ```
//!
//! The SDK follows redirects, each with a request of its own, so that the host checks each of them
//! by the operator's rules. The host asks for compression and decodes bodies. A secret of the
//! operator, such as a token for a service, never enters a plugin. The host puts it into the
//! requests that may carry it, and [`secrets`](crate::secrets) only says whether it exists.
//!
//! In unit tests the operating system's sockets replace the host, without TLS and without rules. A
//! test runs its own server on loopback.

mod error;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(target_arch = "wasm32")]
mod wasi;

use std::time::Duration;

use serde::Serialize;
use url::Url;

pub use error::{HttpError, HttpErrorKind};
#[cfg(not(target_arch = "wasm32"))]
use native as engine;
#[cfg(target_arch = "wasm32")]
use wasi as engine;

use crate::Failure;

/// Redirects that are followed by default. The host refuses more.
pub const MAX_REDIRECTS: u8 = 3;

/// Bytes of a body that are read by default.
pub const DEFAULT_MAX_BODY: usize = 1 << 20;

/// Headers that are removed when a redirect leads to another origin, since they were meant for the
/// first origin.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    timeout: Option<Duration>,
    max_body: usize,
    max_redirects: u8,
    private: Vec<String>,
}

impl Request {
    /// A GET request to `url`, an absolute URL with `http` or `https`.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A request with any method. The method is case-sensitive: `POST`.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
            max_body: DEFAULT_MAX_BODY,
            max_redirects: MAX_REDIRECTS,
            private: Vec::new(),
        }
    }

    /// Adds a header. The host sets `host`, `content-length`, `accept-encoding` and the headers of
    /// the connection.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Adds a header for this origin only. A redirect to another origin drops it, as it drops
    /// `authorization` and `cookie`.
    #[must_use]
    pub fn private_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into().to_ascii_lowercase();
        self.private.push(name.clone());
        self.header(name, value)
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        self
    }

    /// Sets the body to `value` as JSON. It also sets the content type for JSON unless one is set
    /// already.
    ///
    /// # Errors
    ///
    /// If JSON can't represent `value`.
    pub fn json(self, value: &impl Serialize) -> Result<Self, Failure> {
        let typed = self.headers.iter().any(|(name, _)| name == "content-type");
        let this = if typed { self } else { self.header("content-type", "application/json") };
        Ok(this.body(serde_json::to_vec(value)?))
    }

    /// Sets the time limit for connecting, for the first byte of an answer, and for each next byte.
    /// The host's own limits and the time of the call still count.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Reads at most this many bytes of the body. [`Response::cut`] says whether there was more.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Follows this many redirects, at most [`MAX_REDIRECTS`]. With 0, the redirect itself is the
    /// answer.
    #[must_use]
    pub fn max_redirects(mut self, redirects: u8) -> Self {
        self.max_redirects = redirects.min(MAX_REDIRECTS);
        self
    }

    /// Sends the request, follows redirects and reads the body. An answer with an error status,
    /// such as 404, isn't an error here: see [`Response::error_for_status`].
    ///
    /// # Errors
    ///
    /// If there is no answer, or the answer can't be read.
    pub fn send(self) -> Result<Response, HttpError> {
        let url = parse(&self.url)?;
        if !is_token(&self.method) {
            return Err(HttpError::new(
                HttpErrorKind::Invalid,
                format!("the method {:?} isn't valid", self.method),
            ));
        }
        for (name, value) in &self.headers {
            if !is_token(name) || value.bytes().any(|byte| byte != b'\t' && byte.is_ascii_control())
            {
                return Err(HttpError::new(
                    HttpErrorKind::Invalid,
                    format!(
                        "the header {name:?} isn't valid: its name or value has a forbidden character"
                    ),
                ));
            }
        }
        let follows = self.max_redirects;
        let private = self.private;
        let mut hop = Hop {
            method: self.method,
            url,
            headers: self.headers,
            body: self.body,
            timeout: self.timeout,
            max_body: self.max_body,
        };
        let mut passed = Vec::new();
        loop {
            let answer = engine::exchange(&hop).map_err(|error| error.at(&hop.url))?;
            let next = if follows > 0 { target(&hop.url, &answer) } else { None };
            let Some(next) = next else {
                return Ok(Response {
                    status: answer.status,
                    url: hop.url.into(),
                    headers: answer.headers,
                    body: answer.body,
                    cut: answer.cut,
                    redirects: passed,
                });
            };
            let next = next?;
            if passed.len() >= usize::from(follows) {
                let message =
                    format!("more than {follows} redirects; the next one leads to {next}");
                return Err(HttpError::new(HttpErrorKind::Redirect, message).at(&hop.url));
            }
            if matches!(answer.status, 307 | 308)
                && !matches!(hop.method.as_str(), "GET" | "HEAD")
                && next.origin() != hop.url.origin()
            {
                let message = format!(
                    "redirect to {next} not followed: it would send the body to another origin"
                );
                return Err(HttpError::new(HttpErrorKind::Redirect, message).at(&hop.url));
            }
            let from = std::mem::replace(&mut hop.url, next);
            hop.redirect(&from, answer.status, &private);
            passed.push(from.into());
        }
    }
}

/// One request, as it is sent.
#[derive(Debug)]
struct Hop {
    method: String,
    url: Url,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    timeout: Option<Duration>,
    max_body: usize,
}

impl Hop {
    /// Adapts the request to a redirect from `from` to its new URL.
    fn redirect(&mut self, from: &Url, status: u16, private: &[String]) {
        // As in browsers: the answer to a form is a page, which needs a GET.
        let becomes_get = match status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        if becomes_get {
            "GET".clone_into(&mut self.method);
            self.body.clear();
            self.headers.retain(|(name, _)| !name.starts_with("content-"));
        }
        if from.origin() != self.url.origin() {
            self.headers.retain(|(name, _)| {
                !CREDENTIALS.contains(&name.as_str()) && !private.contains(name)
            });
        }
    }
}

/// The answer to one request.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    cut: bool,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

/// The answer of a server, after redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// The URL of the answer, after redirects.
    pub url: String,
    /// The headers in the order of the answer, with names in lower case. A value that isn't UTF-8
    /// is read as Latin-1.
    pub headers: Vec<(String, String)>,
    /// The decoded body, or the part that was read.
    pub body: Vec<u8>,
    /// Whether the body is longer than the part that was read.
    pub cut: bool,
    /// The URLs that redirected, in order, from the requested one.
    pub redirects: Vec<String>,
}

impl Response {
    /// The value of the first header with this name. Give the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The media type in lower case, without parameters. Empty if the server names no type.
    pub fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Whether the status means success: 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The time to wait before the next request, at most an hour. It comes from the header
    /// `retry-after`, in seconds or as a date.
    pub fn retry_after(&self) -> Option<Duration> {
        error::retry_after(self.header("retry-after")?)
    }

    /// This answer, if its status means success.
    ///
    /// # Errors
    ///
    /// If the status is any other. The failure tells a host whether to try again, and a model what
    /// to do instead.
    pub fn error_for_status(self) -> Result<Self, Failure> {
        if self.is_success() { Ok(self) } else { Err(error::from_status(&self)) }
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Parses and checks the URL of a request.
fn parse(text: &str) -> Result<Url, HttpError> {
    let url = Url::parse(text).map_err(|error| {
        let why = format!("{text:?} isn't an absolute URL: {error}");
        HttpError::new(HttpErrorKind::Invalid, why)
    })?;
    check(&url).map_err(|why| HttpError::new(HttpErrorKind::Invalid, why))?;
    Ok(url)
}

fn check(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https URLs are allowed, not {}", url.scheme()));
    }
    // A name or a password in a URL can make one host look like another. It would also appear in
    // logs.
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user name or a password is not allowed; remove it".to_owned());
    }
    Ok(())
}

/// The URL that `answer` redirects to. `None` if it isn't a redirect.
fn target(from: &Url, answer: &Answer) -> Option<Result<Url, HttpError>> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = answer.header("location")?;
    let mut to = match from.join(location) {
        Ok(to) => to,
        Err(error) => {
            return Some(Err(refused(from, &format!("{location:?} isn't a URL: {error}"))));
        }
    };
    if let Err(why) = check(&to) {
        return Some(Err(refused(from, &why)));
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        let why = format!(
            "it leads from https to {to}; redirects from https to http are blocked, since http is not encrypted"
        );
        return Some(Err(refused(from, &why)));
    }
    if to.fragment().is_none() {
        to.set_fragment(from.fragment());
    }
    Some(Ok(to))
}

fn refused(from: &Url, why: &str) -> HttpError {
    HttpError::new(HttpErrorKind::Redirect, format!("the redirect is not followed: {why}")).at(from)
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A header's value as text: UTF-8, or else Latin-1.
fn text(value: Vec<u8>) -> String {
    String::from_utf8(value)
        .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect())
}

#[cfg(test)]
mod tests;
