//! Where a secret may go.

use super::pattern::{HostPattern, PrivateHosts};
use super::target::{Scheme, Target};

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

/// Where a secret may go: into requests that fit all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRule {
    /// Its name.
    pub name: String,
    /// The hosts; none: nowhere.
    pub hosts: Vec<HostPattern>,
    /// Methods in upper case; empty: all.
    pub methods: Vec<String>,
    /// Prefixes of the path, compared by whole segments; empty: all.
    pub paths: Vec<String>,
    /// Where it is put.
    pub placement: Placement,
}

impl SecretRule {
    /// Whether it is put into a request. By https; by http, only to a loopback address that `private` opens. `path`: the URL's path; one
    /// that has `..` or an escaped `/` or `.` in it, and so may be read in another way there, fits no prefix.
    pub fn goes(&self, target: &Target, method: &str, path: &str, private: &[PrivateHosts]) -> bool {
        let guarded = match target.scheme {
            Scheme::Https => true,
            // What `localhost` resolves to isn't known here.
            Scheme::Http => target.host.address().is_some_and(|address| {
                address.to_canonical().is_loopback() && private.iter().any(|private| private.opens(target, address))
            }),
        };
        guarded
            && self.hosts.iter().any(|host| host.matches(&target.host))
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
            three[0] == b'%' && [b"2e", b"2f", b"5c", b"25", b"3b", b"00"].iter().any(|code| three[1..].eq_ignore_ascii_case(*code))
        });
    if unclear {
        return false;
    }
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
