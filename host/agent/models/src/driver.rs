//! Asks models in all formats, repeats failed requests, and enforces time limits.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use tokio::time::{Instant, timeout};
use toolhold_contract::CancellationToken;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_net::requests::{Limits, OutboundClient, Request, Response};

use crate::endpoint::ModelEndpoint;
use crate::explain::{server_failure, wire_failure};
use crate::failure::{ModelError, ModelErrorKind};
use crate::guard::KeyGuards;
use crate::retry::{ModelRetries, retry_after};
use crate::turn::{ModelAnswer, ModelEvent, Turn};
use crate::wire_types::{ServerError, WireCaps, WireError};

/// The most bytes of an error that are read. Also the most bytes after a complete answer.
const MAX_ERROR: usize = 64 << 10;

/// The longest time for reading the body of an error.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);

/// Most bytes of a media type in an error message.
const MAX_MEDIA_TYPE: usize = 100;

/// The longest wait for the end of a stream after a complete answer. Only a connection whose stream
/// has ended can be used again.
const END_TIME: Duration = Duration::from_millis(100);

/// The time limits of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// The time until the answer starts. A local server may first have to load the model.
    pub first: Duration,
    /// The longest time without a byte.
    pub idle: Duration,
    /// The time limit of the whole answer.
    pub total: Duration,
}

impl Default for AnswerTimes {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(300),
            idle: Duration::from_secs(180),
            total: Duration::from_secs(3600),
        }
    }
}

/// A client that asks models. Clones share its connections.
#[derive(Clone, Debug)]
pub struct ModelClient {
    client: OutboundClient,
    /// The time limits of one attempt.
    pub times: AnswerTimes,
    /// The rules for repeating a request.
    pub retries: ModelRetries,
    /// The limits of an answer.
    pub caps: WireCaps,
}

impl ModelClient {
    /// Makes a client with default limits.
    pub fn new(client: OutboundClient) -> Self {
        Self {
            client,
            times: AnswerTimes::default(),
            retries: ModelRetries::default(),
            caps: WireCaps::default(),
        }
    }

    /// Asks a model, and passes events to `events` as they arrive. Dropping the future cancels the
    /// request.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is incomplete. The events before the error are valid.
    pub async fn ask(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        events: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        let asking = self.ask_with_retries(provider, turn, events);
        cancel.run_until_cancelled(asking).await.unwrap_or_else(|| Err(cancelled(provider)))
    }

    /// Asks a model, and repeats a failed request as long as `retries` allows.
    async fn ask_with_retries(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let request = provider.turn_request(turn)?;
        let mut attempts = 1;
        loop {
            let mut has_event = false;
            let result = self
                .ask_once(provider, turn, request.clone(), &mut |event| {
                    has_event = true;
                    events(event);
                })
                .await;
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => provider.hide_keys_in(error),
            };
            // After the start of an answer, the request isn't repeated, because each answer costs
            // money.
            if has_event || !error.may_succeed_later() {
                return Err(error.after(attempts));
            }
            let Some(wait) = self.retries.wait(attempts, error.retry_after) else {
                return Err(error.after(attempts));
            };
            events(ModelEvent::Retrying { attempts, wait, why: error.message });
            tokio::time::sleep(wait).await;
            attempts += 1;
        }
    }

    async fn ask_once(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        request: Request,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let mut response = self.send(provider, request, &turn.model).await?;
        let mut guard = KeyGuards::new(provider.keys());
        let mut decoder = provider.format().decoder(turn, provider.name(), self.caps);
        let mut pending = Vec::new();
        let mut has_event = false;
        while !decoder.is_done() {
            let chunk = match response.chunk().await {
                Ok(chunk) => chunk,
                Err(error) => return Err(ModelError::from_outbound_error(provider.name(), &error)),
            };
            let Some(bytes) = chunk else { break };
            if guard.is_in_bytes(&bytes) {
                return Err(echoed_key(provider));
            }
            // Events before an error are valid, and are passed on.
            let result = decoder.feed(&bytes, &mut pending);
            if !pending.is_empty() {
                has_event = true;
            }
            pass_on(&mut pending, &mut guard, provider, events)?;
            result.map_err(|error| self.explain(provider, turn, &response, &error))?;
        }

        let result = decoder.finish(&mut pending);
        pass_on(&mut pending, &mut guard, provider, events)?;
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let error = self.explain(provider, turn, &response, &error);
                if error.kind == ModelErrorKind::Cut && !has_event {
                    return Err(no_answer(provider, &response).unwrap_or(error));
                }
                return Err(error);
            }
        };
        if guard.is_in_answer(&answer) {
            return Err(echoed_key(provider));
        }
        drain(response).await;
        Ok(answer)
    }

    /// Sends a request. For an error status, returns the server's message as the error.
    pub(crate) async fn send(
        &self,
        provider: &ModelEndpoint,
        request: Request,
        model: &str,
    ) -> Result<Response, ModelError> {
        let AnswerTimes { first, idle, total } = self.times;
        // The decoder enforces the exact limit, so this limit only has to be above it.
        let bytes = self.caps.stream.saturating_add(1 << 20);
        let limits = Limits { time: total, idle: first, bytes };
        let mut response = match self.client.send(request.limits(limits)).await {
            Ok(response) => response,
            Err(error) => {
                let mut error = ModelError::from_outbound_error(provider.name(), &error);
                if error.kind == ModelErrorKind::Unreachable && provider.is_local() {
                    error.message += ". Is the server running?";
                }
                return Err(error);
            }
        };
        response.set_idle(idle);
        if response.status().is_success() {
            return Ok(response);
        }

        let status = response.status();
        let wait = retry_after(response.headers());
        let should_retry = response.headers().get("x-should-retry");
        let is_final = should_retry.is_some_and(|value| value == "false");
        let guard = KeyGuards::new(provider.keys());
        let bytes = read_error_body(response).await;
        // Hide keys before the text is cut, because a cut key isn't recognised.
        let body = guard.hidden(&String::from_utf8_lossy(&bytes));
        let server_error = if guard.is_in_text(&body) {
            message_only(
                "the server's message contains the key, so the message isn't shown".to_owned(),
            )
        } else {
            ServerError::find(&body).unwrap_or_else(|| message_only(start_of_body(&body)))
        };
        let error = server_failure(provider, Some(status), &server_error, model);
        Err(ModelError { retry_after: wait, is_final, ..error })
    }

    /// Converts an error of reading an answer. An error that the server reports also gets the wait
    /// that the server asks for.
    fn explain(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        response: &Response,
        error: &WireError,
    ) -> ModelError {
        match error {
            WireError::Server(server_error) => {
                let mut error = server_failure(provider, None, server_error, &turn.model);
                error.retry_after = retry_after(response.headers());
                error
            }
            other => wire_failure(provider, other),
        }
    }
}

/// Passes on all pending events. Fails if an event contains a key.
fn pass_on(
    pending: &mut Vec<ModelEvent>,
    guard: &mut KeyGuards,
    provider: &ModelEndpoint,
    events: &mut (dyn FnMut(ModelEvent) + Send),
) -> Result<(), ModelError> {
    for event in pending.drain(..) {
        if guard.is_in_event(&event) {
            return Err(echoed_key(provider));
        }
        events(event);
    }
    Ok(())
}

fn echoed_key(provider: &ModelEndpoint) -> ModelError {
    let message = "the server sent the key back, so its answer isn't used";
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

fn message_only(message: String) -> ServerError {
    ServerError { kind: String::new(), message }
}

/// Reads at most [`MAX_ERROR`] bytes of an error's body, until reading fails or takes too long.
async fn read_error_body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let deadline = Instant::now() + ERROR_BODY_TIME;
    while body.len() < MAX_ERROR {
        match tokio::time::timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                let free_bytes = MAX_ERROR - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(free_bytes)]);
            }
            // The body has ended, reading failed, or the time ran out.
            _ => break,
        }
    }
    body
}

/// Returns the start of a body that isn't JSON.
fn start_of_body(body: &str) -> String {
    match body.trim() {
        "" => "the server gives no reason".to_owned(),
        body => neutral_line(cut(body, 200)),
    }
}

/// Returns an error if the content type isn't one of a model's answer, for example for a web page.
fn no_answer(provider: &ModelEndpoint, response: &Response) -> Option<ModelError> {
    let media_type = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    if media_type.contains("event-stream") || media_type.contains("json") {
        return None;
    }
    let message = format!(
        "the server's answer has the type `{}`, which isn't an answer of a model: check the base \
         URL {}",
        neutral_line(cut(media_type, MAX_MEDIA_TYPE)),
        provider.base_url()
    );
    Some(ModelError::new(ModelErrorKind::Malformed, provider.name(), message))
}

/// Reads the rest of a response, so that its connection can be used again, up to [`MAX_ERROR`]
/// bytes and [`END_TIME`].
async fn drain(mut response: Response) {
    let reading = async {
        let mut length = 0;
        while let Ok(Some(bytes)) = response.chunk().await {
            length += bytes.len();
            if length > MAX_ERROR {
                break;
            }
        }
    };
    let _ = timeout(END_TIME, reading).await;
}

pub(crate) fn cancelled(provider: &ModelEndpoint) -> ModelError {
    ModelError::new(ModelErrorKind::Cancelled, provider.name(), "the request was cancelled")
}
