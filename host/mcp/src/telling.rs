//! What a call tells while it runs, as the protocol's progress notifications.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use berth_host::text::cut;
use berth_host::{Content, Events, Progress};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Notifications that wait for a client which reads slowly. What comes beyond is not told: the answer has it.
const WAITING: usize = 64;

/// Bytes of one message.
const MESSAGE: usize = 4096;

/// Tells the client that asked for it.
pub(crate) struct Telling {
    /// None once the call has ended.
    sender: Mutex<Option<Sender<(f64, String)>>>,
    /// How often something was told. The protocol wants each progress to be more than the one before.
    told: AtomicU64,
}

impl Telling {
    /// Begins to tell a client. The handle ends when everything has been told, after [`end`](Self::end).
    pub(crate) fn begin(peer: Peer<RoleServer>, token: ProgressToken) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = channel(WAITING);
        let task = tokio::spawn(tell(peer, token, receiver));
        (Self { sender: Mutex::new(Some(sender)), told: AtomicU64::new(0) }, task)
    }

    /// Tells nothing any more.
    pub(crate) fn end(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn say(&self, message: &str) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else { return };
        let step = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        // A call may tell a fraction that falls, or none; steps only grow.
        let _ = sender.try_send((step as f64, cut(message, MESSAGE).to_owned()));
    }
}

impl Events for Telling {
    fn progress(&self, progress: Progress) {
        self.say(&progress.message);
    }

    fn emitted(&self, part: &Content) {
        if let Some(text) = part.as_text() {
            self.say(text);
        }
    }
}

async fn tell(peer: Peer<RoleServer>, token: ProgressToken, mut receiver: Receiver<(f64, String)>) {
    while let Some((progress, message)) = receiver.recv().await {
        let notification = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
        if peer.notify_progress(notification).await.is_err() {
            return;
        }
    }
}
