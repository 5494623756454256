//! Handles HTTP requests: refuses other hosts and origins, authenticates the caller, checks the
//! limits, and passes the request to the protocol's crate.

use std::collections::HashSet;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::WaitForCancellationFutureOwned;
use toolhold_core::config::{Folders, PrincipalId, Serve};
use toolhold_core::{CancellationToken, LINK_PATH};

use super::PATH;
use super::access::{
    Access, CHALLENGE, Identity, Refused, caller_with_local_token, refused_caller, refused_token,
};
use super::approvals::ApprovalPages;
use super::callers::{Caller, CallerPlace, MAX_CONNECTIONS};
use super::listen_address::ListenAddress;
use super::local_tokens::{TokenChecker, TokenFault};
use super::principals::{PrincipalError, Principals};
use super::refusals::{Limit, Refusals, SHORT_RETRY};
use super::tenant::{self, Tenant, TenantSettings};
use super::unauthenticated::Newcomer;
use crate::calls::CallerEnd;
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

/// Time between two checks whether the tokens of callers are still valid.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Time limit for receiving a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum KiB of bodies in memory, over all callers. Further requests are refused.
const MAX_BODY_KIB: u32 = 64 << 10;

/// Maximum number of refused requests whose bodies are received at a time.
const MAX_DISCARDED: usize = 256;

/// Time limit for receiving the body of a refused request.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of requests without a complete response: one for each of the connections that the
/// configuration can allow.
const MAX_UNANSWERED: u32 = 65_536;

type Answer = Response<BoxBody<Bytes, Infallible>>;

pub(super) struct Answering {
    /// The tenant of the user who runs the server.
    operator: Arc<Tenant>,
    /// `None` if all callers have the operator's rights.
    principals: Option<Arc<Principals>>,
    tenant_settings: TenantSettings,
    approvals: ApprovalPages,
    access: Access,
    /// `None` if tokens of `toolhold token` aren't accepted.
    local_tokens: Option<Arc<TokenChecker>>,
    /// Authenticates requests for `/metrics`.
    metrics_access: Access,
    bodies: Arc<Semaphore>,
    /// Has a permit for each refused request whose body is received.
    discarded: Semaphore,
    pub(super) refusals: Refusals,
    /// Has a permit for each request without a complete response.
    unanswered: Arc<Semaphore>,
    origins: Vec<String>,
    pub(super) metrics: Arc<Metrics>,
    /// Whether the server is ending and refuses new requests.
    pub(super) draining: AtomicBool,
}

impl Answering {
    /// Creates the handler of `server`.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored handshakes can't be read.
    #[expect(clippy::too_many_arguments, reason = "each is another part of the server")]
    pub(super) fn new(
        server: &Server,
        [access, metrics_access]: [Access; 2],
        local_tokens: Option<Arc<TokenChecker>>,
        principals: Option<Arc<Principals>>,
        settings: Serve,
        place: &ListenAddress,
        own_origins: Vec<String>,
        folders: &Folders,
    ) -> Result<Self, ServeError> {
        let metrics = Metrics::new();
        let tenant_settings = TenantSettings {
            metrics: Arc::clone(&metrics),
            allowed_hosts: place.hosts(&settings),
            max_body: usize::try_from(settings.max_body_kib.get() << 10).unwrap_or(usize::MAX),
            streams: CancellationToken::new(),
        };
        let operator = Tenant::new(server, folders, &settings, &tenant_settings)?;
        let approvals = ApprovalPages::new(server.live(), folders)?;
        Ok(Self {
            operator: Arc::new(operator),
            principals,
            tenant_settings,
            approvals,
            access,
            local_tokens,
            metrics_access,
            bodies: Arc::new(Semaphore::new(MAX_BODY_KIB as usize)),
            discarded: Semaphore::new(MAX_DISCARDED),
            refusals: Refusals::new(Arc::clone(&metrics)),
            unanswered: Arc::new(Semaphore::new(MAX_UNANSWERED as usize)),
            origins: [settings.allowed_origins, own_origins].concat(),
            metrics,
            draining: AtomicBool::new(false),
        })
    }

    /// Ends the calls of all callers. Running calls get `grace` to end.
    pub(super) async fn end_calls(&self, grace: Duration) {
        tenant::end_calls(self.tenants(), grace).await;
    }

    /// Ends the streams that wait for notifications.
    pub(super) fn end_streams(&self) {
        self.tenant_settings.streams.cancel();
    }

    fn tenants(&self) -> Vec<Arc<Tenant>> {
        let mut tenants = vec![Arc::clone(&self.operator)];
        if let Some(principals) = &self.principals {
            tenants.extend(principals.tenants());
        }
        tenants
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
        if let Some(key) = path.strip_prefix(LINK_PATH) {
            let key = key.to_owned();
            return Ok(self.approvals.answer(&key, request).await);
        }
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
                    let (tenant, _) = self.caller(request.headers(), newcomer).await?;
                    if !Arc::ptr_eq(&tenant, &self.operator) {
                        let why = "the metrics are about all users; use the token for the metrics";
                        return Err(refused(StatusCode::FORBIDDEN, why));
                    }
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
    ) -> Result<(Arc<Tenant>, Arc<Caller>), Answer> {
        let identity = self.identity(headers).await;
        let identity = identity.map_err(|refusal| refuse_caller(refusal, &newcomer.from))?;
        let name = identity.name();
        let has_slot = newcomer.admit().await;
        if !has_slot {
            return Err(self.too_many(Limit::Connections, &name, &newcomer.from));
        }
        let tenant = self.tenant(&identity, &newcomer.from).await?;
        match tenant.callers.get_or_create(&name, identity.who()) {
            Some(caller) => Ok((tenant, caller)),
            None => Err(self.too_many(Limit::Callers, &name, &newcomer.from)),
        }
    }

    /// Returns the tenant that serves a caller, or the response to a refused caller as an error.
    async fn tenant(&self, identity: &Identity, from: &str) -> Result<Arc<Tenant>, Answer> {
        let Identity::Principal { who, is_limited } = identity else {
            return Ok(Arc::clone(&self.operator));
        };
        let principals = self.principals.as_ref();
        let Some(principals) = principals.filter(|all| *is_limited || all.is_active()) else {
            let checked = self.access.check_owner(who);
            return match checked {
                Ok(()) => Ok(Arc::clone(&self.operator)),
                Err(refusal) => Err(refuse_caller(refusal, from)),
            };
        };
        match principals.get(who, &self.tenant_settings).await {
            Ok(tenant) => Ok(tenant),
            Err(error) => Err(self.refuse_principal(&error, &identity.name(), from)),
        }
    }

    /// Creates the answer to a principal without a host.
    fn refuse_principal(&self, error: &PrincipalError, user: &str, from: &str) -> Answer {
        match error {
            PrincipalError::Full => self.too_many(Limit::Principals, user, from),
            PrincipalError::Refused(why) => {
                self.metrics.count_refused("unmatched", user);
                let why = why.clone();
                refuse_caller(Refused { status: StatusCode::FORBIDDEN, why, challenge: None }, from)
            }
            PrincipalError::Host(_) => {
                // The error may be about the operator's files, and the log has it.
                let why = "the server can't work for this caller; the reason is in its log";
                refused(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }

    /// Authenticates the caller of a request, and reserves the slots of its connection and of the
    /// request. Returns the response to a refused request as an error.
    async fn enter(
        &self,
        headers: &HeaderMap,
        newcomer: &Newcomer,
    ) -> Result<(Arc<Tenant>, Arc<Caller>, CallerPlace), Answer> {
        let (tenant, caller) = self.caller(headers, newcomer).await?;
        if self.draining.load(Ordering::Relaxed) {
            return Err(retry_later(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is shutting down",
                SHORT_RETRY,
            ));
        }
        match caller.enter() {
            Ok(place) => Ok((tenant, caller, place)),
            Err(limit) => Err(self.too_many(limit, &caller.name, &newcomer.from)),
        }
    }

    /// Creates the answer to a request over a limit, and logs and counts the refusal.
    fn too_many(&self, limit: Limit, user: &str, from: &str) -> Answer {
        self.refusals.record(limit, user, from);
        retry_later(StatusCode::TOO_MANY_REQUESTS, limit.explanation(), limit.wait())
    }

    /// Receives the body of a request that gets the status 429. If the client is still sending when
    /// the connection is closed, its system drops the response.
    async fn discard(&self, body: &mut Incoming) {
        let Ok(_permit) = self.discarded.try_acquire() else { return };
        let received = async { while let Some(Ok(_)) = body.frame().await {} };
        // After a timeout, the response may get lost.
        let _ = timeout(DISCARD_TIMEOUT, received).await;
    }

    async fn identity(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        let Some(checker) = &self.local_tokens else { return self.access.caller(headers).await };
        let identity = match caller_with_local_token(checker, headers).await {
            Some(result) => result?,
            None => self.access.caller(headers).await?,
        };
        if let Some(who) = identity.who() {
            checker.check_admission(who).await.map_err(|error| refused_caller(&error))?;
        }
        Ok(identity)
    }

    /// Ends the work of callers whose tokens have expired or are revoked, and of denied callers.
    /// Returns only if callers don't authenticate.
    pub(super) async fn end_invalid_callers(&self) {
        let Some(checker) = &self.local_tokens else { return };
        let mut interval = tokio::time::interval(TOKEN_CHECK_INTERVAL);
        loop {
            interval.tick().await;
            let denied = self.denied_callers(checker).await;
            for tenant in self.tenants() {
                for caller in tenant.callers.with_own_tokens() {
                    let is_denied = caller.principal.as_ref().is_some_and(|id| denied.contains(id));
                    if is_denied || !is_token_valid(checker, &caller).await {
                        end_caller(&tenant, &caller).await;
                    }
                }
            }
            if let Some(principals) = &self.principals {
                principals.end_denied(&denied);
            }
        }
    }

    async fn denied_callers(&self, checker: &Arc<TokenChecker>) -> HashSet<PrincipalId> {
        let mut all = HashSet::new();
        for tenant in self.tenants() {
            let callers = tenant.callers.with_own_tokens();
            all.extend(callers.iter().filter_map(|caller| caller.principal.clone()));
        }
        if let Some(principals) = &self.principals {
            all.extend(principals.ids());
        }
        checker.denied(all).await
    }

    /// Handles a request to [`PATH`].
    async fn protocol(
        &self,
        request: Request<Incoming>,
        newcomer: &Newcomer,
    ) -> Result<Answer, Answer> {
        let (mut parts, mut body) = request.into_parts();
        let (tenant, caller, place) = match self.enter(&parts.headers, newcomer).await {
            Ok(entered) => entered,
            Err(answer) => {
                if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                    self.discard(&mut body).await;
                }
                return Err(answer);
            }
        };
        if parts.method == Method::POST && !is_json(&parts.headers) {
            return Err(refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a message needs `Content-Type: application/json`, in UTF-8",
            ));
        }
        let connection = connection_id(&mut parts.headers, &tenant, &caller)?;
        let session = match parts.headers.get(SESSION_HEADER) {
            Some(value) => session_name(value)?,
            None => connection.as_deref().unwrap_or_default(),
        };
        parts.extensions.insert(caller.session(session));
        parts.extensions.insert(CallerEnd(caller.ended.clone()));
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
        let body = self.body(body, &place, &newcomer.from).await?;
        if let Some(id) = &connection {
            mark_used(id, &tenant, &caller).await;
        }
        let request = Request::from_parts(parts, Full::new(body.clone()));
        let mut answer = tokio::select! {
            // An ended caller must not start a call.
            biased;
            () = caller.ended.cancelled() => {
                return Err(refuse_caller(refused_token(&TokenFault::Ended), &newcomer.from));
            }
            answer = tenant.service.handle(request) => answer,
        };

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
            mark_used(&id, &tenant, &caller).await;
            let sealed = HeaderValue::from_str(&tenant.connections.seal(&caller.name, &id))
                .map_err(|_| refused(StatusCode::INTERNAL_SERVER_ERROR, "the id can't be sent"))?;
            answer.headers_mut().insert(CONNECTION_HEADER, sealed);
        }
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if answer.status() == StatusCode::FORBIDDEN {
            let why = "the `Host` header doesn't match this server; `url` in [serve] sets the \
                       address for clients";
            return Err(refused(StatusCode::FORBIDDEN, why));
        }
        let ended = Box::pin(caller.ended.clone().cancelled_owned());
        Ok(answer.map(|body| {
            HeldBody { body, ended, _place: place, _unanswered: unanswered, _tenant: tenant }
                .boxed()
        }))
    }

    /// Reads the body within the limits of size, time and memory.
    async fn body(&self, body: Incoming, place: &CallerPlace, from: &str) -> Result<Bytes, Answer> {
        // The hint has an upper limit if the client has declared the length of the body.
        if let Some(declared_size) = body.size_hint().upper() {
            let size = usize::try_from(declared_size).unwrap_or(usize::MAX);
            if size > self.tenant_settings.max_body {
                return Err(self.too_large());
            }
        }
        match timeout(BODY_TIMEOUT, self.read(body, place, from)).await {
            Ok(result) => result,
            Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the request's body took too long")),
        }
    }

    /// Reads a body. Memory is reserved only for received bytes, so a slow sender can't reserve
    /// memory in advance. Without free memory, the request is refused.
    async fn read(
        &self,
        mut body: Incoming,
        place: &CallerPlace,
        from: &str,
    ) -> Result<Bytes, Answer> {
        let mut bytes = BytesMut::new();
        let mut reserved_kib = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                refused(StatusCode::BAD_REQUEST, "the request's body did not arrive")
            })?;
            // Trailers may follow the data, and are ignored.
            let Ok(data) = frame.into_data() else { continue };
            let size = bytes.len() + data.len();
            if size > self.tenant_settings.max_body {
                return Err(self.too_large());
            }
            let missing_kib = kib(size).saturating_sub(reserved_kib);
            let has_memory = place.reserve_body(&self.bodies, missing_kib);
            if !has_memory {
                drop(bytes);
                self.discard(&mut body).await;
                return Err(self.too_many(Limit::Memory, &place.caller().name, from));
            }
            reserved_kib += missing_kib;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    fn too_large(&self) -> Answer {
        let why = format!(
            "the request is too large; the limit is {} KiB (`max_body_kib` in [serve])",
            self.tenant_settings.max_body >> 10
        );
        refused(StatusCode::PAYLOAD_TOO_LARGE, why)
    }
}

/// Checks whether a token that `toolhold token` made is still valid. Other tokens are checked with
/// each request.
async fn is_token_valid(checker: &Arc<TokenChecker>, caller: &Caller) -> bool {
    match &caller.token {
        // A token whose record can't be read isn't valid.
        Some(id) => matches!(checker.valid(id.to_string()).await, Ok(Some(_))),
        None => true,
    }
}

async fn end_caller(tenant: &Tenant, caller: &Caller) {
    tenant.callers.end(caller);
    for connection in caller.connections.lock().await.drain(..) {
        // An error means that the connection is already closed.
        let _ = tenant.connections.close_session(&connection).await;
    }
}

/// Marks a connection as the most recently used connection of its caller. At the limit, the least
/// recently used connection is closed. The handshake of a closed connection stays on disk, so the
/// client can use the connection again.
async fn mark_used(id: &str, tenant: &Tenant, caller: &Caller) {
    let mut connections = caller.connections.lock().await;
    connections.retain(|connection| &**connection != id);
    while tenant.connections.retain_open(&mut connections).await >= MAX_CONNECTIONS {
        let least_recently_used = connections.remove(0);
        // An error means that the connection is already closed.
        let _ = tenant.connections.close_session(&least_recently_used).await;
    }
    connections.push(id.to_owned().into());
}

/// Replaces the sealed ID in the header by the ID of the connection, and returns the ID. Returns
/// `None` without the header.
fn connection_id(
    headers: &mut HeaderMap,
    tenant: &Tenant,
    caller: &Caller,
) -> Result<Option<String>, Answer> {
    let Some(sealed_value) = headers.get(CONNECTION_HEADER) else { return Ok(None) };
    let mut id = None;
    if let Ok(sealed_id) = sealed_value.to_str() {
        id = tenant.connections.open(&caller.name, sealed_id).map(str::to_owned);
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
    /// Completes when the caller's token is no longer valid, which ends the body.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: CallerPlace,
    _unanswered: Option<OwnedSemaphorePermit>,
    _tenant: Arc<Tenant>,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
