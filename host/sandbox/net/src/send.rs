//! Sends a request of a guest if the rules allow it, and returns the answer.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpInfo;
use tokio::time::{Instant, timeout_at};
use toolhold_contract::Denial;

use super::answer::{Answer, Bounds, TimeoutTexts};
use super::check::{Check, CheckedRequest, Scope};
use super::record::{LastObstacle, Record};
use super::redirects::Redirects;
use super::{Echoes, Egress, Error, Obstacle, RequestPermit, Settings, jobs};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, br, zstd");

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("toolhold/", env!("CARGO_PKG_VERSION")));

/// Time limits of a guest, which can only shorten the host's limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// Limit for the headers of the answer.
    pub first_byte: Option<Duration>,
    /// Limit for each piece of the answer's body.
    pub between_bytes: Option<Duration>,
}

/// The requests of a call that rules denied.
#[derive(Debug, Default)]
pub struct Denials {
    /// The first denial.
    pub first: Option<Box<Denial>>,
    /// The remedy if the same request may succeed later without a change of the rules.
    pub suggestion: Option<&'static str>,
    /// The number of denials.
    pub count: u64,
}

/// The requests of one call.
pub struct Requests {
    egress: Arc<Egress>,
    scope: Scope,
    count: AtomicU32,
    redirects: Redirects,
    denials: Mutex<Denials>,
    obstacle: Arc<LastObstacle>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("egress", &self.egress).finish_non_exhaustive()
    }
}

impl Requests {
    /// Prepares the requests of a new call.
    pub fn new(egress: Arc<Egress>, scope: Scope) -> Self {
        Self {
            egress,
            scope,
            count: AtomicU32::new(0),
            redirects: Redirects::default(),
            denials: Mutex::default(),
            obstacle: Arc::default(),
        }
    }

    /// Returns the plugin's requests.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Takes the denials so far.
    pub fn take_refused(&self) -> Denials {
        std::mem::take(&mut *self.denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the last obstacle of the call's requests.
    pub fn take_obstacle(&self) -> Option<Obstacle> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends a request if the rules allow it, and returns the server's answer.
    ///
    /// The URL decides where the request goes, not the `Host` header. The whole body is read before
    /// anything is sent. Failed requests are also in the call's report.
    ///
    /// # Errors
    ///
    /// Returns the rule that denies the request, or the failure.
    pub async fn send<B>(
        &self,
        request: Request<B>,
        timeouts: Timeouts,
    ) -> Result<Response<Body>, Error>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let method = request.method().as_str();
        let mut record = Some(Record::begin(&self.scope.report, &self.obstacle, method));
        let answer = self.try_send(request, timeouts, &mut record).await;
        if let Err(error) = &answer {
            self.record_failure(error, record.as_ref());
        }
        answer
    }

    fn record_failure(&self, error: &Error, record: Option<&Record>) {
        match error {
            // Only the operator can fix these errors, so the guest gets no details.
            Error::Secret(..) | Error::Setup(_) => {
                tracing::warn!(target: "toolhold::egress", "a request failed: {error}");
            }
            _ => tracing::debug!(target: "toolhold::egress", "a request failed: {error}"),
        }
        if let Some(record) = record {
            record.set_failure(error);
        }
        let Some(denial) = error.denial() else { return };
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if denials.first.is_none() {
            denials.first = Some(Box::new(denial.clone()));
            // A job may need time before it listens.
            let waits_for_job = matches!(error, Error::NoJob(_));
            denials.suggestion = if waits_for_job { Some(jobs::REPEAT) } else { None };
        }
        denials.count += 1;
    }

    /// Sends a request. If it succeeds, the record moves out of `record` into the answer.
    async fn try_send<B>(
        &self,
        request: Request<B>,
        timeouts: Timeouts,
        record: &mut Option<Record>,
    ) -> Result<Response<Body>, Error>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Settings { limits, time_key, .. } = &*self.egress.settings;
        let end = Instant::now() + limits.time;
        let idle = timeouts.between_bytes.unwrap_or(limits.idle).min(limits.idle);
        let mut timeout_texts = TimeoutTexts {
            end: format!("{time_key} limits a request to {} s", limits.time.as_secs()),
            idle: None,
        };
        if idle == limits.idle {
            timeout_texts.idle = Some(format!("no data arrived for {} s", idle.as_secs()));
        }
        // Answers aren't cached for later calls, because a server can change them at any time.
        self.scope.report.mark_incomplete();

        let (parts, body) = request.into_parts();
        let open_record = record.as_ref().ok_or(Error::Busy)?;
        let check = Check { egress: &self.egress, scope: &self.scope, redirects: &self.redirects };
        let is_beyond_limit = self.count.fetch_add(1, Ordering::Relaxed) >= limits.requests;
        let checked = check.check_head(parts, open_record, is_beyond_limit)?;
        // The permit is acquired before the body is read, so the limit of concurrent requests also
        // limits the bodies in memory.
        let acquire = Arc::clone(&self.egress.permits).acquire_owned();
        let Ok(Ok(permit)) = timeout_at(end, acquire).await else { return Err(Error::Busy) };
        let mut permit = RequestPermit { _permit: permit, _connection: None };
        let body = match timeout_at(end, read_body(body, limits.request_body)).await {
            Ok(body) => body?,
            Err(_) => return Err(Error::Timeout(Some(timeout_texts.end))),
        };
        let (checked, body) = check.check_body(checked, body).await?;

        let checked_url = checked.url.clone();
        let hop = checked.hop;
        let has_body = checked.method != Method::HEAD;
        let job = checked
            .job_addresses
            .map(|addresses| (addresses, checked.target.clone(), checked.method.clone()));
        let request = self.complete(checked, body, open_record).await?;
        let guest_end = timeouts.first_byte.and_then(|time| Instant::now().checked_add(time));
        let first_end = guest_end.map_or(end, |guest_end| guest_end.min(end));
        let servers = self.scope.servers.clone();
        let answer = async {
            let Some((addresses, target, method)) = job else {
                let client = self.egress.client().await?;
                return match client.request(request).await {
                    Ok(answer) => Ok((answer, None)),
                    Err(error) => Err(Error::from_client(&error)),
                };
            };
            let server = jobs::find(servers, addresses, &target, &method).await?;
            let (answer, connection) =
                jobs::send(server, request, limits.headers, open_record).await?;
            Ok((answer, Some(connection)))
        };
        let (mut response, connection) = match timeout_at(first_end, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(error),
            Err(_) if first_end == end => return Err(Error::Timeout(Some(timeout_texts.end))),
            Err(_) => return Err(Error::Timeout(None)),
        };
        permit._connection = connection;

        let echoes = self.egress.echoes();
        if let Some(echoes) = &echoes {
            redact_headers(response.headers_mut(), echoes);
        }
        // The guest follows the URL that it sees, so the redacted headers are recorded.
        self.redirects.record(&checked_url, hop, response.status(), response.headers());
        let bounds = Bounds { bytes: limits.body, idle, end, timeout_texts, echoes };
        let peer = response.extensions().get::<HttpInfo>().map(|info| info.remote_addr().ip());
        let through_proxy = self.egress.settings.network.proxy.is_some();
        open_record.set_answer(response.status().as_u16(), if through_proxy { None } else { peer });
        let record = record.take().ok_or(Error::Busy)?;
        guest_response(response, has_body, bounds, record, permit)
    }

    /// Completes a checked request with the secrets, and with Toolhold's own headers.
    async fn complete(
        &self,
        checked: CheckedRequest,
        body: Bytes,
        record: &Record,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let CheckedRequest { mut url, target, method, mut headers, job_addresses, .. } = checked;
        // A job's server gets no secrets.
        if job_addresses.is_none() {
            self.egress.put_secrets(&mut url, &target, &method, &mut headers, record).await?;
        }
        headers.insert(ACCEPT_ENCODING, ACCEPTED);
        headers.entry(USER_AGENT).or_insert(AGENT);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|error: http::uri::InvalidUri| Error::Url(error.to_string()))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Removes headers whose names contain a secret, and replaces secrets in the other headers.
pub(super) fn redact_headers(headers: &mut HeaderMap, echoes: &Echoes) {
    let mut secret_names: Vec<HeaderName> = Vec::new();
    for name in headers.keys() {
        if echoes.contains(name.as_str().as_bytes()) {
            secret_names.push(name.clone());
        }
    }
    for name in secret_names {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(redacted) = echoes.redact(value.as_bytes()) {
            // The inserted mark contains the name of the secret, which may have characters that
            // headers don't allow.
            *value = HeaderValue::from_bytes(&redacted)
                .unwrap_or(HeaderValue::from_static("[REDACTED]"));
        }
    }
}

/// Reads the whole body of a request, which may have at most `max_bytes`.
async fn read_body<B>(body: B, max_bytes: u64) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut body = std::pin::pin!(Limited::new(body, limit));
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame {
            // A frame without data contains trailers, which aren't sent.
            Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(Error::RequestBody(max_bytes));
            }
            Err(error) => return Err(Error::RequestBodyBroken(error.to_string())),
        }
    }
    Ok(all.freeze())
}

/// Builds the answer for the guest. `has_body` is false for an answer to HEAD, whose headers
/// declare a size without a body.
fn guest_response(
    response: Response<Incoming>,
    has_body: bool,
    bounds: Bounds,
    record: Record,
    permit: RequestPermit,
) -> Result<Response<Body>, Error> {
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    let body = if has_body {
        Answer::new(body, &mut headers, bounds, record, permit)?.boxed_unsync()
    } else {
        // The request ends here, so its record and its permit are dropped.
        Body::default()
    };
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    Ok(response)
}
