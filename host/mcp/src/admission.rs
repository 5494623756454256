//! Limits the open requests of a connection.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_core::CancellationToken;
use rmcp::model::{
    ClientNotification, ClientRequest, JsonRpcMessage, JsonRpcRequest, ProtocolVersion, RequestId,
    ServerConfig, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer, Service};
use tokio::sync::Notify;

/// Open requests of one client.
const MOST: usize = 256;

/// Further requests that are read and wait here, so that a ping or a cancellation behind them is
/// noticed. More stay in the client's pipe and cost nothing here.
const LATER: usize = 32;

/// A transport that stops reading while too many requests are open, so that a client can't make
/// this process hold more than that.
pub(crate) struct Bounded<T> {
    inner: T,
    under_way: Arc<OpenRequests>,
    later: VecDeque<JsonRpcRequest<ClientRequest>>,
    /// A refusal that is being sent: nothing more is read before.
    refusing: Option<Refusing>,
    /// Cancelled when the client has closed its side.
    gone: CancellationToken,
}

type Refusing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handles the requests of that connection, and reports when it has finished one. A client that
/// cancels a request gets no answer, but the request's slot stays taken until its work has ended.
pub(crate) struct Counted<S> {
    inner: S,
    under_way: Arc<OpenRequests>,
}

/// Limits a connection.
pub(crate) fn bounded<S, T>(
    service: S,
    transport: T,
    gone: CancellationToken,
) -> (Counted<S>, Bounded<T>) {
    let under_way = Arc::<OpenRequests>::default();
    (
        Counted { inner: service, under_way: Arc::clone(&under_way) },
        Bounded { inner: transport, under_way, later: VecDeque::new(), refusing: None, gone },
    )
}

#[derive(Default)]
struct OpenRequests {
    requests: Mutex<HashMap<RequestId, Stage>>,
    fewer: Notify,
}

/// The stage of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    /// The client has cancelled it.
    TakenBack,
    /// Its answer is being sent.
    Ended,
}

impl OpenRequests {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Stage>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, id: &RequestId) {
        self.requests().remove(id);
        self.fewer.notify_one();
    }

    /// The request reaches a stage. After both stages it is done: nothing is sent for a request
    /// that the client cancelled.
    fn reach(&self, id: &RequestId, stage: Stage) {
        let mut requests = self.requests();
        let Some(there) = requests.get_mut(id) else { return };
        if matches!(
            (*there, stage),
            (Stage::TakenBack, Stage::Ended) | (Stage::Ended, Stage::TakenBack)
        ) {
            drop(requests);
            self.finish(id);
        } else {
            *there = stage;
        }
    }
}

/// An open request.
struct Answering<'u> {
    under_way: &'u OpenRequests,
    id: RequestId,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.under_way.reach(&self.id, Stage::Ended);
    }
}

impl<S: Service<RoleServer>> Service<RoleServer> for Counted<S> {
    fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ServerResult, ErrorData>> + Send {
        let answering = Answering { under_way: &self.under_way, id: context.id.clone() };
        // In its own allocation: the request's task is moved several times, and would move the work
        // for any kind of request each time.
        let handled = Box::pin(self.inner.handle_request(request, context));
        async move {
            let _answering = answering;
            handled.await
        }
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.inner.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.inner.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }
}

impl<T> Bounded<T> {
    /// Whether a request with this ID is open or waits.
    fn contains(&self, id: &RequestId) -> bool {
        self.under_way.requests().contains_key(id)
            || self.later.iter().any(|request| request.id == *id)
    }

    fn begin(&self, request: JsonRpcRequest<ClientRequest>) -> RxJsonRpcMessage<RoleServer> {
        self.under_way.requests().insert(request.id.clone(), Stage::Begun);
        JsonRpcMessage::Request(request)
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Bounded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (sent, under_way) = (self.inner.send(message), Arc::clone(&self.under_way));
        async move {
            let sent = sent.await;
            if let Some(id) = answered {
                under_way.finish(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // It may be dropped at any point and called again: what was read is returned or is in
        // `later`.
        loop {
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let under_way = self.under_way.requests().len();
            if under_way < MOST
                && let Some(request) = self.later.pop_front()
            {
                return Some(self.begin(request));
            }
            // Pings are allowed beyond the limit, as many as may wait here.
            if self.later.len() >= LATER || under_way >= MOST + LATER {
                self.under_way.fewer.notified().await;
                continue;
            }
            let message = tokio::select! {
                message = self.inner.receive() => message,
                () = self.under_way.fewer.notified(), if !self.later.is_empty() => continue,
            };
            match message {
                None => {
                    self.gone.cancel();
                    return None;
                }
                // A request with the ID of an open one couldn't be told from it and wouldn't be
                // counted.
                Some(JsonRpcMessage::Request(request)) if self.contains(&request.id) => {
                    let error = ErrorData::invalid_request(
                        "another request with this id is under way",
                        None,
                    );
                    let sent = self.inner.send(JsonRpcMessage::error(error, Some(request.id)));
                    self.refusing = Some(Box::pin(async move { drop(sent.await) }));
                }
                Some(JsonRpcMessage::Request(request)) => {
                    let is_ping = matches!(request.request, ClientRequest::PingRequest(_));
                    if is_ping || self.under_way.requests().len() < MOST {
                        return Some(self.begin(request));
                    }
                    self.later.push_back(request);
                }
                Some(JsonRpcMessage::Notification(notification)) => {
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        if let Some(at) = self.later.iter().position(|request| request.id == *id) {
                            self.later.remove(at);
                            continue;
                        }
                        self.under_way.reach(id, Stage::TakenBack);
                    }
                    return Some(JsonRpcMessage::Notification(notification));
                }
                message => return message,
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::NumberOrString;

    #[test]
    fn cancelled_request_keeps_its_slot_until_it_has_ended() {
        let under_way = OpenRequests::default();
        let id = NumberOrString::Number(1);
        let begin = || assert!(under_way.requests().insert(id.clone(), Stage::Begun).is_none());
        let there = || under_way.requests().len();
        for (first, then) in [(Stage::TakenBack, Stage::Ended), (Stage::Ended, Stage::TakenBack)] {
            begin();
            under_way.reach(&id, first);
            under_way.reach(&id, first);
            assert_eq!(there(), 1);
            under_way.reach(&id, then);
            assert_eq!(there(), 0);
        }
        begin();
        under_way.reach(&id, Stage::Ended);
        under_way.finish(&id);
        under_way.reach(&id, Stage::TakenBack);
        assert_eq!(there(), 0, "what was answered can't be taken back");
    }
}
