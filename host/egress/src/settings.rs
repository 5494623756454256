//! What requests are made by.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use berth_policy::egress::{HostPattern, Reach};

use super::secrets::Secret;
use super::tls::TrustStore;

/// What the requests of one plugin may do, and how they are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where they may go.
    pub reach: Reach,
    /// Their bounds.
    pub limits: Limits,
    /// The key that bounds their time, as people look for it: `timeout` in \[tools.web\].
    pub time_key: String,
    /// Whether a person is asked about a call to a host that no grant names.
    pub asks: bool,
    /// Secrets that are put into them.
    pub secrets: Vec<Secret>,
    /// Hosts to which a request may carry what looks like a secret, as patterns.
    pub credentials_to: Vec<HostPattern>,
    /// What is the same for all plugins.
    pub network: Network,
}

/// What is the same for the requests of all plugins.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// A proxy that requests go through.
    pub proxy: Option<Proxy>,
    /// Certificates of authorities beside those of the system, PEM.
    pub authorities: Vec<PathBuf>,
    /// Who looks names up. None: the system.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// Where this program listens: no request goes there.
    pub listening: Arc<[SocketAddr]>,
    /// Whom TLS trusts, as soon as that was read; clones share it.
    pub trust: Arc<TrustStore>,
}

/// A proxy for requests.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// `http://host:port`, perhaps with a name and a password.
    pub url: String,
    /// Hosts that are reached without it, in the form of `NO_PROXY`.
    pub except: String,
    /// Whether the proxy looks names up, rather than this machine. What they resolve to isn't
    /// checked then.
    pub resolves: bool,
}

/// Looks names up.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// All addresses of a name.
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'r>>;
}

/// The bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most time from a request's beginning to the end of its answer.
    pub time: Duration,
    /// The most time in which nothing comes.
    pub idle: Duration,
    /// Bytes of an answer's body, compressed and decompressed.
    pub body: u64,
    /// Bytes of a request's body.
    pub request_body: u64,
    /// Bytes of headers.
    pub headers: usize,
    /// Requests that a plugin has at a time.
    pub concurrent: usize,
    /// Requests of one call.
    pub requests: u32,
}
