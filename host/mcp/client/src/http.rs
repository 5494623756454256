//! Sends requests to an upstream server at a URL, with limits for the answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, InvalidHeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcRequest, ServerJsonRpcMessage,
};
use rmcp::transport::auth::WWWAuthenticateParams;
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpClientWorker, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::{Transport, WorkerTransport};
use serde_json::{Value, json};
use sse_stream::Sse;
use tokio::sync::mpsc;
use toolhold_core::text::{cut, neutral_line};
use toolhold_net::requests::{
    Credential, Limits, OutboundClient, OutboundError, Request, Response,
};
use url::Url;

use crate::events::{Events, Parser};
use crate::gate::{
    ConnectionState, EndError, LimitError, MAX_EVENTS, MAX_MESSAGE, MAX_STREAMS, MessageLimits,
    Pending, Rate, STREAMS_TIME, check, parse,
};
use crate::oauth::{OAuthError, Tokens};

/// The purpose of the requests in the audit log.
const PURPOSE: &str = "mcp server";

/// Most bytes of a stream of events.
const MAX_STREAM_BYTES: u64 = 64 << 20;

/// Longest time of a stream without a call.
const MAX_LISTEN_TIME: Duration = Duration::from_secs(24 * 3600);

const MAX_SESSION_LENGTH: usize = 1024;

/// Longest `WWW-Authenticate` header in bytes. A longer header is cut.
const MAX_CHALLENGE: usize = 2048;

/// Longest scopes from this header in bytes. Longer scopes are cut.
const MAX_SCOPE: usize = 200;

/// Longest line with all scopes that is suggested, in bytes.
const MAX_SCOPES: usize = 500;

/// Events of a stream that may wait until the client handles them.
const EVENT_QUEUE: usize = 16;

/// Longest media type of an answer that is shown, in bytes. Longer types are cut.
const MAX_MEDIA_TYPE: usize = 100;

/// Bytes of an invalid answer that are shown or searched for a reason.
const MAX_SHOWN_BYTES: usize = 300;

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// A server at a URL, and how it is reached.
pub(crate) struct ServerAddress {
    pub(crate) outbound_client: OutboundClient,
    pub(crate) url: Url,
    /// The configured headers, including secret ones.
    pub(crate) headers: HeaderMap,
    /// The secret in the header `Authorization`.
    pub(crate) credential: Option<Credential>,
    pub(crate) tokens: Option<Tokens>,
    /// Longest time of an answer.
    pub(crate) time: Duration,
    /// The advice if the server requires another authorization.
    pub(crate) remedy: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error("{origin} refused the authorization (401): {remedy}")]
    Unauthorized { origin: String, remedy: String },
    #[error("{error}; {remedy}")]
    Token { error: OAuthError, remedy: String },
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error(
        "the name of the server's session isn't 1 to {MAX_SESSION_LENGTH} visible ASCII characters"
    )]
    SessionName,
    #[error(transparent)]
    Header(#[from] InvalidHeaderValue),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("the server answered with {0}")]
    Status(StatusCode),
}

/// The error for a scope that the login's tokens lack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    #[error("the server needs the scope `{0}`, which your login already has")]
    AlreadyGranted(String),
    #[error(
        "the server needs the scope `{needed}`: write `{line}` into the server's `oauth` table, \
         then {remedy}"
    )]
    Missing { needed: String, line: String, remedy: String },
    #[error(
        "the server needs the scope `{needed}`: add the scope to `scopes` in the server's `oauth` \
         table, then {remedy}"
    )]
    TooManyScopes { needed: String, remedy: String },
}

// In an `Arc`, because the connection also stores the error that ends it.
type Error = StreamableHttpError<Arc<HttpError>>;

fn failed(error: impl Into<HttpError>) -> Error {
    StreamableHttpError::Client(Arc::new(error.into()))
}

#[derive(Clone)]
pub(crate) struct HttpClient(Arc<Inner>);

struct Inner {
    address: ServerAddress,
    connection_state: Arc<ConnectionState>,
    events: Mutex<Rate>,
    streams: Mutex<Rate>,
}

impl HttpClient {
    /// Makes a request with the server's configured headers, the further `headers`, and the name of
    /// the session.
    fn request(
        &self,
        method: Method,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: Limits,
    ) -> Result<Request, Error> {
        let address = &self.0.address;
        let mut request = Request::new(PURPOSE, method, address.url.as_str())
            .map_err(failed)?
            .stay()
            .limits(limits)
            .credential(address.credential.clone());
        for (name, value) in &address.headers {
            request = request.header(name.clone(), value.clone());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            let value = HeaderValue::from_str(session).map_err(failed)?;
            request = request.header(SESSION_HEADER, value);
        }
        Ok(request)
    }

    /// Sends a request. Ends the connection if the server refuses the authorization.
    async fn send(&self, request: Request) -> Result<Response, Error> {
        let Inner { address, connection_state, .. } = &*self.0;
        let mut answer = self.send_with_token(request.clone()).await?;
        // A server may refuse a token before its announced end. A new token is then tried once.
        if answer.status() == StatusCode::UNAUTHORIZED
            && let Some(tokens) = &address.tokens
            && tokens.refresh_early().await
        {
            answer = self.send_with_token(request).await?;
        }
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        connection_state.record_refusal(challenge(answer.headers()));
        let origin = answer.origin().to_owned();
        let remedy = address.remedy.clone();
        Err(self.end(HttpError::Unauthorized { origin, remedy }))
    }

    /// Sends a request with the login's current token, if there is one.
    async fn send_with_token(&self, mut request: Request) -> Result<Response, Error> {
        let Inner { address, connection_state, .. } = &*self.0;
        if let Some(tokens) = &address.tokens {
            let token = tokens.current(connection_state).await.map_err(|error| {
                self.end(HttpError::Token { error, remedy: address.remedy.clone() })
            })?;
            request = request.credential(Some(Credential::new(&address.url, token)));
        }
        address.outbound_client.send(request).await.map_err(failed)
    }

    /// Starts a task that reads the events of an answer, and returns the stream of the events. The
    /// task ends when the stream is dropped.
    fn events(&self, answer: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE);
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let result = tokio::select! {
                result = inner.read_events(answer, &sender) => result,
                () = sender.closed() => Ok(()),
            };
            if let Err(reason) = result {
                inner.connection_state.end(reason);
            }
        });
        Box::pin(Events(receiver))
    }

    /// Posts a message. Returns the answer, or the stream with the answer.
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let body = serde_json::to_vec(&message)?;
        let time = if is_listening(&message) { MAX_LISTEN_TIME } else { self.0.address.time };
        let limits = Limits { time, idle: time, bytes: MAX_STREAM_BYTES };
        let request = self
            .request(Method::POST, session.as_deref(), headers, limits)?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"))
            .body(body);
        let answer = self.send(request).await?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(self.end_forgotten_session(&message));
        }
        let ClientJsonRpcMessage::Request(request) = &message else {
            if status.is_success() {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            let error = HttpStatusError::new(status.as_u16(), None);
            return Err(StreamableHttpError::HttpStatus(error));
        };
        if status == StatusCode::BAD_REQUEST && session.is_some() {
            let bytes = self.read_body(answer).await?;
            if denies_session(&bytes) {
                return Err(self.end_forgotten_session(&message));
            }
            let refusal = self.parse_answer(request, status, bytes).await?;
            return Ok(StreamableHttpPostResponse::Json(refusal, None));
        }
        let new_session = session_name(&answer)?;
        if let Some(missing) = self.missing_scope(&answer).await {
            if is_discovery(request) {
                // End the connection, because the library would try older revisions after another
                // failure of this request.
                self.0.connection_state.record_refusal(None);
                return Err(self.end(missing));
            }
            let failure = refusal(request, missing.to_string());
            return Ok(StreamableHttpPostResponse::Json(failure, new_session));
        }
        self.read_answer(request, session.is_some(), answer, new_session).await
    }

    /// Reads an answer according to its media type and status.
    async fn read_answer(
        &self,
        request: &JsonRpcRequest<ClientRequest>,
        has_session: bool,
        answer: Response,
        new_session: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let status = answer.status();
        let is_first_discovery = is_discovery(request) && !has_session;
        match media_type(&answer).as_str() {
            "text/event-stream" if status.is_success() => {
                Ok(StreamableHttpPostResponse::Sse(self.events(answer), new_session))
            }
            "application/json" => {
                let bytes = self.read_body(answer).await?;
                let message = self.parse_answer(request, status, bytes).await?;
                Ok(StreamableHttpPostResponse::Json(message, new_session))
            }
            // The answer comes on the stream of the session.
            _ if status == StatusCode::ACCEPTED => Ok(StreamableHttpPostResponse::Accepted),
            // A server with an older revision, or a proxy, doesn't know the discovery request.
            _ if status.is_client_error() && is_first_discovery => {
                Ok(StreamableHttpPostResponse::Json(unknown_method(request, status), None))
            }
            kind if status.is_success() => {
                let kind = neutral_line(cut(kind, MAX_MEDIA_TYPE));
                let why =
                    format!("the server's answer has the type `{kind}`, neither JSON nor events");
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
            _ => {
                let why = format!("the server answered with {status}");
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
        }
    }

    /// Returns the error for the scope that the login lacks, if an answer with status 403 requires
    /// a scope. Returns `None` for other answers.
    async fn missing_scope(&self, answer: &Response) -> Option<ScopeError> {
        let address = &self.0.address;
        let tokens = address.tokens.as_ref()?;
        if answer.status() != StatusCode::FORBIDDEN {
            return None;
        }
        let header = challenge(answer.headers())?;
        let params = WWWAuthenticateParams::parse(&header, &address.url);
        if params.error.as_deref() != Some("insufficient_scope") {
            return None;
        }
        let needed = neutral_line(cut(&params.scope?, MAX_SCOPE));
        Some(scope_error(needed, tokens.scopes().await, address.remedy.clone()))
    }

    /// Reads the body of an answer within the limits of a message, and redacts secrets in the body.
    async fn read_body(&self, mut answer: Response) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + piece.len() > MAX_MESSAGE {
                return Err(self.end(LimitError::Size));
            }
            bytes.extend_from_slice(&piece);
        }
        check(&bytes).map_err(|error| self.end(error))?;
        Ok(self.0.connection_state.without_secrets(bytes))
    }

    /// Parses the answer to a request. An error in the answer gets the ID of the request, because
    /// some servers send errors with another ID.
    async fn parse_answer(
        &self,
        request: &JsonRpcRequest<ClientRequest>,
        status: StatusCode,
        bytes: Vec<u8>,
    ) -> Result<ServerJsonRpcMessage, Error> {
        let start_bytes = &bytes[..bytes.len().min(MAX_SHOWN_BYTES)];
        let start = String::from_utf8_lossy(start_bytes).into_owned();
        match parse(bytes).await {
            Some(ServerJsonRpcMessage::Error(error)) => {
                Ok(ServerJsonRpcMessage::error(error.error, Some(request.id.clone())))
            }
            Some(ServerJsonRpcMessage::Response(response)) if response.id != request.id => {
                Ok(refusal(request, "the server's answer is for another request".to_owned()))
            }
            Some(message @ ServerJsonRpcMessage::Response(_)) if status.is_success() => Ok(message),
            _ if status.is_client_error() && is_discovery(request) => {
                Ok(unknown_method(request, status))
            }
            _ if !status.is_success() => {
                Ok(refusal(request, format!("the server answered with {status}")))
            }
            _ => {
                let shown_start = neutral_line(cut(&start, MAX_SHOWN_BYTES));
                Ok(refusal(
                    request,
                    format!("the server's answer isn't the answer to a request: {shown_start}"),
                ))
            }
        }
    }

    /// Ends the connection because the server no longer knows the session.
    fn end_forgotten_session(&self, message: &ClientJsonRpcMessage) -> Error {
        let request = match message {
            ClientJsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        self.0.connection_state.record_forgotten_session(request);
        StreamableHttpError::SessionExpired
    }

    fn end(&self, error: impl Into<HttpError>) -> Error {
        let error = Arc::new(error.into());
        self.0.connection_state.end(EndError::Transport(Arc::<HttpError>::clone(&error)));
        StreamableHttpError::Client(error)
    }
}

impl Inner {
    /// Sends the events of an answer to `sender`. Returns an error if the whole connection must
    /// end.
    async fn read_events(
        &self,
        mut answer: Response,
        sender: &mpsc::Sender<Sse>,
    ) -> Result<(), EndError> {
        let mut parser = Parser::default();
        loop {
            let piece = match answer.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                Err(error @ OutboundError::TooLarge(..)) => {
                    return Err(EndError::Transport(Arc::new(HttpError::from(error))));
                }
                // An error of the network ends only this stream. Other streams continue.
                Err(_) => return Ok(()),
            };
            for (mut event, data) in parser.parse_piece(&piece)? {
                let is_within_rate =
                    self.events.lock().unwrap_or_else(PoisonError::into_inner).count_event();
                if !is_within_rate {
                    return Err(LimitError::Events.into());
                }
                if let Some(data) = data {
                    check(&data)?;
                    event.data =
                        String::from_utf8(self.connection_state.without_secrets(data)).ok();
                }
                // Sending fails if the receiver was dropped.
                if sender.send(event).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Makes the error for the scopes `needed`. `scopes` are the scopes of the current login. Another
/// login replaces these scopes, so the suggested line contains all scopes.
fn scope_error(needed: String, mut scopes: Vec<String>, remedy: String) -> ScopeError {
    let count_before = scopes.len();
    for scope in needed.split(' ') {
        if !scope.is_empty() && !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    if scopes.len() == count_before {
        // The token already has the scopes, so another login wouldn't help.
        return ScopeError::AlreadyGranted(needed);
    }
    let line = format!("scopes = {}", json!(scopes));
    if line.len() > MAX_SCOPES {
        return ScopeError::TooManyScopes { needed, remedy };
    }
    ScopeError::Missing { needed, line: neutral_line(&line), remedy }
}

/// Returns the name of the session that an answer starts. Returns `None` if the answer starts no
/// session.
fn session_name(answer: &Response) -> Result<Option<String>, Error> {
    let Some(value) = answer.headers().get(SESSION_HEADER) else { return Ok(None) };
    let name = value.to_str().map_err(|_| failed(HttpError::SessionName))?;
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    let has_valid_length = (1..=MAX_SESSION_LENGTH).contains(&name.len());
    if !is_visible || !has_valid_length {
        return Err(failed(HttpError::SessionName));
    }
    Ok(Some(name.to_owned()))
}

/// Returns the first header `WWW-Authenticate` that names metadata, or else the first such header.
/// A long header is cut. Returns `None` if there is no such header.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(WWW_AUTHENTICATE);
    let first_with_metadata = values.iter().find(|value| names_metadata(value));
    let value = first_with_metadata.or_else(|| values.iter().next())?;
    let text = String::from_utf8_lossy(value.as_bytes());
    Some(cut(&text, MAX_CHALLENGE).to_owned())
}

fn names_metadata(value: &HeaderValue) -> bool {
    String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase().contains("resource_metadata")
}

fn media_type(answer: &Response) -> String {
    let value = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(value);
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Checks whether the answer to a message is a stream that stays open.
fn is_listening(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::SubscriptionsListenRequest(_))
}

/// Returns whether a refusal with status 400 is about the session. Some servers refuse an unknown
/// session with this status, although the protocol requires 404.
fn denies_session(body: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        let start = &body[..body.len().min(MAX_SHOWN_BYTES)];
        return names_session(&String::from_utf8_lossy(start));
    };
    let Some(error) = answer.get("error") else { return false };
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    // An error without an ID isn't about the request, so it is about the session.
    let has_id = answer.get("id").is_some_and(|id| !id.is_null());
    !has_id || names_session(message)
}

fn names_session(text: &str) -> bool {
    text.to_ascii_lowercase().contains("session")
}

/// Checks whether a request asks for the server's revisions.
fn is_discovery(request: &JsonRpcRequest<ClientRequest>) -> bool {
    matches!(request.request, ClientRequest::DiscoverRequest(_))
}

/// Makes an error for one request. The session continues.
fn refusal(request: &JsonRpcRequest<ClientRequest>, why: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::internal_error(why, None), Some(request.id.clone()))
}

/// Makes the answer that a server with older revisions gives to an unknown request.
fn unknown_method(
    request: &JsonRpcRequest<ClientRequest>,
    status: StatusCode,
) -> ServerJsonRpcMessage {
    let error = ErrorData::invalid_request(format!("the server answered with {status}"), None);
    ServerJsonRpcMessage::error(error, Some(request.id.clone()))
}

impl StreamableHttpClient for HttpClient {
    type Error = Arc<HttpError>;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        let result = self.post(message, session_id, custom_headers).await;
        if is_request && let Err(StreamableHttpError::Client(error)) = &result {
            // The connection keeps only the first reason. The error of a request is a better reason
            // than the errors that follow.
            self.0.connection_state.end(EndError::Transport(Arc::<HttpError>::clone(error)));
        }
        result
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let limits = Limits::default();
        let request = self.request(Method::DELETE, Some(&session_id), custom_headers, limits)?;
        self.send(request).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let is_within_rate =
            self.0.streams.lock().unwrap_or_else(PoisonError::into_inner).count_event();
        if !is_within_rate {
            return Err(self.end(LimitError::Streams));
        }
        let limits =
            Limits { time: MAX_LISTEN_TIME, idle: MAX_LISTEN_TIME, bytes: MAX_STREAM_BYTES };
        let mut request = self
            .request(Method::GET, session_id.as_deref(), custom_headers, limits)?
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id {
            request =
                request.header(LAST_EVENT_HEADER, HeaderValue::from_str(&id).map_err(failed)?);
        }
        let answer = self.send(request).await?;
        let status = answer.status();
        match media_type(&answer).as_str() {
            "text/event-stream" if status.is_success() => Ok(self.events(answer)),
            // A server without this stream answers with an error, or with another type.
            _ if status.is_client_error() || status.is_success() => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            _ => Err(failed(HttpError::Status(status))),
        }
    }
}

pub(crate) struct Http {
    inner: WorkerTransport<StreamableHttpClientWorker<HttpClient>>,
    pending: Pending,
    gate: MessageLimits,
    connection_state: Arc<ConnectionState>,
}

impl Http {
    pub(crate) fn new(address: ServerAddress, connection_state: Arc<ConnectionState>) -> Self {
        let mut config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str());
        config.max_sse_event_size = MAX_MESSAGE;
        // The library would repeat a call in a new session, whose tools may not be approved.
        config.reinit_on_expired_session = false;
        let client = HttpClient(Arc::new(Inner {
            address,
            connection_state: Arc::clone(&connection_state),
            events: Mutex::new(Rate::new(MAX_EVENTS, Duration::from_secs(1))),
            streams: Mutex::new(Rate::new(MAX_STREAMS, STREAMS_TIME)),
        }));
        let pending = Pending::default();
        Self {
            inner: StreamableHttpClientTransport::with_client(client, config),
            gate: MessageLimits::new(pending.clone()),
            pending,
            connection_state,
        }
    }
}

impl Transport<RoleClient> for Http {
    type Error = Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.pending.record_sent(&message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = tokio::select! {
                biased;
                () = self.connection_state.wait_for_end() => return None,
                message = self.inner.receive() => message?,
            };
            match self.gate.admit(&message) {
                Ok(true) => return Some(message),
                Ok(false) => {}
                Err(error) => self.connection_state.end(error),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.inner.close().await
    }
}
