//! Stores the HTTP sessions of clients with revisions before 2026-07-28, even over a restart.
//!
//! A request names its connection in `Mcp-Session-Id`. This header contains the ID and a seal over
//! the ID and the caller, so that no caller can use the connection of another caller. The client's
//! handshake is stored on disk. With it, each server of the user can continue the connection, for
//! example after a restart.

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

/// Time after which an idle connection is removed from memory. The connection stays on disk, so the
/// time only needs to be longer than the longest work: a call, or a question to a person.
const SILENT: Duration = Duration::from_secs(2 * 3600);

/// Time for which an answer is stored for a client that lost its connection.
const LATE: Duration = Duration::from_secs(10);

/// The file with the handshakes, and the limits of their number and size.
const FILE: &str = "clients.json";
const MOST: usize = 512;
const MOST_BYTES: usize = 2048;

/// Seconds after which a handshake is removed.
const IDLE: u64 = 8 * 3600;

/// The connections, in this process and on disk.
pub(super) struct Connections {
    local: LocalSessionManager,
    key: hmac::Key,
}

impl Connections {
    /// # Errors
    ///
    /// The key that seals IDs can't be read.
    pub(super) fn new(folders: &Folders) -> Result<Self, HostError> {
        let secret = state::secret(&folders.data.join(FOLDER), KEY)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(SILENT);
        local.session_config.completed_cache_ttl = LATE;
        Ok(Self { local, key })
    }

    /// Seals an ID for its caller.
    pub(super) fn seal(&self, caller: &str, id: &str) -> String {
        let seal = hmac::sign(&self.key, sealed_bytes(caller, id).as_bytes());
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(seal))
    }

    /// Opens a sealed ID. Returns `None` if the ID isn't an ID of this caller.
    pub(super) fn open<'a>(&self, caller: &str, sealed: &'a str) -> Option<&'a str> {
        let (id, seal) = sealed.rsplit_once('.')?;
        let seal = URL_SAFE_NO_PAD.decode(seal).ok()?;
        hmac::verify(&self.key, sealed_bytes(caller, id).as_bytes(), &seal).ok()?;
        Some(id)
    }

    /// Removes the IDs of connections that aren't open here. Returns the number of the others.
    pub(super) async fn retain_open(&self, ids: &mut Vec<SessionId>) -> usize {
        let sessions = self.local.sessions.read().await;
        ids.retain(|id| sessions.contains_key(id));
        ids.len()
    }
}

/// Returns the bytes under a seal. They differ from all other data that the key seals.
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

    /// Creates a stream like the library does, with one difference: an answer is dropped as soon as
    /// its client has it. The library would store the answer until the next use of the connection.
    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let known = self.local.sessions.read().await.get(id).cloned();
        let handle = known.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let receiver = handle.establish_request_wise_channel().await?;
        let place = match &message {
            JsonRpcMessage::Request(request) => {
                CallerPlace::from_extensions(request.request.extensions())
            }
            _ => None,
        };
        let kept = receiver.http_request_id.map(|request| KeptAnswers {
            handle: handle.clone(),
            request,
            place,
            read: false,
        });
        handle.push_message(message, receiver.http_request_id).await?;
        Ok(Answers { messages: receiver.inner, kept })
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

/// The answers to one request.
struct Answers {
    messages: Receiver<ServerSseMessage>,
    kept: Option<KeptAnswers>,
}

impl Stream for Answers {
    type Item = ServerSseMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<ServerSseMessage>> {
        let next = self.messages.poll_recv(context);
        if matches!(next, Poll::Ready(None))
            && let Some(kept) = &mut self.kept
        {
            kept.read = true;
        }
        next
    }
}

/// Answers that are stored for a client that may return.
struct KeptAnswers {
    handle: LocalSessionHandle,
    request: u64,
    /// The slot of the request. It is reserved while the answers are stored.
    place: Option<CallerPlace>,
    /// Whether the client has the answer.
    read: bool,
}

impl Drop for KeptAnswers {
    fn drop(&mut self) {
        let handle = self.handle.clone();
        let request = self.request;
        let place = self.place.take();
        let read = self.read;
        // Without a reactor there is no connection.
        let Ok(reactor) = tokio::runtime::Handle::try_current() else { return };
        reactor.spawn(async move {
            if !read {
                if let Some(place) = &place {
                    place.wait_until_finished().await;
                }
                tokio::time::sleep(LATE).await;
            }
            // The connection may no longer exist.
            let _ = handle.close_request_wise_channel(request).await;
        });
    }
}

/// The handshakes on disk.
pub(super) struct Handshakes(PathBuf);

/// A client's handshake and the time of its last use, in seconds.
#[derive(Serialize, Deserialize, PartialEq)]
struct Handshake {
    seen: u64,
    /// The handshake as JSON text. On disk, each quote in this text takes one more byte.
    said: String,
}

type Known = BTreeMap<String, Handshake>;

impl Handshakes {
    pub(super) fn new(folders: &Folders) -> Self {
        Self(folders.data.join(FOLDER))
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Known, u64) -> T + Send + 'static,
    ) -> Result<T, SessionStoreError> {
        let folder = self.0.clone();
        let result = tokio::task::spawn_blocking(move || {
            state::update(&folder, FILE, |known: &mut Known| {
                let now = seconds();
                known.retain(|_, handshake| now.saturating_sub(handshake.seen) < IDLE);
                Ok(change(known, now))
            })
        });
        Ok(result.await??)
    }
}

#[async_trait]
impl SessionStore for Handshakes {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let id = id.to_owned();
        let handshake = self.change(move |known, now| {
            let handshake = known.get_mut(&id)?;
            handshake.seen = now;
            Some(handshake.said.clone())
        });
        match handshake.await? {
            Some(text) => Ok(Some(serde_json::from_str(&text)?)),
            None => Ok(None),
        }
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let id = id.to_owned();
        let said = serde_json::to_string(state)?;
        if said.len() > MOST_BYTES {
            // The client is served like any other until this process ends.
            return Ok(());
        }
        self.change(move |known, now| {
            while known.len() >= MOST {
                let oldest = known.iter().min_by_key(|(_, handshake)| handshake.seen);
                let Some(oldest_id) = oldest.map(|(id, _)| id.clone()) else { break };
                known.remove(&oldest_id);
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
            known.extend((0..MOST).map(|at| {
                (
                    format!("{at:05}"),
                    Handshake { seen: now - (MOST - at) as u64, said: "\"".repeat(MOST_BYTES) },
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
        assert_eq!((kept, oldest, next), (MOST, false, true), "the oldest has gone, and no other");
        store.delete("one").await.expect("is removed");
        assert!(store.load("one").await.expect("can be read").is_none());
        let mut large = state.clone();
        large.initialize_params.client_info.name = "x".repeat(MOST_BYTES);
        store.store("large", &large).await.expect("is no error");
        assert!(
            store.load("large").await.expect("can be read").is_none(),
            "nobody fills the disk with it"
        );
    }
}
