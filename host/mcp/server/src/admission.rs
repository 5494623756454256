//! Limits the open requests of a connection and answers its calls.
//!
//! Each call gets one task, which writes the answer. The protocol's crate handles all other
//! requests. It isn't used for calls, the most frequent requests, because it needs two tasks, a
//! queue and three turns for each.

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

/// Maximum number of open requests of one client.
const MAX_OPEN: usize = 256;

/// Maximum number of further requests that are read and then wait, so that later pings and
/// cancellations are still read. More requests stay in the client's pipe.
const MAX_WAITING: usize = 32;

/// Time for open requests to end after the client has closed its side of the connection.
const MAX_WAIT_AFTER_CLIENT_END: Duration = Duration::from_secs(5);

/// Time for open requests to end if the server ends first.
const MAX_WAIT_AFTER_SERVER_END: Duration = Duration::from_secs(2);

/// A transport that stops reading while too many requests are open.
pub(crate) struct Bounded<S, R, W> {
    inner: Lines<R, W>,
    service: Arc<S>,
    open_requests: Arc<OpenRequests>,
    waiting: VecDeque<JsonRpcRequest<ClientRequest>>,
    /// A refusal that is being sent. `receive` reads no message meanwhile.
    refusing: Option<Refusing>,
    /// Cancelled when the client has closed its side.
    client_gone: CancellationToken,
    server_end: CancellationToken,
}

type Refusing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handles the requests of the connection. A cancelled request gets no answer, but stays open until
/// its work has ended.
pub(crate) struct Counted<S> {
    inner: Arc<S>,
    open_requests: Arc<OpenRequests>,
}

/// Limits the open requests of a connection. The returned service and transport belong together.
/// `client_gone` is cancelled when the client has closed its side, and `server_end` when the server
/// ends.
pub(crate) fn limit_open_requests<S, R, W>(
    service: S,
    transport: Lines<R, W>,
    client_gone: CancellationToken,
    server_end: CancellationToken,
) -> (Counted<S>, Bounded<S, R, W>) {
    let service = Arc::new(service);
    let open_requests = Arc::<OpenRequests>::default();
    let counted =
        Counted { inner: Arc::clone(&service), open_requests: Arc::clone(&open_requests) };
    let bounded = Bounded {
        inner: transport,
        service,
        open_requests,
        waiting: VecDeque::new(),
        refusing: None,
        client_gone,
        server_end,
    };
    (counted, bounded)
}

#[derive(Default)]
struct OpenRequests {
    requests: Mutex<HashMap<RequestId, Open>>,
    finished: Notify,
    /// Set when the client's session has started.
    peer: OnceLock<Peer<RoleServer>>,
}

struct Open {
    stage: Stage,
    /// Cancels a call that has its own task. `None` if the protocol's crate handles the request.
    cancel: Option<CancellationToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Started,
    /// Cancelled by the client.
    Cancelled,
    /// The answer is being sent.
    Ended,
}

impl OpenRequests {
    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Open>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, id: &RequestId) {
        self.requests().remove(id);
        self.finished.notify_one();
    }

    fn set_stage(&self, id: &RequestId, stage: Stage) {
        let mut requests = self.requests();
        let Some(open) = requests.get_mut(id) else { return };
        let is_cancelled_and_ended = open.stage != Stage::Started && open.stage != stage;
        let has_own_task = open.cancel.is_some();
        if is_cancelled_and_ended && !has_own_task {
            // The request gets no answer, so it is removed now.
            drop(requests);
            self.finish(id);
            return;
        }
        // The answer is being written, so the cancellation is too late. The call's task removes the
        // request.
        if open.stage == Stage::Ended && stage == Stage::Cancelled {
            return;
        }
        open.stage = stage;
        if stage == Stage::Cancelled
            && let Some(cancel) = &open.cancel
        {
            cancel.cancel();
        }
    }

    async fn wait_for_calls(&self) {
        while self.requests().values().any(|open| open.cancel.is_some()) {
            self.finished.notified().await;
        }
    }
}

/// A call with its own task. Dropping this value removes the request of the call.
struct OwnCall {
    open_requests: Arc<OpenRequests>,
    id: RequestId,
}

impl OwnCall {
    /// Ends the call, and returns whether the client gets an answer. Cancelled calls get no answer.
    fn try_end(&self) -> bool {
        match self.open_requests.requests().get_mut(&self.id) {
            Some(open) if open.stage == Stage::Started => {
                open.stage = Stage::Ended;
                true
            }
            _ => false,
        }
    }

    /// Runs the call and writes its answer.
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
        if !self.try_end() {
            return;
        }
        if let Err(error) = out.queue(&answer) {
            tracing::error!("an answer can't be written: {error}");
        }
        drop(answer);

        // Yields to the runtime once, so that all waiting tasks run and their answers are written
        // together with this answer.
        let mut has_yielded = false;
        poll_fn(|context| {
            if has_yielded {
                return Poll::Ready(());
            }
            has_yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        out.write().await;
    }
}

impl Drop for OwnCall {
    fn drop(&mut self) {
        self.open_requests.finish(&self.id);
    }
}

/// Marks a request as ended when dropped.
struct Answering<'u> {
    open_requests: &'u OpenRequests,
    id: RequestId,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.open_requests.set_stage(&self.id, Stage::Ended);
    }
}

impl<S: Service<RoleServer>> Service<RoleServer> for Counted<S> {
    fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ServerResult, ErrorData>> + Send {
        let open_requests = &self.open_requests;
        let answering = Answering { open_requests, id: context.id.clone() };
        // Since revision 2026-07-28, there is no handshake, so a session starts with its first
        // call.
        let starts_session = matches!(
            request,
            ClientRequest::InitializeRequest(_) | ClientRequest::CallToolRequest(_)
        );
        let mut new_peer = None;
        if starts_session && open_requests.peer.get().is_none() {
            new_peer = Some(context.peer.clone());
        }
        // Boxed, because each move of the task copies this future.
        let work = Box::pin(self.inner.handle_request(request, context));
        async move {
            let _answering = answering;
            let result = work.await;
            if let (Ok(_), Some(peer)) = (&result, new_peer) {
                let _ = open_requests.peer.set(peer);
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
    fn contains(&self, id: &RequestId) -> bool {
        self.open_requests.requests().contains_key(id)
            || self.waiting.iter().any(|request| request.id == *id)
    }

    /// Starts a request. A call in a session gets its own task, and `None` is returned. Any other
    /// request is returned for the protocol's crate.
    fn start(
        &self,
        request: JsonRpcRequest<ClientRequest>,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        let JsonRpcRequest { id, request: ClientRequest::CallToolRequest(mut call), .. } = request
        else {
            self.add(request.id.clone(), None);
            return Some(JsonRpcMessage::Request(request));
        };
        // The peer is set when the session starts.
        let Some(peer) = self.open_requests.peer.get() else {
            self.add(id.clone(), None);
            return Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(call), id));
        };
        let mut context = RequestContext::new(id.clone(), peer.clone());
        context.ct = self.server_end.child_token();
        context.extensions = std::mem::take(&mut call.extensions);
        context.meta = context.extensions.remove::<RequestMetaObject>().unwrap_or_default();
        self.add(id.clone(), Some(context.ct.clone()));
        let own_call = OwnCall { open_requests: Arc::clone(&self.open_requests), id };
        let request = ClientRequest::CallToolRequest(call);
        let service = Arc::clone(&self.service);
        let answering = own_call.answer(service, request, context, self.inner.writer());
        // Boxed, because each move of the task copies the future.
        tokio::spawn(Box::pin(answering));
        None
    }

    /// Adds a request to the open requests. `cancel` cancels a call that has its own task.
    fn add(&self, id: RequestId, cancel: Option<CancellationToken>) {
        self.open_requests.requests().insert(id, Open { stage: Stage::Started, cancel });
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
        let answered_request = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let sending = self.inner.send(message);
        let open_requests = Arc::clone(&self.open_requests);
        async move {
            let result = sending.await;
            if let Some(id) = answered_request {
                open_requests.finish(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // This future may be dropped at any await without losing a message, because each message
        // that was read is in `waiting` or was returned.
        loop {
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let open_count = self.open_requests.requests().len();
            if open_count < MAX_OPEN
                && let Some(request) = self.waiting.pop_front()
            {
                match self.start(request) {
                    None => continue,
                    message => return message,
                }
            }
            // `waiting` has no pings, so up to `MAX_WAITING` pings may be open in addition to
            // `MAX_OPEN` requests.
            if self.waiting.len() >= MAX_WAITING || open_count >= MAX_OPEN + MAX_WAITING {
                self.open_requests.finished.notified().await;
                continue;
            }
            let finished = &self.open_requests.finished;
            let message = tokio::select! {
                message = self.inner.receive() => message,
                () = finished.notified(), if !self.waiting.is_empty() => continue,
            };
            match message {
                None => {
                    self.client_gone.cancel();
                    return None;
                }
                // Open requests are counted by their IDs, so each ID must be unique.
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
                    if is_ping || self.open_requests.requests().len() < MAX_OPEN {
                        match self.start(request) {
                            None => continue,
                            message => return message,
                        }
                    }
                    self.waiting.push_back(request);
                }
                Some(JsonRpcMessage::Notification(notification)) => {
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        if let Some(at) = self.waiting.iter().position(|request| request.id == *id)
                        {
                            self.waiting.remove(at);
                            continue;
                        }
                        self.open_requests.set_stage(id, Stage::Cancelled);
                    }
                    return Some(JsonRpcMessage::Notification(notification));
                }
                message => return message,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        let max_wait = if self.client_gone.is_cancelled() {
            MAX_WAIT_AFTER_CLIENT_END
        } else {
            MAX_WAIT_AFTER_SERVER_END
        };
        let waiting = timeout(max_wait, self.open_requests.wait_for_calls()).await;
        let has_timed_out = waiting.is_err();
        if has_timed_out {
            for open in self.open_requests.requests().values() {
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
        let open_requests = OpenRequests::default();
        let id = NumberOrString::Number(1);
        let begin = || {
            let open = Open { stage: Stage::Started, cancel: None };
            assert!(open_requests.requests().insert(id.clone(), open).is_none());
        };
        let there = || open_requests.requests().len();
        for (first, then) in [(Stage::Cancelled, Stage::Ended), (Stage::Ended, Stage::Cancelled)] {
            begin();
            open_requests.set_stage(&id, first);
            open_requests.set_stage(&id, first);
            assert_eq!(there(), 1);
            open_requests.set_stage(&id, then);
            assert_eq!(there(), 0);
        }
        begin();
        open_requests.set_stage(&id, Stage::Ended);
        open_requests.finish(&id);
        open_requests.set_stage(&id, Stage::Cancelled);
        assert_eq!(there(), 0, "what was answered can't be taken back");
    }

    #[test]
    fn cancelled_call_is_stopped_and_keeps_its_slot_until_it_has_ended() {
        let open_requests = Arc::<OpenRequests>::default();
        let id = NumberOrString::Number(1);
        let begin = || {
            let cancel = CancellationToken::new();
            let open = Open { stage: Stage::Started, cancel: Some(cancel.clone()) };
            assert!(open_requests.requests().insert(id.clone(), open).is_none());
            (OwnCall { open_requests: Arc::clone(&open_requests), id: id.clone() }, cancel)
        };
        let there = || open_requests.requests().len();
        let (call, cancel) = begin();
        open_requests.set_stage(&id, Stage::Cancelled);
        open_requests.set_stage(&id, Stage::Cancelled);
        assert!(cancel.is_cancelled() && there() == 1);
        assert!(!call.try_end());
        drop(call);
        assert_eq!(there(), 0);
        let (call, cancel) = begin();
        assert!(call.try_end());
        open_requests.set_stage(&id, Stage::Cancelled);
        assert!(!cancel.is_cancelled() && there() == 1, "its answer is being sent");
        drop(call);
        assert_eq!(there(), 0);
    }
}
