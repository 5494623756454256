//! The place that a request goes to, in the one form that rules look at.

use std::fmt;
use std::net::IpAddr;

/// How a request is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the open.
    Http,
    /// By TLS.
    Https,
}

/// A host, normalised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name: ASCII (IDNA), lower case, without a dot at its end.
    Name(String),
    /// An address, however it was spelled.
    Address(IpAddr),
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// How it is carried.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, the scheme's own where none is written.
    pub port: u16,
}

impl Target {
    /// The place that a URL names.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is none, has another scheme, no host, or a name or password before the host.
    pub fn of(url: &str) -> Result<Self, String> {
        Err(format!("`{url}` can't be read"))
    }

    /// As it stands in a URL, without the port where it is the scheme's own.
    pub fn origin(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.host)
    }
}
