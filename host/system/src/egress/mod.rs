//! The way out to the network: every request of every plugin goes through here.
//!
//! What a request names is decided on by `berth-policy`; what the name resolves to is decided on by the connector, which connects to the very
//! address that was looked at. There is no other code that connects.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use berth_policy::egress::{Reach, SecretRule};

/// What the requests of one plugin may do, and how they are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where they may go.
    pub reach: Reach,
    /// Their bounds.
    pub limits: Limits,
    /// Secrets that are put into them.
    pub secrets: Vec<Secret>,
    /// Hosts to which a request may carry what looks like a secret, as patterns.
    pub credentials_to: Vec<berth_policy::egress::HostPattern>,
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
    pub own: OwnPorts,
}

/// A proxy for requests.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// `http://host:port`, perhaps with a name and a password.
    pub url: String,
    /// Hosts that are reached without it, in the form of `NO_PROXY`.
    pub except: String,
    /// Whether the proxy looks names up, rather than this machine. What they resolve to isn't checked then.
    pub resolves: bool,
}

/// The addresses that this program listens on. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct OwnPorts(Arc<RwLock<Vec<SocketAddr>>>);

/// Looks names up.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// All addresses of a name.
    fn resolve<'r>(&'r self, name: &'r str) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'r>>;
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

/// A secret: where it may go, and where it comes from.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Where it may go.
    pub rule: SecretRule,
    /// Where it comes from. It is read when it is first needed.
    pub source: SecretSource,
}

/// Where a secret comes from.
#[derive(Clone)]
pub enum SecretSource {
    /// It is known: the value of an environment variable.
    Value(Arc<str>),
    /// A file, without the line's end at its end.
    File(PathBuf),
    /// What a program prints: the program and its arguments.
    Command(Vec<String>),
    /// The desktop's keyring, by what the entry is stored under.
    Keyring {
        /// The attribute `service`.
        service: String,
        /// The attribute `account`.
        account: String,
    },
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(words) => f.debug_tuple("Command").field(&words.first()).finish(),
            Self::Keyring { service, account } => f.debug_struct("Keyring").field("service", service).field("account", account).finish(),
        }
    }
}

/// The requests of one plugin: where they may go, and the connections that wait for more of them. They are the plugin's own, so that none
/// serves a request by other rules than those that it was opened by.
#[derive(Debug)]
pub struct Egress {
    settings: Settings,
}

impl Egress {
    /// Makes ready what requests need. Nothing is connected to, and no secret is read.
    ///
    /// # Errors
    ///
    /// What of the settings can't be used.
    pub fn new(settings: Settings) -> Result<Self, String> {
        Ok(Self { settings })
    }

    /// Whether a secret of this name is there for requests.
    pub fn has_secret(&self, name: &str) -> bool {
        self.settings.secrets.iter().any(|secret| secret.rule.name == name)
    }
}

impl OwnPorts {
    /// Adds an address that this program listens on.
    pub fn add(&self, address: SocketAddr) {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(address);
    }

    /// All of them.
    pub fn all(&self) -> Vec<SocketAddr> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
