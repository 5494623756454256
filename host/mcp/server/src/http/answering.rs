//! Handles HTTP requests: refuses other hosts and origins, authenticates the caller, checks the
//! limits, and passes the request to the protocol's crate.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST,
    ORIGIN, RETRY_AFTER, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use rmcp::ErrorData;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use toolhold_core::CancellationToken;
use toolhold_core::config::{Folders, Serve};

use super::PATH;
use super::access::{Access, CHALLENGE, Refused};
use super::callers::{Caller, CallerPlace, Callers, MAX_CONNECTIONS, Refusal};
use super::listen_address::ListenAddress;
use super::sessions::{Connections, Handshakes};
use super::unauthenticated::Newcomer;
use crate::envelope::Envelope;
use crate::error::ServeError;
use crate::metrics::{MEDIA_TYPE, Metrics};
use crate::server::Server;

/// Path of the metadata for clients (RFC 9728).
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Header with the ID of a connection, in revisions with a handshake.
const CONNECTION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Header with the session that the client chose.
const SESSION_HEADER: HeaderName = HeaderName::from_static("toolhold-session");

/// Maximum length of a session's name in bytes.
const MAX_SESSION: usize = 64;

/// Time after which a client may repeat a request that the server refused for lack of resources.
const SHORT_RETRY: Duration = Duration::from_secs(1);

/// Time limit for receiving a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum KiB of bodies in memory, over all callers. Further requests are refused.
const MAX_BODY_KIB: u32 = 64 << 10;

/// Maximum number of requests without a complete response: one for each of the connections that the
/// configuration can allow.
const MAX_UNANSWERED: u32 = 65_536;

type Answer = Response<BoxBody<Bytes, Infallible>>;

pub(super) struct Answering {
    service: StreamableHttpService<Server, Connections>,
    connections: Arc<Connections>,
    access: Access,
    /// Authenticates requests for `/metrics`.
    metrics_access: Access,
    callers: Callers,
    bodies: Arc<Semaphore>,
    /// Has a permit for each request without a complete response.
    unanswered: Arc<Semaphore>,
    max_body: usize,
    origins: Vec<String>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether the server is ending and refuses new requests.
    pub(super) draining: AtomicBool,
    /// Ends the streams that wait for notifications.
    pub(super) streams: CancellationToken,
}

impl Answering {
    /// Creates the handler of `server`.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored handshakes can't be read.
    pub(super) fn new(
        server: &Server,
        [access, metrics_access]: [Access; 2],
        settings: Serve,
        place: &ListenAddress,
        own_origins: Vec<String>,
        folders: &Folders,
    ) -> Result<Self, ServeError> {
        let metrics = Metrics::new();
        let streams = CancellationToken::new();
        let connections = Arc::new(Connections::new(folders)?);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(place.hosts(&settings))
            .disable_allowed_origins()
            .with_json_response(true)
            .with_cancellation_token(streams.clone());
        config.session_store = Some(Arc::new(Handshakes::new(folders)));
        let max_body = usize::try_from(settings.max_body_kib.get() << 10).unwrap_or(usize::MAX);
        config.max_request_body_bytes = max_body;
        let server = server.counted(Arc::clone(&metrics));
        let service = StreamableHttpService::new(
            move || Ok(server.connection(None)),
            Arc::clone(&connections),
            config,
        );
        Ok(Self {
            service,
            connections,
            access,
            metrics_access,
            callers: Callers::new(&settings),
            bodies: Arc::new(Semaphore::new(MAX_BODY_KIB as usize)),
            unanswered: Arc::new(Semaphore::new(MAX_UNANSWERED as usize)),
            max_body,
            origins: [settings.allowed_origins, own_origins].concat(),
            metrics,
            draining: AtomicBool::new(false),
            streams,
        })
    }

    /// Waits at most `patience` until all responses are sent.
    pub(super) async fn wait_for_answers(&self, patience: Duration) {
        if timeout(patience, self.unanswered.acquire_many(MAX_UNANSWERED)).await.is_err() {
            tracing::warn!("answers are dropped, because the clients don't read the answers");
        }
    }

    /// Answers a request. Refuses requests of web pages whose origin isn't allowed.
    pub(super) async fn answer(&self, request: Request<Incoming>, newcomer: &Newcomer) -> Answer {
        let origin = request.headers().get(ORIGIN).cloned();
        // All browsers send an origin in the same form, so the comparison is exact.
        let mut all_origins = request.headers().get_all(ORIGIN).iter();
        if !all_origins.all(|origin| self.allows_origin(origin)) {
            tracing::info!(
                "a request of a web page is refused: the origin is not in `allowed_origins`"
            );
            let answer = refused(
                StatusCode::FORBIDDEN,
                "the web page's origin is not in `allowed_origins` in [serve]",
            );
            self.metrics.count_answer(answer.status());
            return answer;
        }
        let mut answer = match self.route(request, origin.is_some(), newcomer).await {
            Ok(answer) | Err(answer) => answer,
        };
        if answer.status().is_client_error() {
            tracing::info!("a request from {} is refused: {}", newcomer.from, answer.status());
        }
        self.add_origin_headers(answer.headers_mut(), origin);
        self.metrics.count_answer(answer.status());
        answer
    }

    /// Adds the headers with which a browser lets a page of the allowed `origin` read the answer.
    fn add_origin_headers(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        if let Some(origin) = origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("mcp-session-id, www-authenticate"),
            );
        }
        if !self.origins.is_empty() {
            headers.insert(VARY, HeaderValue::from_static("origin"));
        }
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        allowed_origin: bool,
        newcomer: &Newcomer,
    ) -> Result<Answer, Answer> {
        // If a request names several hosts, a proxy in front of this server may check another host
        // than this server does, so such a request is refused.
        let host_count = request.headers().get_all(HOST).iter().count();
        if request.uri().authority().is_some() || host_count > 1 {
            return Err(refused(
                StatusCode::BAD_REQUEST,
                "a request needs exactly one `Host` and a path",
            ));
        }
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::OPTIONS, PATH) if allowed_origin => Ok(preflight()),
            (&Method::GET | &Method::HEAD, "/healthz") => {
                Ok(if self.draining.load(Ordering::Relaxed) {
                    refused(StatusCode::SERVICE_UNAVAILABLE, "ending")
                } else {
                    refused(StatusCode::OK, "ok")
                })
            }
            (&Method::GET, path) if is_metadata(path) => match self.access.metadata() {
                Some(metadata) => {
                    Ok(response(StatusCode::OK, "application/json", metadata.to_string()))
                }
                None => {
                    Err(refused(StatusCode::NOT_FOUND, "this server has no authorization server"))
                }
            },
            (&Method::GET, "/metrics") => {
                if self.metrics_access.caller(request.headers()).await.is_err() {
                    self.caller(request.headers(), newcomer).await?;
                }
                Ok(response(StatusCode::OK, MEDIA_TYPE, self.metrics.text()))
            }
            (_, PATH) => self.protocol(request, newcomer).await,
            _ => Err(refused(
                StatusCode::NOT_FOUND,
                format!("this path doesn't exist; the path of the protocol is {PATH}"),
            )),
        }
    }

    /// Authenticates the caller of a request, and reserves a slot for the caller's connection.
    /// Returns the response to a refused caller or connection as an error.
    async fn caller(
        &self,
        headers: &HeaderMap,
        newcomer: &Newcomer,
    ) -> Result<Arc<Caller>, Answer> {
        let caller_name = self.access.caller(headers).await;
        let name = caller_name.map_err(|refusal| refuse_caller(refusal, &newcomer.from))?;
        let has_slot = newcomer.admit().await;
        if !has_slot {
            return Err(retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many connections are open",
                SHORT_RETRY,
            ));
        }
        self.callers.get_or_create(&name).ok_or_else(|| {
            retry_later(StatusCode::SERVICE_UNAVAILABLE, "too many callers are busy", SHORT_RETRY)
        })
    }

    /// Handles a request to [`PATH`].
    async fn protocol(
        &self,
        request: Request<Incoming>,
        newcomer: &Newcomer,
    ) -> Result<Answer, Answer> {
        let caller = self.caller(request.headers(), newcomer).await?;
        if self.draining.load(Ordering::Relaxed) {
            return Err(retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is shutting down",
                SHORT_RETRY,
            ));
        }
        let place = caller.enter().map_err(too_many_requests)?;
        if request.method() == Method::POST && !is_json(request.headers()) {
            return Err(refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a message needs `Content-Type: application/json`, in UTF-8",
            ));
        }
        let (mut parts, body) = request.into_parts();
        let connection = self.connection(&mut parts.headers, &caller)?;
        let session = match parts.headers.get(SESSION_HEADER) {
            Some(value) => session_name(value)?,
            None => connection.as_deref().unwrap_or_default(),
        };
        parts.extensions.insert(caller.session(session));
        let is_end = parts.method == Method::DELETE;
        if is_end && let Some(connection) = &connection {
            // The session and its background work end with the connection.
            caller.forget(connection);
        }
        parts.extensions.insert(place.working());
        // The code below doesn't need the token, and must not log it.
        parts.headers.remove(AUTHORIZATION);
        // At shutdown, the server waits for responses, but not for streams of notifications, which
        // clients open with GET.
        let unanswered = if parts.method == Method::POST {
            Arc::clone(&self.unanswered).try_acquire_owned().ok()
        } else {
            None
        };
        let body = self.body(body, &place).await?;
        if let Some(id) = &connection {
            self.mark_used(id, &caller).await;
        }
        let request = Request::from_parts(parts, Full::new(body.clone()));
        let mut answer = self.service.handle(request).await;

        // The official client for Python takes 202 for a failure, so the end of a connection is
        // confirmed with 200.
        if is_end && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::OK;
        }
        // `is_json` has accepted the media type, so here the status stands for an invalid message.
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Err(parse_error(&body));
        }
        let new_connection =
            answer.headers().get(CONNECTION_HEADER).and_then(|id| id.to_str().ok());
        if let Some(id) = new_connection.map(str::to_owned) {
            self.mark_used(&id, &caller).await;
            let sealed = HeaderValue::from_str(&self.connections.seal(&caller.name, &id))
                .map_err(|_| refused(StatusCode::INTERNAL_SERVER_ERROR, "the id can't be sent"))?;
            answer.headers_mut().insert(CONNECTION_HEADER, sealed);
        }
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if answer.status() == StatusCode::FORBIDDEN {
            let why = "the `Host` header doesn't match this server; `url` in [serve] sets the \
                       address for clients";
            return Err(refused(StatusCode::FORBIDDEN, why));
        }
        Ok(answer.map(|body| HeldBody { body, _place: place, _unanswered: unanswered }.boxed()))
    }

    /// Marks a connection as the most recently used connection of its caller. At the limit, the
    /// least recently used connection is closed. The handshake of a closed connection stays on
    /// disk, so the client can use the connection again.
    async fn mark_used(&self, id: &str, caller: &Caller) {
        let mut connections = caller.connections.lock().await;
        connections.retain(|connection| &**connection != id);
        while self.connections.retain_open(&mut connections).await >= MAX_CONNECTIONS {
            let least_recently_used = connections.remove(0);
            // An error means that the connection is already closed.
            let _ = self.connections.close_session(&least_recently_used).await;
        }
        connections.push(id.to_owned().into());
    }

    /// Replaces the sealed ID in the header by the ID of the connection, and returns the ID.
    /// Returns `None` without the header.
    fn connection(
        &self,
        headers: &mut HeaderMap,
        caller: &Caller,
    ) -> Result<Option<String>, Answer> {
        let Some(sealed_value) = headers.get(CONNECTION_HEADER) else { return Ok(None) };
        let mut id = None;
        if let Ok(sealed_id) = sealed_value.to_str() {
            id = self.connections.open(&caller.name, sealed_id).map(str::to_owned);
        }
        let Some(id) = id else {
            // Clients start a new connection after the status 404.
            return Err(refused(StatusCode::NOT_FOUND, "unknown session; start a new one"));
        };
        let value = HeaderValue::from_str(&id)
            .map_err(|_| refused(StatusCode::NOT_FOUND, "unknown session"))?;
        headers.insert(CONNECTION_HEADER, value);
        Ok(Some(id))
    }

    /// Reads the body within the limits of size, time and memory.
    async fn body(&self, body: Incoming, place: &CallerPlace) -> Result<Bytes, Answer> {
        // The hint has an upper limit if the client has declared the length of the body.
        if let Some(declared_size) = body.size_hint().upper() {
            let size = usize::try_from(declared_size).unwrap_or(usize::MAX);
            if size > self.max_body {
                return Err(self.too_large());
            }
        }
        match timeout(BODY_TIMEOUT, self.read(body, place)).await {
            Ok(result) => result,
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the request's body took too long")),
        }
    }

    /// Reads a body. Memory is reserved only for received bytes, so a slow sender can't reserve
    /// memory in advance. Without free memory, the request is refused.
    async fn read(&self, mut body: Incoming, place: &CallerPlace) -> Result<Bytes, Answer> {
        let mut bytes = BytesMut::new();
        let mut reserved_kib = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                refused(StatusCode::BAD_REQUEST, "the request's body did not arrive")
            })?;
            // Trailers may follow the data, and are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let size = bytes.len() + data.len();
            if size > self.max_body {
                return Err(self.too_large());
            }
            let missing_kib = kib(size).saturating_sub(reserved_kib);
            let has_memory = place.reserve_body(&self.bodies, missing_kib);
            if !has_memory {
                let why = "the server has no memory for the request's body while other requests \
                           are running";
                return Err(retry_later(StatusCode::SERVICE_UNAVAILABLE, why, SHORT_RETRY));
            }
            reserved_kib += missing_kib;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    fn too_large(&self) -> Answer {
        let why = format!(
            "the request is too large; the limit is {} KiB (`max_body_kib` in [serve])",
            self.max_body >> 10
        );
        refused(StatusCode::PAYLOAD_TOO_LARGE, why)
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(MAX_BODY_KIB).min(MAX_BODY_KIB)
}

/// Checks whether the headers declare a body of JSON in UTF-8.
fn is_json(headers: &HeaderMap) -> bool {
    if headers.get_all(CONTENT_TYPE).iter().count() != 1 {
        return false;
    }
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let Some(value) = value else { return false };
    let (media_type, parameters) = value.split_once(';').unwrap_or((value, ""));
    media_type.trim().eq_ignore_ascii_case("application/json")
        && parameters.split(';').map(str::trim).all(allows_utf8)
}

/// Checks whether a parameter of a media type allows UTF-8. Only the parameter `charset` can forbid
/// UTF-8.
fn allows_utf8(parameter: &str) -> bool {
    match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    }
}

/// Creates the response to an invalid message, with the status 400, and with the ID of the message
/// if possible.
fn parse_error(body: &[u8]) -> Answer {
    let error = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => ErrorData::invalid_request("Invalid Request", None),
        Err(_) => ErrorData::parse_error("Parse error", None),
    };
    let id = Envelope::parse_id(body);
    let message = serde_json::json!({ "jsonrpc": "2.0", "id": id, "error": error });
    response(StatusCode::BAD_REQUEST, "application/json", message.to_string())
}

fn is_metadata(path: &str) -> bool {
    matches!(path.strip_prefix(METADATA), Some("" | PATH))
}

fn too_many_requests(refusal: Refusal) -> Answer {
    let (why, wait) = match refusal {
        Refusal::Busy => {
            ("you have too many running requests (`max_requests` in [serve])", SHORT_RETRY)
        }
        Refusal::TooFast(wait) => {
            ("too many requests came within a minute (`requests_per_minute` in [serve])", wait)
        }
    };
    retry_later(StatusCode::TOO_MANY_REQUESTS, why, wait)
}

/// Returns the name of a session from the value of a header, or a refusal of an invalid name.
fn session_name(value: &HeaderValue) -> Result<&str, Answer> {
    if let Ok(name) = value.to_str()
        && (1..=MAX_SESSION).contains(&name.len())
        && name.bytes().all(can_be_in_session_name)
    {
        return Ok(name);
    }
    let why = format!(
        "`Toolhold-Session` has to be 1 to {MAX_SESSION} letters, digits, `.`, `_` and `-`"
    );
    Err(refused(StatusCode::BAD_REQUEST, why))
}

fn can_be_in_session_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

fn preflight() -> Answer {
    let mut answer = response(StatusCode::NO_CONTENT, "text/plain", "");
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    let allowed = "authorization, content-type, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, toolhold-session";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    answer
}

fn response(status: StatusCode, media_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// Creates the answer to a caller who isn't authenticated, and logs the refusal.
fn refuse_caller(refusal: Refused, from: &str) -> Answer {
    let Refused { status, why, challenge } = refusal;
    tracing::info!("a caller from {from} is refused ({}): {why}", status.as_u16());
    let mut answer = refused(status, why);
    if let Some(challenge) = challenge {
        answer.headers_mut().insert(CHALLENGE, challenge);
    }
    answer
}

fn refused(status: StatusCode, why: impl AsRef<str>) -> Answer {
    let mut answer = response(status, "text/plain; charset=utf-8", format!("{}\n", why.as_ref()));
    // A refused caller loses its connection.
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn retry_later(status: StatusCode, why: impl AsRef<str>, wait: Duration) -> Answer {
    let mut answer = refused(status, why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
    answer
}

/// A response body that holds its request's slots until it is sent.
struct HeldBody {
    body: BoxBody<Bytes, Infallible>,
    _place: CallerPlace,
    _unanswered: Option<OwnedSemaphorePermit>,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
