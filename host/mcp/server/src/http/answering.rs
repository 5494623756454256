//! Handles an HTTP request. Refuses other hosts and origins, authenticates the caller, checks the
//! limits, and passes the request to the protocol.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, AUTHORIZATION, CACHE_CONTROL, CONNECTION as CLOSES,
    CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, VARY,
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
use super::callers::{CONNECTIONS, Caller, CallerPlace, Callers, Refusal};
use super::listen_address::ListenAddress;
use super::sessions::{Connections, Handshakes};
use super::unauthenticated::Newcomer;
use crate::envelope::Envelope;
use crate::error::ServeError;
use crate::metrics::{MEDIA_TYPE, Metrics};
use crate::server::Server;

/// Path of the metadata about authorization.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Header of a client's connection, in the revisions with a handshake.
const CONNECTION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Header of a client's session.
const SESSION: HeaderName = HeaderName::from_static("toolhold-session");

/// Bytes of this name.
const MAX_SESSION: usize = 64;

/// Time limit for a request's body.
const BODY: Duration = Duration::from_secs(30);

/// KiB of bodies at a time, over all callers.
const BODIES: u32 = 64 << 10;

/// Open requests at a time. Equals the number of connections.
const UNANSWERED: u32 = 65_536;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Handles requests.
pub(super) struct Answering {
    service: StreamableHttpService<Server, Connections>,
    connections: Arc<Connections>,
    access: Access,
    /// Authenticates programs that only collect metrics.
    metrics_access: Access,
    callers: Callers,
    bodies: Arc<Semaphore>,
    /// Limits requests whose responses aren't sent yet.
    unanswered: Arc<Semaphore>,
    max_body: usize,
    origins: Vec<String>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether new requests are refused.
    pub(super) draining: AtomicBool,
    /// Ends the streams on which clients wait.
    pub(super) streams: CancellationToken,
}

impl Answering {
    /// Makes the handler of the requests to a server.
    ///
    /// # Errors
    ///
    /// The stored handshakes can't be read.
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
            bodies: Arc::new(Semaphore::new(BODIES as usize)),
            unanswered: Arc::new(Semaphore::new(UNANSWERED as usize)),
            max_body,
            origins: [settings.allowed_origins, own_origins].concat(),
            metrics,
            draining: AtomicBool::new(false),
            streams,
        })
    }

    /// Waits until all open requests are answered.
    pub(super) async fn wait_for_answers(&self, patience: Duration) {
        if timeout(patience, self.unanswered.acquire_many(UNANSWERED)).await.is_err() {
            tracing::warn!("answers are dropped because their clients don't read them");
        }
    }

    /// Handles a request.
    pub(super) async fn answer(&self, request: Request<Incoming>, visitor: &Newcomer) -> Answer {
        let origin = request.headers().get(ORIGIN).cloned();
        // The comparison is exact because browsers send one form. The protocol's crate is less
        // strict.
        let mut origins = request.headers().get_all(ORIGIN).iter();
        if !origins.all(|origin| self.allows_origin(origin)) {
            tracing::info!(
                "a request of a web page is refused: its origin is not in `allowed_origins`"
            );
            let answer = refused(
                StatusCode::FORBIDDEN,
                "that web page may not use this server (`allowed_origins` in [serve])",
            );
            self.metrics.answered(answer.status());
            return answer;
        }
        let mut answer = match self.route(request, origin.is_some(), visitor).await {
            Ok(answer) | Err(answer) => answer,
        };
        if answer.status().is_client_error() {
            tracing::info!("a request from {} is refused: {}", visitor.from, answer.status());
        }
        if let Some(origin) = origin {
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("mcp-session-id, www-authenticate"),
            );
        }
        if !self.origins.is_empty() {
            answer.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
        }
        self.metrics.answered(answer.status());
        answer
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    }

    /// Handles a request by its method and path.
    async fn route(
        &self,
        request: Request<Incoming>,
        allowed_origin: bool,
        visitor: &Newcomer,
    ) -> Result<Answer, Answer> {
        // A proxy in front could read other requests in another way.
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
                    self.caller(request.headers(), visitor).await?;
                }
                Ok(response(StatusCode::OK, MEDIA_TYPE, self.metrics.text()))
            }
            (_, PATH) => self.protocol(request, visitor).await,
            _ => Err(refused(
                StatusCode::NOT_FOUND,
                format!("there is nothing here; the path of the protocol is {PATH}"),
            )),
        }
    }

    /// Authenticates the caller of a request.
    async fn caller(&self, headers: &HeaderMap, visitor: &Newcomer) -> Result<Arc<Caller>, Answer> {
        let name = self.access.caller(headers).await.map_err(|refusal| {
            let Refused { status, why, challenge } = refusal;
            let from = &visitor.from;
            tracing::info!("a caller from {from} is refused ({}): {why}", status.as_u16());
            let mut answer = refused(status, why);
            if let Some(challenge) = challenge {
                answer.headers_mut().insert(CHALLENGE, challenge);
            }
            answer
        })?;
        if !visitor.admit().await {
            return Err(retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many connections are open",
                Duration::from_secs(1),
            ));
        }
        self.callers.named(&name).ok_or_else(|| {
            retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many callers are busy",
                Duration::from_secs(1),
            )
        })
    }

    /// Handles a request of the protocol.
    async fn protocol(
        &self,
        request: Request<Incoming>,
        visitor: &Newcomer,
    ) -> Result<Answer, Answer> {
        let caller = self.caller(request.headers(), visitor).await?;
        if self.draining.load(Ordering::Relaxed) {
            return Err(retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is ending",
                Duration::from_secs(1),
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
        let session = match parts.headers.get(SESSION) {
            Some(value) => session_name(value)?,
            None => connection.as_deref().unwrap_or_default(),
        };
        parts.extensions.insert(caller.session(session));
        let is_end = parts.method == Method::DELETE;
        if is_end && let Some(connection) = &connection {
            // The session's running work ends with the client's connection.
            caller.forget(connection);
        }
        parts.extensions.insert(place.working());
        // Nothing behind this needs the token.
        parts.headers.remove(AUTHORIZATION);
        // A stream without requests ends with the server.
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

        // The session is over. The official client for Python takes 202 for a failure.
        if is_end && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::OK;
        }
        // The media type is valid here, so the cause is that the message can't be read.
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Err(parse_error(&body));
        }
        let new_connection = answer.headers().get(CONNECTION).and_then(|id| id.to_str().ok());
        if let Some(id) = new_connection.map(str::to_owned) {
            self.mark_used(&id, &caller).await;
            let sealed = HeaderValue::from_str(&self.connections.seal(&caller.name, &id))
                .map_err(|_| refused(StatusCode::INTERNAL_SERVER_ERROR, "the id can't be sent"))?;
            answer.headers_mut().insert(CONNECTION, sealed);
        }
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if answer.status() == StatusCode::FORBIDDEN {
            let why = "the request names a host that isn't this server's: `url` in [serve] sets the address for clients";
            return Err(refused(StatusCode::FORBIDDEN, why));
        }
        Ok(answer.map(|body| HeldBody { body, _place: place, _unanswered: unanswered }.boxed()))
    }

    /// Marks a caller's connection as used. If there are too many connections, the least recently
    /// used one is closed. A closed connection is on disk and continues when its client returns.
    async fn mark_used(&self, id: &str, caller: &Caller) {
        let mut connections = caller.connections.lock().await;
        connections.retain(|known| &**known != id);
        while self.connections.retain_open(&mut connections).await >= CONNECTIONS {
            let oldest = connections.remove(0);
            // A connection that can't be closed is closed already.
            let _ = self.connections.close_session(&oldest).await;
        }
        connections.push(id.to_owned().into());
    }

    /// Opens the sealed ID of a request's connection, and writes the ID into the header. Returns
    /// `None` if the request has no connection.
    fn connection(
        &self,
        headers: &mut HeaderMap,
        caller: &Caller,
    ) -> Result<Option<String>, Answer> {
        let Some(sealed) = headers.get(CONNECTION) else { return Ok(None) };
        let id = sealed.to_str().ok().and_then(|id| self.connections.open(&caller.name, id));
        let Some(id) = id.map(str::to_owned) else {
            // Clients open a new connection after this status.
            return Err(refused(StatusCode::NOT_FOUND, "unknown session; start a new one"));
        };
        let value = HeaderValue::from_str(&id)
            .map_err(|_| refused(StatusCode::NOT_FOUND, "unknown session"))?;
        headers.insert(CONNECTION, value);
        Ok(Some(id))
    }

    /// Reads the body of a request after the memory for it is reserved.
    async fn body(&self, body: Incoming, place: &CallerPlace) -> Result<Bytes, Answer> {
        if let Some(size) = body.size_hint().upper()
            && usize::try_from(size).unwrap_or(usize::MAX) > self.max_body
        {
            return Err(self.too_large());
        }
        match timeout(BODY, self.read(body, place)).await {
            Ok(result) => result,
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the request's body took too long")),
        }
    }

    /// Reads a body. Memory is reserved only for received bytes, so a slow sender doesn't block
    /// memory for other requests. If the memory limit is reached, the request is refused.
    async fn read(&self, mut body: Incoming, place: &CallerPlace) -> Result<Bytes, Answer> {
        let mut bytes = BytesMut::new();
        let mut room = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                refused(StatusCode::BAD_REQUEST, "the request's body did not arrive")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let size = bytes.len() + data.len();
            if size > self.max_body {
                return Err(self.too_large());
            }
            let more = kib(size).saturating_sub(room);
            if !place.reserve_body(&self.bodies, more) {
                let why = "no room for the request's body while other requests are under way";
                return Err(retry_later(
                    StatusCode::SERVICE_UNAVAILABLE,
                    why,
                    Duration::from_secs(1),
                ));
            }
            room += more;
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

/// Converts bytes to KiB, rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(BODIES).min(BODIES)
}

/// Checks whether a request declares that its body is JSON in UTF-8.
fn is_json(headers: &HeaderMap) -> bool {
    if headers.get_all(CONTENT_TYPE).iter().count() != 1 {
        return false;
    }
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parts = media_type.unwrap_or_default().split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json") && parts.all(allows_utf8)
}

/// Checks whether a parameter of a media type isn't another charset than UTF-8.
fn allows_utf8(parameter: &str) -> bool {
    match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    }
}

/// Makes the response to a body that isn't a message.
fn parse_error(body: &[u8]) -> Answer {
    let error = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => ErrorData::invalid_request("Invalid Request", None),
        Err(_) => ErrorData::parse_error("Parse error", None),
    };
    let id = Envelope::parse_id(body);
    let message = serde_json::json!({ "jsonrpc": "2.0", "id": id, "error": error });
    response(StatusCode::BAD_REQUEST, "application/json", message.to_string())
}

/// Checks whether a path is a path of the metadata about authorization.
fn is_metadata(path: &str) -> bool {
    matches!(path.strip_prefix(METADATA), Some("" | PATH))
}

/// Makes the response to a caller with too many requests.
fn too_many_requests(refusal: Refusal) -> Answer {
    let (why, wait) = match refusal {
        Refusal::Busy => (
            "too many of your requests are under way (`max_requests` in [serve])",
            Duration::from_secs(1),
        ),
        Refusal::TooFast(wait) => {
            ("too many requests came within a minute (`requests_per_minute` in [serve])", wait)
        }
    };
    retry_later(StatusCode::TOO_MANY_REQUESTS, why, wait)
}

/// Checks the session's name from a caller.
fn session_name(value: &HeaderValue) -> Result<&str, Answer> {
    let name = value.to_str().unwrap_or_default();
    if (1..=MAX_SESSION).contains(&name.len()) && name.bytes().all(is_of_session_name) {
        return Ok(name);
    }
    let why =
        format!("`Toolhold-Session` is at most {MAX_SESSION} of letters, digits, `.`, `_` and `-`");
    Err(refused(StatusCode::BAD_REQUEST, why))
}

fn is_of_session_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// Makes the response to a preflight request of a browser.
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

fn refused(status: StatusCode, why: impl AsRef<str>) -> Answer {
    let mut answer = response(status, "text/plain; charset=utf-8", format!("{}\n", why.as_ref()));
    // The connection of a refused request is closed.
    answer.headers_mut().insert(CLOSES, HeaderValue::from_static("close"));
    answer
}

/// Makes the response to a request that is refused for now.
fn retry_later(status: StatusCode, why: impl AsRef<str>, wait: Duration) -> Answer {
    let mut answer = refused(status, why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
    answer
}

/// A response body that holds the caller's slot until it is read.
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
