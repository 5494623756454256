//! Sends the events of a running call as progress notifications, and as a task's status message.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{MetaObject, NotificationMetaObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use toolhold_core::text::cut;
use toolhold_core::{Content, Events, Progress, fenced};

use crate::answer::META;
use crate::tasks::StartedTask;

/// Notifications that wait for a slow client. Further notifications are dropped, because the answer
/// is complete without them.
const WAITING: usize = 64;

/// Bytes of one message.
const MESSAGE: usize = 4096;

struct Notification {
    step: f64,
    message: String,
    untrusted: bool,
}

/// Sends notifications to the client that asked for progress.
pub(crate) struct ProgressSender {
    /// The channel to the client. `None` after the end of the call.
    sender: Mutex<Option<Sender<Notification>>>,
    /// Number of notifications. The protocol requires that progress only grows.
    count: AtomicU64,
    /// The call, if its client supports MCP tasks.
    started_task: Option<Arc<StartedTask>>,
    tool: String,
}

impl ProgressSender {
    /// Starts to notify a client that sent a token. The sending task ends after [`end`](Self::end),
    /// when all notifications are sent.
    pub(crate) fn begin(
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
        started_task: Option<Arc<StartedTask>>,
        tool: String,
    ) -> (Self, Option<JoinHandle<()>>) {
        let (sender, task) = match token {
            Some(token) => {
                let (sender, receiver) = channel(WAITING);
                let task = tokio::spawn(send_progress(peer.clone(), token, receiver));
                (Some(sender), Some(task))
            }
            None => (None, None),
        };
        let sender = Mutex::new(sender);
        (Self { sender, count: AtomicU64::new(0), started_task, tool }, task)
    }

    /// Stops sending.
    pub(crate) fn end(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn say(&self, message: &str, untrusted: bool) {
        let message = cut(message, MESSAGE);
        match &self.started_task {
            // The state of a task has no metadata, and a model may see the state.
            Some(started_task) if untrusted => started_task.say(&fenced(&self.tool, message)),
            Some(started_task) => started_task.say(message),
            None => {}
        }
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else { return };
        // The fraction that a call reports may decrease or be missing. The number of steps always
        // increases.
        let step = (self.count.fetch_add(1, Ordering::Relaxed) + 1) as f64;
        let _ = sender.try_send(Notification { step, message: message.to_owned(), untrusted });
    }
}

impl Events for ProgressSender {
    fn progress(&self, progress: Progress) {
        self.say(&progress.message, progress.untrusted);
    }

    fn emitted(&self, part: &Content) {
        if let Some(text) = part.as_text() {
            self.say(text, part.is_untrusted());
        }
    }
}

async fn send_progress(
    peer: Peer<RoleServer>,
    token: ProgressToken,
    mut receiver: Receiver<Notification>,
) {
    while let Some(Notification { step, message, untrusted }) = receiver.recv().await {
        let mut notification =
            ProgressNotificationParam::new(token.clone(), step).with_message(message);
        if untrusted {
            // An answer has the mark at the same place.
            let mark = json!({ "tool": { (Content::UNTRUSTED): true } });
            let meta = MetaObject([(META.to_owned(), mark)].into_iter().collect());
            notification.meta = Some(NotificationMetaObject(meta));
        }
        if peer.notify_progress(notification).await.is_err() {
            return;
        }
    }
}
