//! Sends the requests to an upstream server at a URL. Requests go only to the server's own origin,
//! and the size of answers is limited.

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
    ConnectionEnd, EndError, LimitError, MAX_EVENTS, MAX_MESSAGE, MAX_STREAMS, MessageLimits,
    Pending, Rate, STREAMS_TIME, check, parse,
};
use crate::oauth::{OAuthError, Tokens};

/// The purpose of the requests in the audit log.
const PURPOSE: &str = "mcp server";

/// Most bytes of one stream of events.
const MAX_STREAM: u64 = 64 << 20;

/// The longest time for which a stream without a call may last and be silent.
const LISTENING: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of a session's name.
const MAX_SESSION: usize = 1024;

/// Most bytes of a server's header about the authorization that it needs.
const MAX_CHALLENGE: usize = 2048;

/// Most bytes of the scopes in this header.
const MAX_SCOPE: usize = 200;

/// Most bytes of all scopes that are shown.
const MAX_SCOPES: usize = 500;

/// Bytes of an answer without a message that are shown, or searched for a reason.
const REASON: usize = 300;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A server at a URL.
pub(crate) struct ServerAddress {
    /// The way out.
    pub(crate) door: OutboundClient,
    /// The URL of the server.
    pub(crate) url: Url,
    /// The configured headers, including secrets.
    pub(crate) headers: HeaderMap,
    /// The secret of the header `Authorization`.
    pub(crate) credential: Option<Credential>,
    /// The tokens of a login.
    pub(crate) tokens: Option<Tokens>,
    /// The longest time of an answer.
    pub(crate) time: Duration,
    /// The advice after a refused authorization.
    pub(crate) remedy: String,
}

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error("{origin} wants another authorization (401): {remedy}")]
    Unauthorized { origin: String, remedy: String },
    #[error("{error}; {remedy}")]
    Token { error: OAuthError, remedy: String },
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error("the name of its session isn't 1 to {MAX_SESSION} visible ASCII characters")]
    SessionName,
    #[error(transparent)]
    Header(#[from] InvalidHeaderValue),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("it answered with {0}")]
    Status(StatusCode),
}

/// A scope that the tokens of a login lack.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    #[error("it needs the scope `{0}`, which your login already has")]
    Brought(String),
    #[error("it needs the scope `{needed}`: write `{line}` into its `oauth` table, then {remedy}")]
    Missing { needed: String, line: String, remedy: String },
    /// A line with all scopes would be too long.
    #[error(
        "it needs the scope `{needed}`: add it to `scopes` of its `oauth` table, then {remedy}"
    )]
    OneOfMany { needed: String, remedy: String },
}

// The error is shared, because the connection also stores the error that ends it.
type Error = StreamableHttpError<Arc<HttpError>>;

fn failed(error: impl Into<HttpError>) -> Error {
    StreamableHttpError::Client(Arc::new(error.into()))
}

/// Sends the messages of one connection.
#[derive(Clone)]
pub(crate) struct HttpClient(Arc<Inner>);

struct Inner {
    place: ServerAddress,
    ended: Arc<ConnectionEnd>,
    events: Mutex<Rate>,
    streams: Mutex<Rate>,
}

impl HttpClient {
    /// Makes a request with the headers of the server's table, of the library and of the session.
    fn request(
        &self,
        method: Method,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: Limits,
    ) -> Result<Request, Error> {
        let place = &self.0.place;
        let mut request = Request::new(PURPOSE, method, place.url.as_str())
            .map_err(failed)?
            .stay()
            .limits(limits)
            .credential(place.credential.clone());
        for (name, value) in &place.headers {
            request = request.header(name.clone(), value.clone());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            let value = HeaderValue::from_str(session).map_err(failed)?;
            request = request.header(SESSION, value);
        }
        Ok(request)
    }

    /// Sends a request. Ends the connection if the server refuses the authorization.
    async fn send(&self, request: Request) -> Result<Response, Error> {
        let Inner { place, ended, .. } = &*self.0;
        let mut answer = self.send_with_token(request.clone()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED
            && let Some(tokens) = &place.tokens
            && tokens.refresh_early().await
        {
            answer = self.send_with_token(request).await?;
        }
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        ended.refused(challenge(answer.headers()));
        let origin = answer.origin().to_owned();
        let remedy = place.remedy.clone();
        Err(self.end(HttpError::Unauthorized { origin, remedy }))
    }

    async fn send_with_token(&self, mut request: Request) -> Result<Response, Error> {
        let Inner { place, ended, .. } = &*self.0;
        if let Some(tokens) = &place.tokens {
            let token = tokens.current(ended).await.map_err(|error| {
                self.end(HttpError::Token { error, remedy: place.remedy.clone() })
            })?;
            request = request.credential(Some(Credential::new(&place.url, token)));
        }
        place.door.send(request).await.map_err(failed)
    }

    /// Reads the events of an answer in a task, until the receiver is dropped.
    fn events(&self, answer: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let (to, events) = mpsc::channel(16);
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let result = tokio::select! {
                result = inner.read_events(answer, &to) => result,
                () = to.closed() => Ok(()),
            };
            if let Err(reason) = result {
                inner.ended.set(reason);
            }
        });
        Box::pin(Events(events))
    }

    /// Posts a message. Returns the message or the stream that is the answer.
    async fn post(
        &self,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let body = serde_json::to_vec(&message)?;
        let time = if is_listening(&message) { LISTENING } else { self.0.place.time };
        let limits = Limits { time, idle: time, bytes: MAX_STREAM };
        let request = self
            .request(Method::POST, session.as_deref(), headers, limits)?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"))
            .body(body);
        let answer = self.send(request).await?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(self.forgotten(&message));
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
                return Err(self.forgotten(&message));
            }
            let refusal = self.parse_answer(request, status, bytes).await?;
            return Ok(StreamableHttpPostResponse::Json(refusal, None));
        }
        let new_session = session_name(&answer)?;
        if let Some(missing) = self.missing_scope(&answer).await {
            if is_discovery(request) {
                // Otherwise the server would be asked in the way of older revisions.
                self.0.ended.refused(None);
                return Err(self.end(missing));
            }
            let failure = refusal(request, missing.to_string());
            return Ok(StreamableHttpPostResponse::Json(failure, new_session));
        }
        self.take_answer(request, session.is_some(), answer, new_session).await
    }

    /// Reads the answer to a request according to its media type and status.
    async fn take_answer(
        &self,
        request: &JsonRpcRequest<ClientRequest>,
        has_session: bool,
        answer: Response,
        new_session: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let status = answer.status();
        match media_type(&answer).as_str() {
            "text/event-stream" if status.is_success() => {
                Ok(StreamableHttpPostResponse::Sse(self.events(answer), new_session))
            }
            "application/json" => {
                let bytes = self.read_body(answer).await?;
                let message = self.parse_answer(request, status, bytes).await?;
                Ok(StreamableHttpPostResponse::Json(message, new_session))
            }
            // The answer may arrive on the stream of the session.
            _ if status == StatusCode::ACCEPTED => Ok(StreamableHttpPostResponse::Accepted),
            // The answer comes from a server with an older revision, or from a proxy in front of
            // it.
            _ if status.is_client_error() && is_discovery(request) && !has_session => {
                Ok(StreamableHttpPostResponse::Json(unknown_method(request, status), None))
            }
            kind if status.is_success() => {
                let kind = neutral_line(cut(kind, 100));
                let why = format!("its answer is of the type `{kind}`, neither JSON nor events");
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
            _ => {
                let why = format!("it answered with {status}");
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
        }
    }

    /// Returns the scope that the tokens lack according to an answer. Returns `None` for other
    /// answers.
    async fn missing_scope(&self, answer: &Response) -> Option<ScopeError> {
        let place = &self.0.place;
        let tokens = place.tokens.as_ref()?;
        if answer.status() != StatusCode::FORBIDDEN {
            return None;
        }
        let header = challenge(answer.headers())?;
        let params = WWWAuthenticateParams::parse(&header, &place.url);
        if params.error.as_deref() != Some("insufficient_scope") {
            return None;
        }
        let scope = params.scope?;
        let needed = neutral_line(cut(&scope, MAX_SCOPE));

        // Another login loses the current scopes of the tokens, so the line contains them too.
        let mut scopes = tokens.scopes().await;
        let present_count = scopes.len();
        for scope in needed.split(' ') {
            if !scope.is_empty() && !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        if scopes.len() == present_count {
            return Some(ScopeError::Brought(needed));
        }

        let line = format!("scopes = {}", json!(scopes));
        let remedy = place.remedy.clone();
        if line.len() > MAX_SCOPES {
            return Some(ScopeError::OneOfMany { needed, remedy });
        }
        Some(ScopeError::Missing { needed, line: neutral_line(&line), remedy })
    }

    /// Reads the whole body of an answer, within the limits of a message.
    async fn read_body(&self, mut answer: Response) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + piece.len() > MAX_MESSAGE {
                return Err(self.end(LimitError::Size));
            }
            bytes.extend_from_slice(&piece);
        }
        check(&bytes).map_err(|error| self.end(error))?;
        Ok(self.0.ended.without_secrets(bytes))
    }

    /// Parses the answer to a request. An error in the answer belongs to this request, even if the
    /// error has the ID of another request.
    async fn parse_answer(
        &self,
        request: &JsonRpcRequest<ClientRequest>,
        status: StatusCode,
        bytes: Vec<u8>,
    ) -> Result<ServerJsonRpcMessage, Error> {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(REASON)]).into_owned();
        match parse(bytes).await {
            Some(ServerJsonRpcMessage::Error(error)) => {
                Ok(ServerJsonRpcMessage::error(error.error, Some(request.id.clone())))
            }
            Some(ServerJsonRpcMessage::Response(response)) if response.id != request.id => {
                Ok(refusal(request, "its answer is for another request".to_owned()))
            }
            Some(message @ ServerJsonRpcMessage::Response(_)) if status.is_success() => Ok(message),
            _ if status.is_client_error() && is_discovery(request) => {
                Ok(unknown_method(request, status))
            }
            _ if !status.is_success() => Ok(refusal(request, format!("it answered with {status}"))),
            _ => {
                let start = neutral_line(cut(&start, REASON));
                Ok(refusal(request, format!("its answer isn't the answer to a request: {start}")))
            }
        }
    }

    /// Ends the connection, since the server doesn't know the session any more.
    fn forgotten(&self, message: &ClientJsonRpcMessage) -> Error {
        let request = match message {
            ClientJsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        self.0.ended.forgotten(request);
        StreamableHttpError::SessionExpired
    }

    /// Ends the connection.
    fn end(&self, error: impl Into<HttpError>) -> Error {
        let error = Arc::new(error.into());
        self.0.ended.set(EndError::Transport(Arc::<HttpError>::clone(&error)));
        StreamableHttpError::Client(error)
    }
}

impl Inner {
    /// Reads the events of an answer, and passes them on.
    ///
    /// # Errors
    ///
    /// Returns the reason if the whole connection must end.
    async fn read_events(
        &self,
        mut answer: Response,
        to: &mpsc::Sender<Sse>,
    ) -> Result<(), EndError> {
        let mut parser = Parser::default();
        loop {
            let piece = match answer.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                Err(error @ OutboundError::TooLarge(..)) => {
                    return Err(EndError::Transport(Arc::new(HttpError::from(error))));
                }
                // Only the connection of this stream broke, so other streams may continue.
                Err(_) => return Ok(()),
            };
            for (mut event, data) in parser.take(&piece)? {
                if !self.events.lock().unwrap_or_else(PoisonError::into_inner).count() {
                    return Err(LimitError::Events.into());
                }
                if let Some(data) = data {
                    check(&data)?;
                    event.data = String::from_utf8(self.ended.without_secrets(data)).ok();
                }
                if to.send(event).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the name of the session that an answer starts. Returns `None` if the answer starts no
/// session.
fn session_name(answer: &Response) -> Result<Option<String>, Error> {
    let Some(value) = answer.headers().get(SESSION) else { return Ok(None) };
    let name = value.to_str().unwrap_or_default();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_visible || !(1..=MAX_SESSION).contains(&name.len()) {
        return Err(failed(HttpError::SessionName));
    }
    Ok(Some(name.to_owned()))
}

/// Returns the header of an answer about the authorization that the server needs, up to its size
/// limit. A header that names metadata takes precedence.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(WWW_AUTHENTICATE);
    let with_metadata = values.iter().find(|value| names_metadata(value));
    let value = with_metadata.or_else(|| values.iter().next())?;
    Some(cut(&String::from_utf8_lossy(value.as_bytes()), MAX_CHALLENGE).to_owned())
}

fn names_metadata(value: &HeaderValue) -> bool {
    String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase().contains("resource_metadata")
}

fn media_type(answer: &Response) -> String {
    let value = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(value);
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Checks whether the answer to a message is a stream that goes on.
fn is_listening(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::SubscriptionsListenRequest(_))
}

/// Checks whether a refusal (400) is about the session. Such a refusal names no request, or names a
/// session. Some servers refuse unknown sessions in this way, although the protocol requires 404.
fn denies_session(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return names_session(&String::from_utf8_lossy(&body[..body.len().min(REASON)]));
    };
    let Some(error) = body.get("error") else { return false };
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    body.get("id").is_none_or(Value::is_null) || names_session(message)
}

fn names_session(text: &str) -> bool {
    text.to_ascii_lowercase().contains("session")
}

/// Checks whether a request asks for the revisions of the server.
fn is_discovery(request: &JsonRpcRequest<ClientRequest>) -> bool {
    matches!(request.request, ClientRequest::DiscoverRequest(_))
}

/// Makes the failure of one request, after which other requests can be sent.
fn refusal(request: &JsonRpcRequest<ClientRequest>, why: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::internal_error(why, None), Some(request.id.clone()))
}

/// Makes the answer of a server that doesn't know the request for its revisions.
fn unknown_method(
    request: &JsonRpcRequest<ClientRequest>,
    status: StatusCode,
) -> ServerJsonRpcMessage {
    let error = ErrorData::invalid_request(format!("it answered with {status}"), None);
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
            // No other reason says more to people than this error.
            self.0.ended.set(EndError::Transport(Arc::<HttpError>::clone(error)));
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
        if !self.0.streams.lock().unwrap_or_else(PoisonError::into_inner).count() {
            return Err(self.end(LimitError::Streams));
        }
        let limits = Limits { time: LISTENING, idle: LISTENING, bytes: MAX_STREAM };
        let mut request = self
            .request(Method::GET, session_id.as_deref(), custom_headers, limits)?
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT, HeaderValue::from_str(&id).map_err(failed)?);
        }
        let answer = self.send(request).await?;
        let status = answer.status();
        match media_type(&answer).as_str() {
            "text/event-stream" if status.is_success() => Ok(self.events(answer)),
            _ if status.is_client_error() || status.is_success() => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            _ => Err(failed(HttpError::Status(status))),
        }
    }
}

/// A connection over HTTP.
pub(crate) struct Http {
    inner: WorkerTransport<StreamableHttpClientWorker<HttpClient>>,
    pending: Pending,
    gate: MessageLimits,
    ended: Arc<ConnectionEnd>,
}

impl Http {
    /// Makes a connection that has sent nothing yet.
    pub(crate) fn new(place: ServerAddress, ended: Arc<ConnectionEnd>) -> Self {
        let mut config = StreamableHttpClientTransportConfig::with_uri(place.url.as_str());
        config.max_sse_event_size = MAX_MESSAGE;
        // The library would repeat a call in a new session, without a look at the tools of that
        // session.
        config.reinit_on_expired_session = false;
        let client = HttpClient(Arc::new(Inner {
            place,
            ended: Arc::clone(&ended),
            events: Mutex::new(Rate::new(MAX_EVENTS, Duration::from_secs(1))),
            streams: Mutex::new(Rate::new(MAX_STREAMS, STREAMS_TIME)),
        }));
        let pending = Pending::default();
        Self {
            inner: StreamableHttpClientTransport::with_client(client, config),
            gate: MessageLimits::new(pending.clone()),
            pending,
            ended,
        }
    }
}

impl Transport<RoleClient> for Http {
    type Error = Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.pending.sent(&message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = tokio::select! {
                biased;
                () = self.ended.over() => return None,
                message = self.inner.receive() => message?,
            };
            match self.gate.admit(&message) {
                Ok(true) => return Some(message),
                Ok(false) => {}
                Err(error) => self.ended.set(error),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.inner.close().await
    }
}
