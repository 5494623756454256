//! Stores the HTTP connections of clients with revisions before 2026-07-28.
//!
//! The header `Mcp-Session-Id` contains an ID and a seal over the ID and the caller. The seal keeps
//! callers from using each other's connections. The client's handshake is stored on disk, so any
//! server of the user can continue the connection, also after a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_core::Stream;
use ring::hmac;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionHandle, LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId, SessionManager, SessionState, SessionStore,
    SessionStoreError,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Receiver;
use toolhold_core::config::Folders;
use toolhold_core::{HostError, state};

use super::callers::CallerPlace;
use crate::approver::{FOLDER, KEY, seconds};

/// Time after which an idle connection is removed from memory. Running calls and open questions
/// also look idle, so the time must be longer than both.
const MAX_SILENCE: Duration = Duration::from_secs(2 * 3600);

/// Time for which an answer is stored for a client that lost its connection.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

/// The file with the handshakes, and its limits. A further handshake replaces the least recently
/// used handshake. Longer handshakes aren't stored.
const FILE: &str = "clients.json";
const MAX_HANDSHAKES: usize = 512;
const MAX_HANDSHAKE_BYTES: usize = 2048;

/// Seconds after which an unused handshake is removed.
const MAX_IDLE_SECONDS: u64 = 8 * 3600;

pub(super) struct Connections {
    local: LocalSessionManager,
    key: hmac::Key,
}

impl Connections {
    pub(super) fn new(folders: &Folders) -> Result<Self, HostError> {
        let secret = state::secret(&folders.data.join(FOLDER), KEY)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(MAX_SILENCE);
        local.session_config.completed_cache_ttl = ANSWER_LIFETIME;
        Ok(Self { local, key })
    }

    /// Closes all connections.
    pub(super) async fn close_all(&self) {
        let ids: Vec<SessionId> = self.local.sessions.read().await.keys().cloned().collect();
        for id in ids {
            // An error means that the connection is already closed.
            let _ = self.close_session(&id).await;
        }
    }

    pub(super) fn seal(&self, caller: &str, id: &str) -> String {
        let seal = hmac::sign(&self.key, sealed_bytes(caller, id).as_bytes());
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(seal))
    }

    /// Opens a sealed ID. Returns `None` if `caller` didn't get this ID.
    pub(super) fn open<'a>(&self, caller: &str, sealed: &'a str) -> Option<&'a str> {
        let (id, seal) = sealed.rsplit_once('.')?;
        let seal = URL_SAFE_NO_PAD.decode(seal).ok()?;
        hmac::verify(&self.key, sealed_bytes(caller, id).as_bytes(), &seal).ok()?;
        Some(id)
    }

    /// Removes the IDs of connections that this process has closed. Returns the number of remaining
    /// IDs.
    pub(super) async fn retain_open(&self, ids: &mut Vec<SessionId>) -> usize {
        let sessions = self.local.sessions.read().await;
        ids.retain(|id| sessions.contains_key(id));
        ids.len()
    }
}

/// Returns the bytes to sign. The prefix makes other seals with the same key invalid here.
fn sealed_bytes(caller: &str, id: &str) -> String {
    format!("toolhold http connection\n{id}\n{caller}")
}

impl SessionManager for Connections {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.local.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.local.close_session(id).await
    }

    /// Creates a stream for the answers to a message. The library stores the answers until the next
    /// request of the connection, but this stream removes answers that the client has read.
    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.local.sessions.read().await.get(id).cloned();
        let handle =
            session.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let receiver = handle.establish_request_wise_channel().await?;
        let place = match &message {
            JsonRpcMessage::Request(request) => {
                CallerPlace::from_extensions(request.request.extensions())
            }
            _ => None,
        };
        let stored = receiver.http_request_id.map(|request| StoredAnswers {
            handle: handle.clone(),
            request,
            place,
            is_read: false,
        });
        handle.push_message(message, receiver.http_request_id).await?;
        Ok(Answers { messages: receiver.inner, stored })
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.resume(id, last_event_id).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        self.local.restore_session(id).await
    }
}

struct Answers {
    messages: Receiver<ServerSseMessage>,
    stored: Option<StoredAnswers>,
}

impl Stream for Answers {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let next_message = self.messages.poll_recv(context);
        if matches!(next_message, Poll::Ready(None))
            && let Some(stored) = &mut self.stored
        {
            stored.is_read = true;
        }
        next_message
    }
}

/// The stored answers of a request. Dropping this value removes them: at once if the client has
/// read them, and otherwise after a delay.
struct StoredAnswers {
    handle: LocalSessionHandle,
    request: u64,
    /// The slot of the request, reserved while the answers are stored.
    place: Option<CallerPlace>,
    /// Whether the client has all answers.
    is_read: bool,
}

impl Drop for StoredAnswers {
    fn drop(&mut self) {
        let handle = self.handle.clone();
        let request = self.request;
        let place = self.place.take();
        let is_read = self.is_read;
        // Without a runtime, the process is ending, and its connections also end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // A client that lost its connection has some time to fetch the answers.
            if !is_read {
                if let Some(place) = &place {
                    place.wait_until_finished().await;
                }
                tokio::time::sleep(ANSWER_LIFETIME).await;
            }
            // An error means that the connection is closed.
            let _ = handle.close_request_wise_channel(request).await;
        });
    }
}

/// Handshakes in a file in this folder.
pub(super) struct Handshakes(PathBuf);

/// A client's handshake. `seen` is the Unix time of its last use.
#[derive(Serialize, Deserialize, PartialEq)]
struct Handshake {
    seen: u64,
    /// The handshake as JSON text.
    said: String,
}

type Known = BTreeMap<String, Handshake>;

impl Handshakes {
    pub(super) fn new(folders: &Folders) -> Self {
        Self(folders.data.join(FOLDER))
    }

    /// Removes expired handshakes, and then changes the remaining handshakes. `edit` also gets the
    /// Unix time.
    async fn change<T: Send + 'static>(
        &self,
        edit: impl FnOnce(&mut Known, u64) -> T + Send + 'static,
    ) -> Result<T, SessionStoreError> {
        let folder = self.0.clone();
        let result = tokio::task::spawn_blocking(move || {
            state::update(&folder, FILE, |known: &mut Known| {
                let now = seconds();
                known
                    .retain(|_id, handshake| now.saturating_sub(handshake.seen) < MAX_IDLE_SECONDS);
                Ok(edit(known, now))
            })
        });
        Ok(result.await??)
    }
}

#[async_trait]
impl SessionStore for Handshakes {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let id = id.to_owned();
        let reading = self.change(move |known, now| {
            let handshake = known.get_mut(&id)?;
            handshake.seen = now;
            Some(handshake.said.clone())
        });
        match reading.await? {
            Some(handshake_json) => Ok(Some(serde_json::from_str(&handshake_json)?)),
            None => Ok(None),
        }
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let id = id.to_owned();
        let said = serde_json::to_string(state)?;
        if said.len() > MAX_HANDSHAKE_BYTES {
            // The client of an unstored handshake needs a new connection after a restart.
            return Ok(());
        }
        self.change(move |known, now| {
            while known.len() >= MAX_HANDSHAKES {
                let longest_unused = known.iter().min_by_key(|(_id, handshake)| handshake.seen);
                let Some((unused_id, _)) = longest_unused else { break };
                let removed_id = unused_id.clone();
                known.remove(&removed_id);
            }
            known.insert(id, Handshake { seen: now, said });
        })
        .await
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        let id = id.to_owned();
        self.change(move |known, _| drop(known.remove(&id))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_id_is_valid_for_its_caller_only() {
        let root = tempfile::tempdir().expect("a folder is made");
        let here = Connections::new(&Folders::inside(root.path())).expect("the key is made");
        let sealed = here.seal("anna", "the-id");
        assert_eq!(here.open("anna", &sealed), Some("the-id"));
        assert_eq!(here.open("berta", &sealed), None);
        let there = Connections::new(&Folders::inside(root.path())).expect("the key is there");
        assert_eq!(there.open("anna", &sealed), Some("the-id"), "another process of the user");
        for wrong in [
            "",
            "the-id",
            "the-id.",
            ".",
            &sealed.replace("the-id", "the-ie"),
            &sealed[..sealed.len() - 1],
            &format!("{sealed}A"),
        ] {
            assert_eq!(here.open("anna", wrong), None, "{wrong}");
        }
        // A caller's name can't be moved into the ID.
        assert_eq!(here.open("", &here.seal("anna", "x")), None);
    }

    #[tokio::test]
    async fn stored_handshakes_are_bounded() {
        let root = tempfile::tempdir().expect("a folder is made");
        let store = Handshakes::new(&Folders::inside(root.path()));
        let state: SessionState = serde_json::from_value(serde_json::json!({ "initialize_params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" } } }))
        .expect("is a handshake");
        // As many as fit, each of the largest size: quotes take most on disk.
        let fill = |known: &mut Known, now: u64| {
            known.extend((0..MAX_HANDSHAKES).map(|at| {
                (
                    format!("{at:05}"),
                    Handshake {
                        seen: now - (MAX_HANDSHAKES - at) as u64,
                        said: "\"".repeat(MAX_HANDSHAKE_BYTES),
                    },
                )
            }));
        };
        store.change(fill).await.expect("all of them fit into the file");
        store.store("one", &state).await.expect("is kept");
        let loaded = store.load("one").await.expect("can be read").expect("is there");
        assert_eq!(loaded.initialize_params.client_info.name, "tester");
        let (kept, oldest, next) = store
            .change(|known, _| {
                (known.len(), known.contains_key("00000"), known.contains_key("00001"))
            })
            .await
            .expect("can be read");
        assert_eq!(
            (kept, oldest, next),
            (MAX_HANDSHAKES, false, true),
            "the oldest has gone, and no other"
        );
        store.delete("one").await.expect("is removed");
        assert!(store.load("one").await.expect("can be read").is_none());
        let mut large = state.clone();
        large.initialize_params.client_info.name = "x".repeat(MAX_HANDSHAKE_BYTES);
        store.store("large", &large).await.expect("is no error");
        assert!(
            store.load("large").await.expect("can be read").is_none(),
            "nobody fills the disk with it"
        );
    }
}
