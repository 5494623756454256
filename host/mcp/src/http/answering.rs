//! What becomes of a request: who sent it, whether there is room for it, and then the protocol.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use berth_host::CancellationToken;
use berth_host::config::{Folders, Serve};
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, AUTHORIZATION,
    CACHE_CONTROL, CONTENT_TYPE, ORIGIN, RETRY_AFTER, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::PATH;
use super::access::{Access, CHALLENGE};
use super::callers::{CONNECTIONS, Caller, Callers, Held, Refusal};
use super::metrics::{MEDIA_TYPE, Metrics};
use super::place::Place;
use super::sessions::{Connections, Handshakes};
use crate::error::ServeError;
use crate::server::Server;

/// Where clients learn who gives tokens.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// By which a client names its connection, in the revisions that have a handshake.
const CONNECTION: HeaderName = HeaderName::from_static("mcp-session-id");

/// By which a client names one of its sessions.
const SESSION: HeaderName = HeaderName::from_static("berth-session");

/// Bytes of that name.
const MAX_SESSION: usize = 64;

/// The revision of the protocol that a request is of.
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// How long a client may take for a request's body.
const BODY: Duration = Duration::from_secs(30);

/// KiB of bodies that are held at a time, over all callers.
const BODIES: u32 = 64 << 10;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Answers requests.
pub(super) struct Answering {
    service: StreamableHttpService<Server, Connections>,
    connections: Arc<Connections>,
    access: Access,
    callers: Callers,
    bodies: Arc<Semaphore>,
    max_body: usize,
    origins: Vec<String>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether nobody new is let in.
    pub(super) draining: AtomicBool,
    /// Ends what clients wait for.
    pub(super) streams: CancellationToken,
}

impl Answering {
    /// # Errors
    ///
    /// What was kept of clients can't be read.
    pub(super) fn new(server: &Server, access: Access, settings: Serve, place: &Place, folders: &Folders) -> Result<Self, ServeError> {
        let (metrics, streams) = (Metrics::new(), CancellationToken::new());
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
        let service = StreamableHttpService::new(move || Ok(server.connection(None)), Arc::clone(&connections), config);
        Ok(Self {
            service,
            connections,
            access,
            callers: Callers::new(&settings),
            bodies: Arc::new(Semaphore::new(BODIES as usize)),
            max_body,
            origins: settings.allowed_origins,
            metrics,
            draining: AtomicBool::new(false),
            streams,
        })
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let origin = request.headers().get(ORIGIN).cloned();
        // To the letter, as browsers send it: the crate of the protocol takes more for the same.
        if !request
            .headers()
            .get_all(ORIGIN)
            .iter()
            .all(|origin| self.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
        {
            let answer = refused(StatusCode::FORBIDDEN, "that web page may not use this server (`allowed_origins` in [serve])");
            self.metrics.answered(answer.status());
            return answer;
        }
        let mut answer = self.routed(request, origin.is_some()).await.unwrap_or_else(|refused| refused);
        if let Some(origin) = origin {
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id, www-authenticate"));
        }
        if !self.origins.is_empty() {
            answer.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
        }
        self.metrics.answered(answer.status());
        answer
    }

    async fn routed(&self, request: Request<Incoming>, allowed_origin: bool) -> Result<Answer, Answer> {
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::OPTIONS, PATH) if allowed_origin => Ok(preflight()),
            (&Method::GET, "/healthz") => Ok(match self.draining.load(Ordering::Relaxed) {
                false => said(StatusCode::OK, "text/plain", "ok\n"),
                true => said(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "ending\n"),
            }),
            (&Method::GET, _) if path.strip_prefix(METADATA).is_some_and(|rest| matches!(rest, "" | PATH)) => {
                match self.access.metadata() {
                    Some(metadata) => Ok(said(StatusCode::OK, "application/json", metadata.to_string())),
                    None => Err(refused(StatusCode::NOT_FOUND, "no authorization server gives tokens for this one")),
                }
            }
            (&Method::GET, "/metrics") => {
                self.caller(request.headers()).await?;
                Ok(said(StatusCode::OK, MEDIA_TYPE, self.metrics.text()))
            }
            (_, PATH) => self.protocol(request).await,
            _ => Err(refused(StatusCode::NOT_FOUND, format!("there is nothing here; the protocol is spoken at {PATH}"))),
        }
    }

    /// Who sent it.
    async fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Answer> {
        let name = self.access.caller(headers).await.map_err(|no| {
            let mut answer = refused(no.status, no.why);
            if let Some(challenge) = no.challenge {
                answer.headers_mut().insert(CHALLENGE, challenge);
            }
            answer
        })?;
        self.callers.named(&name).ok_or_else(|| later(StatusCode::SERVICE_UNAVAILABLE, "too many callers are busy", Duration::from_secs(1)))
    }

    /// A request of the protocol.
    async fn protocol(&self, request: Request<Incoming>) -> Result<Answer, Answer> {
        let caller = self.caller(request.headers()).await?;
        if self.draining.load(Ordering::Relaxed) {
            return Err(later(StatusCode::SERVICE_UNAVAILABLE, "the server is ending", Duration::from_secs(1)));
        }
        let held = caller.enter().map_err(|refusal| match refusal {
            Refusal::Busy => {
                let why = "too many of your requests are under way (`max_requests` in [serve])";
                later(StatusCode::TOO_MANY_REQUESTS, why, Duration::from_secs(1))
            }
            Refusal::TooFast(wait) => {
                let why = "too many requests came within a minute (`requests_per_minute` in [serve])";
                later(StatusCode::TOO_MANY_REQUESTS, why, wait)
            }
        })?;
        let (mut parts, body) = request.into_parts();
        let connection = self.connection(&mut parts.headers, &caller)?;
        let session = match parts.headers.get(SESSION) {
            Some(named) => session_name(named).ok_or_else(|| {
                let why = format!("`Berth-Session` is at most {MAX_SESSION} of letters, digits, `.`, `_` and `-`");
                refused(StatusCode::BAD_REQUEST, why)
            })?,
            None => connection.as_deref().unwrap_or_default(),
        };
        parts.extensions.insert(caller.session(session));
        parts.extensions.insert(held.working());
        // It has done what it is for.
        parts.headers.remove(AUTHORIZATION);
        let body = self.body(body, &held).await?;
        let begins = connection.is_none() && is_old(&parts.headers);
        let request = Request::from_parts(parts, Full::new(body));
        let mut answer = if begins { self.begun(request, &caller).await? } else { self.service.handle(request).await };
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(answer.map(|body| HeldBody { body, _held: held }.boxed()))
    }

    /// A request that may begin a connection.
    async fn begun(&self, request: Request<Full<Bytes>>, caller: &Caller) -> Result<Answer, Answer> {
        let mut connections = caller.connections.lock().await;
        if self.connections.open(&mut connections).await >= CONNECTIONS {
            let why = format!("{CONNECTIONS} connections of yours are open; end one, or wait until one has been idle for long");
            return Err(later(StatusCode::TOO_MANY_REQUESTS, why, Duration::from_secs(60)));
        }
        let mut answer = self.service.handle(request).await;
        let id = answer.headers().get(CONNECTION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if let Some(id) = id {
            let sealed = HeaderValue::from_str(&self.connections.sealed(&caller.name, &id));
            connections.push(id.into());
            answer
                .headers_mut()
                .insert(CONNECTION, sealed.map_err(|_| refused(StatusCode::INTERNAL_SERVER_ERROR, "the id can't be sent"))?);
        }
        Ok(answer)
    }

    /// The connection that a request is of, by its id without the seal, which goes into the head as well.
    fn connection(&self, headers: &mut HeaderMap, caller: &Caller) -> Result<Option<String>, Answer> {
        let Some(sealed) = headers.get(CONNECTION) else { return Ok(None) };
        let id = sealed.to_str().ok().and_then(|sealed| self.connections.opened(&caller.name, sealed)).map(str::to_owned);
        // Clients begin a new one at that.
        let id = id.ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is no such connection; begin a new one"))?;
        headers.insert(CONNECTION, HeaderValue::from_str(&id).map_err(|_| refused(StatusCode::NOT_FOUND, "there is no such connection"))?);
        Ok(Some(id))
    }

    /// The body of a request, once there is room for it.
    async fn body(&self, body: Incoming, held: &Held) -> Result<Bytes, Answer> {
        let too_large = || {
            let why = format!("a request is at most {} KiB (`max_body_kib` in [serve])", self.max_body >> 10);
            refused(StatusCode::PAYLOAD_TOO_LARGE, why)
        };
        let most = body.size_hint().upper().map_or(self.max_body, |told| usize::try_from(told).unwrap_or(usize::MAX));
        if most > self.max_body {
            return Err(too_large());
        }
        let read = async {
            // It is never closed.
            let room = Arc::clone(&self.bodies).acquire_many_owned(kib(most)).await.ok();
            (room, Limited::new(body, self.max_body).collect().await)
        };
        let (room, read) =
            timeout(BODY, read).await.map_err(|_| refused(StatusCode::REQUEST_TIMEOUT, "the request's body took too long"))?;
        let bytes = read.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(),
            false => refused(StatusCode::BAD_REQUEST, "the request's body did not arrive"),
        })?;
        let bytes = bytes.to_bytes();
        if let Some(mut room) = room {
            // Of one that did not tell its length, what it turned out not to need is free again.
            drop(room.split(room.num_permits().saturating_sub(kib(bytes.len()) as usize)));
            held.with_body(room);
        }
        Ok(bytes)
    }
}

/// KiB, in full.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(BODIES).min(BODIES)
}

/// A session's name, as a caller gives it.
fn session_name(value: &HeaderValue) -> Option<&str> {
    let name = value.to_str().ok()?;
    let right = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    ((1..=MAX_SESSION).contains(&name.len()) && name.bytes().all(right)).then_some(name)
}

/// Whether a request is of a revision that has connections. One that names none is of the first.
fn is_old(headers: &HeaderMap) -> bool {
    headers.get(REVISION).is_none_or(|revision| revision.as_bytes() < ProtocolVersion::V_2026_07_28.as_str().as_bytes())
}

/// What a web page's browser asks first.
fn preflight() -> Answer {
    let mut answer = said(StatusCode::NO_CONTENT, "text/plain", "");
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    let allowed = "authorization, content-type, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, berth-session";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    answer
}

fn said(status: StatusCode, media_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

fn refused(status: StatusCode, why: impl AsRef<str>) -> Answer {
    said(status, "text/plain; charset=utf-8", format!("{}\n", why.as_ref()))
}

/// Refused for now.
fn later(status: StatusCode, why: impl AsRef<str>, wait: Duration) -> Answer {
    let mut answer = refused(status, why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
    answer
}

/// An answer's body, which keeps the caller's place until it is read.
struct HeldBody {
    body: BoxBody<Bytes, Infallible>,
    _held: Held,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
