//! What a call tells while it runs: as the protocol's progress notifications, and to whoever asks
//! for its task's state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use berth_core::text::cut;
use berth_core::{Content, Events, Progress};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use crate::tasks::StartedTask;

/// Notifications that wait for a client which reads slowly. What comes beyond is not told: the
/// answer has it.
const WAITING: usize = 64;

/// Bytes of one message.
const MESSAGE: usize = 4096;

/// Tells the client that asked for it.
pub(crate) struct ProgressSender {
    /// None once the call has ended.
    sender: Mutex<Option<Sender<(f64, String)>>>,
    /// How often something was told. The protocol wants each progress to be more than the one
    /// before.
    told: AtomicU64,
    /// The call, where its client takes tasks.
    begun: Option<Arc<StartedTask>>,
}

impl ProgressSender {
    /// Begins to tell a client that gave a token. The handle ends when everything has been told,
    /// after [`end`](Self::end).
    pub(crate) fn begin(
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
        begun: Option<Arc<StartedTask>>,
    ) -> (Self, Option<JoinHandle<()>>) {
        let (sender, task) = token
            .map(|token| {
                let (sender, receiver) = channel(WAITING);
                (sender, tokio::spawn(tell(peer.clone(), token, receiver)))
            })
            .unzip();
        (Self { sender: Mutex::new(sender), told: AtomicU64::new(0), begun }, task)
    }

    /// Sends nothing any more.
    pub(crate) fn end(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn say(&self, message: &str) {
        let message = cut(message, MESSAGE);
        if let Some(begun) = &self.begun {
            begun.say(message);
        }
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else { return };
        let step = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        // A call may tell a fraction that falls, or none; steps only grow.
        let _ = sender.try_send((step as f64, message.to_owned()));
    }
}

impl Events for ProgressSender {
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
        let notification =
            ProgressNotificationParam::new(token.clone(), progress).with_message(message);
        if peer.notify_progress(notification).await.is_err() {
            return;
        }
    }
}
