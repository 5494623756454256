//! Where a secret may go.

use super::pattern::{HostPattern, PrivateHosts};
use super::target::Target;

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
        let _ = (target, method, path, private);
        false
    }
}
