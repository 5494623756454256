//! A connection on which only so many requests are under way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_host::CancellationToken;
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;

/// Requests of one client that are under way at a time. More wait where they are, in the client's pipe, and cost nothing here.
const MOST: usize = 256;

/// A transport that reads no further while too much is under way, so that a client can't make this process hold more than that.
pub(crate) struct Bounded<T> {
    inner: T,
    under_way: Arc<UnderWay>,
    /// Cancelled when the client says nothing any more.
    gone: CancellationToken,
}

#[derive(Default)]
struct UnderWay {
    requests: Mutex<HashSet<RequestId>>,
    fewer: Notify,
}

impl UnderWay {
    fn requests(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, id: &RequestId) {
        self.requests().remove(id);
        self.fewer.notify_one();
    }
}

impl<T> Bounded<T> {
    pub(crate) fn new(inner: T, gone: CancellationToken) -> Self {
        Self { inner, under_way: Arc::default(), gone }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Bounded<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (sent, under_way) = (self.inner.send(message), Arc::clone(&self.under_way));
        async move {
            let sent = sent.await;
            if let Some(id) = answered {
                under_way.done(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // It may be dropped at any point and called anew: nothing has been read then.
        while self.under_way.requests().len() >= MOST {
            self.under_way.fewer.notified().await;
        }
        let mut message = self.inner.receive().await;
        // One with the id of another that is under way could not be told from it, and would not be counted.
        while let Some(JsonRpcMessage::Request(request)) = &message
            && self.under_way.requests().contains(&request.id)
        {
            tracing::warn!("a request is passed over: another with the same id is under way");
            message = self.inner.receive().await;
        }
        match &message {
            None => self.gone.cancel(),
            Some(JsonRpcMessage::Request(request)) => drop(self.under_way.requests().insert(request.id.clone())),
            // The protocol wants no answer to what was taken back.
            Some(JsonRpcMessage::Notification(notification)) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.under_way.done(id);
                }
            }
            _ => {}
        }
        message
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
