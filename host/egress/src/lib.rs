//! The way out to the network: every request of every plugin goes through here.
//!
//! What a request names is decided on by `berth-policy`; what the name resolves to is decided on by
//! the connector, which connects to the very address that was looked at. There is no other code
//! that connects.

mod answer;
mod connect;
mod echoes;
mod error;
mod program;
mod record;
mod redirects;
mod secrets;
mod send;
mod settings;
mod stream;
mod tls;

pub use error::{Error, Obstacle};
pub use secrets::{Secret, SecretSource, SecretValue, examine, read};
pub use send::{Body, Requests, Scope, Timeouts};
pub use settings::{Limits, Network, Proxy, Resolve, Settings};
pub use tls::{TrustStore, examine_authority};

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use connect::Connector;
use echoes::Echoes;

type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Connections that wait for the next request to the same place, and how long they do.
const IDLE_CONNECTIONS: usize = 4;
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Headers of an answer.
const MAX_HEADERS: usize = 256;

/// The requests of one plugin: where they may go, and the connections that wait for more of them.
/// They are the plugin's own, so that none serves a request by other rules than those that it was
/// opened by.
pub struct Egress {
    settings: Arc<Settings>,
    client: OnceCell<HttpClient>,
    /// The values of the secrets that were needed so far, in the order of the settings.
    values: Vec<OnceCell<Arc<SecretValue>>>,
    /// What finds them in answers.
    echoes: RwLock<Option<Arc<Echoes>>>,
    places: Arc<Semaphore>,
}

/// Held by each request until its answer is over.
#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("table", &self.settings.reach.table).finish_non_exhaustive()
    }
}

impl Egress {
    /// Makes ready what requests need. Nothing is connected to, and no secret is read.
    pub fn new(settings: Settings) -> Self {
        let values = settings.secrets.iter().map(|_| OnceCell::new()).collect();
        let places = Arc::new(Semaphore::new(settings.limits.concurrent));
        Self {
            settings: Arc::new(settings),
            client: OnceCell::new(),
            values,
            echoes: RwLock::new(None),
            places,
        }
    }

    /// What it was made of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a secret of this name is there for requests.
    pub fn has_secret(&self, name: &str) -> bool {
        self.settings.secrets.iter().any(|secret| secret.rule.name == name)
    }

    /// The client, made when it is first needed: reading certificate authorities takes a while, and
    /// most processes make no request.
    async fn client(&self) -> Result<&HttpClient, Error> {
        let make = || async {
            let settings = Arc::clone(&self.settings);
            let network = &self.settings.network;
            let (trust, own) = (Arc::clone(&network.trust), network.authorities.clone());
            let tls = tokio::task::spawn_blocking(move || trust.config(&own)).await;
            let tls =
                tls.map_err(|error| Error::Setup(error.to_string()))?.map_err(Error::Setup)?;
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
        };
        self.client.get_or_try_init(make).await
    }

    /// The value of a secret, read when it is first needed. From then on it is found in answers.
    async fn secret(&self, index: usize) -> Result<&str, Error> {
        let secret = &self.settings.secrets[index];
        let read = || async {
            let source = secret.source.clone();
            let read = tokio::task::spawn_blocking(move || secrets::read(&source)).await;
            let read = read.unwrap_or_else(|_| Err("reading it failed".to_owned()));
            read.map_err(|reason| Error::Secret(secret.rule.name.clone(), reason))
        };
        let value = self.values[index].get_or_try_init(read).await?;
        Ok(value.expose())
    }

    /// Has what was read by now found in answers.
    fn look_for_secrets(&self) {
        // Held meanwhile, so that of two requests at a time none puts back what was known before
        // the other.
        let mut echoes = self.echoes.write().unwrap_or_else(PoisonError::into_inner);
        // None goes, so as many are the same ones.
        let count = self.values.iter().filter(|value| value.get().is_some()).count();
        if echoes.as_ref().is_some_and(|echoes| echoes.secrets == count) {
            return;
        }
        let known = self.settings.secrets.iter().zip(&self.values);
        let known = known
            .filter_map(|(secret, value)| Some((secret.rule.name.as_str(), value.get()?.expose())));
        *echoes = Echoes::from_secrets(known).map(Arc::new);
    }

    /// A text without the secrets that were put into requests so far, where it holds one: what a
    /// guest made of an answer may show what the answer itself did not.
    pub fn without_secrets(&self, text: &str) -> Option<String> {
        let without = self.without_secrets_in(text.as_bytes())?;
        Some(String::from_utf8_lossy(&without).into_owned())
    }

    /// The same of bytes.
    pub fn without_secrets_in(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.echoes()?.without(bytes)
    }

    /// Whether any secret was put into a request so far.
    pub fn knows_secrets(&self) -> bool {
        self.echoes().is_some()
    }

    fn echoes(&self) -> Option<Arc<Echoes>> {
        self.echoes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
