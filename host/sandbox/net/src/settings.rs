//! The settings of a plugin's requests: its rules, limits, secrets, proxy and resolver.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use toolhold_policy::egress::{HostPattern, Reach};

use super::secret_sources::Secret;
use super::tls::TrustStore;

/// The settings for the requests of one plugin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules about hosts and addresses.
    pub reach: Reach,
    /// The limits of requests.
    pub limits: Limits,
    /// The configuration key of the request's time limit, as it appears in messages: `timeout` in
    /// \[tools.web\].
    pub time_key: String,
    /// Whether a call to a host that no grant names can be approved by a person.
    pub asks: bool,
    /// Secrets that the host puts into requests.
    pub secrets: Vec<Secret>,
    /// Patterns of hosts. Requests to these hosts may contain text that looks like a secret.
    pub credentials_to: Vec<HostPattern>,
    /// The settings that all plugins share.
    pub network: Network,
}

/// The network settings of all plugins.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The proxy for requests.
    pub proxy: Option<Proxy>,
    /// PEM files of certificate authorities that are trusted in addition to the system's
    /// authorities.
    pub authorities: Vec<PathBuf>,
    /// The resolver of names. `None` selects the system's resolver.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// The addresses that this program listens on. Requests to these addresses are refused.
    pub listening: Arc<[SocketAddr]>,
    /// The certificate authorities. The first use reads them, and clones share them.
    pub trust: Arc<TrustStore>,
}

/// A proxy for requests.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The proxy's URL, `http://host:port`. The URL can contain a user name and a password.
    pub url: String,
    /// Hosts that are reached without the proxy, in the form of `NO_PROXY`.
    pub except: String,
    /// Whether the proxy resolves names instead of this machine. The addresses of these names then
    /// aren't checked.
    pub resolves: bool,
}

/// A resolver of names.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// Returns all addresses of a name.
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'r>>;
}

/// The limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest time from the start of a request to the end of its answer.
    pub time: Duration,
    /// The most time without any data.
    pub idle: Duration,
    /// The most bytes of an answer's body, compressed and decompressed.
    pub body: u64,
    /// The most bytes of a request's body.
    pub request_body: u64,
    /// The most bytes of headers.
    pub headers: usize,
    /// The most concurrent requests of a plugin.
    pub concurrent: usize,
    /// The most requests of one call.
    pub requests: u32,
}
