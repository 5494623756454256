//! Limits the size and number of an upstream server's messages.

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use tokio::sync::Notify;
use toolhold_core::CancellationToken;
use toolhold_net::{Echoes, SecretValue};

/// Longest message in bytes. A longer message ends the connection, as do all limits below.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;

/// Most values in a message. A value takes many times its bytes in memory.
pub(crate) const MAX_VALUES: usize = 100_000;

/// Messages of at least this number of bytes are parsed on a blocking thread.
pub(crate) const LARGE_MESSAGE: usize = 64 * 1024;

/// Most events in a second.
pub(crate) const MAX_EVENTS: u32 = 5000;

/// Most streams that may be opened again within [`STREAMS_TIME`].
pub(crate) const MAX_STREAMS: u32 = 30;
pub(crate) const STREAMS_TIME: Duration = Duration::from_secs(10);

/// Most pieces of lines in a second.
pub(crate) const MAX_PIECES: u32 = 10_000;

/// Most messages in a second that answer no request.
const MAX_UNASKED: u32 = 500;

/// Time for an ended server's last output to arrive.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// Bytes at the end of a server's standard error that are shown.
const MAX_SHOWN_STDERR: usize = 2 * 1024;

/// Bytes that are stored before the shown bytes. A secret that began before the shown bytes
/// couldn't be found and redacted without them.
const EXTRA_STDERR: usize = 16 * 1024;

/// The reason for a connection's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndError {
    #[error("the server ended")]
    Ended,
    #[error("the server no longer knows the session")]
    Forgotten,
    #[error("the connection was closed")]
    Closed,
    #[error("the server's output can't be read: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Write(Arc<io::Error>),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Transport(Arc<dyn Error + Send + Sync>),
}

/// The limit that a server's messages exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("the server sent a message of more than {} MiB, the limit", MAX_MESSAGE >> 20)]
    Size,
    #[error("the server sent a message with more than {MAX_VALUES} values, the limit")]
    Values,
    #[error(
        "the server sent more than {MAX_UNASKED} unsolicited messages in one second, the limit"
    )]
    Unasked,
    #[error("the server sent more than {MAX_PIECES} pieces of lines in one second, the limit")]
    Pieces,
    #[error("the server sent more than {MAX_EVENTS} events in one second, the limit")]
    Events,
    #[error(
        "the server ended more than {MAX_STREAMS} streams within {} s, the limit",
        STREAMS_TIME.as_secs()
    )]
    Streams,
}

/// Why a connection ended, the server's last output, and the server's secrets.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    reason: OnceLock<EndError>,
    challenge: OnceLock<Option<String>>,
    over: CancellationToken,
    has_forgotten: OnceLock<()>,
    unheard: Mutex<HashSet<RequestId>>,
    stderr: Mutex<StderrEnd>,
    stderr_ended: Notify,
    known: RwLock<KnownSecrets>,
}

/// The standard error of a server.
#[derive(Debug, Default)]
struct StderrEnd {
    /// The last bytes.
    end: Vec<u8>,
    /// The number of all bytes.
    length: usize,
}

/// The secrets of a server by name, and their finder.
#[derive(Debug, Default)]
struct KnownSecrets {
    secrets: Vec<(String, Arc<SecretValue>)>,
    echoes: Option<Echoes>,
}

impl ConnectionState {
    /// Adds a secret, which is redacted in all later output of the server. A value that is already
    /// known isn't added again.
    pub(crate) fn add_secret(&self, name: &str, secret: &Arc<SecretValue>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for (_name, known_secret) in &known.secrets {
            if known_secret.expose() == secret.expose() {
                return;
            }
        }
        known.secrets.push((name.to_owned(), Arc::clone(secret)));
        let named_values =
            known.secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose()));
        known.echoes = Echoes::from_secrets(named_values);
    }

    /// Sets the reason, and ends the connection. The first reason stays.
    pub(crate) fn end(&self, reason: impl Into<EndError>) {
        let _ = self.reason.set(reason.into());
        self.over.cancel();
    }

    pub(crate) fn reason(&self) -> Option<&EndError> {
        self.reason.get()
    }

    /// Records that the server requires authorization. `challenge` is the header
    /// `WWW-Authenticate`. The first header stays.
    pub(crate) fn record_refusal(&self, challenge: Option<String>) {
        let _ = self.challenge.set(challenge);
    }

    /// Checks whether the server requires authorization.
    pub(crate) fn is_refused(&self) -> bool {
        self.challenge.get().is_some()
    }

    /// Returns the server's header `WWW-Authenticate`.
    pub(crate) fn challenge(&self) -> Option<&str> {
        self.challenge.get()?.as_deref()
    }

    /// Records that the server no longer knows the session, and ends the connection. `request` is
    /// the ID of the request that the server refused for this reason. This request can be sent
    /// again.
    pub(crate) fn record_forgotten_session(&self, request: Option<&RequestId>) {
        if let Some(id) = request {
            self.unheard.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        }
        let _ = self.has_forgotten.set(());
        self.end(EndError::Forgotten);
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.has_forgotten.get().is_some()
    }

    /// Checks whether the server has not processed a request, because it didn't know the session.
    pub(crate) fn is_unheard(&self, request: &RequestId) -> bool {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).contains(request)
    }

    /// Waits for the end of the connection.
    pub(crate) async fn wait_for_end(&self) {
        self.over.cancelled().await;
    }

    /// Records that the server has closed its standard error.
    pub(crate) fn record_stderr_end(&self) {
        self.stderr_ended.notify_one();
    }

    /// Waits for the last output of a server that has ended.
    pub(crate) async fn wait_for_stderr(&self) {
        let _ = tokio::time::timeout(STDERR_TIMEOUT, self.stderr_ended.notified()).await;
    }

    /// Adds output on the server's standard error. Above the limit, the oldest bytes are dropped.
    pub(crate) fn add_stderr(&self, bytes: &[u8]) {
        let mut stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        stderr.length += bytes.len();
        stderr.end.extend_from_slice(bytes);
        let bytes_above_limit = stderr.end.len().saturating_sub(MAX_SHOWN_STDERR + EXTRA_STDERR);
        stderr.end.drain(..bytes_above_limit);
    }

    pub(crate) fn last_stderr(&self) -> String {
        self.stderr_since(0)
    }

    /// Returns the number of bytes that the server has written to its standard error.
    pub(crate) fn stderr_length(&self) -> usize {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).length
    }

    /// Returns at most [`MAX_SHOWN_STDERR`] bytes from the end of the server's standard error. The
    /// first `start` bytes of the standard error are left out, and secrets are redacted.
    pub(crate) fn stderr_since(&self, start: usize) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let stored_length = stderr.end.len();
        let new_length = stderr.length.saturating_sub(start);
        // The oldest of the new bytes may not be stored any more.
        let wanted_length = new_length.min(stored_length);
        let raw_end = stderr.end[stored_length - wanted_length..].to_vec();
        drop(stderr);

        let redacted_end = self.without_secrets(raw_end);
        let shown_start = redacted_end.len().saturating_sub(MAX_SHOWN_STDERR);
        String::from_utf8_lossy(&redacted_end[shown_start..]).trim().to_owned()
    }

    /// Redacts the server's secrets.
    pub(crate) fn without_secrets(&self, bytes: Vec<u8>) -> Vec<u8> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(echoes) = &known.echoes else { return bytes };
        echoes.redact(&bytes).unwrap_or(bytes)
    }
}

/// Requests that wait for an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Arc<Mutex<HashSet<RequestId>>>);

impl Pending {
    /// Records a message to the server. A request waits for an answer until it is cancelled.
    pub(crate) fn record_sent(&self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => self.add(request.id.clone()),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.take(id);
                }
            }
            // Answers to the server's requests get no answer.
            _ => {}
        }
    }

    pub(crate) fn add(&self, id: RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Removes a request. Returns whether it waited for an answer, because a second answer to the
    /// same request is refused.
    fn take(&self, id: &RequestId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Counts events in a time window.
#[derive(Debug)]
pub(crate) struct Rate {
    limit: u32,
    window: Duration,
    count: u32,
    /// The start of the current window.
    window_start: Instant,
}

impl Rate {
    pub(crate) fn new(limit: u32, window: Duration) -> Self {
        Self { limit, window, count: 0, window_start: Instant::now() }
    }

    /// Counts an event. Returns whether the number of events in this window is within the limit.
    pub(crate) fn count_event(&mut self) -> bool {
        if self.window_start.elapsed() > self.window {
            self.window_start = Instant::now();
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.limit
    }
}

/// Passes on only messages that a server may send at that time.
#[derive(Debug)]
pub(crate) struct MessageLimits {
    pending: Pending,
    unasked: Rate,
}

impl MessageLimits {
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending, unasked: Rate::new(MAX_UNASKED, Duration::from_secs(1)) }
    }

    /// Returns whether the client gets a message. Counts messages that answer no request.
    ///
    /// # Errors
    ///
    /// Returns an error if too many messages answer no request.
    pub(crate) fn admit(&mut self, message: &ServerJsonRpcMessage) -> Result<bool, LimitError> {
        let answers_a_request = match message {
            ServerJsonRpcMessage::Response(response) => self.pending.take(&response.id),
            ServerJsonRpcMessage::Error(error) => match &error.id {
                Some(id) => self.pending.take(id),
                // A server sends such an error if it couldn't read the ID of a request.
                None => !self.pending.is_empty(),
            },
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
        };
        if answers_a_request {
            return Ok(true);
        }

        self.count_unasked()?;
        let is_passed_on = match message {
            ServerJsonRpcMessage::Request(_) => true,
            ServerJsonRpcMessage::Notification(notification) => is_used(&notification.notification),
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => false,
        };
        Ok(is_passed_on)
    }

    /// Counts a message that answers no request.
    pub(crate) fn count_unasked(&mut self) -> Result<(), LimitError> {
        if self.unasked.count_event() { Ok(()) } else { Err(LimitError::Unasked) }
    }
}

/// Returns whether the client uses this kind of notification.
fn is_used(notification: &ServerNotification) -> bool {
    matches!(
        notification,
        ServerNotification::CancelledNotification(_)
            | ServerNotification::ProgressNotification(_)
            | ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_)
    )
}

/// Checks the number of values before a message is parsed.
pub(crate) fn check(message: &[u8]) -> Result<(), LimitError> {
    if count_values(message) > MAX_VALUES { Err(LimitError::Values) } else { Ok(()) }
}

/// Parses a message. Returns `None` for an invalid message.
pub(crate) async fn parse(text: Vec<u8>) -> Option<ServerJsonRpcMessage> {
    if text.len() < LARGE_MESSAGE {
        return parse_at_once(&text);
    }
    tokio::task::spawn_blocking(move || parse_at_once(&text)).await.unwrap_or_default()
}

fn parse_at_once(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    serde_json::from_slice(text.trim_ascii()).ok()
}

/// Returns an upper limit of the number of values in a JSON text, without parsing.
fn count_values(json: &[u8]) -> usize {
    // The first value follows none of the characters below.
    let mut count = 1;
    let mut is_in_string = false;
    let mut is_escaped = false;
    for byte in json {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match byte {
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b',' | b':' | b'[' | b'{' if !is_in_string => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        assert_eq!(count_values(br#""[,,,[""#), 1);
        assert_eq!(count_values(br#"{"a\"[,": [1, 2]}"#), 5);
        assert_eq!(count_values("[".repeat(1000).as_bytes()), 1001);
    }

    #[test]
    fn last_words_hide_secrets_also_where_they_are_cut() {
        let secret = "s3cret-".repeat(100);
        let connection_state = ConnectionState::default();
        connection_state.add_secret("token", &Arc::new(SecretValue::new(secret.clone())));
        connection_state
            .add_stderr(format!("{secret} {}", "x".repeat(MAX_SHOWN_STDERR - 20)).as_bytes());
        let shown = connection_state.last_stderr();
        assert!(!shown.contains("s3cret") && shown.ends_with('x'), "{shown}");
        connection_state.add_stderr(&secret.as_bytes()[..300]);
        connection_state.add_stderr(&secret.as_bytes()[300..]);
        assert!(
            connection_state.last_stderr().ends_with("[REDACTED:token]"),
            "{}",
            connection_state.last_stderr()
        );
    }

    #[test]
    fn complaint_of_a_call_has_no_text_from_before() {
        let connection_state = ConnectionState::default();
        connection_state.add_stderr(b"before\n");
        let start = connection_state.stderr_length();
        assert_eq!(connection_state.stderr_since(start), "");
        connection_state.add_stderr(b"in the call\n");
        assert_eq!(connection_state.stderr_since(start), "in the call");
        assert_eq!(connection_state.last_stderr(), "before\nin the call");
        connection_state.add_stderr("x".repeat(2 * EXTRA_STDERR).as_bytes());
        assert_eq!(connection_state.stderr_since(start), "x".repeat(MAX_SHOWN_STDERR));
    }
}
