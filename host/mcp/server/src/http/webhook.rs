//! Tells the operator's webhook of each call that waits for approval, with a one-time link. It
//! reads the stored questions by itself, so no call waits for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ring::hmac;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};
use toolhold_core::config::{Approvals, Folders, Serve};
use toolhold_core::{HostError, PostedQuestion, Questions, state};
use toolhold_net::requests::{Limits, OutboundClient, OutboundError, Request, check_url};

use crate::approver::FOLDER;
use crate::error::ServeError;

/// The file with the secret that signs requests.
const SECRET_FILE: &str = "webhook";

const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("toolhold-signature");

/// The time between two questions, so that a program that asks all the time doesn't flood the
/// person.
const INTERVAL: Duration = Duration::from_secs(1);

/// The pauses before a failed request is repeated.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Only the status of the answer is needed.
const LIMITS: Limits =
    Limits { time: Duration::from_secs(10), idle: Duration::from_secs(10), bytes: 0 };

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Request(#[from] OutboundError),
    #[error("it answered with the status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("the signature can't be a header: {0}")]
    Header(#[from] http::header::InvalidHeaderValue),
}

pub(super) struct Webhook {
    url: String,
    /// The URL of this server, for links.
    server: String,
    key: hmac::Key,
    secret_file: PathBuf,
    folders: Folders,
    outbound_client: OutboundClient,
}

/// Returns the error in the settings of the webhook, or `None`.
pub fn webhook_problem(approvals: &Approvals, serve: &Serve) -> Option<String> {
    let url = &approvals.webhook;
    if url.is_empty() {
        return None;
    }
    if let Err(error) = check_url(url) {
        return Some(format!("`webhook = {url:?}` in [approvals]: {error}"));
    }
    if serve.url.is_empty() {
        return Some(
            "`webhook` in [approvals] needs the address at which you open its links: set `url = \
             \"https://toolhold.example.com\"` in [serve]"
                .to_owned(),
        );
    }
    None
}

impl Webhook {
    /// Prepares the requests of the webhook. Returns `None` if there is no webhook.
    pub(super) fn new(
        approvals: &Approvals,
        serve: &Serve,
        folders: &Folders,
        outbound_client: &OutboundClient,
    ) -> Result<Option<Self>, ServeError> {
        if approvals.webhook.is_empty() {
            return Ok(None);
        }
        if let Some(problem) = webhook_problem(approvals, serve) {
            return Err(ServeError::Settings(problem));
        }
        let folder = folders.data.join(FOLDER);
        let secret = state::secret(&folder, SECRET_FILE)?;
        Ok(Some(Self {
            url: approvals.webhook.clone(),
            server: serve.url.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            secret_file: folder.join(SECRET_FILE),
            folders: folders.clone(),
            outbound_client: outbound_client.clone(),
        }))
    }

    /// Returns the file with the secret that signs requests.
    pub(super) fn secret_file(&self) -> &Path {
        &self.secret_file
    }

    /// Sends each new question, until the future is dropped.
    pub(super) async fn run(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.next().await {
                Ok(Some((posted, link))) => self.send(&posted, &link).await,
                Ok(None) => {}
                // It is tried again at the next tick.
                Err(error) => tracing::debug!("reading the questions for the webhook: {error}"),
            }
        }
    }

    /// Makes a link to the oldest question without a link.
    async fn next(&self) -> Result<Option<(PostedQuestion, String)>, HostError> {
        let folders = self.folders.clone();
        let server = self.server.clone();
        let made =
            tokio::task::spawn_blocking(move || Questions::link_next(&folders, &server)).await;
        made.map_err(|error| HostError::io("reading the questions")(error.into()))?
    }

    /// Sends a question, and repeats a failed request. Arguments of the call aren't sent.
    async fn send(&self, posted: &PostedQuestion, link: &str) {
        let body = json!({
            "id": posted.id, "tool": posted.question.tool, "asked": posted.asked,
            "expires": posted.until, "url": link,
        })
        .to_string();
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match self.send_once(&body).await {
                Ok(()) => return,
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else {
                tracing::warn!(
                    "the `webhook` in [approvals] was not told of the call {}: {error}; `toolhold \
                     approvals` lists the call",
                    posted.id
                );
                return;
            };
            sleep(pause).await;
        }
    }

    async fn send_once(&self, body: &str) -> Result<(), SendError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let signature = sign(&self.key, now.as_secs(), body);
        let request = Request::new("approval", Method::POST, &self.url)?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(SIGNATURE_HEADER, HeaderValue::from_str(&signature)?)
            .body(body.to_owned())
            .limits(LIMITS);
        let status = self.outbound_client.send(request).await?.status();
        if status.is_success() { Ok(()) } else { Err(SendError::Status(status)) }
    }
}

/// Signs a request and its time, so that the receiver can refuse an old request.
fn sign(key: &hmac::Key, now: u64, body: &str) -> String {
    let signature = hmac::sign(key, format!("{now}.{body}").as_bytes());
    let digits: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={now},v1={digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(webhook: &str, url: &str) -> Option<String> {
        let approvals = Approvals { webhook: webhook.to_owned(), ..Approvals::default() };
        let serve = Serve { url: url.to_owned(), ..Serve::default() };
        webhook_problem(&approvals, &serve)
    }

    #[test]
    fn webhook_needs_https_and_the_address_for_links() {
        let server = "https://toolhold.example.org";
        assert_eq!(problem("", ""), None);
        assert_eq!(problem("https://hooks.example.org/x", server), None);
        assert_eq!(problem("http://127.0.0.1:9000/x", server), None);
        for (webhook, url, expected) in [
            ("https://hooks.example.org/x", "", "`url = "),
            ("http://hooks.example.org/x", server, "only https is allowed"),
            ("hooks.example.org", server, "the URL isn't valid"),
            ("https://a:b@hooks.example.org/", server, "the URL isn't valid"),
        ] {
            let found = problem(webhook, url).unwrap_or_default();
            assert!(found.contains(expected), "{webhook}: {found}");
        }
    }
}
