//! Decides which requests a secret may be put into.

use super::pattern::{HostPattern, HostPatternError, PortError, PrivateHosts, with_port};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};

/// Where in a request a secret is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In a header, after a prefix such as `Bearer `.
    Header {
        /// Name of the header, in lower case.
        name: String,
        /// Text before the secret.
        prefix: String,
    },
    /// In the query of the URL.
    Query {
        /// Name of the parameter.
        name: String,
    },
}

/// An entry for the hosts of a secret that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretHostError {
    /// Its port isn't valid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Its pattern isn't valid.
    #[error(transparent)]
    Pattern(#[from] HostPatternError),
    /// The pattern matches every host.
    #[error("`*` would send the secret to every host: name the hosts that it is for")]
    Any,
    /// The pattern matches the hosts of many owners.
    #[error(
        "after `*`, write at least two parts of a name, as in `*.example.com`: the hosts below one part have many owners"
    )]
    Wide,
    /// The host is one of a private network, without a port.
    #[error(
        "a name without a dot isn't a public host: for a host of your own network, add its port, as in `HOST:443`"
    )]
    NoPort,
}

/// Hosts that a secret is for, on one port. Another port may belong to another service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretHost {
    hosts: HostPattern,
    port: Option<u16>,
}

impl SecretHost {
    /// Reads an entry: `api.example.com` (https on its default port), `*.example.com:8443`,
    /// `localhost:3000`.
    ///
    /// # Errors
    ///
    /// The fault of the entry, and what to write instead.
    pub fn new(written: &str) -> Result<Self, SecretHostError> {
        // For a URL, the pattern returns the error.
        let (hosts, port) =
            if written.contains("://") { (written, None) } else { with_port(written)? };
        let hosts = HostPattern::new(hosts)?;
        if hosts.is_any() {
            return Err(SecretHostError::Any);
        }
        let is_short = hosts.plain_labels().is_some_and(|labels| labels < 2);
        if is_short && !hosts.is_single_host() {
            return Err(SecretHostError::Wide);
        }
        if is_short && port.is_none() && !is_localhost(&hosts) {
            return Err(SecretHostError::NoPort);
        }
        Ok(Self { hosts, port })
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &HostPattern {
        &self.hosts
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(Scheme::Https.port())
    }

    fn matches(&self, target: &Target) -> bool {
        // Without a port, the entry is for https alone.
        let has_scheme = self.port.is_some() || target.scheme == Scheme::Https;
        has_scheme && self.port() == target.port && self.hosts.matches(&target.host)
    }
}

fn is_localhost(hosts: &HostPattern) -> bool {
    hosts.is_single_host() && hosts.matches(&TargetHost::Name(LOCALHOST.to_owned()))
}

/// The requests that a secret may be put into. All conditions have to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// Name of the secret.
    pub name: String,
    /// Hosts. Empty: no host.
    pub hosts: Vec<SecretHost>,
    /// Methods in upper case. Empty: all.
    pub methods: Vec<String>,
    /// Prefixes of the path, compared by whole segments. Empty: all paths.
    pub paths: Vec<String>,
    /// Place of the secret in the request.
    pub placement: Placement,
}

impl SecretRule {
    /// Checks whether the secret is put into a request.
    ///
    /// The request has to use https. It may use http only for a host of this machine that `private`
    /// opens: a loopback address, or `localhost`. For `localhost`,
    /// [`Reach::address`](super::Reach::address) refuses all other addresses.
    ///
    /// `path` is the path of the URL. A path with `..`, an escaped `/` or an escaped `.` matches no
    /// prefix, since the server may read it in another way.
    pub fn applies_to(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        private: &[PrivateHosts],
    ) -> bool {
        let is_protected = match target.scheme {
            Scheme::Https => true,
            Scheme::Http => {
                let is_local = match &target.host {
                    TargetHost::Name(name) => name == LOCALHOST,
                    TargetHost::Address(address) => address.to_canonical().is_loopback(),
                };
                is_local && private.iter().any(|private| private.names(target))
            }
        };
        if !is_protected || !self.hosts.iter().any(|host| host.matches(target)) {
            return false;
        }
        let has_method = self.methods.is_empty() || self.methods.iter().any(|one| one == method);
        let has_path =
            self.paths.is_empty() || self.paths.iter().any(|prefix| is_below(path, prefix));
        has_method && has_path
    }
}

/// Checks whether every server reads a path as one at or below a prefix.
fn is_below(path: &str, prefix: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_unclear = path.contains(['\\', ';'])
        || path.contains("//")
        || path.split('/').any(|segment| matches!(segment, "." | ".."))
        || path.as_bytes().windows(3).any(is_unclear_escape);
    if is_unclear {
        return false;
    }
    let Some(below) = path.strip_prefix(prefix.trim_end_matches('/')) else { return false };
    below.is_empty() || below.starts_with('/')
}

/// Checks whether three bytes are an escaped `.`, `/`, `\`, `%`, `;` or NUL.
fn is_unclear_escape(three: &[u8]) -> bool {
    let codes = [b"2e", b"2f", b"5c", b"25", b"3b", b"00"];
    three[0] == b'%' && codes.iter().any(|code| three[1..].eq_ignore_ascii_case(*code))
}
