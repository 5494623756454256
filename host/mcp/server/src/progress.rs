//! Sends the progress of a call as notifications and as the status message of an MCP task.

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

/// Maximum number of notifications that wait for a slow client. Further notifications are dropped.
const MAX_QUEUED: usize = 64;

/// Maximum length of a message in bytes. Longer messages are cut.
const MAX_MESSAGE_BYTES: usize = 4096;

struct Notification {
    step: f64,
    message: String,
    untrusted: bool,
}

pub(crate) struct ProgressSender {
    /// `None` if the client wants no notifications, and after the end of the call.
    sender: Mutex<Option<Sender<Notification>>>,
    count: AtomicU64,
    /// Set if the client supports MCP tasks.
    started_task: Option<Arc<StartedTask>>,
    tool: String,
}

impl ProgressSender {
    /// Starts notifications if the client sent a `token`. The returned task ends when
    /// [`end`](Self::end) was called and all notifications are sent.
    pub(crate) fn begin(
        peer: &Peer<RoleServer>,
        token: Option<ProgressToken>,
        started_task: Option<Arc<StartedTask>>,
        tool: String,
    ) -> (Self, Option<JoinHandle<()>>) {
        let (sender, task) = match token {
            Some(token) => {
                let (sender, receiver) = channel(MAX_QUEUED);
                let task = tokio::spawn(send_progress(peer.clone(), token, receiver));
                (Some(sender), Some(task))
            }
            None => (None, None),
        };
        let sender = Mutex::new(sender);
        (Self { sender, count: AtomicU64::new(0), started_task, tool }, task)
    }

    pub(crate) fn end(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Sends a message to the client, as the status of the task and as a notification.
    fn send_message(&self, message: &str, untrusted: bool) {
        let message = cut(message, MAX_MESSAGE_BYTES);
        match &self.started_task {
            // The status of a task has no mark for untrusted text, and a model may read the status,
            // so untrusted text is fenced.
            Some(started_task) if untrusted => {
                started_task.set_status_message(&fenced(&self.tool, message));
            }
            Some(started_task) => started_task.set_status_message(message),
            None => {}
        }
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else { return };
        // The protocol requires that progress grows, but the fraction that a tool reports may
        // shrink, so the number of the notification is sent instead.
        let earlier_notifications = self.count.fetch_add(1, Ordering::Relaxed);
        let step = (earlier_notifications + 1) as f64;
        // A full queue drops the message.
        let _ = sender.try_send(Notification { step, message: message.to_owned(), untrusted });
    }
}

impl Events for ProgressSender {
    fn progress(&self, progress: Progress) {
        self.send_message(&progress.message, progress.untrusted);
    }

    fn emitted(&self, part: &Content) {
        if let Some(text) = part.as_text() {
            self.send_message(text, part.is_untrusted());
        }
    }
}

/// Sends the queued notifications until the call ends.
async fn send_progress(
    peer: Peer<RoleServer>,
    token: ProgressToken,
    mut receiver: Receiver<Notification>,
) {
    while let Some(Notification { step, message, untrusted }) = receiver.recv().await {
        let mut notification =
            ProgressNotificationParam::new(token.clone(), step).with_message(message);
        if untrusted {
            // The same key marks untrusted parts of an answer.
            let mark = json!({ "tool": { (Content::UNTRUSTED): true } });
            let meta = MetaObject([(META.to_owned(), mark)].into_iter().collect());
            notification.meta = Some(NotificationMetaObject(meta));
        }
        if peer.notify_progress(notification).await.is_err() {
            return;
        }
    }
}
