//! The place that a request goes to, in the one form that rules look at.

use std::fmt;
use std::net::IpAddr;

use berth_contract::text::{cut, neutral_line};

/// Bytes of a URL. Longer ones servers refuse as well.
const MAX_URL: usize = 8192;

/// Bytes of a URL that an error shows.
const MAX_SHOWN: usize = 200;

/// The name of this machine.
pub(super) const LOCALHOST: &str = "localhost";

/// Bytes of a name and of one of its labels: the bounds of the DNS.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// How a request is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the open.
    Http,
    /// By TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that it has where none is written.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A host, normalised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// A name: ASCII (IDNA), lower case, without a dot at its end.
    Name(String),
    /// An address, however it was spelled; of version 4 where it is mapped into version 6.
    Address(IpAddr),
}

impl TargetHost {
    /// A host as it stands in a URL: with brackets around an address of version 6.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        let host = url::Host::parse(written).map_err(|error| error.to_string())?;
        Self::normalised(host)
    }

    fn normalised<S: AsRef<str>>(host: url::Host<S>) -> Result<Self, String> {
        match host {
            url::Host::Ipv4(address) => Ok(Self::Address(address.into())),
            url::Host::Ipv6(address) => Ok(Self::Address(IpAddr::from(address).to_canonical())),
            url::Host::Domain(name) => name_of(name.as_ref()).map(Self::Name),
        }
    }

    /// The address, where it is written in place of a name.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Address(address) => Some(*address),
        }
    }
}

/// A name that the URL parser has made ASCII and lower case, held to what the DNS and TLS take for
/// one.
fn name_of(name: &str) -> Result<String, String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_NAME {
        return Err(format!("name is {} bytes; the limit is {MAX_NAME}", name.len()));
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("a part of the name between two dots is empty".to_owned()),
            1..=MAX_LABEL => {}
            length => {
                return Err(format!(
                    "a part of the name has {length} bytes, and at most {MAX_LABEL} are allowed"
                ));
            }
        }
        if let Some(c) = label.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')) {
            return Err(format!(
                "{c:?} is in the name, which has letters, digits, `-` and `_` between dots"
            ));
        }
    }
    Ok(name.to_owned())
}

/// As it stands in a URL.
impl fmt::Display for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// How it is carried.
    pub scheme: Scheme,
    /// The host.
    pub host: TargetHost,
    /// The port, the scheme's own where none is written.
    pub port: u16,
}

impl Target {
    /// The place that a URL names.
    ///
    /// A URL that programs read in different ways is refused, rather than read in one of them: what
    /// is looked at here has to be what is connected to.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is none, has another scheme, no host, or a name or password before
    /// the host.
    pub fn parse(url: &str) -> Result<Self, String> {
        Ok(Self::with_url(url)?.0)
    }

    /// The place that a URL names, and the URL in the one form that rules look at: the host as in
    /// [`TargetHost`], dots in the path resolved, without a fragment, which is not sent.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::parse).
    pub fn with_url(url: &str) -> Result<(Self, String), String> {
        if url.len() > MAX_URL {
            return Err(format!(
                "a URL of {} bytes is too long; at most {MAX_URL} are taken",
                url.len()
            ));
        }
        let (target, parsed) = Self::read(url).map_err(|why| {
            format!("`{}` can't be requested: {why}", neutral_line(cut(url, MAX_SHOWN)))
        })?;
        let mut text = target.origin() + parsed.path();
        if let Some(query) = parsed.query() {
            text.push('?');
            text.push_str(query);
        }
        Ok((target, text))
    }

    fn read(url: &str) -> Result<(Self, url::Url), String> {
        if let Some(c) = url.chars().find(|c| c.is_control()) {
            return Err(format!("{c:?} is in it, which programs read in different ways"));
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or("it has no scheme: write it as https://example.com/path")?;
        let scheme = match scheme {
            scheme if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
            scheme if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
            _ => return Err("only https and http URLs are requested".to_owned()),
        };
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        if rest[..end].contains('\\') {
            return Err("`\\` is in it, which programs read in different ways: write `/`, or `%5C` for the character itself".to_owned());
        }
        let authority = rest[..end].split('/').next().unwrap_or_default();
        if authority.is_empty() {
            return Err("it has no host".to_owned());
        }
        if authority.contains('@') {
            return Err(
                "the URL has a user name or password: remove it with the `@`, and configure a secret instead"
                    .to_owned(),
            );
        }
        let parsed = url::Url::parse(url).map_err(|error| error.to_string())?;
        let host = TargetHost::normalised(parsed.host().ok_or("it has no host")?)?;
        let port = parsed.port().unwrap_or(scheme.port());
        if port == 0 {
            return Err("no service has port 0".to_owned());
        }
        Ok((Self { scheme, host, port }, parsed))
    }

    /// As it stands in a URL, without the port where it is the scheme's own.
    pub fn origin(&self) -> String {
        self.to_string()
    }

    /// What a person should know of it before they say yes, in a few words each.
    pub fn oddities(&self) -> Vec<&'static str> {
        let (name, address) = match &self.host {
            TargetHost::Name(name) => (Some(name), None),
            TargetHost::Address(address) => (None, Some(address)),
        };
        let odd = [
            (
                name.is_some_and(|name| name.split('.').any(|label| label.starts_with("xn--"))),
                "letters of other scripts, which can look like others",
            ),
            (address.is_some(), "an address in place of a name"),
            (self.port != self.scheme.port(), "an unusual port"),
            (self.scheme == Scheme::Http, "in the open, without TLS"),
        ];
        odd.into_iter().filter_map(|(is, words)| is.then_some(words)).collect()
    }

    /// Host and port, as the header `host` has them: without the port where it is the scheme's own.
    pub fn authority(&self) -> String {
        match self.port == self.scheme.port() {
            true => self.host.to_string(),
            false => self.host_and_port(),
        }
    }

    /// Host and port, whatever the port is.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}
