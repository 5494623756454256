//! What the requests of one plugin reach.

use std::net::{IpAddr, SocketAddr};

use berth_contract::Denial;

use super::pattern::{HostPattern, PrivateHosts};
use super::target::{Scheme, Target};
use crate::origin::Origin;
use crate::policy::Placed;

/// Requests that are granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Which hosts.
    pub hosts: HostPattern,
    /// How they are reached. None: by https, and by http where `https_only` is off or the host is an opened private one.
    pub scheme: Option<Scheme>,
    /// On which port. None: the scheme's own, or that of an opened private host.
    pub port: Option<u16>,
    /// Methods in upper case. Empty: all.
    pub methods: Vec<String>,
}

/// What the requests of one plugin reach.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The table that grants, for what a refusal says would help: `tools.web`, or `plugins.NAME`.
    pub table: String,
    /// What is granted, each with its place.
    pub grants: Vec<Placed<Grant>>,
    /// Hosts that are never reached, whatever is granted.
    pub denied: Vec<Placed<HostPattern>>,
    /// Private hosts that are opened.
    pub private: Vec<Placed<PrivateHosts>>,
    /// Whether requests to others than opened private hosts have to be carried by TLS.
    pub https_only: Placed<bool>,
    /// Where the grants stand, for when none fits.
    pub place: Origin,
}

impl Reach {
    /// Decides on a request before its name is resolved: method and scheme, the deny list, what is granted, and an address that is written
    /// in place of a name. `approved`: hosts (as [`Target::origin`]) that were decided on for this call, and count as granted for it.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn request(&self, target: &Target, method: &str, approved: &[String]) -> Result<(), Denial> {
        let _ = (method, approved);
        Err(Denial {
            capability: "http".to_owned(),
            action: format!("{method} {target}"),
            rule: "hosts, which names none".to_owned(),
            place: self.place.text.clone().into_owned(),
            remedy: String::new(),
        })
    }

    /// Decides on an address that a target has. `own`: where this program listens itself.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn address(&self, target: &Target, address: IpAddr, own: &[SocketAddr]) -> Result<(), Denial> {
        let _ = (address, own);
        self.request(target, "GET", &[])
    }
}
