//! Sends the requests to an upstream server at a URL, to its own origin alone, with bounded
//! answers.

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

/// The purpose of the requests, in their records.
const PURPOSE: &str = "mcp server";

/// Most bytes of one stream of events.
const MAX_STREAM: u64 = 64 << 20;

/// How long a stream without a call may last, and be silent.
const LISTENING: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of a session's name.
const MAX_SESSION: usize = 1024;

/// Bytes of a server's words about the authorization that it wants, and of a scope in them.
const MAX_CHALLENGE: usize = 2048;
const MAX_SCOPE: usize = 200;

/// Most bytes of all scopes that are shown.
const MAX_SCOPES: usize = 500;

/// Bytes of the reason that an answer without a message states.
const REASON: usize = 300;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A server at a URL.
pub(crate) struct ServerAddress {
    /// The way out.
    pub(crate) door: OutboundClient,
    /// Its URL.
    pub(crate) url: Url,
    /// The headers of the operator, with their secrets.
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
    /// The line with all scopes is too long to be shown.
    #[error(
        "it needs the scope `{needed}`: add it to `scopes` of its `oauth` table, then {remedy}"
    )]
    OneOfMany { needed: String, remedy: String },
}

// Shared with the connection, which keeps the error that ends it.
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
        let written = place.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        for (name, value) in written.chain(headers) {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            let value = HeaderValue::from_str(session).map_err(failed)?;
            request = request.header(SESSION, value);
        }
        Ok(request)
    }

    /// Sends a request. Ends the connection if it is refused for want of authorization.
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

    /// Reads the events of an answer in a task, until nobody wants them.
    fn events(&self, mut answer: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let (to, events) = mpsc::channel(16);
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let read = async {
                let mut parser = Parser::default();
                while let Some(piece) = answer.chunk().await.map_err(|error| match error {
                    OutboundError::TooLarge(..) => {
                        Some(EndError::Transport(Arc::new(HttpError::from(error))))
                    }
                    // The connection of one stream broke: others may go on.
                    _ => None,
                })? {
                    for (mut event, data) in parser.take(&piece).map_err(EndError::from)? {
                        if !inner.events.lock().unwrap_or_else(PoisonError::into_inner).count() {
                            return Err(Some(EndError::from(LimitError::Events)));
                        }
                        if let Some(data) = data {
                            check(&data).map_err(EndError::from)?;
                            let data = inner.ended.without_secrets(data);
                            event.data = String::from_utf8(data).ok();
                        }
                        to.send(event).await.map_err(|_| None)?;
                    }
                }
                Ok(())
            };
            let result: Result<(), Option<EndError>> = tokio::select! {
                result = read => result,
                () = to.closed() => Ok(()),
            };
            if let Err(Some(reason)) = result {
                inner.ended.set(reason);
            }
        });
        Box::pin(Events(events))
    }

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
            return if status.is_success() {
                Ok(StreamableHttpPostResponse::Accepted)
            } else {
                let error = HttpStatusError::new(status.as_u16(), None);
                Err(StreamableHttpError::HttpStatus(error))
            };
        };
        if status == StatusCode::BAD_REQUEST && session.is_some() {
            let bytes = self.message(answer).await?;
            if denies_session(&bytes) {
                return Err(self.forgotten(&message));
            }
            let refusal = self.answer(request, status, bytes).await?;
            return Ok(StreamableHttpPostResponse::Json(refusal, None));
        }
        let new_session = self.session(&answer)?;
        if let Some(missing) = self.missing_scope(&answer).await {
            if is_discovery(request) {
                // Otherwise the server would be asked in the way of older revisions.
                self.0.ended.refused(None);
                return Err(self.end(missing));
            }
            let refusal = refusal(request, missing.to_string());
            return Ok(StreamableHttpPostResponse::Json(refusal, new_session));
        }
        match media_type(&answer).as_str() {
            "text/event-stream" if status.is_success() => {
                Ok(StreamableHttpPostResponse::Sse(self.events(answer), new_session))
            }
            "application/json" => {
                let bytes = self.message(answer).await?;
                let message = self.answer(request, status, bytes).await?;
                Ok(StreamableHttpPostResponse::Json(message, new_session))
            }
            // The answer may come by the stream of the session.
            _ if status == StatusCode::ACCEPTED => Ok(StreamableHttpPostResponse::Accepted),
            // A server of an older revision, or something in front of it.
            _ if status.is_client_error() && is_discovery(request) && session.is_none() => {
                Ok(StreamableHttpPostResponse::Json(unknown_method(request, status), None))
            }
            kind if status.is_success() => {
                let why = format!(
                    "its answer is of the type `{}`, neither JSON nor events",
                    neutral_line(cut(kind, 100))
                );
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
            _ => {
                let why = format!("it answered with {status}");
                Ok(StreamableHttpPostResponse::Json(refusal(request, why), new_session))
            }
        }
    }

    /// The error of an answer that refuses a token because its scope is too small.
    async fn missing_scope(&self, answer: &Response) -> Option<ScopeError> {
        let place = &self.0.place;
        let tokens = place.tokens.as_ref()?;
        if answer.status() != StatusCode::FORBIDDEN {
            return None;
        }
        let challenge = WWWAuthenticateParams::parse(&challenge(answer.headers())?, &place.url);
        if challenge.error.as_deref() != Some("insufficient_scope") {
            return None;
        }
        let needed = neutral_line(cut(&challenge.scope?, MAX_SCOPE));
        // Another login forgets the present scopes of the tokens.
        let mut all = tokens.scopes().await;
        let held = all.len();
        for scope in needed.split(' ') {
            if !scope.is_empty() && !all.iter().any(|known| known == scope) {
                all.push(scope.to_owned());
            }
        }
        if all.len() == held {
            return Some(ScopeError::Brought(needed));
        }
        let line = format!("scopes = {}", json!(all));
        let remedy = place.remedy.clone();
        Some(if line.len() <= MAX_SCOPES {
            ScopeError::Missing { needed, line: neutral_line(&line), remedy }
        } else {
            ScopeError::OneOfMany { needed, remedy }
        })
    }

    /// The name of the session that an answer begins.
    fn session(&self, answer: &Response) -> Result<Option<String>, Error> {
        let Some(value) = answer.headers().get(SESSION) else { return Ok(None) };
        let name = value.to_str().ok().filter(|name| {
            (1..=MAX_SESSION).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        });
        match name {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(failed(HttpError::SessionName)),
        }
    }

    /// The whole body of an answer, within the limits of a message.
    async fn message(&self, mut answer: Response) -> Result<Vec<u8>, Error> {
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

    /// The answer to a request. The bytes came as the answer to this very request, so an error in
    /// them is about it, whatever the error says.
    async fn answer(
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

    /// Ends the connection, whose session the server doesn't know any more.
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

/// The header of an answer that says which authorization is wanted, within its limit. A header that
/// names metadata takes precedence.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(WWW_AUTHENTICATE).iter();
    let first = values.next()?;
    let mut all = std::iter::once(first).chain(values);
    let found = all.find(|value| names_metadata(value)).unwrap_or(first);
    Some(cut(&String::from_utf8_lossy(found.as_bytes()), MAX_CHALLENGE).to_owned())
}

fn names_metadata(value: &HeaderValue) -> bool {
    String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase().contains("resource_metadata")
}

fn media_type(answer: &Response) -> String {
    let written = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let written = String::from_utf8_lossy(written);
    written.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether the answer to a message is a stream that goes on.
fn is_listening(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)))
}

/// Whether a refusal (400) is about the session and not about the request: the refusal names no
/// request, or names a session. Servers that forget their sessions answer so, where 404 is
/// prescribed.
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

/// Whether a request asks which revisions the server speaks.
fn is_discovery(request: &JsonRpcRequest<ClientRequest>) -> bool {
    matches!(request.request, ClientRequest::DiscoverRequest(_))
}

/// The failure of one request, after which others can be sent.
fn refusal(request: &JsonRpcRequest<ClientRequest>, why: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::internal_error(why, None), Some(request.id.clone()))
}

/// The answer of a server that doesn't know the question about its revisions.
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
        let posted = self.post(message, session_id, custom_headers).await;
        if is_request && let Err(StreamableHttpError::Client(error)) = &posted {
            // No other reason says more to people than this one.
            self.0.ended.set(EndError::Transport(Arc::<HttpError>::clone(error)));
        }
        posted
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
    /// A connection that has sent nothing yet.
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
            match self.gate.passes(&message) {
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
