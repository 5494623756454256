//! Where a secret may go.

use super::pattern::{HostPattern, PrivateHosts, with_port};
use super::target::{LOCALHOST, Scheme, Target, TargetHost};

/// Where in a request a secret is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into a header, behind a prefix such as `Bearer `.
    Header {
        /// The header's name, in lower case.
        name: String,
        /// What stands before it.
        prefix: String,
    },
    /// Into the URL's query.
    Query {
        /// The parameter's name.
        name: String,
    },
}

/// Hosts that a secret is for, on one port: who serves another port of a host may be somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretHost {
    hosts: HostPattern,
    port: Option<u16>,
}

impl SecretHost {
    /// Reads one: `api.example.com` for what is reached by https on its own port,
    /// `*.example.com:8443`, `localhost:3000`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        // What is wrong with a URL, the pattern says.
        let (hosts, port) =
            if written.contains("://") { (written, None) } else { with_port(written)? };
        let hosts = HostPattern::new(hosts)?;
        if hosts.is_any() {
            return Err(
                "`*` would send the secret to every host: name those that it is for".to_owned()
            );
        }
        let alone = hosts.plain_labels().is_some_and(|labels| labels < 2);
        if alone && !hosts.is_one() {
            return Err("behind a `*` stand at least two parts of a name, as in `*.example.com`: fewer are the names of anybody".to_owned());
        }
        if alone && port.is_none() && !is_localhost(&hosts) {
            return Err(
                "a name without a dot isn't a public host: for a host of your own network, add its port, as in `HOST:443`".to_owned()
            );
        }
        Ok(Self { hosts, port })
    }

    /// Which hosts.
    pub fn hosts(&self) -> &HostPattern {
        &self.hosts
    }

    /// On which port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(Scheme::Https.port())
    }

    fn fits(&self, target: &Target) -> bool {
        self.port() == target.port
            && (self.port.is_some() || target.scheme == Scheme::Https)
            && self.hosts.matches(&target.host)
    }
}

fn is_localhost(hosts: &HostPattern) -> bool {
    hosts.is_one() && hosts.matches(&TargetHost::Name(LOCALHOST.to_owned()))
}

/// Where a secret may go: into requests that fit all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// Its name.
    pub name: String,
    /// The hosts; none: nowhere.
    pub hosts: Vec<SecretHost>,
    /// Methods in upper case; empty: all.
    pub methods: Vec<String>,
    /// Prefixes of the path, compared by whole segments; empty: all.
    pub paths: Vec<String>,
    /// Where it is put.
    pub placement: Placement,
}

impl SecretRule {
    /// Whether it is put into a request. By https; by http, only to what `private` opens of this
    /// machine: a loopback address, or `localhost`, for which
    /// [`Reach::address`](super::Reach::address) lets no other address pass. `path`: the URL's
    /// path; one that has `..` or an escaped `/` or `.` in it, and so may be read in another way
    /// there, fits no prefix.
    pub fn goes(
        &self,
        target: &Target,
        method: &str,
        path: &str,
        private: &[PrivateHosts],
    ) -> bool {
        let guarded = match target.scheme {
            Scheme::Https => true,
            Scheme::Http => {
                let here = match &target.host {
                    TargetHost::Name(name) => name == LOCALHOST,
                    TargetHost::Address(address) => address.to_canonical().is_loopback(),
                };
                here && private.iter().any(|private| private.names(target))
            }
        };
        guarded
            && self.hosts.iter().any(|host| host.fits(target))
            && (self.methods.is_empty() || self.methods.iter().any(|one| one == method))
            && (self.paths.is_empty() || self.paths.iter().any(|prefix| begins(path, prefix)))
    }
}

/// Whether a path lies at or below a prefix, for every server that may read it.
fn begins(path: &str, prefix: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let unclear = path.contains(['\\', ';'])
        || path.contains("//")
        || path.split('/').any(|segment| matches!(segment, "." | ".."))
        || path.as_bytes().windows(3).any(|three| {
            // `.`, `/`, `\`, `%`, `;`, and NUL.
            three[0] == b'%'
                && [b"2e", b"2f", b"5c", b"25", b"3b", b"00"]
                    .iter()
                    .any(|code| three[1..].eq_ignore_ascii_case(*code))
        });
    if unclear {
        return false;
    }
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
