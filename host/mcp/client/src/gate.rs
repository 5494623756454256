//! Refuses messages of an upstream server that are too large or too frequent. Also refuses answers
//! that match no request.

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

/// Most bytes of one message.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;

/// Most values in one message. A value takes many times its bytes in memory.
pub(crate) const MAX_VALUES: usize = 100_000;

/// Messages from here on are parsed on a thread for blocking work.
pub(crate) const LARGE: usize = 64 * 1024;

/// Most events in one second.
pub(crate) const MAX_EVENTS: u32 = 5000;

/// Most streams that are opened again within [`STREAMS_TIME`].
pub(crate) const MAX_STREAMS: u32 = 30;
pub(crate) const STREAMS_TIME: Duration = Duration::from_secs(10);

/// Most pieces of lines in one second.
pub(crate) const MAX_PIECES: u32 = 10_000;

/// Most messages in one second that don't answer a request.
const MAX_UNASKED: u32 = 500;

/// Time for the last words of a server that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Bytes of a server's standard error that are shown. These are the last bytes.
const MAX_COMPLAINT: usize = 2 * 1024;

/// Bytes that are stored before the shown bytes. Without them, a secret could be cut in two before
/// secrets are searched for.
const BEFORE_COMPLAINT: usize = 16 * 1024;

/// The cause of a connection's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndError {
    /// The program has closed its pipes.
    #[error("it ended")]
    Ended,
    #[error("it no longer knows the session")]
    Forgotten,
    #[error("the connection was closed")]
    Closed,
    #[error("it can't be read: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Write(Arc<io::Error>),
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The failure of a transport.
    #[error(transparent)]
    Transport(Arc<dyn Error + Send + Sync>),
}

/// A limit that the messages of a server exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("it sent a message of more than {} MiB, the limit", MAX_MESSAGE >> 20)]
    Size,
    #[error("it sent a message with more than {MAX_VALUES} values, the limit")]
    Values,
    #[error("it sent more than {MAX_UNASKED} unsolicited messages in one second, the limit")]
    Unasked,
    #[error("it sent more than {MAX_PIECES} pieces of lines in one second")]
    Pieces,
    #[error("it sent more than {MAX_EVENTS} events in one second, the limit")]
    Events,
    #[error(
        "it ended more than {MAX_STREAMS} streams within {} s, the limit",
        STREAMS_TIME.as_secs()
    )]
    Streams,
}

/// The reason for the end of a connection, the last text from the server, and the server's secrets.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnd {
    reason: OnceLock<EndError>,
    challenge: OnceLock<Option<String>>,
    over: CancellationToken,
    forgot: OnceLock<()>,
    unheard: Mutex<HashSet<RequestId>>,
    complaint: Mutex<Vec<u8>>,
    said_all: Notify,
    known: RwLock<KnownSecrets>,
}

/// The secrets of a server by name, and their finder.
#[derive(Debug, Default)]
struct KnownSecrets {
    secrets: Vec<(String, Arc<SecretValue>)>,
    echoes: Option<Echoes>,
}

impl ConnectionEnd {
    /// Adds a secret that the server knows from now on.
    pub(crate) fn add_secret(&self, name: &str, secret: &Arc<SecretValue>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.secrets.iter().any(|(_, other)| other.expose() == secret.expose()) {
            return;
        }
        known.secrets.push((name.to_owned(), Arc::clone(secret)));
        let all = known.secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose()));
        known.echoes = Echoes::from_secrets(all);
    }

    /// Sets the reason of the end, and ends the connection. A later reason is ignored.
    pub(crate) fn set(&self, reason: impl Into<EndError>) {
        let _ = self.reason.set(reason.into());
        self.over.cancel();
    }

    /// Returns the reason for the end. Returns `None` if there is no known reason.
    pub(crate) fn reason(&self) -> Option<&EndError> {
        self.reason.get()
    }

    /// Records that the server refused a request because the request needs authorization.
    /// `challenge` is the header about this authorization. Later headers are ignored.
    pub(crate) fn refused(&self, challenge: Option<String>) {
        let _ = self.challenge.set(challenge);
    }

    /// Checks whether the server refused a request because the request needs authorization.
    pub(crate) fn is_refused(&self) -> bool {
        self.challenge.get().is_some()
    }

    /// Returns the server's header about the authorization that it needs.
    pub(crate) fn challenge(&self) -> Option<&str> {
        self.challenge.get()?.as_deref()
    }

    /// Records that the session ended because the server no longer knows it. The server answered
    /// `request` with this error and didn't process the request.
    pub(crate) fn forgotten(&self, request: Option<&RequestId>) {
        if let Some(id) = request {
            self.unheard.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        }
        let _ = self.forgot.set(());
        self.set(EndError::Forgotten);
    }

    /// Checks whether the session ended because the server no longer knows it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgot.get().is_some()
    }

    /// Checks whether the server didn't process a request because it didn't know the session.
    pub(crate) fn is_unheard(&self, request: &RequestId) -> bool {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).contains(request)
    }

    /// Waits until there is a reason for the end.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Records that the server has closed its standard error.
    pub(crate) fn said_all(&self) {
        self.said_all.notify_one();
    }

    /// Waits for the last text from a server that has ended. Doesn't wait for a server that is
    /// running.
    pub(crate) async fn wait_for_complaint(&self) {
        let _ = tokio::time::timeout(LAST_WORDS, self.said_all.notified()).await;
    }

    /// Adds bytes of the server's standard error. Only the last bytes are stored.
    pub(crate) fn complain(&self, bytes: &[u8]) {
        let mut complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        complaint.extend_from_slice(bytes);
        let surplus = complaint.len().saturating_sub(MAX_COMPLAINT + BEFORE_COMPLAINT);
        complaint.drain(..surplus);
    }

    /// Returns the end of the server's standard error.
    pub(crate) fn complaint(&self) -> String {
        let raw = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bytes = self.without_secrets(raw);
        let end = &bytes[bytes.len().saturating_sub(MAX_COMPLAINT)..];
        String::from_utf8_lossy(end).trim().to_owned()
    }

    /// Replaces the secrets that the server knows by marks.
    pub(crate) fn without_secrets(&self, bytes: Vec<u8>) -> Vec<u8> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(echoes) = &known.echoes else { return bytes };
        echoes.redact(&bytes).unwrap_or(bytes)
    }
}

/// The requests that wait for an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Arc<Mutex<HashSet<RequestId>>>);

impl Pending {
    /// Records a message to the server. A request becomes pending. A cancelled request is no longer
    /// pending.
    pub(crate) fn sent(&self, message: &ClientJsonRpcMessage) {
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
            _ => {}
        }
    }

    /// Adds a request that waits.
    pub(crate) fn add(&self, id: RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Removes a request. Returns whether the request was pending. A second answer to the same
    /// request is refused.
    fn take(&self, id: &RequestId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Counts events in a time window, and detects when there are too many.
#[derive(Debug)]
pub(crate) struct Rate {
    limit: u32,
    window: Duration,
    count: u32,
    since: Instant,
}

impl Rate {
    /// Allows at most `limit` events in a `window`.
    pub(crate) fn new(limit: u32, window: Duration) -> Self {
        Self { limit, window, count: 0, since: Instant::now() }
    }

    /// Counts an event. Returns whether the number of events is within the limit.
    pub(crate) fn count(&mut self) -> bool {
        if self.since.elapsed() > self.window {
            self.since = Instant::now();
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.limit
    }
}

/// Passes on only messages that a server may send now.
#[derive(Debug)]
pub(crate) struct MessageLimits {
    pending: Pending,
    unasked: Rate,
}

impl MessageLimits {
    /// Makes the limits for answers to these requests.
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending, unasked: Rate::new(MAX_UNASKED, Duration::from_secs(1)) }
    }

    /// Checks whether a message is passed on. Counts messages that answer no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the server sent too many messages that answer no request.
    pub(crate) fn admit(&mut self, message: &ServerJsonRpcMessage) -> Result<bool, LimitError> {
        let answers_a_request = match message {
            ServerJsonRpcMessage::Response(response) => self.pending.take(&response.id),
            ServerJsonRpcMessage::Error(error) => match &error.id {
                Some(id) => self.pending.take(id),
                // The server couldn't read the ID of the request, so the answer is valid only if a
                // request is pending.
                None => !self.pending.is_empty(),
            },
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => false,
        };
        if answers_a_request {
            return Ok(true);
        }

        self.count()?;
        match message {
            ServerJsonRpcMessage::Request(_) => Ok(true),
            ServerJsonRpcMessage::Notification(notification) => Ok(matches!(
                notification.notification,
                ServerNotification::CancelledNotification(_)
                    | ServerNotification::ProgressNotification(_)
                    | ServerNotification::ToolListChangedNotification(_)
                    | ServerNotification::SubscriptionsAcknowledgedNotification(_)
            )),
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => Ok(false),
        }
    }

    /// Counts a message that answers no request.
    pub(crate) fn count(&mut self) -> Result<(), LimitError> {
        if self.unasked.count() { Ok(()) } else { Err(LimitError::Unasked) }
    }
}

/// Checks a message before the message is parsed.
///
/// # Errors
///
/// Returns an error if the message has too many values.
pub(crate) fn check(message: &[u8]) -> Result<(), LimitError> {
    if count_values(message) > MAX_VALUES { Err(LimitError::Values) } else { Ok(()) }
}

/// Parses a message. Returns `None` if the text isn't a message. A large message is parsed on a
/// thread for blocking work.
pub(crate) async fn parse(text: Vec<u8>) -> Option<ServerJsonRpcMessage> {
    if text.len() < LARGE {
        return parse_at_once(&text);
    }
    tokio::task::spawn_blocking(move || parse_at_once(&text)).await.unwrap_or_default()
}

fn parse_at_once(text: &[u8]) -> Option<ServerJsonRpcMessage> {
    serde_json::from_slice(text.trim_ascii()).ok()
}

/// Estimates the number of values in a JSON text without parsing it. The estimate is an upper
/// limit.
fn count_values(json: &[u8]) -> usize {
    let mut count = 1;
    let mut in_text = false;
    let mut escaped = false;
    for byte in json {
        if escaped {
            escaped = false;
            continue;
        }
        match byte {
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => count += 1,
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
        let ended = ConnectionEnd::default();
        ended.add_secret("token", &Arc::new(SecretValue::new(secret.clone())));
        ended.complain(format!("{secret} {}", "x".repeat(MAX_COMPLAINT - 20)).as_bytes());
        let shown = ended.complaint();
        assert!(!shown.contains("s3cret") && shown.ends_with('x'), "{shown}");
        ended.complain(&secret.as_bytes()[..300]);
        ended.complain(&secret.as_bytes()[300..]);
        assert!(ended.complaint().ends_with("[REDACTED:token]"), "{}", ended.complaint());
    }
}
