//! Asks models in all formats, repeats requests that failed before an answer came, and enforces the
//! limits of time.

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

/// Most bytes of an error that are read.
const MAX_ERROR: usize = 64 << 10;

/// The wait for the end of a stream whose answer is complete, so that the connection can serve the
/// next request.
const END_TIME: Duration = Duration::from_millis(100);

/// Limits of time of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// The time until the answer begins. Local servers load the model before.
    pub first: Duration,
    /// The time without a byte.
    pub idle: Duration,
    /// The time until the answer ends.
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

/// Asks models. A clone shares its connections.
#[derive(Clone, Debug)]
pub struct ModelClient {
    door: OutboundClient,
    /// Limits of time.
    pub times: AnswerTimes,
    /// Further attempts.
    pub retries: ModelRetries,
    /// Bounds of an answer.
    pub caps: WireCaps,
}

impl ModelClient {
    /// A client with the usual limits.
    pub fn new(door: OutboundClient) -> Self {
        let (times, retries, caps) = Default::default();
        Self { door, times, retries, caps }
    }

    /// Asks a model, and gives the parts of its answer as they come. A dropped future is cancelled
    /// too: it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// There is no whole answer. The parts so far are right, but incomplete.
    pub async fn ask(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        events: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        let asked = cancel.run_until_cancelled(self.attempts(provider, turn, events)).await;
        asked.unwrap_or_else(|| Err(cancelled(provider)))
    }

    async fn attempts(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let request = provider.ask(turn)?;
        let mut attempts = 1;
        loop {
            let mut is_begun = false;
            let asked = self
                .attempt(provider, turn, request.clone(), &mut |event| {
                    is_begun = true;
                    events(event);
                })
                .await;
            let error = match asked.map_err(|error| provider.hide_keys_in(error)) {
                Ok(answer) => return Ok(answer),
                Err(error) if is_begun || !error.may_succeed_later() => {
                    return Err(error.after(attempts));
                }
                Err(error) => error,
            };
            let Some(wait) = self.retries.wait(attempts, error.retry_after) else {
                return Err(error.after(attempts));
            };
            events(ModelEvent::Retrying { attempts, wait, why: error.message });
            tokio::time::sleep(wait).await;
            attempts += 1;
        }
    }

    async fn attempt(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        request: Request,
        events: &mut (dyn FnMut(ModelEvent) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let mut answer = self.send(provider, request, &turn.model).await?;
        let mut guard = KeyGuards::new(provider.keys());
        let mut decoder = provider.format().decoder(turn, provider.name(), self.caps);
        let mut pending = Vec::new();
        let mut has_event = false;
        while !decoder.is_done() {
            let read = answer.chunk().await;
            let Some(piece) =
                read.map_err(|error| ModelError::from_door(provider.name(), &error))?
            else {
                break;
            };
            if guard.is_in_bytes(&piece) {
                return Err(echo(provider));
            }
            let fed = decoder.feed(&piece, &mut pending);
            has_event |= !pending.is_empty();
            give(&mut pending, &mut guard, provider, events)?;
            fed.map_err(|error| self.explain(provider, turn, &answer, &error))?;
        }
        let whole = decoder.finish(&mut pending).map_err(|error| {
            let error = self.explain(provider, turn, &answer, &error);
            if has_event || error.kind != ModelErrorKind::Cut {
                error
            } else {
                no_answer(provider, &answer).unwrap_or(error)
            }
        });
        give(&mut pending, &mut guard, provider, events)?;
        let whole = whole?;
        if guard.is_in_answer(&whole) {
            return Err(echo(provider));
        }
        drain(answer).await;
        Ok(whole)
    }

    /// Sends a request. An answer that isn't a success is an error, in the server's words.
    pub(crate) async fn send(
        &self,
        provider: &ModelEndpoint,
        request: Request,
        model: &str,
    ) -> Result<Response, ModelError> {
        let AnswerTimes { first, idle, total } = self.times;
        // The decoder checks the cap of the stream, and this limit is above it.
        let bytes = self.caps.stream.saturating_add(1 << 20);
        let limits = Limits { time: total, idle: first, bytes };
        let mut answer = self.door.send(request.limits(limits)).await.map_err(|error| {
            let mut error = ModelError::from_door(provider.name(), &error);
            if error.kind == ModelErrorKind::Unreachable && provider.is_local() {
                error.message += ". Is the server running?";
            }
            error
        })?;
        answer.set_idle(idle);
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let asked = retry_after(answer.headers());
        let is_final = answer.headers().get("x-should-retry").is_some_and(|it| it == "false");
        let guard = KeyGuards::new(provider.keys());
        let body = error_body(answer).await;
        // Keys are hidden before the text is cut, so that no half of a key stays.
        let body = guard.hidden(&String::from_utf8_lossy(&body));
        let words = if guard.is_in_text(&body) {
            in_words("its message contains the key, and isn't shown".to_owned())
        } else {
            ServerError::find(&body).unwrap_or_else(|| in_words(start_of(&body)))
        };
        let error = server_failure(provider, Some(status), &words, model);
        Err(ModelError { retry_after: asked, is_final, ..error })
    }

    fn explain(
        &self,
        provider: &ModelEndpoint,
        turn: &Turn,
        answer: &Response,
        error: &WireError,
    ) -> ModelError {
        match error {
            WireError::Server(words) => {
                let asked = retry_after(answer.headers());
                let error = server_failure(provider, None, words, &turn.model);
                ModelError { retry_after: asked, ..error }
            }
            other => wire_failure(provider, other),
        }
    }
}

/// Passes on the pending events, unless one of them has a key.
fn give(
    pending: &mut Vec<ModelEvent>,
    guard: &mut KeyGuards,
    provider: &ModelEndpoint,
    events: &mut (dyn FnMut(ModelEvent) + Send),
) -> Result<(), ModelError> {
    for event in pending.drain(..) {
        if guard.is_in_event(&event) {
            return Err(echo(provider));
        }
        events(event);
    }
    Ok(())
}

/// The error of an answer that has the key in it.
fn echo(provider: &ModelEndpoint) -> ModelError {
    let message = "it sent the key back, so its answer isn't used";
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

/// An error of which only the words are known.
fn in_words(message: String) -> ServerError {
    ServerError { kind: String::new(), message }
}

/// Reads the beginning of an error. A failure meanwhile matters less than the error.
async fn error_body(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let until = Instant::now() + Duration::from_secs(10);
    while body.len() < MAX_ERROR {
        match tokio::time::timeout_at(until, answer.chunk()).await {
            Ok(Ok(Some(piece))) => {
                body.extend_from_slice(&piece[..piece.len().min(MAX_ERROR - body.len())]);
            }
            _ => break,
        }
    }
    body
}

/// The beginning of a body that isn't JSON.
fn start_of(body: &str) -> String {
    match body.trim() {
        "" => "it gives no reason".to_owned(),
        body => neutral_line(cut(body, 200)),
    }
}

/// The error of an answer of another kind, such as a page.
fn no_answer(provider: &ModelEndpoint, answer: &Response) -> Option<ModelError> {
    let kind = answer.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let is_usual = ["event-stream", "json"].iter().any(|usual| kind.contains(usual));
    let message = format!(
        "its answer is of the type `{}` and has no event of a model: check the base URL {}",
        neutral_line(cut(kind, 100)),
        provider.base_url()
    );
    (!is_usual).then(|| ModelError::new(ModelErrorKind::Malformed, provider.name(), message))
}

/// Takes the end of an answer whose events are complete.
async fn drain(mut answer: Response) {
    let rest = async {
        let mut bytes = 0;
        while let Ok(Some(piece)) = answer.chunk().await {
            bytes += piece.len();
            if bytes > MAX_ERROR {
                break;
            }
        }
    };
    let _ = timeout(END_TIME, rest).await;
}

pub(crate) fn cancelled(provider: &ModelEndpoint) -> ModelError {
    ModelError::new(ModelErrorKind::Cancelled, provider.name(), "it was cancelled")
}
