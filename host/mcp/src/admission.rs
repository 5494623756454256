//! A connection on which only so many requests are under way.

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

/// Requests of one client that are under way at a time.
const MOST: usize = 256;

/// Requests that were read beyond those, and wait here, so that a ping behind them and what takes
/// one of them back is seen. More wait where they are, in the client's pipe, and cost nothing here.
const LATER: usize = 32;

/// A transport that reads no further while too much is under way, so that a client can't make this
/// process hold more than that.
pub(crate) struct Bounded<T> {
    inner: T,
    under_way: Arc<UnderWay>,
    later: VecDeque<JsonRpcRequest<ClientRequest>>,
    /// A refusal that is on its way: nothing more is read before it has left.
    refusing: Option<Refusing>,
    /// Cancelled when the client says nothing any more.
    gone: CancellationToken,
}

type Refusing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What answers the requests of that connection, and tells when it has done with one: who takes a
/// request back gets no answer to it, but what it began takes its place until it has ended.
pub(crate) struct Counted<S> {
    inner: S,
    under_way: Arc<UnderWay>,
}

/// Bounds a connection.
pub(crate) fn bounded<S, T>(
    service: S,
    transport: T,
    gone: CancellationToken,
) -> (Counted<S>, Bounded<T>) {
    let under_way = Arc::<UnderWay>::default();
    (
        Counted { inner: service, under_way: Arc::clone(&under_way) },
        Bounded { inner: transport, under_way, later: VecDeque::new(), refusing: None, gone },
    )
}

#[derive(Default)]
struct UnderWay {
    requests: Mutex<HashMap<RequestId, Stage>>,
    fewer: Notify,
}

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    /// The client wants no answer any more.
    TakenBack,
    /// Its answer is on its way.
    Ended,
}

impl UnderWay {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Stage>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, id: &RequestId) {
        self.requests().remove(id);
        self.fewer.notify_one();
    }

    /// The request comes to a stage. With two of them it is done: nothing is sent that the client
    /// took back.
    fn comes_to(&self, id: &RequestId, stage: Stage) {
        let mut requests = self.requests();
        let Some(there) = requests.get_mut(id) else { return };
        if matches!(
            (*there, stage),
            (Stage::TakenBack, Stage::Ended) | (Stage::Ended, Stage::TakenBack)
        ) {
            drop(requests);
            self.done(id);
        } else {
            *there = stage;
        }
    }
}

/// A request that is being answered.
struct Answering<'u> {
    under_way: &'u UnderWay,
    id: RequestId,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.under_way.comes_to(&self.id, Stage::Ended);
    }
}

impl<S: Service<RoleServer>> Service<RoleServer> for Counted<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let _answering = Answering { under_way: &self.under_way, id: context.id.clone() };
        self.inner.handle_request(request, context).await
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
    /// Whether a request with that id is under way, or waits.
    fn knows(&self, id: &RequestId) -> bool {
        self.under_way.requests().contains_key(id)
            || self.later.iter().any(|request| request.id == *id)
    }

    fn begun(&self, request: JsonRpcRequest<ClientRequest>) -> RxJsonRpcMessage<RoleServer> {
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
                under_way.done(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // It may be dropped at any point and called anew: what was read is returned, or lies in
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
                return Some(self.begun(request));
            }
            // Pings come on top of the others, as many as may wait here.
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
                // One with the id of another that is under way could not be told from it, and would
                // not be counted.
                Some(JsonRpcMessage::Request(request)) if self.knows(&request.id) => {
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
                        return Some(self.begun(request));
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
                        self.under_way.comes_to(id, Stage::TakenBack);
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
    fn what_was_taken_back_takes_its_place_until_it_has_ended() {
        let under_way = UnderWay::default();
        let id = NumberOrString::Number(1);
        let begin = || assert!(under_way.requests().insert(id.clone(), Stage::Begun).is_none());
        let there = || under_way.requests().len();
        for (first, then) in [(Stage::TakenBack, Stage::Ended), (Stage::Ended, Stage::TakenBack)] {
            begin();
            under_way.comes_to(&id, first);
            under_way.comes_to(&id, first);
            assert_eq!(there(), 1);
            under_way.comes_to(&id, then);
            assert_eq!(there(), 0);
        }
        begin();
        under_way.comes_to(&id, Stage::Ended);
        under_way.done(&id);
        under_way.comes_to(&id, Stage::TakenBack);
        assert_eq!(there(), 0, "what was answered can't be taken back");
    }
}
