//! Limits the open requests of a client's connection, and answers its calls. Calls are also
//! answered for some seconds after the client has closed its side.
//!
//! A call is the most frequent request. Each call gets one task, which handles the call with the
//! protocol's crate and writes the answer. The loop of that crate handles all other requests. For a
//! call, that loop would need two tasks, a queue and three turns.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rmcp::model::{
    ClientNotification, ClientRequest, JsonRpcMessage, JsonRpcRequest, ProtocolVersion, RequestId,
    RequestMetaObject, ServerConfig, ServerResult,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RxJsonRpcMessage, TxJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer, Service};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;
use toolhold_core::CancellationToken;

use crate::lines::{Lines, WriteHalf};

/// Open requests of one client.
const MOST: usize = 256;

/// Further requests that are read and then wait, so that a ping or a cancellation after them is
/// noticed. All other requests stay in the client's pipe and use no memory of this process.
const LATER: usize = 32;

/// The time for open calls and other requests when the connection ends. The connection ends after
/// the client has closed its side, and when the server ends.
const AFTER_CLIENT: Duration = Duration::from_secs(5);
const AFTER_SERVER: Duration = Duration::from_secs(2);

/// A transport that stops reading while too many requests are open. This limits the memory of a
/// client's requests.
pub(crate) struct Bounded<S, R, W> {
    inner: Lines<R, W>,
    service: Arc<S>,
    under_way: Arc<OpenRequests>,
    later: VecDeque<JsonRpcRequest<ClientRequest>>,
    /// A refusal that is being sent. The next message is read only after the refusal was sent.
    refusing: Option<Refusing>,
    /// Cancelled when the client has closed its side.
    gone: CancellationToken,
    /// Cancelled when the server and its calls end.
    end: CancellationToken,
}

type Refusing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handles the requests of the connection, and reports when a request is finished. A client that
/// cancels a request gets no answer, but the request keeps its slot until its work has ended.
pub(crate) struct Counted<S> {
    inner: Arc<S>,
    under_way: Arc<OpenRequests>,
}

/// Limits a connection. Returns the service and the transport that implement the limit together.
pub(crate) fn bounded<S, R, W>(
    service: S,
    transport: Lines<R, W>,
    gone: CancellationToken,
    end: CancellationToken,
) -> (Counted<S>, Bounded<S, R, W>) {
    let service = Arc::new(service);
    let under_way = Arc::<OpenRequests>::default();
    let counted = Counted { inner: Arc::clone(&service), under_way: Arc::clone(&under_way) };
    let later = VecDeque::new();
    (counted, Bounded { inner: transport, service, under_way, later, refusing: None, gone, end })
}

#[derive(Default)]
struct OpenRequests {
    requests: Mutex<HashMap<RequestId, Open>>,
    fewer: Notify,
    /// The client. Set when the client's session has started.
    peer: OnceLock<Peer<RoleServer>>,
}

/// An open request.
struct Open {
    stage: Stage,
    /// Cancels a call that has its own task. `None` if the protocol's crate handles the request.
    cancel: Option<CancellationToken>,
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    /// The client has cancelled the request.
    TakenBack,
    /// The answer to the request is being sent.
    Ended,
}

impl OpenRequests {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Open>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, id: &RequestId) {
        self.requests().remove(id);
        self.fewer.notify_one();
    }

    /// Notes that a request has reached a stage. A request that was taken back and has ended is
    /// finished, since a request that the client cancelled gets no answer.
    fn reach(&self, id: &RequestId, stage: Stage) {
        let mut requests = self.requests();
        let Some(open) = requests.get_mut(id) else { return };
        let is_second_stage = open.stage != Stage::Begun && open.stage != stage;
        if is_second_stage && open.cancel.is_none() {
            drop(requests);
            self.finish(id);
            return;
        }
        // The task of a call finishes the call, even if the answer is being written.
        if open.stage == Stage::Ended && stage == Stage::TakenBack {
            return;
        }
        open.stage = stage;
        if stage == Stage::TakenBack
            && let Some(cancel) = &open.cancel
        {
            cancel.cancel();
        }
    }

    /// Waits until no call with its own task is open.
    async fn calls_ended(&self) {
        while self.requests().values().any(|open| open.cancel.is_some()) {
            self.fewer.notified().await;
        }
    }
}

/// A call with its own task.
struct OwnCall {
    under_way: Arc<OpenRequests>,
    id: RequestId,
}

impl OwnCall {
    /// Ends the call. Returns whether the answer must be sent. Returns `false` if the client has
    /// cancelled the call.
    fn end(&self) -> bool {
        match self.under_way.requests().get_mut(&self.id) {
            Some(open) if open.stage == Stage::Begun => {
                open.stage = Stage::Ended;
                true
            }
            _ => false,
        }
    }

    /// Handles the call, and writes its answer.
    async fn answer<S: Service<RoleServer>, W: AsyncWrite + Unpin>(
        self,
        service: Arc<S>,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
        out: Arc<WriteHalf<W>>,
    ) {
        let id = self.id.clone();
        let answer: TxJsonRpcMessage<RoleServer> =
            match service.handle_request(request, context).await {
                Ok(result) => JsonRpcMessage::response(result, id),
                Err(error) => JsonRpcMessage::error(error, Some(id)),
            };
        if !self.end() {
            return;
        }
        if let Err(error) = out.put(&answer) {
            tracing::error!("an answer can't be written: {error}");
        }
        drop(answer);
        // The other tasks run once, so that further answers that are ready can be written together
        // with this answer.
        let mut has_waited = false;
        poll_fn(|context| {
            if has_waited {
                return Poll::Ready(());
            }
            has_waited = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        out.write().await;
    }
}

impl Drop for OwnCall {
    fn drop(&mut self) {
        self.under_way.finish(&self.id);
    }
}

/// A request that the protocol's crate handles.
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
        let under_way = &self.under_way;
        let answering = Answering { under_way, id: context.id.clone() };
        // A session starts with its handshake. Since 2026-07-28, it starts with its first request.
        let starts_session = matches!(
            request,
            ClientRequest::InitializeRequest(_) | ClientRequest::CallToolRequest(_)
        );
        let new_peer = if starts_session && under_way.peer.get().is_none() {
            Some(context.peer.clone())
        } else {
            None
        };
        // A separate allocation: the request's task is moved several times. Without the allocation,
        // each move would copy the work for any kind of request.
        let work = Box::pin(self.inner.handle_request(request, context));
        async move {
            let _answering = answering;
            let result = work.await;
            if let (Ok(_), Some(peer)) = (&result, new_peer) {
                // All requests have the same peer.
                let _ = under_way.peer.set(peer);
            }
            result
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

impl<S, R, W> Bounded<S, R, W>
where
    S: Service<RoleServer>,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Checks whether a request with this ID is open or waits.
    fn contains(&self, id: &RequestId) -> bool {
        self.under_way.requests().contains_key(id)
            || self.later.iter().any(|request| request.id == *id)
    }

    /// Opens a request. Starts a call in a session and returns `None`. Returns any other request
    /// for the protocol's crate.
    fn begin(
        &self,
        request: JsonRpcRequest<ClientRequest>,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        let JsonRpcRequest { id, request: ClientRequest::CallToolRequest(mut call), .. } = request
        else {
            self.open(request.id.clone(), None);
            return Some(JsonRpcMessage::Request(request));
        };
        let Some(peer) = self.under_way.peer.get() else {
            self.open(id.clone(), None);
            return Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(call), id));
        };
        let mut context = RequestContext::new(id.clone(), peer.clone());
        context.ct = self.end.child_token();
        context.extensions = std::mem::take(&mut call.extensions);
        context.meta = context.extensions.remove::<RequestMetaObject>().unwrap_or_default();
        self.open(id.clone(), Some(context.ct.clone()));
        let own_call = OwnCall { under_way: Arc::clone(&self.under_way), id };
        let request = ClientRequest::CallToolRequest(call);
        let service = Arc::clone(&self.service);
        let answering = own_call.answer(service, request, context, self.inner.writer());
        // A separate allocation, for the same reason as above.
        tokio::spawn(Box::pin(answering));
        None
    }

    fn open(&self, id: RequestId, cancel: Option<CancellationToken>) {
        self.under_way.requests().insert(id, Open { stage: Stage::Begun, cancel });
    }
}

impl<S, R, W> Transport<RoleServer> for Bounded<S, R, W>
where
    S: Service<RoleServer>,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let sending = self.inner.send(message);
        let under_way = Arc::clone(&self.under_way);
        async move {
            let result = sending.await;
            if let Some(id) = answered {
                under_way.finish(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // This future may be dropped at any point and made again. A message that was read is then
        // returned or is in `later`.
        loop {
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let under_way = self.under_way.requests().len();
            if under_way < MOST
                && let Some(request) = self.later.pop_front()
            {
                match self.begin(request) {
                    None => continue,
                    message => return message,
                }
            }
            // Pings are allowed beyond the limit, up to the number of waiting requests.
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
                // A request with the ID of an open request can't be distinguished from it and
                // wouldn't be counted.
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
                        match self.begin(request) {
                            None => continue,
                            message => return message,
                        }
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

    async fn close(&mut self) -> io::Result<()> {
        let patience = if self.gone.is_cancelled() { AFTER_CLIENT } else { AFTER_SERVER };
        if timeout(patience, self.under_way.calls_ended()).await.is_err() {
            for open in self.under_way.requests().values() {
                if let Some(cancel) = &open.cancel {
                    cancel.cancel();
                }
            }
        }
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
        let begin = || {
            let open = Open { stage: Stage::Begun, cancel: None };
            assert!(under_way.requests().insert(id.clone(), open).is_none());
        };
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

    #[test]
    fn cancelled_call_is_stopped_and_keeps_its_slot_until_it_has_ended() {
        let under_way = Arc::<OpenRequests>::default();
        let id = NumberOrString::Number(1);
        let begin = || {
            let cancel = CancellationToken::new();
            let open = Open { stage: Stage::Begun, cancel: Some(cancel.clone()) };
            assert!(under_way.requests().insert(id.clone(), open).is_none());
            (OwnCall { under_way: Arc::clone(&under_way), id: id.clone() }, cancel)
        };
        let there = || under_way.requests().len();
        let (call, cancel) = begin();
        under_way.reach(&id, Stage::TakenBack);
        under_way.reach(&id, Stage::TakenBack);
        assert!(cancel.is_cancelled() && there() == 1);
        assert!(!call.end());
        drop(call);
        assert_eq!(there(), 0);
        let (call, cancel) = begin();
        assert!(call.end());
        under_way.reach(&id, Stage::TakenBack);
        assert!(!cancel.is_cancelled() && there() == 1, "its answer is being sent");
        drop(call);
        assert_eq!(there(), 0);
    }
}
