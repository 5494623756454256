//! The settings of a plugin's requests.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use toolhold_policy::egress::{HostPattern, Reach};

use super::own_requests::Recorder;
use super::secret_sources::Secret;
use super::tls::TrustStore;

/// The settings for the requests of one plugin.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The rules about hosts and addresses.
    pub reach: Reach,
    /// The limits of requests.
    pub limits: Limits,
    /// The configuration key of the time limit, for messages: `timeout` in \[tools.web\].
    pub time_key: String,
    /// Whether a person can approve a call to a host without a grant.
    pub asks: bool,
    /// Secrets that the host inserts into requests.
    pub secrets: Vec<Secret>,
    /// Hosts to which requests may contain text that looks like a secret.
    pub credentials_to: Vec<HostPattern>,
    /// The settings that all plugins share.
    pub network: Network,
}

/// The network settings of all plugins.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The proxy for requests.
    pub proxy: Option<Proxy>,
    /// PEM files of certificate authorities that are trusted besides the system's authorities.
    pub authorities: Vec<PathBuf>,
    /// The resolver of names. `None` means the system's resolver.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// The addresses where this program listens. Requests to them are refused.
    pub listening: Arc<[SocketAddr]>,
    /// The certificate authorities, shared by all clones. The first use reads them.
    pub trust: Arc<TrustStore>,
    /// Records the connections of programs that continue after their call.
    pub log: Option<Arc<dyn Recorder>>,
}

/// A proxy for requests.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The proxy's URL, `http://host:port`. The URL can contain a user name and a password.
    pub url: String,
    /// Hosts that are reached without the proxy, in the form of `NO_PROXY`.
    pub except: String,
    /// Whether the proxy resolves names instead of this machine. The addresses of these names
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

/// The limits of requests. A request or an answer that exceeds a limit fails.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit from the start of a request to the end of its answer.
    pub time: Duration,
    /// Maximum time without data.
    pub idle: Duration,
    /// Maximum bytes of an answer's body, both compressed and decompressed.
    pub body: u64,
    /// Maximum bytes of a request's body.
    pub request_body: u64,
    /// Maximum bytes of headers.
    pub headers: usize,
    /// Maximum number of a plugin's concurrent requests. A further request waits until its time
    /// limit.
    pub concurrent: usize,
    /// Maximum number of requests of one call.
    pub requests: u32,
}
