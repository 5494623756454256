//! Requests to the network. Every request of every plugin goes through this crate.
//!
//! `toolhold-policy` decides on the host that a request names. The connector also asks
//! `toolhold-policy` about each address of that name, and then connects to one of those addresses.
//! No other code connects for plugins.
//!
//! [`requests`] sends the requests of Toolhold itself.

mod answer;
mod check;
mod connect;
mod echoes;
mod error;
mod jobs;
mod program;
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
pub use secret_sources::{Secret, SecretError, SecretSource, SecretValue, examine, read};
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

use connect::Connector;

type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// The most idle connections to one host, and their idle timeout.
const IDLE_CONNECTIONS: usize = 4;
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// The most headers of an answer.
const MAX_HEADERS: usize = 256;

/// The requests of one plugin, with their settings and connections. Plugins don't share
/// connections, so the rules of a connection never change.
pub struct Egress {
    settings: Arc<Settings>,
    client: OnceCell<HttpClient>,
    /// The values of the secrets, in the order of the settings. Each value is read at its first
    /// use.
    values: Vec<OnceCell<Arc<SecretValue>>>,
    /// Finds the values in answers.
    echoes: RwLock<Option<Arc<Echoes>>>,
    permits: Arc<Semaphore>,
}

/// A permit that limits concurrent requests. The request has it until the answer ends.
#[derive(Debug)]
struct RequestPermit {
    _permit: OwnedSemaphorePermit,
    /// The connection of a request to a job. The connection closes with this value.
    _connection: Option<jobs::Connection>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("table", &self.settings.reach.table).finish_non_exhaustive()
    }
}

impl Egress {
    /// Prepares the requests of a plugin. This opens no connection and reads no secret.
    pub fn new(settings: Settings) -> Self {
        let values = settings.secrets.iter().map(|_| OnceCell::new()).collect();
        let permits = Arc::new(Semaphore::new(settings.limits.concurrent));
        Self {
            settings: Arc::new(settings),
            client: OnceCell::new(),
            values,
            echoes: RwLock::new(None),
            permits,
        }
    }

    /// Returns the settings of the requests.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Checks whether a secret of this name is configured for requests.
    pub fn has_secret(&self, name: &str) -> bool {
        self.settings.secrets.iter().any(|secret| secret.rule.name == name)
    }

    /// Returns the client. The first use makes the client, because reading the certificate
    /// authorities is slow and most processes make no request.
    async fn client(&self) -> Result<&HttpClient, Error> {
        self.client.get_or_try_init(|| self.new_client()).await
    }

    async fn new_client(&self) -> Result<HttpClient, Error> {
        let settings = Arc::clone(&self.settings);
        let tls = settings.network.tls().await?;
        let headers = settings.limits.headers.clamp(16 * 1024, 1 << 20);
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
            .http1_max_buf_size(headers)
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(u32::try_from(headers).unwrap_or(u32::MAX))
            .http2_initial_stream_window_size(1 << 18)
            .http2_initial_connection_window_size(1 << 20);
        Ok(client.build(builder.wrap_connector(Connector::new(settings))))
    }

    /// Returns the value of a secret. The first use reads the value.
    async fn secret(&self, index: usize) -> Result<&str, Error> {
        let secret = &self.settings.secrets[index];
        let value = self.values[index].get_or_try_init(|| read_secret(secret)).await?;
        Ok(value.expose())
    }

    /// Updates the redaction of answers so that it includes all secrets that were read so far.
    fn update_echoes(&self) {
        // The lock is taken before the secrets are counted, so that neither of two concurrent
        // requests restores an older list.
        let mut echoes = self.echoes.write().unwrap_or_else(PoisonError::into_inner);
        // Secrets are only added, so an equal count means the same secrets.
        let count = self.values.iter().filter(|value| value.get().is_some()).count();
        if echoes.as_ref().is_some_and(|echoes| echoes.secrets == count) {
            return;
        }
        let mut secrets = Vec::new();
        for (secret, value) in self.settings.secrets.iter().zip(&self.values) {
            if let Some(value) = value.get() {
                secrets.push((secret.rule.name.as_str(), value.expose()));
            }
        }
        *echoes = Echoes::from_secrets(secrets).map(Arc::new);
    }

    /// Returns the text without the secrets that were put into requests so far. Returns `None` if
    /// the text contains none of them. Redacting the answer isn't enough, since a guest can rewrite
    /// an answer so that a hidden secret becomes visible.
    pub fn without_secrets(&self, text: &str) -> Option<String> {
        let redacted = self.without_secrets_in(text.as_bytes())?;
        Some(String::from_utf8_lossy(&redacted).into_owned())
    }

    /// Returns the bytes without the secrets that were put into requests so far. Returns `None` if
    /// the bytes contain none of them.
    pub fn without_secrets_in(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.echoes()?.redact(bytes)
    }

    /// Checks whether any secret was put into a request so far.
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
        Err(_) => "reading it failed".to_owned(),
    };
    Err(Error::Secret(secret.rule.name.clone(), reason))
}
