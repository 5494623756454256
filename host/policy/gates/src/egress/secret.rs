//! Decides into which requests a secret may be inserted.

use super::path::is_ambiguous;
use super::pattern::{HostPattern, PrivateHosts};
use super::reach::{Grant, HostGrantError, Missing, Reach, ReachStatus};
use super::target::{Scheme, Target, TargetHost};

/// The part of a request that contains a secret.
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
    /// In a header, where a program has written the placeholder of this variable.
    Placeholder {
        /// Name of the environment variable in which programs get the placeholder.
        variable: String,
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
        "over http, a secret is only sent to this machine: write https, `localhost` or a loopback \
         address"
    )]
    Http,
    /// The pattern matches every host.
    #[error("`*` would send the secret to every host: name the hosts for the secret")]
    Any,
    /// The pattern matches the hosts of many owners.
    #[error(
        "after `*`, write at least two parts of a name, as in `*.example.com`, because the hosts \
         below a single part have many owners"
    )]
    Wide,
    /// The host is in a private network, and has no port.
    #[error(
        "a name without a dot isn't a public host; for a host of your own network, add the port, \
         as in `HOST:443`"
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
    /// `*.example.com:8443`, `localhost:3000`, `http://127.0.0.1:3000`. Refuses an entry that could
    /// send the secret to a host of another owner, or over a network without TLS.
    ///
    /// # Errors
    ///
    /// Returns the fault of the entry, and the remedy.
    pub fn new(written: &str) -> Result<Self, SecretHostError> {
        let Grant { hosts, scheme, port, .. } = Grant::new(written)?;
        if hosts.is_any() {
            return Err(SecretHostError::Any);
        }
        // A short entry is a pattern such as `*.com`, or the name of a host in a private network.
        let is_short = hosts.plain_labels().is_some_and(|labels| labels < 2);
        let is_pattern = hosts.single_host().is_none();
        if is_short && is_pattern {
            return Err(SecretHostError::Wide);
        }
        let is_local = hosts.single_host().is_some_and(TargetHost::is_loopback);
        let is_private_name = is_short && !is_local;
        if is_private_name && port.is_none() {
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

    /// Checks whether a target is one of the hosts, with the scheme and the port of the entry.
    pub fn matches(&self, target: &Target) -> bool {
        self.has_scheme(target.scheme)
            && self.port() == target.port
            && self.hosts.matches(&target.host)
    }

    fn has_scheme(&self, scheme: Scheme) -> bool {
        match self.scheme {
            Some(own) => own == scheme,
            // Without a scheme and a port, the entry is only for https.
            None => self.port.is_some() || scheme == Scheme::Https,
        }
    }

    /// Checks whether the rules for requests allow a request to this host with the secret. Returns
    /// true if the entry is a pattern, because the rules may allow one of its hosts.
    fn is_reached(&self, reach: &Reach) -> bool {
        let Some(host) = self.hosts.single_host() else { return true };
        for scheme in [Scheme::Https, Scheme::Http] {
            if !self.has_scheme(scheme) {
                continue;
            }
            let target = Target { scheme, host: host.clone(), port: self.port() };
            // A secret is sent over http only to an opened private host.
            let is_opened =
                reach.private.iter().any(|private| private.value.matches_target(&target));
            if scheme == Scheme::Http && !is_opened {
                continue;
            }
            // If only the method or the path is missing, other requests are allowed.
            let no_approvals: [String; 0] = [];
            let status = reach.status(&target, "GET", "/", &no_approvals);
            let may_be_sent = matches!(
                status,
                Ok(ReachStatus::Granted | ReachStatus::Unlisted(Missing::Method | Missing::Path))
            );
            if may_be_sent {
                return true;
            }
        }
        false
    }
}

/// The reason why a secret isn't inserted into a request to one of its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretMismatch {
    /// The secret has no entry for this host with the port and scheme of the request.
    Origin,
    /// The request uses http, and no entry for private hosts opens its host.
    NoTls,
    /// The secret isn't for this method.
    Method,
    /// The secret isn't for this path.
    Path,
}

/// The requests into which a secret may be inserted. A request must meet all conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// Name of the secret.
    pub name: String,
    /// Hosts that may get the secret. Empty means no host.
    pub hosts: Vec<SecretHost>,
    /// Methods in upper case. Empty means all methods.
    pub methods: Vec<String>,
    /// Prefixes of paths, compared by whole segments. Empty means all paths.
    pub paths: Vec<String>,
    /// The part of the request that contains the secret.
    pub placement: Placement,
}

impl SecretRule {
    /// Checks whether the secret is inserted into a request.
    ///
    /// The request must use https. A request may use http only for a host of this machine that
    /// `private` opens: a loopback address, or `localhost`. If `localhost` resolves to another
    /// address, [`Reach::address`](super::Reach::address) denies that address.
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

    /// Returns the reason why the secret isn't inserted into a request to one of its hosts. Returns
    /// `None` if the secret is inserted, or if the request goes to another host.
    /// [`applies_to`](Self::applies_to) has the same parameters.
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
        let is_opened = target.host.is_loopback()
            && private.iter().any(|private| private.matches_target(target));
        if target.scheme == Scheme::Http && !is_opened {
            return Some(SecretMismatch::NoTls);
        }
        if !self.hosts.iter().any(|host| host.matches(target)) {
            return Some(SecretMismatch::Origin);
        }
        // An empty list means all methods or all paths.
        let has_method =
            self.methods.is_empty() || self.methods.iter().any(|allowed| allowed == method);
        if !has_method {
            return Some(SecretMismatch::Method);
        }
        let has_path =
            self.paths.is_empty() || self.paths.iter().any(|prefix| is_below(path, prefix));
        if !has_path {
            return Some(SecretMismatch::Path);
        }
        None
    }

    /// Checks whether the rules for requests can allow a request with the secret. Returns true if
    /// this isn't certain.
    pub fn may_be_sent(&self, reach: &Reach) -> bool {
        self.hosts.iter().any(|host| host.is_reached(reach))
    }
}

/// Checks whether a path is at or below `prefix`. Returns false for a path that servers read in
/// different ways.
fn is_below(path: &str, prefix: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if is_ambiguous(path) {
        return false;
    }
    let Some(rest) = path.strip_prefix(prefix.trim_end_matches('/')) else { return false };
    // `/api` is a prefix of `/apis`, but `/apis` isn't below `/api`.
    rest.is_empty() || rest.starts_with('/')
}
