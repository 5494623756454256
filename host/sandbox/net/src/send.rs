//! One request: from the request of a guest to the answer for the guest.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    USER_AGENT,
};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpInfo;
use tokio::time::{Instant, timeout_at};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Denial, JobServers, Report};
use toolhold_policy::egress::{Placement, ReachStatus, Target};
use toolhold_policy::spelling;
use toolhold_redaction::{self as redaction, Keys};
use url::Url;

use super::answer::{Answer, Bounds, TimeoutTexts};
use super::record::{LastObstacle, Record, redacted_url};
use super::redirects::Redirects;
use super::{Egress, Error, Obstacle, RequestPermit, Settings, jobs};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// The content encodings that answers may have.
const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, br, zstd");

/// The user agent, if the guest doesn't set one.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("toolhold/", env!("CARGO_PKG_VERSION")));

/// Headers that only the host sets, because they are about the connection.
const HOST_HEADERS: [HeaderName; 6] = [HOST, ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER];

/// Headers that make some servers treat a request as one of another method.
const OVERRIDES: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// The largest body that is scanned for secrets on the reactor's thread. That takes less time than
/// moving it to another thread.
const MAX_INLINE_SCAN: usize = 32 * 1024;

/// The call that makes requests.
#[derive(Debug)]
pub struct Scope {
    /// The report that the requests are recorded in.
    pub report: Arc<Report>,
    /// Whether the call only reads.
    pub read_only: bool,
    /// The origins that were approved for the call.
    pub origins: Vec<String>,
    /// The servers that run as jobs of the call's session. `None`: it has no jobs.
    pub servers: Option<Arc<dyn JobServers>>,
}

/// The time limits that a guest sets. They can shorten the host's limits, never extend them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// The limit for the answer's headers.
    pub first_byte: Option<Duration>,
    /// The limit for each piece of the answer's body.
    pub between_bytes: Option<Duration>,
}

/// The requests of a call that rules denied.
#[derive(Debug, Default)]
pub struct Denials {
    /// The first denial.
    pub first: Option<Box<Denial>>,
    /// What to do about it, if the same request may be allowed later without a change of the rules.
    pub suggestion: Option<&'static str>,
    /// How many there were.
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

/// A request that the rules allow.
struct CheckedRequest {
    url: Url,
    target: Target,
    method: Method,
    headers: HeaderMap,
    hop: u32,
    /// The addresses at which a job may listen for it, if it is for a job.
    job_addresses: Option<&'static [IpAddr]>,
}

impl Requests {
    /// The requests of a new call.
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

    /// The requests of the plugin that the call belongs to.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// The requests that rules denied.
    pub fn take_refused(&self) -> Denials {
        std::mem::take(&mut *self.denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last obstacle of the call's requests.
    pub fn take_obstacle(&self) -> Option<Obstacle> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends a request if the rules allow it, and returns the server's answer.
    ///
    /// The URL of the request decides where it goes, not its `Host` header. Its body is read to the
    /// end before anything is sent. The request is recorded in the call's report, also if it fails.
    ///
    /// # Errors
    ///
    /// The rule that denies the request, or the failure.
    pub async fn send<B>(
        &self,
        request: Request<B>,
        timeouts: Timeouts,
    ) -> Result<Response<Body>, Error>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut record =
            Some(Record::begin(&self.scope.report, &self.obstacle, request.method().as_str()));
        let sent = self.try_send(request, timeouts, &mut record).await;
        if let Err(error) = &sent {
            match error {
                // The operator has to fix these, and the guest doesn't get the details.
                Error::Secret(..) | Error::Setup(_) => {
                    tracing::warn!(target: "toolhold::egress", "a request failed: {error}");
                }
                _ => tracing::debug!(target: "toolhold::egress", "a request failed: {error}"),
            }
            if let Some(record) = &record {
                record.set_failure(error);
            }
            if let Some(denial) = error.denial() {
                let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
                if denials.first.is_none() {
                    denials.first = Some(Box::new(denial.clone()));
                    denials.suggestion = matches!(error, Error::NoJob(_)).then_some(jobs::REPEAT);
                }
                denials.count += 1;
            }
        }
        sent
    }

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
        let timeout_texts = TimeoutTexts {
            end: format!("{time_key} lets a request take {} s", limits.time.as_secs()),
            idle: (idle == limits.idle).then(|| format!("no data came for {} s", idle.as_secs())),
        };
        // The answer can't be kept for later calls: whether it changed can't be checked without a
        // request.
        self.scope.report.mark_incomplete();
        let (parts, body) = request.into_parts();
        let open_record = record.as_ref().ok_or(Error::Busy)?;
        let checked = self.check(parts, open_record)?;
        // Before the body is read, so that the limit of requests also bounds the bodies in memory.
        let mut permit =
            match timeout_at(end, Arc::clone(&self.egress.permits).acquire_owned()).await {
                Ok(Ok(permit)) => RequestPermit { _permit: permit, _connection: None },
                _ => return Err(Error::Busy),
            };
        let body = match timeout_at(end, read_body(body, limits.request_body)).await {
            Ok(body) => body?,
            Err(_) => return Err(Error::Timeout(Some(timeout_texts.end))),
        };
        let (checked, body) = self.check_for_leaks(checked, body).await?;
        let checked_url = checked.url.clone();
        let (hop, has_body) = (checked.hop, checked.method != Method::HEAD);
        let job =
            checked.job_addresses.map(|to| (to, checked.target.clone(), checked.method.clone()));
        let request = self.complete(checked, body, open_record).await?;
        let first = timeouts
            .first_byte
            .and_then(|time| Instant::now().checked_add(time))
            .unwrap_or(end)
            .min(end);
        let servers = self.scope.servers.clone();
        let answer = async {
            let Some((addresses, target, method)) = job else {
                let client = self.egress.client().await?;
                let answer = client.request(request).await;
                return Ok((answer.map_err(|error| Error::from_client(&error))?, None));
            };
            let server = jobs::find(servers, addresses, &target, &method).await?;
            let (answer, connection) =
                jobs::send(server, request, limits.headers, open_record).await?;
            Ok((answer, Some(connection)))
        };
        let mut response = match timeout_at(first, answer).await {
            Ok(Ok((response, connection))) => {
                permit._connection = connection;
                response
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(Error::Timeout((first == end).then_some(timeout_texts.end))),
        };
        let echoes = self.egress.echoes();
        if let Some(echoes) = &echoes {
            let secret_names: Vec<HeaderName> = response
                .headers()
                .keys()
                .filter(|name| echoes.contains(name.as_str().as_bytes()))
                .cloned()
                .collect();
            for name in secret_names {
                response.headers_mut().remove(name);
            }
            for value in response.headers_mut().values_mut() {
                if let Some(redacted) = echoes.redact(value.as_bytes()) {
                    *value = HeaderValue::from_bytes(&redacted)
                        .unwrap_or(HeaderValue::from_static("[REDACTED]"));
                }
            }
        }
        // With the redacted headers, because the guest follows the URL that it sees.
        self.redirects.record(&checked_url, hop, response.status(), response.headers());
        let bounds = Bounds { bytes: limits.body, idle, end, timeout_texts, echoes };
        let peer = response.extensions().get::<HttpInfo>().map(|info| info.remote_addr().ip());
        open_record.set_answer(
            response.status().as_u16(),
            peer.filter(|_| self.egress.settings.network.proxy.is_none()),
        );
        let record = record.take().ok_or(Error::Busy)?;
        guest_response(response, has_body, bounds, record, permit)
    }

    /// Checks the method, the URL and the headers of a request.
    fn check(&self, parts: http::request::Parts, record: &Record) -> Result<CheckedRequest, Error> {
        let Settings { limits, reach, asks, .. } = &*self.egress.settings;
        let text = parts.uri.to_string();
        if self.count.fetch_add(1, Ordering::Relaxed) >= limits.requests {
            record.set_invalid_url(&text);
            return Err(Error::Requests(limits.requests));
        }
        let (target, text) = Target::with_url(&text).map_err(|reason| {
            record.set_invalid_url(&text);
            Error::Url(reason)
        })?;
        let url = Url::parse(&text).map_err(|error| Error::Url(error.to_string()))?;
        record.set_url(&url, self.redirects.hop(&url));
        let method = parts.method;
        if method == Method::CONNECT || method == Method::TRACE {
            return Err(refused(
                &method,
                &target,
                "CONNECT and TRACE are refused",
                "No configuration key can change this.",
            ));
        }
        if self.scope.read_only && method != Method::GET && method != Method::HEAD {
            let remedy = "The author has to drop `read-only` of the tool, or declare with which arguments a call only reads (`reads-with`), and ask for `files` to write, if for any.";
            return Err(refused(
                &method,
                &target,
                "a call that only reads may use GET and HEAD only",
                remedy,
            ));
        }
        if self.scope.read_only && OVERRIDES.iter().any(|name| parts.headers.contains_key(*name)) {
            let remedy = "Leave out the header, or use that method for the request itself.";
            return Err(refused(
                &method,
                &target,
                "a call that only reads may not name another method in a header",
                remedy,
            ));
        }
        let from = self.redirects.source(&url);
        let refuse = |mut denial: Denial| {
            if let Some(from) = &from {
                denial.action = format!("{} (a redirect from {from})", denial.action);
            }
            Error::Refused(Box::new(denial))
        };
        if let ReachStatus::Unlisted(missing) =
            reach.status(&target, method.as_str(), &self.scope.origins).map_err(refuse)?
        {
            let mut denial = reach.unlisted(&target, method.as_str(), missing);
            if from.is_some() && *asks {
                denial.remedy.push_str(&format!(
                    " Or request {} in a call of its own, which a person can approve.",
                    redacted_url(&url)
                ));
            }
            return Err(refuse(denial));
        }
        let job_addresses = reach.job_addresses(&target);
        if job_addresses.is_some() {
            self.check_origin_of_job(&target, &method, &url).map_err(refuse)?;
        }
        let mut headers = parts.headers;
        for name in HOST_HEADERS {
            headers.remove(name);
        }
        let size: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if size > limits.headers {
            return Err(Error::RequestHeaders(limits.headers));
        }
        let hop = self.redirects.follow(&url, &mut headers)?;
        Ok(CheckedRequest { url, target, method, headers, hop, job_addresses })
    }

    /// Only a call that names the origin of a job's server requests it, and no other origin leads
    /// there.
    fn check_origin_of_job(
        &self,
        target: &Target,
        method: &Method,
        url: &Url,
    ) -> Result<(), Denial> {
        let origin = target.origin();
        if self.scope.origins.contains(&origin) && !self.redirects.is_from_elsewhere(url) {
            return Ok(());
        }
        Err(Denial {
            capability: "http".to_owned(),
            action: format!("{method} {origin}"),
            rule: "only a call that names a job's server requests it".to_owned(),
            place: "built in".to_owned(),
            remedy: format!("Request {} in a call of its own.", redacted_url(url)),
        })
    }

    /// Refuses a request that contains a secret, and returns it otherwise. A long body is scanned
    /// on a blocking thread.
    async fn check_for_leaks(
        &self,
        checked: CheckedRequest,
        body: Bytes,
    ) -> Result<(CheckedRequest, Bytes), Error> {
        if body.len() <= MAX_INLINE_SCAN {
            return refuse_leaks(&self.egress, &checked, &body).map(|()| (checked, body));
        }
        let egress = Arc::clone(&self.egress);
        let scan = tokio::task::spawn_blocking(move || {
            refuse_leaks(&egress, &checked, &body).map(|()| (checked, body))
        });
        scan.await.unwrap_or_else(|_| {
            Err(Error::RequestBodyBroken("the scan for secrets failed".to_owned()))
        })
    }

    /// The request as it is sent, with the secrets for it.
    async fn complete(
        &self,
        checked: CheckedRequest,
        body: Bytes,
        record: &Record,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let CheckedRequest { mut url, target, method, mut headers, job_addresses, .. } = checked;
        let settings = &self.egress.settings;
        let private: Vec<_> =
            settings.reach.private.iter().map(|placed| placed.value.clone()).collect();
        let path = url.path().to_owned();
        let mut has_secrets = false;
        for (index, secret) in settings.secrets.iter().enumerate() {
            if job_addresses.is_some()
                || !secret.rule.applies_to(&target, method.as_str(), &path, &private)
            {
                continue;
            }
            let value = self.egress.secret(index).await?;
            has_secrets = true;
            match &secret.rule.placement {
                Placement::Header { name, prefix } => {
                    let fail = |reason: String| Error::Secret(secret.rule.name.clone(), reason);
                    let name =
                        HeaderName::try_from(name).map_err(|error| fail(error.to_string()))?;
                    let mut value = HeaderValue::try_from(format!("{prefix}{value}"))
                        .map_err(|_| fail("it isn't valid in a header".to_owned()))?;
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                Placement::Query { name } => {
                    let others: Vec<(String, String)> =
                        url.query_pairs().into_owned().filter(|(known, _)| known != name).collect();
                    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
                }
            }
            record.add_secret(&secret.rule.name);
        }
        if has_secrets {
            self.egress.update_echoes();
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

/// Refuses a request that contains a configured secret or text in the form of a secret. A guest
/// never gets a configured secret from the host.
fn refuse_leaks(egress: &Egress, checked: &CheckedRequest, body: &Bytes) -> Result<(), Error> {
    let CheckedRequest { url, target, method, headers, .. } = checked;
    let settings = &egress.settings;
    if let Some(echoes) = egress.echoes() {
        let in_headers = || {
            headers.iter().any(|(name, value)| {
                echoes.contains(value.as_bytes()) || echoes.contains(name.as_str().as_bytes())
            })
        };
        if echoes.contains(url.as_str().as_bytes()) || in_headers() || echoes.contains(body) {
            return Err(refused(
                method,
                target,
                "a configured secret may not be in a request unless the host puts it in",
                "No configuration key can change this.",
            ));
        }
    }
    let is_to_job = checked.job_addresses.is_some();
    if !is_to_job && settings.credentials_to.iter().any(|pattern| pattern.matches(&target.host)) {
        return Ok(());
    }
    let query: Vec<String> = url
        .query_pairs()
        .flat_map(|(name, value)| [name.into_owned(), value.into_owned()])
        .collect();
    let headers = headers.iter().flat_map(|(name, value)| {
        [Cow::from(name.as_str()), String::from_utf8_lossy(value.as_bytes())]
    });
    let body = String::from_utf8_lossy(body);
    let texts = [url.as_str().into(), body]
        .into_iter()
        .chain(query.iter().map(|text| text.as_str().into()))
        .chain(headers);
    for text in texts {
        if let Some(kind) = kind_of_secret(text) {
            let rule = format!(
                "a request may not contain text that looks like a secret: {}",
                neutral_line(cut(&kind, 100))
            );
            let remedy = format!(
                "Configure the secret in [{}.secrets.NAME], so that no tool has to know it. Or, to allow it for that host, {}",
                settings.reach.table.name,
                settings.reach.table.lines(&format!("credentials_to = [\"{}\"]", target.host)),
            );
            return Err(refused(method, target, rule, remedy));
        }
    }
    Ok(())
}

/// The kind of secret that a text seems to contain, as it is or after a server decodes it.
fn kind_of_secret(text: Cow<'_, str>) -> Option<String> {
    let mut text = text;
    for _ in 0..=spelling::DEPTH {
        let marked = redaction::text(&text, Keys::Unknown);
        if let Some(kind) = redaction::first_mark(&marked).filter(|_| marked != text) {
            return Some(kind.to_owned());
        }
        text = Cow::Owned(spelling::decoded(&text)?);
    }
    None
}

fn refused(
    method: &Method,
    target: &Target,
    rule: impl Into<String>,
    remedy: impl Into<String>,
) -> Error {
    Error::Refused(Box::new(Denial {
        capability: "http".to_owned(),
        action: format!("{method} {}", target.origin()),
        rule: rule.into(),
        place: "built in".to_owned(),
        remedy: remedy.into(),
    }))
}

/// The whole body of a guest's request.
async fn read_body<B>(body: B, most: u64) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX)));
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(error) if error.is::<LengthLimitError>() => return Err(Error::RequestBody(most)),
            Err(error) => return Err(Error::RequestBodyBroken(error.to_string())),
        }
    }
    Ok(all.freeze())
}

/// The answer for the guest. `has_body` is false for an answer to HEAD, which only has a size.
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
        Body::default()
    };
    // A new response, without the client's extensions.
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    Ok(response)
}
