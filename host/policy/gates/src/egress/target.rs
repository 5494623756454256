//! Parses the URL of a request into the normal form that rules check.

use std::fmt;
use std::net::IpAddr;

use toolhold_contract::text::{cut, neutral_line};

/// Bytes of the longest URL. Servers also refuse longer URLs.
const MAX_URL: usize = 8192;

/// Bytes of a URL that an error shows. A longer URL is cut.
const MAX_SHOWN: usize = 200;

pub(super) const LOCALHOST: &str = "localhost";

/// Limits of the DNS, in bytes.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A URL that can't be requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The URL is too long.
    #[error("the URL is {0} bytes; the limit is {MAX_URL}")]
    Length(usize),
    /// The URL isn't valid, or programs interpret it differently.
    #[error("`{url}` can't be requested: {source}")]
    Url {
        /// The start of the URL, as one line.
        url: String,
        /// The fault of the URL.
        source: UrlError,
    },
}

/// A fault of a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL contains a control character.
    #[error("the URL contains {0:?}, which programs read in different ways")]
    Control(char),
    /// The scheme is missing.
    #[error("the scheme is missing: write the URL as https://example.com/path")]
    NoScheme,
    /// The scheme isn't https or http.
    #[error("the scheme isn't https or http")]
    Scheme,
    /// There is a backslash before the query.
    #[error(
        "the URL contains `\\`, which programs read in different ways: write `/`, or `%5C` for the \
         character itself"
    )]
    Backslash,
    /// The host is missing.
    #[error("the host is missing")]
    NoHost,
    /// There is a user name or password before the host.
    #[error(
        "the URL has a user name or password: remove it with the `@`, and configure a secret instead"
    )]
    Credentials,
    /// The parser can't read the URL.
    #[error(transparent)]
    Parse(#[from] url::ParseError),
    /// The host isn't valid.
    #[error(transparent)]
    Host(#[from] TargetHostError),
    /// The port is 0.
    #[error("port 0 isn't valid: ports are numbers from 1 to 65535")]
    Port,
}

/// A host that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetHostError {
    /// The URL parser can't read the host.
    #[error(transparent)]
    Parse(#[from] url::ParseError),
    /// The name is too long.
    #[error("name is {0} bytes; the limit is {MAX_NAME}")]
    Length(usize),
    /// A label is empty.
    #[error("a part of the name between two dots is empty")]
    EmptyLabel,
    /// A label is too long.
    #[error("a part of the name has {0} bytes; the limit is {MAX_LABEL}")]
    LabelLength(usize),
    /// Names in the DNS or TLS can't have this character.
    #[error("{0:?} isn't allowed in a name: use letters, digits, `-`, `_` and dots")]
    Character(char),
}

/// Scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// Reads the name of a scheme, in any case. Returns `None` for other schemes.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Https, Self::Http]
            .into_iter()
            .find(|scheme| name.eq_ignore_ascii_case(scheme.as_str()))
    }

    /// Returns the scheme as in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the default port of the scheme.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A host in its normal form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// A name in ASCII (IDNA) and lower case, without a dot at the end.
    Name(String),
    /// An address. A mapped address becomes an IPv4 address.
    Address(IpAddr),
}

impl TargetHost {
    /// Returns whether the host is the loopback of the machine that makes the request.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == LOCALHOST,
            Self::Address(address) => address.to_canonical().is_loopback(),
        }
    }

    /// Reads a host as in a URL. An IPv6 address has brackets.
    pub(super) fn parse(written: &str) -> Result<Self, TargetHostError> {
        Self::from_url_host(url::Host::parse(written)?)
    }

    fn from_url_host<S: AsRef<str>>(host: url::Host<S>) -> Result<Self, TargetHostError> {
        match host {
            url::Host::Ipv4(address) => Ok(Self::Address(address.into())),
            url::Host::Ipv6(address) => Ok(Self::Address(IpAddr::from(address).to_canonical())),
            url::Host::Domain(name) => check_name(name.as_ref()).map(Self::Name),
        }
    }

    /// Returns the address. Returns `None` for a name.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Address(address) => Some(*address),
        }
    }
}

/// Refuses the faults that `url::Url` accepts and repairs. Other programs may read such a URL
/// differently.
fn check_repaired_faults(after_scheme: &str) -> Result<(), UrlError> {
    // `split` always returns a first part.
    let before_query = after_scheme.split(['?', '#']).next().unwrap_or_default();
    if before_query.contains('\\') {
        return Err(UrlError::Backslash);
    }
    let authority = before_query.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        return Err(UrlError::NoHost);
    }
    if authority.contains('@') {
        return Err(UrlError::Credentials);
    }
    Ok(())
}

/// Checks that a name is valid for the DNS and TLS. Returns the name without a dot at the end. The
/// URL parser has already converted the name to ASCII and lower case.
fn check_name(name: &str) -> Result<String, TargetHostError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_NAME {
        return Err(TargetHostError::Length(name.len()));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(TargetHostError::EmptyLabel);
        }
        if label.len() > MAX_LABEL {
            return Err(TargetHostError::LabelLength(label.len()));
        }
        if let Some(c) = label.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')) {
            return Err(TargetHostError::Character(c));
        }
    }
    Ok(name.to_owned())
}

impl fmt::Display for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Scheme of the request.
    pub scheme: Scheme,
    /// Host of the request.
    pub host: TargetHost,
    /// The port of the request: the port in the URL, or the default port of the scheme.
    pub port: u16,
}

impl Target {
    /// Reads the target of a URL.
    ///
    /// Refuses a URL that programs read in different ways. Otherwise the connection could go to
    /// a target that no rule has checked.
    ///
    /// # Errors
    ///
    /// Returns the fault of the URL.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let (target, _) = Self::with_url(url)?;
        Ok(target)
    }

    /// Reads the target of a URL. Also returns the URL in the normal form for rules: the host as in
    /// [`TargetHost`], a path without dot segments, and no fragment. A fragment is never sent.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse`](Self::parse).
    pub fn with_url(url: &str) -> Result<(Self, String), TargetError> {
        if url.len() > MAX_URL {
            return Err(TargetError::Length(url.len()));
        }
        let (target, parsed) = Self::read(url).map_err(|source| TargetError::Url {
            url: neutral_line(cut(url, MAX_SHOWN)),
            source,
        })?;
        let mut text = target.origin() + parsed.path();
        if let Some(query) = parsed.query() {
            text.push('?');
            text.push_str(query);
        }
        Ok((target, text))
    }

    /// Parses a URL. Refuses a URL that other programs may read differently.
    fn read(url: &str) -> Result<(Self, url::Url), UrlError> {
        if let Some(c) = url.chars().find(|c| c.is_control()) {
            return Err(UrlError::Control(c));
        }
        let (scheme_name, after_scheme) = url.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = Scheme::from_name(scheme_name).ok_or(UrlError::Scheme)?;
        check_repaired_faults(after_scheme)?;
        let parsed = url::Url::parse(url)?;
        let host = TargetHost::from_url_host(parsed.host().ok_or(UrlError::NoHost)?)?;
        let port = parsed.port().unwrap_or(scheme.port());
        if port == 0 {
            return Err(UrlError::Port);
        }
        Ok((Self { scheme, host, port }, parsed))
    }

    /// Returns the origin as in a URL, without the default port of the scheme.
    pub fn origin(&self) -> String {
        self.to_string()
    }

    /// Returns the unusual properties of the target. A person should see them before approving a
    /// request.
    pub fn oddities(&self) -> Vec<&'static str> {
        let mut oddities = Vec::new();
        match &self.host {
            TargetHost::Name(name) => {
                if name.split('.').any(|label| label.starts_with("xn--")) {
                    oddities.push("letters of other scripts, which can look like Latin letters");
                }
            }
            TargetHost::Address(_) => oddities.push("an address instead of a name"),
        }
        if self.port != self.scheme.port() {
            oddities.push("an unusual port");
        }
        if self.scheme == Scheme::Http {
            oddities.push("http, without TLS");
        }
        oddities
    }

    /// Returns the host and port as in the header `host`, without the default port of the scheme.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() { self.host.to_string() } else { self.host_and_port() }
    }

    /// Returns the host and port, also for the default port of the scheme.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}
