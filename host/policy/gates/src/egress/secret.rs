//! Decides into which requests a secret may be inserted.

use super::pattern::{HostPattern, PrivateHosts};
use super::reach::{Grant, HostGrantError, Missing, Reach, ReachStatus};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};

/// Where in a request a secret is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A header, after a prefix such as `Bearer `.
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
    /// The entry isn't valid as a grant for requests, either.
    #[error(transparent)]
    Grant(#[from] HostGrantError),
    /// The entry would send the secret without TLS over a network.
    #[error(
        "a secret is sent by http only to this machine: write https, or `localhost` or a loopback \
         address"
    )]
    Http,
    /// The pattern matches every host.
    #[error("`*` would send the secret to every host: name the hosts that it is for")]
    Any,
    /// The pattern matches the hosts of many owners.
    #[error(
        "after `*`, write at least two parts of a name, as in `*.example.com`: the hosts below one part have many owners"
    )]
    Wide,
    /// The host is in a private network, and has no port.
    #[error(
        "a name without a dot isn't a public host: for a host of your own network, add its port, as in `HOST:443`"
    )]
    NoPort,
}

/// Hosts that may get a secret, on one port. Another port may belong to another service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretHost {
    hosts: HostPattern,
    scheme: Option<Scheme>,
    port: Option<u16>,
}

impl SecretHost {
    /// Reads an entry, in the form of a [`Grant`]: `api.example.com` (https on its default port),
    /// `*.example.com:8443`, `localhost:3000`, `http://127.0.0.1:3000`.
    ///
    /// # Errors
    ///
    /// The fault of the entry, and what to write instead.
    pub fn new(written: &str) -> Result<Self, SecretHostError> {
        let Grant { hosts, scheme, port, .. } = Grant::new(written)?;
        if hosts.is_any() {
            return Err(SecretHostError::Any);
        }
        let is_short = hosts.plain_labels().is_some_and(|labels| labels < 2);
        if is_short && hosts.single_host().is_none() {
            return Err(SecretHostError::Wide);
        }
        let is_local = hosts.single_host().is_some_and(is_local);
        if is_short && port.is_none() && !is_local {
            return Err(SecretHostError::NoPort);
        }
        if scheme == Some(Scheme::Http) && !is_local {
            return Err(SecretHostError::Http);
        }
        Ok(Self { hosts, scheme, port })
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &HostPattern {
        &self.hosts
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.unwrap_or(Scheme::Https).port())
    }

    fn matches(&self, target: &Target) -> bool {
        self.has_scheme(target.scheme)
            && self.port() == target.port
            && self.hosts.matches(&target.host)
    }

    fn has_scheme(&self, scheme: Scheme) -> bool {
        match self.scheme {
            Some(own) => own == scheme,
            // Without a scheme and a port, the entry is for https alone.
            None => self.port.is_some() || scheme == Scheme::Https,
        }
    }

    /// Checks whether the rules for requests can let one reach this host with the secret. True if
    /// that is unclear: several hosts match a pattern.
    fn is_reached(&self, reach: &Reach) -> bool {
        let Some(host) = self.hosts.single_host() else { return true };
        for scheme in [Scheme::Https, Scheme::Http] {
            let target = Target { scheme, host: host.clone(), port: self.port() };
            let is_opened = reach.private.iter().any(|private| private.value.names(&target));
            if !self.has_scheme(scheme) || (scheme == Scheme::Http && !is_opened) {
                continue;
            }
            let status = reach.status(&target, "GET", &[]);
            if matches!(status, Ok(ReachStatus::Granted | ReachStatus::Unlisted(Missing::Method))) {
                return true;
            }
        }
        false
    }
}

/// Checks whether a host is this machine.
fn is_local(host: &TargetHost) -> bool {
    match host {
        TargetHost::Name(name) => name == LOCALHOST,
        TargetHost::Address(address) => address.to_canonical().is_loopback(),
    }
}

/// The reason why a secret isn't put into a request to one of its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretMismatch {
    /// Its entries for the host have another port or scheme.
    Origin,
    /// The request has no TLS, and no entry for private hosts opens its host.
    NoTls,
    /// Its methods don't have the method.
    Method,
    /// None of its paths is above the path.
    Path,
}

/// The requests into which a secret may be inserted. All conditions must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// Name of the secret.
    pub name: String,
    /// Hosts. Empty means no host.
    pub hosts: Vec<SecretHost>,
    /// Methods in upper case. Empty means all methods.
    pub methods: Vec<String>,
    /// Prefixes of the path, compared by whole segments. Empty means all paths.
    pub paths: Vec<String>,
    /// Place of the secret in the request.
    pub placement: Placement,
}

impl SecretRule {
    /// Checks whether the secret is inserted into a request.
    ///
    /// The request must use https. A request may use http only for a host of this machine that
    /// `private` opens: a loopback address, or `localhost`. For `localhost`,
    /// [`Reach::address`](super::Reach::address) denies all other addresses.
    ///
    /// `path` is the path of the URL. A path with `..`, an escaped `/` or an escaped `.` matches no
    /// prefix, because the server may read it differently.
    pub fn applies_to(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        private: &[PrivateHosts],
    ) -> bool {
        let has_host = self.hosts.iter().any(|host| host.hosts.matches(&target.host));
        has_host && self.mismatch(target, method, path, private).is_none()
    }

    /// Returns the reason why the secret isn't put into a request to one of its hosts. Returns
    /// `None` if it is put in, or if the request goes to another host. The parameters are those of
    /// [`applies_to`](Self::applies_to).
    pub fn mismatch(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        private: &[PrivateHosts],
    ) -> Option<SecretMismatch> {
        if !self.hosts.iter().any(|host| host.hosts.matches(&target.host)) {
            return None;
        }
        let is_opened =
            is_local(&target.host) && private.iter().any(|private| private.names(target));
        if target.scheme == Scheme::Http && !is_opened {
            return Some(SecretMismatch::NoTls);
        }
        if !self.hosts.iter().any(|host| host.matches(target)) {
            return Some(SecretMismatch::Origin);
        }
        if !self.methods.is_empty() && !self.methods.iter().any(|one| one == method) {
            return Some(SecretMismatch::Method);
        }
        if !self.paths.is_empty() && !self.paths.iter().any(|prefix| is_below(path, prefix)) {
            return Some(SecretMismatch::Path);
        }
        None
    }

    /// Checks whether the rules for requests can let the secret reach one of its hosts. True if
    /// that is unclear.
    pub fn may_be_sent(&self, reach: &Reach) -> bool {
        self.hosts.iter().any(|host| host.is_reached(reach))
    }
}

/// Checks whether all servers read a path as a path at or below a prefix.
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
