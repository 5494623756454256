//! The target of a program's connection, and the entry of `hosts` that would grant it.

use std::fmt;

use toolhold_contract::Denial;

use super::reach::{CONNECT, Grant, HostGrantError, Missing, Reach, bounded, forbidden_host};
use super::target::{Scheme, Target, TargetHost};
use crate::origin::Placed;

/// The target of a program's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramTarget {
    /// Host and port, with the scheme of the program's protocol. Another protocol than HTTP has
    /// the scheme `https`.
    pub target: Target,
    /// Whether the program uses another protocol than TLS and HTTP.
    pub is_other_protocol: bool,
}

impl ProgramTarget {
    /// Makes the target of a connection with TLS, or without TLS over HTTP.
    pub fn new(scheme: Scheme, host: TargetHost, port: u16) -> Self {
        Self { target: Target { scheme, host, port }, is_other_protocol: false }
    }

    /// Makes the target of a connection with another protocol than TLS and HTTP.
    pub fn of_other_protocol(host: TargetHost, port: u16) -> Self {
        Self { target: Target { scheme: Scheme::Https, host, port }, is_other_protocol: true }
    }

    /// Reads an entry of `hosts` for one host, such as `example.org` or `example.org:22`.
    ///
    /// # Errors
    ///
    /// Returns the fault of the entry. An entry for several hosts is a fault, too.
    pub fn from_entry(entry: &str) -> Result<Self, HostGrantError> {
        let Grant { hosts, scheme, port, .. } = Grant::new(entry)?;
        let Some(host) = hosts.single_host().cloned() else {
            return Err(HostGrantError::Several(bounded(entry)));
        };
        Ok(match (scheme, port) {
            (None, Some(port)) => Self::of_other_protocol(host, port),
            (scheme, port) => {
                let scheme = scheme.unwrap_or(Scheme::Https);
                Self::new(scheme, host, port.unwrap_or(scheme.port()))
            }
        })
    }

    /// Returns why the host is private, such as `a name without a dot, …`. Returns `None` for a
    /// public host.
    pub fn private_reason(&self) -> Option<&'static str> {
        forbidden_host(&self.target.host).map(|block| block.kind)
    }

    /// Returns the grant that allows exactly such connections.
    ///
    /// # Errors
    ///
    /// Returns an error if no entry can have this host.
    pub fn grant(&self) -> Result<Grant, HostGrantError> {
        Grant::new(&self.to_string())
    }
}

/// Writes the entry of `hosts` that grants the connection.
impl fmt::Display for ProgramTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { scheme, host, port } = &self.target;
        if self.is_other_protocol {
            f.write_str(&self.target.host_and_port())
        } else if *scheme == Scheme::Https && *port == scheme.port() {
            write!(f, "{host}")
        } else {
            f.write_str(&self.target.origin())
        }
    }
}

impl Reach {
    /// Finds the entry that grants a connection of a program. Methods are checked later.
    ///
    /// # Errors
    ///
    /// Returns the denial if there is no such entry.
    pub fn entry_of_program(&self, wanted: &ProgramTarget) -> Result<&Placed<Grant>, Denial> {
        let ProgramTarget { target, is_other_protocol } = wanted;
        self.connection(target)?;
        let granted = self.grants.iter().find(|grant| {
            let grant = &grant.value;
            let has_protocol = if *is_other_protocol {
                grant.is_for_any_protocol()
            } else {
                target.scheme == Scheme::Https || grant.scheme == Some(Scheme::Http)
            };
            has_protocol && grant.hosts.matches(&target.host) && grant.has_origin(target)
        });
        granted.ok_or_else(|| {
            let mut denial = self.unlisted(target, CONNECT, Missing::Port);
            denial.remedy =
                self.remedy_to_add(target, &self.place, self.key(), &wanted.to_string());
            denial
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_host_has_a_reason() {
        for (entry, is_private) in [
            ("git.corp", true),
            ("db:5432", true),
            ("10.1.2.3:22", true),
            ("example.org", false),
            ("8.8.8.8", false),
        ] {
            let target = ProgramTarget::from_entry(entry).expect("an entry");
            assert_eq!(target.private_reason().is_some(), is_private, "{entry}");
        }
    }

    #[test]
    fn target_is_written_as_the_entry_that_grants_it() {
        let name = || TargetHost::Name("a.example".to_owned());
        let cases = [
            (ProgramTarget::new(Scheme::Https, name(), 443), "a.example"),
            (ProgramTarget::new(Scheme::Https, name(), 8443), "https://a.example:8443"),
            (ProgramTarget::new(Scheme::Http, name(), 80), "http://a.example"),
            (ProgramTarget::new(Scheme::Http, name(), 8080), "http://a.example:8080"),
            (ProgramTarget::of_other_protocol(name(), 22), "a.example:22"),
        ];
        for (target, entry) in cases {
            assert_eq!(target.to_string(), entry);
            assert_eq!(ProgramTarget::from_entry(entry).expect("an entry"), target);
            assert_eq!(target.grant().expect("a grant").to_string(), entry);
        }
        for entry in ["*.example", "*", "a.example/x", "", "ftp://a.example"] {
            ProgramTarget::from_entry(entry).expect_err(entry);
        }
    }
}
