//! The requests of plugins to the network. Every request of every plugin goes through this crate.
//!
//! `toolhold-policy` decides on the host of a request, and then on each address of that host. The
//! connection goes to a checked address. No other code connects for plugins.
//!
//! [`requests`] sends Toolhold's own requests.

mod answer;
mod check;
mod coding;
mod connect;
mod echoes;
mod error;
mod jobs;
mod own_requests;
mod program;
mod programs;
mod record;
mod redirects;
pub mod requests;
mod secret_sources;
mod secrets;
mod send;
mod settings;
mod stream;
mod tls;

pub use check::Scope;
pub use connect::ProxyServer;
pub use echoes::Echoes;
pub use error::{Error, Obstacle};
pub use programs::{HostAccess, HostGate, HostQuestions, HostRelay, drain_ended_relays};
pub use secret_sources::{
    Secret, SecretError, SecretFormError, SecretSource, SecretValue, examine, read,
};
pub use send::{Body, Denials, Requests, Timeouts};
pub use settings::{Limits, Network, Proxy, Resolve, Settings};
pub use tls::{AuthorityError, TrustStore, examine_authority};

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use toolhold_policy::egress::Reach;

use connect::Connector;

type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Maximum number of idle connections to one host, and the time after which they close.
const IDLE_CONNECTIONS: usize = 4;
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Maximum number of headers of an answer. An answer with more headers fails.
const MAX_HEADERS: usize = 256;

/// The client's limit for header bytes is the configured one, moved into this range.
const LOWEST_HEADER_LIMIT: usize = 16 * 1024;
const HIGHEST_HEADER_LIMIT: usize = 1 << 20;

/// Bytes that an HTTP/2 server may send before the client has read them: for one request, and for
/// all requests of a connection.
const STREAM_WINDOW: u32 = 1 << 18;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The requests of one plugin. Plugins don't share connections, so the rules for a connection never
/// change.
pub struct Egress {
    settings: Arc<Settings>,
    client: OnceCell<HttpClient>,
    /// The secrets, in the order of the settings. Each secret is read at its first use.
    values: Arc<[OnceCell<Arc<SecretValue>>]>,
    echoes: Arc<RwLock<Option<Arc<Echoes>>>>,
    permits: Arc<Semaphore>,
}

/// Counts a request as running until its answer ends.
#[derive(Debug)]
struct RequestPermit {
    _permit: OwnedSemaphorePermit,
    /// The connection of a request to a job. A drop closes the connection.
    _connection: Option<jobs::Connection>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("table", &self.settings.reach.table).finish_non_exhaustive()
    }
}

impl Egress {
    /// Prepares the requests of a plugin without opening a connection or reading a secret.
    pub fn new(settings: Settings) -> Self {
        let values = settings.secrets.iter().map(|_| OnceCell::new()).collect();
        let permits = Arc::new(Semaphore::new(settings.limits.concurrent));
        Self {
            settings: Arc::new(settings),
            client: OnceCell::new(),
            values,
            echoes: Arc::default(),
            permits,
        }
    }

    /// Prepares requests with other rules about hosts. The secrets stay the same, so that each of
    /// them is read once, and found in the responses to both.
    fn with_reach(&self, reach: Reach) -> Self {
        let settings = Settings { reach, ..self.settings().clone() };
        Self {
            values: Arc::clone(&self.values),
            echoes: Arc::clone(&self.echoes),
            ..Self::new(settings)
        }
    }

    /// Returns the settings of the requests.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Checks whether a secret with this name is configured for requests.
    pub fn has_secret(&self, name: &str) -> bool {
        self.settings.secrets.iter().any(|secret| secret.rule.name == name)
    }

    /// Returns the client. The client is created only when needed, because reading the certificate
    /// authorities is slow and most processes make no request.
    async fn client(&self) -> Result<&HttpClient, Error> {
        self.client.get_or_try_init(|| self.new_client()).await
    }

    async fn new_client(&self) -> Result<HttpClient, Error> {
        let settings = Arc::clone(&self.settings);
        let tls = settings.network.tls().await?;
        let max_header_bytes =
            settings.limits.headers.clamp(LOWEST_HEADER_LIMIT, HIGHEST_HEADER_LIMIT);
        let max_header_list = u32::try_from(max_header_bytes).unwrap_or(u32::MAX);
        let builder = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions();
        let mut client = Client::builder(TokioExecutor::new());
        client
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(max_header_bytes)
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(max_header_list)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW);
        Ok(client.build(builder.wrap_connector(Connector::new(settings))))
    }

    async fn secret(&self, index: usize) -> Result<&str, Error> {
        let secret = &self.settings.secrets[index];
        let value = self.values[index].get_or_try_init(|| read_secret(secret)).await?;
        Ok(value.expose())
    }

    /// Adds the secrets that were read since the last update to `echoes`.
    fn update_echoes(&self) {
        // The lock is taken before the secrets are counted, so that two concurrent requests can't
        // restore an older list.
        let mut echoes = self.echoes.write().unwrap_or_else(PoisonError::into_inner);
        let read_secrets = self.values.iter().filter(|value| value.get().is_some()).count();
        let is_current = echoes.as_ref().is_some_and(|echoes| echoes.secret_count == read_secrets);
        if is_current {
            return;
        }
        let mut secrets = Vec::new();
        for (secret, value) in self.settings.secrets.iter().zip(self.values.iter()) {
            if let Some(value) = value.get() {
                secrets.push((secret.rule.name.as_str(), value.expose()));
            }
        }
        *echoes = Echoes::from_secrets(secrets).map(Arc::new);
    }

    /// Returns `text` without the secrets that requests have used so far, or `None` without a
    /// secret. Redacting answers isn't enough, because a guest could decode a secret that redaction
    /// didn't recognise.
    pub fn without_secrets(&self, text: &str) -> Option<String> {
        let redacted = self.without_secrets_in(text.as_bytes())?;
        Some(String::from_utf8_lossy(&redacted).into_owned())
    }

    /// Returns `bytes` without the secrets that requests have used so far, or `None` without a
    /// secret.
    pub fn without_secrets_in(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.echoes()?.redact(bytes)
    }

    /// Checks whether a request has used a secret so far.
    pub fn knows_secrets(&self) -> bool {
        self.echoes().is_some()
    }

    fn echoes(&self) -> Option<Arc<Echoes>> {
        self.echoes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn read_secret(secret: &Secret) -> Result<Arc<SecretValue>, Error> {
    let source = secret.source.clone();
    let reason = match tokio::task::spawn_blocking(move || secret_sources::read(&source)).await {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        // Reading panicked, or the program is ending.
        Err(_) => "reading the secret failed".to_owned(),
    };
    Err(Error::Secret(secret.rule.name.clone(), reason))
}
