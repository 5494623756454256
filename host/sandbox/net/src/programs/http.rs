//! Passes HTTP requests of programs on, and checks each of them. Puts secrets in place of their
//! placeholders, and removes secrets from the responses.

use std::convert::Infallible;
use std::future::pending;
use std::io::{Cursor, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONNECTION, HOST, HeaderMap, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Extensions, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpInfo, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use toolhold_policy::egress::{Scheme, Target};
use url::Url;

use super::body::PassedBody;
use super::connection::AllowedConnection;
use super::connection_record::{ConnectionRecord, Direction};
use super::placeholders::MAX_HEADER_BYTES;
use super::redacted_body::RedactedBody;
use super::tunnel;
use crate::send::redact_headers;
use crate::{Error, MAX_HEADERS};

/// The encoding of responses in which secrets are searched.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// Maximum number of simultaneous requests on one connection of HTTP/2. It is low, because
/// compressed headers need much more memory than a program has to send for them.
const MAX_STREAMS: u32 = 16;

/// Headers for one connection only. They aren't passed on.
const CONNECTION_HEADERS: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authorization"];

type AnswerBody = UnsyncBoxBody<Bytes, Error>;

/// Returns a stream that first returns the bytes that were already read.
pub(super) fn with_first(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    first: Vec<u8>,
) -> impl AsyncRead + AsyncWrite + Unpin + Send + 'static {
    let (reader, writer) = tokio::io::split(stream);
    tokio::io::join(Cursor::new(first).chain(reader), writer)
}

/// Serves the requests on a connection of a program, and the connection after an upgrade.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: AllowedConnection,
    scheme: Scheme,
) {
    let connection = Arc::new(connection);
    let upgrade = Arc::<Mutex<Option<Upgrade>>>::default();
    let accepted = Arc::clone(&upgrade);
    let service = service_fn(move |request| {
        let connection = Arc::clone(&connection);
        let accepted = Arc::clone(&accepted);
        async move { Ok::<_, Infallible>(answer(request, &connection, scheme, &accepted).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).max_headers(MAX_HEADERS).max_buf_size(MAX_HEADER_BYTES);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let served = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(target: "toolhold::egress", "a connection of a program failed: {error}");
    }
    // The caller counts the connection and ends it with the relay, also after the upgrade.
    let upgrade = upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(upgrade) = upgrade {
        upgrade.pass().await;
    }
}

/// Returns the answer of the host to a request, or a text with the reason why there is none. An
/// upgrade that the host accepts is stored in `upgrade`.
async fn answer(
    request: Request<Incoming>,
    connection: &AllowedConnection,
    scheme: Scheme,
    upgrade: &Mutex<Option<Upgrade>>,
) -> Response<AnswerBody> {
    let record = Arc::new(connection.record(scheme, request.method().as_str()));
    match forward(request, connection, scheme, &record, upgrade).await {
        Ok(response) => response,
        Err(error) => {
            record.set_failure(&error);
            let status = match error.denial() {
                Some(_) => StatusCode::FORBIDDEN,
                None => StatusCode::BAD_GATEWAY,
            };
            refusal(status, &reason_for_program(&error))
        }
    }
}

/// Returns the reason without details that only the operator may know.
fn reason_for_program(error: &Error) -> String {
    match error {
        Error::Secret(name, _) => {
            tracing::warn!(target: "toolhold::egress", "a request of a program failed: {error}");
            format!("the secret {name} can't be read; `toolhold doctor` shows the reason")
        }
        other => other.to_string(),
    }
}

fn refusal(status: StatusCode, reason: &str) -> Response<AnswerBody> {
    let text = format!("Toolhold: {reason}\n");
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Sends a request to the host, if the rules allow it.
async fn forward(
    mut request: Request<Incoming>,
    connection: &AllowedConnection,
    scheme: Scheme,
    record: &Arc<ConnectionRecord>,
    accepted: &Mutex<Option<Upgrade>>,
) -> Result<Response<AnswerBody>, Error> {
    let target = connection.target(scheme);
    check_authority(&request, &target)?;
    if request.method() == Method::CONNECT {
        return Err(Error::Connection(
            "the relay is no proxy, so it passes no CONNECT on".to_owned(),
        ));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    // Behind an origin, another text such as `@other.example` would name another host.
    if !path.starts_with('/') {
        return Err(Error::Protocol("the path of the request has no `/` at the start".to_owned()));
    }
    let url = format!("{}{path}", target.origin());
    let url = Url::parse(&url).map_err(|error| Error::Url(error.to_string()))?;
    record.set_url(&url, 0);
    let access = &connection.access;
    let reach = &access.egress.settings().reach;
    reach
        .request(&target, request.method().as_str(), &path, &[])
        .map_err(|denial| Error::Refused(Box::new(denial)))?;

    // The server gets the path as the program wrote it, because parsing `url` may have changed the
    // spelling.
    *request.uri_mut() = format!("{}{path}", target.origin())
        .parse::<Uri>()
        .map_err(|error| Error::Url(error.to_string()))?;
    *request.version_mut() = Version::HTTP_11;
    let upgrade = take_upgrade(&mut request);
    remove_connection_headers(request.headers_mut(), upgrade.is_some());
    // The client adds the header if the version of HTTP needs it.
    request.headers_mut().remove(HOST);
    if access.may_echo(&target) {
        request.headers_mut().insert(ACCEPT_ENCODING, IDENTITY);
    }
    let placeholders = access.placeholders()?;
    placeholders.insert_secrets(&access.egress, &mut request, &target, record).await?;
    let client = access.client(upgrade.is_some()).await?;
    let passed = Arc::clone(record);
    let mut request =
        request.map(|body| PassedBody { body, record: passed, direction: Direction::ToServer });
    let captured = capture_connection(&mut request);
    record.set_reached_host();
    let mut response = tokio::select! {
        biased;
        answered = client.request(request) => answered.map_err(|error| Error::from_client(&error))?,
        never = record_address(captured, connection, record) => match never {},
    };
    record.set_answer(response.status().as_u16(), None);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(of_program) = upgrade
    {
        let of_server = hyper::upgrade::on(&mut response);
        let upgrade = Upgrade { of_program, of_server, record: Arc::clone(record) };
        *accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    } else {
        remove_connection_headers(response.headers_mut(), false);
    }
    *response.version_mut() = Version::HTTP_11;
    let (mut parts, body) = response.into_parts();
    let passed = PassedBody { body, record: Arc::clone(record), direction: Direction::ToProgram };
    let broken = Arc::clone(record);
    let body = match access.echoes(&target) {
        None => passed
            .map_err(move |error| record_failure(&broken, Error::from_hyper(&error)))
            .boxed_unsync(),
        Some(echoes) => {
            redact_headers(&mut parts.headers, &echoes);
            // The server chooses this text, and hyper would pass it on.
            parts.extensions.remove::<ReasonPhrase>();
            RedactedBody::new(passed, &mut parts.headers, echoes)?
                .map_err(move |error| record_failure(&broken, error))
                .boxed_unsync()
        }
    };
    Ok(Response::from_parts(parts, body))
}

/// Records that the body of a response has failed.
fn record_failure(record: &ConnectionRecord, error: Error) -> Error {
    record.set_failure(&error);
    error
}

/// Records the address of a connection as soon as the client has one, before the answer.
async fn record_address(
    mut captured: CaptureConnection,
    connection: &AllowedConnection,
    record: &ConnectionRecord,
) -> Infallible {
    let mut extras = Extensions::new();
    if let Some(connected) = captured.wait_for_connection_metadata().await.as_ref() {
        connected.get_extras(&mut extras);
    }
    if !connection.access.has_proxy() {
        record.set_address(extras.get::<HttpInfo>().map(|info| info.remote_addr().ip()));
    }
    pending().await
}

/// Checks that a request names the host that the program has looked up. Servers with several hosts
/// choose the host by this name.
fn check_authority<B>(request: &Request<B>, target: &Target) -> Result<(), Error> {
    let in_headers = request.headers().get_all(HOST).iter().map(|host| host.to_str().ok());
    let in_url = request.uri().authority().map(|authority| Some(authority.as_str()));
    let mut count = 0;
    for authority in in_url.into_iter().chain(in_headers) {
        count += 1;
        let named = authority.and_then(|authority| {
            Target::parse(&format!("{}://{authority}/", target.scheme.as_str())).ok()
        });
        if named.as_ref() != Some(target) {
            let reason = format!("the request is for another host than {target}");
            return Err(Error::Connection(reason));
        }
    }
    if count == 0 { Err(Error::Connection("the request has no host".to_owned())) } else { Ok(()) }
}

/// Returns the program's side of an upgrade to WebSocket. Requests of other protocols, such as
/// `h2c`, couldn't be checked after an upgrade.
fn take_upgrade(request: &mut Request<Incoming>) -> Option<hyper::upgrade::OnUpgrade> {
    let mut protocols = request.headers().get_all(UPGRADE).iter();
    let is_web_socket = protocols
        .next()
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    // Of several protocols, the server could choose one that can't be checked.
    if is_web_socket && protocols.next().is_none() {
        Some(hyper::upgrade::on(request))
    } else {
        None
    }
}

/// Removes the headers that belong to one connection.
fn remove_connection_headers(headers: &mut HeaderMap, is_upgrade: bool) {
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    headers.remove(TRANSFER_ENCODING);
    if !is_upgrade {
        headers.remove(CONNECTION);
        headers.remove(UPGRADE);
    }
    // Trailers, which gRPC needs, are the only use of this header in HTTP/2.
    if headers.get(TE).is_some_and(|value| value != "trailers") {
        headers.remove(TE);
    }
}

/// A connection whose sides change to another protocol.
struct Upgrade {
    of_program: hyper::upgrade::OnUpgrade,
    of_server: hyper::upgrade::OnUpgrade,
    record: Arc<ConnectionRecord>,
}

impl Upgrade {
    /// Passes bytes on after both sides have changed.
    async fn pass(self) {
        let Self { of_program, of_server, record } = self;
        let (program, server) = match tokio::try_join!(of_program, of_server) {
            Ok(sides) => sides,
            Err(error) => {
                let reason = format!("the change to another protocol failed: {error}");
                return record.set_failure(&Error::Connection(reason));
            }
        };
        let passed = tunnel::pass_upgraded(TokioIo::new(program), TokioIo::new(server), &record);
        // Many servers close a connection without the end of TLS, so this isn't a failure.
        if let Err(error) = passed.await
            && error.kind() != ErrorKind::UnexpectedEof
        {
            record.set_failure(&Error::from_connection(&error));
        }
    }
}
