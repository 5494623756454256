//! Sends OTLP requests over HTTP, with the secrets of the receiver.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use toolhold_core::config::{Config, Folders};
use toolhold_core::{Failure, HostError};
use toolhold_net::requests::{
    Credential, DoorRecord, Limits, OutboundClient, OutboundError, Recorder, Request, check_url,
};
use toolhold_net::{SecretError, SecretSource, read};
use url::Url;

use crate::send::{Post, Posted, Transport, Unsent};

/// The limits of one request. An answer has only a few bytes.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(20), idle: Duration::from_secs(10), bytes: 64 * 1024 };

/// Sends requests to one receiver.
pub struct Collector {
    client: OutboundClient,
    endpoint: Url,
    runtime: Runtime,
    secrets: Vec<ServerKey>,
    /// The headers with the secrets, or `None` if the secrets must be read before the next request.
    headers: Option<Vec<(HeaderName, HeaderValue)>>,
}

struct ServerKey {
    name: String,
    source: SecretSource,
    header: String,
    prefix: String,
}

#[derive(Debug, Error)]
enum HeaderError {
    #[error("the secret {name}: {error}")]
    Secret { name: String, error: SecretError },
    #[error("the secret {name}: {error}")]
    Header { name: String, error: http::Error },
}

impl Collector {
    /// Makes the sender for `endpoint`. The sender uses the secrets of `[telemetry.secrets]` only
    /// if `[telemetry]` names the same server or no server.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the address can't be used.
    pub fn new(config: &Config, folders: &Folders, endpoint: &str) -> Result<Self, HostError> {
        let directory = config.directory();
        let url = check_url(endpoint).map_err(|error| wrong_endpoint(endpoint, error))?;
        if url.query().is_some() || url.fragment().is_some() {
            let why = "the endpoint has a query; put secrets into [telemetry.secrets]";
            return Err(wrong_endpoint(endpoint, why));
        }

        let telemetry = &config.values.telemetry;
        let mut secrets = Vec::new();
        if may_get_secrets(&url, &telemetry.endpoint) {
            for (name, secret) in &telemetry.secrets {
                let key = format!("telemetry.secrets.{name}");
                let source = config.source_of(&key, secret, folders, &directory);
                let (header, prefix) = secret.placement();
                secrets.push(ServerKey { name: name.clone(), source, header, prefix });
            }
        }

        let client = OutboundClient::new(config.network(folders, &directory), Arc::new(NoRecord));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(HostError::io("the reactor can't be started"))?;
        Ok(Self { client, endpoint: url, runtime, secrets, headers: None })
    }

    /// Returns the headers with the secrets, and stores them for later requests. Blocks, because a
    /// program may run to print a secret.
    fn headers(&mut self) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderError> {
        if let Some(headers) = &self.headers {
            return Ok(headers.clone());
        }
        let mut headers = Vec::new();
        for key in &self.secrets {
            headers.push(key.header()?);
        }
        self.headers = Some(headers.clone());
        Ok(headers)
    }
}

impl ServerKey {
    /// Reads the secret, and makes its header. Blocks, because a program may run to print the
    /// secret.
    fn header(&self) -> Result<(HeaderName, HeaderValue), HeaderError> {
        let secret = read(&self.source)
            .map_err(|error| HeaderError::Secret { name: self.name.clone(), error })?;
        let name = HeaderName::try_from(self.header.as_str())
            .map_err(|error| self.invalid_header(error.into()))?;
        let mut value = HeaderValue::try_from(format!("{}{}", self.prefix, secret.expose()))
            .map_err(|error| self.invalid_header(error.into()))?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    fn invalid_header(&self, error: http::Error) -> HeaderError {
        HeaderError::Header { name: self.name.clone(), error }
    }
}

/// Checks whether `url` may get the secrets of `[telemetry.secrets]`. If `[telemetry]` has an
/// endpoint, the secrets are only for the server of this endpoint.
fn may_get_secrets(url: &Url, configured_endpoint: &str) -> bool {
    if configured_endpoint.is_empty() {
        return true;
    }
    match Url::parse(configured_endpoint) {
        Ok(configured) => configured.origin() == url.origin(),
        Err(_) => false,
    }
}

fn wrong_endpoint(endpoint: &str, why: impl Display) -> HostError {
    let endpoint = toolhold_core::text::neutral_line(toolhold_core::text::cut(endpoint, 200));
    HostError::Config(format!("the endpoint {endpoint}: {why}"))
}

impl Transport for Collector {
    fn post(&mut self, post: &Post<'_>) -> Result<Posted, Unsent> {
        let url = signal_url(&self.endpoint, post.path);
        let mut request = Request::new("telemetry", Method::POST, url.as_str())
            .map_err(unsent)?
            .header(CONTENT_TYPE, HeaderValue::from_static(post.media_type))
            .body(post.body.to_vec())
            .limits(LIMITS);
        let headers = self.headers().map_err(|error| Unsent::Never(error.to_string()))?;
        for (name, value) in headers {
            // The client never sends a credential to another origin after a redirect. Other headers
            // don't need this protection, because a POST request doesn't follow redirects.
            request = if name == AUTHORIZATION {
                request.credential(Some(Credential::new(&url, value)))
            } else {
                request.header(name, value)
            };
        }

        let client = &self.client;
        let outcome = self.runtime.block_on(async {
            let answer = client.send(request).await?;
            let status = answer.status().as_u16();
            let retry_after = retry_seconds(answer.headers());
            let body = answer.bytes(&|_, _| ()).await?;
            Ok::<_, OutboundError>(Posted { status, retry_after, body })
        });
        let posted = outcome.map_err(unsent)?;
        // The receiver refused the secret, which may have changed, so the next request reads it
        // again.
        if matches!(posted.status, 401 | 403) {
            self.headers = None;
        }
        Ok(posted)
    }
}

/// Returns the seconds in the header `Retry-After`, or `None` for a date.
fn retry_seconds(headers: &HeaderMap) -> Option<u64> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok()
}

/// Returns `Later` for an error that may not occur again, such as a lost connection. Wrong settings
/// and invalid answers would fail each time.
fn unsent(error: OutboundError) -> Unsent {
    let why = error.to_string();
    match error {
        OutboundError::Name(..)
        | OutboundError::Connection(..)
        | OutboundError::Idle(..)
        | OutboundError::Time(..)
        | OutboundError::Incomplete(..) => Unsent::Later(why),
        _ => Unsent::Never(why),
    }
}

/// Records nothing in the audit log, because each record of a request causes another request.
#[derive(Debug)]
struct NoRecord;

impl Recorder for NoRecord {
    fn record(&self, _: &DoorRecord) -> Result<(), Failure> {
        Ok(())
    }
}

/// Appends `path` to the endpoint, unless the endpoint already ends with `path`.
fn signal_url(endpoint: &Url, path: &str) -> Url {
    let mut url = endpoint.clone();
    let base = endpoint.path().trim_end_matches('/');
    if !base.ends_with(&format!("/{path}")) {
        url.set_path(&format!("{base}/{path}"));
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_lie_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://localhost:4318", "http://localhost:4318/v1/logs"),
            ("http://localhost:4318/", "http://localhost:4318/v1/logs"),
            ("https://c.example/otlp", "https://c.example/otlp/v1/logs"),
            ("https://c.example/v1/logs", "https://c.example/v1/logs"),
        ] {
            let endpoint = endpoint.parse().expect("it is a URL");
            assert_eq!(signal_url(&endpoint, "v1/logs").as_str(), expected);
        }
    }
}
