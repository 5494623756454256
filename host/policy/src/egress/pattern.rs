//! Hosts as the operator writes them.

use super::target::{Host, Target};
use std::net::IpAddr;

/// A pattern for hosts: a name, an address, `*.example.com` for all names below one, `*` for any host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(String);

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        Ok(Self(written.to_owned()))
    }

    /// Whether a host fits.
    pub fn matches(&self, _host: &Host) -> bool {
        false
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Private hosts that are opened: `host:port`, `host`, an address, or a range in CIDR notation, each with or without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateHosts(String);

impl PrivateHosts {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to write instead.
    pub fn new(written: &str) -> Result<Self, String> {
        Ok(Self(written.to_owned()))
    }

    /// Whether it opens an address of a target: the target by its name and port, or the address itself.
    pub fn opens(&self, _target: &Target, _address: IpAddr) -> bool {
        false
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
