//! One request, from what a guest wrote to an answer that it may read.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::text::{cut, neutral_line};
use berth_contract::{Denial, Report};
use berth_policy::egress::{Placement, ReachStatus, Target};
use berth_policy::spelling;
use berth_redaction::{self as redaction, Keys};
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
use url::Url;

use super::answer::{Answer, Bounds, TimeoutTexts};
use super::record::{Met, Record, shown};
use super::redirects::Redirects;
use super::{Egress, Error, Obstacle, Place, Settings};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// What answers may be packed with.
const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, br, zstd");

/// Who asks, where the guest doesn't say.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("berth/", env!("CARGO_PKG_VERSION")));

/// Headers of the connection, which is the host's.
const OWN: [HeaderName; 6] = [HOST, ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER];

/// Headers by which some servers take a request for one of another method.
const OVERRIDES: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// Bytes of a body that are looked through on the reactor's thread, which takes less than handing
/// them over.
const LOOKED_AT_HERE: usize = 32 * 1024;

/// What is known of the call that makes requests.
#[derive(Debug)]
pub struct Scope {
    /// Where it is told what they were.
    pub report: Arc<Report>,
    /// Whether it only reads.
    pub read_only: bool,
    /// The origins that were decided on for it.
    pub origins: Vec<String>,
}

/// How long a guest is ready to wait. It never makes the host wait longer than it would.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// For the answer's headers.
    pub first_byte: Option<Duration>,
    /// For each piece of its body.
    pub between_bytes: Option<Duration>,
}

/// The requests of one call.
pub struct Requests {
    egress: Arc<Egress>,
    scope: Scope,
    made: AtomicU32,
    redirects: Redirects,
    /// The first that was refused by a rule, and how many were.
    refused: Mutex<(Option<Box<Denial>>, u64)>,
    met: Arc<Met>,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// A request that was decided on.
struct CheckedRequest {
    url: Url,
    target: Target,
    method: Method,
    headers: HeaderMap,
    hop: u32,
}

impl Requests {
    /// For a call that begins.
    pub fn new(egress: Arc<Egress>, scope: Scope) -> Self {
        Self {
            egress,
            scope,
            made: AtomicU32::new(0),
            redirects: Redirects::default(),
            refused: Mutex::default(),
            met: Arc::default(),
        }
    }

    /// The plugin's way out.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// The first refusal by a rule, and how many there were.
    pub fn take_refused(&self) -> (Option<Box<Denial>>, u64) {
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the last of them met with that the operator can do something about.
    pub fn take_obstacle(&self) -> Option<Obstacle> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Makes a request, if it may be made, and answers with what its server says.
    ///
    /// The request's own URL says where it goes, not its `Host` header. Its body is read to its end
    /// before anything is sent. What is told of it stands in the call's report, as far as it comes.
    ///
    /// # Errors
    ///
    /// The rule that refuses it, or what went wrong.
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
            Some(Record::begin(&self.scope.report, &self.met, request.method().as_str()));
        let sent = self.try_send(request, timeouts, &mut record).await;
        if let Err(error) = &sent {
            match error {
                // What the operator has to mend, no guest can say.
                Error::Secret(..) | Error::Setup(_) => {
                    tracing::warn!(target: "berth::egress", "a request failed: {error}");
                }
                _ => tracing::debug!(target: "berth::egress", "a request failed: {error}"),
            }
            if let Some(record) = &record {
                record.failed(error);
            }
            if let Some(denial) = error.denial() {
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.0.get_or_insert_with(|| Box::new(denial.clone()));
                refused.1 += 1;
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
        let late = TimeoutTexts {
            end: format!("{time_key} lets a request take {} s", limits.time.as_secs()),
            idle: (idle == limits.idle).then(|| format!("nothing came for {} s", idle.as_secs())),
        };
        // What the network says, nobody can look up again for comparison.
        self.scope.report.lost_sight();
        let (parts, body) = request.into_parts();
        let told = record.as_ref().ok_or(Error::Busy)?;
        let checked = self.check(parts, told)?;
        // Before its body is read, so that no more of them are held than may be under way.
        let place = match timeout_at(end, Arc::clone(&self.egress.places).acquire_owned()).await {
            Ok(Ok(permit)) => Place { _permit: permit },
            _ => return Err(Error::Busy),
        };
        let body = match timeout_at(end, collected(body, limits.request_body)).await {
            Ok(body) => body?,
            Err(_) => return Err(Error::Timeout(Some(late.end))),
        };
        let (checked, body) = self.without_leaks(checked, body).await?;
        let checked_url = checked.url.clone();
        let (hop, wanted) = (checked.hop, checked.method != Method::HEAD);
        let request = self.complete(checked, body, told).await?;
        let client = self.egress.client().await?;
        let first = timeouts
            .first_byte
            .and_then(|time| Instant::now().checked_add(time))
            .unwrap_or(end)
            .min(end);
        let mut response = match timeout_at(first, client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Error::from_client(&error)),
            Err(_) => return Err(Error::Timeout((first == end).then_some(late.end))),
        };
        let echoes = self.egress.echoes();
        if let Some(echoes) = &echoes {
            let named: Vec<HeaderName> = response
                .headers()
                .keys()
                .filter(|name| echoes.is_in(name.as_str().as_bytes()))
                .cloned()
                .collect();
            for name in named {
                response.headers_mut().remove(name);
            }
            for value in response.headers_mut().values_mut() {
                if let Some(without) = echoes.without(value.as_bytes()) {
                    *value = HeaderValue::from_bytes(&without)
                        .unwrap_or(HeaderValue::from_static("[REDACTED]"));
                }
            }
        }
        // As the guest sees it: that is what it follows.
        self.redirects.answered(&checked_url, hop, response.status(), response.headers());
        let bounds = Bounds { bytes: limits.body, idle, end, late, echoes };
        let peer = response.extensions().get::<HttpInfo>().map(|info| info.remote_addr().ip());
        told.answered(
            response.status().as_u16(),
            peer.filter(|_| self.egress.settings.network.proxy.is_none()),
        );
        let record = record.take().ok_or(Error::Busy)?;
        answered(response, wanted, bounds, record, place)
    }

    /// Decides on a request by what stands before its body.
    fn check(&self, parts: http::request::Parts, record: &Record) -> Result<CheckedRequest, Error> {
        let Settings { limits, reach, asks, .. } = &*self.egress.settings;
        let text = parts.uri.to_string();
        if self.made.fetch_add(1, Ordering::Relaxed) >= limits.requests {
            record.unreadable_url(&text);
            return Err(Error::Requests(limits.requests));
        }
        let (target, text) = Target::with_url(&text).map_err(|reason| {
            record.unreadable_url(&text);
            Error::Url(reason)
        })?;
        let url = Url::parse(&text).map_err(|error| Error::Url(error.to_string()))?;
        record.url(&url, self.redirects.hop(&url));
        let method = parts.method;
        if method == Method::CONNECT || method == Method::TRACE {
            return Err(refused(
                &method,
                &target,
                "CONNECT and TRACE are refused",
                "No key changes that.",
            ));
        }
        if self.scope.read_only && method != Method::GET && method != Method::HEAD {
            let remedy = "The tool's author has to drop `read-only`, or name the calls that only read by `berth:reads-when`.";
            return Err(refused(
                &method,
                &target,
                "the call's own claim that it only reads",
                remedy,
            ));
        }
        if self.scope.read_only && OVERRIDES.iter().any(|name| parts.headers.contains_key(*name)) {
            let remedy = "Make the request by the method that is meant.";
            return Err(refused(
                &method,
                &target,
                "the rule that a call that only reads names no other method in a header",
                remedy,
            ));
        }
        let from = self.redirects.led_from(&url);
        let refuse = |mut denial: Denial| {
            if let Some(from) = &from {
                denial.action = format!("{} (a redirect from {from})", denial.action);
            }
            Error::Refused(Box::new(denial))
        };
        if let ReachStatus::Unlisted(missing) =
            reach.standing(&target, method.as_str(), &self.scope.origins).map_err(refuse)?
        {
            let mut denial = reach.unlisted(&target, method.as_str(), missing);
            if from.is_some() && *asks {
                denial.remedy.push_str(&format!(
                    " Or ask for {} by a call of its own: a person is asked about that.",
                    shown(&url)
                ));
            }
            return Err(refuse(denial));
        }
        let mut headers = parts.headers;
        for name in OWN {
            headers.remove(name);
        }
        let size: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if size > limits.headers {
            return Err(Error::RequestHeaders(limits.headers));
        }
        let hop = self.redirects.follow(&url, &mut headers)?;
        Ok(CheckedRequest { url, target, method, headers, hop })
    }

    /// The request, if it carries no secret away. A long one is looked through on a thread that may
    /// take its time.
    async fn without_leaks(
        &self,
        checked: CheckedRequest,
        body: Bytes,
    ) -> Result<(CheckedRequest, Bytes), Error> {
        if body.len() <= LOOKED_AT_HERE {
            return look_for_leaks(&self.egress, &checked, &body).map(|()| (checked, body));
        }
        let egress = Arc::clone(&self.egress);
        let looking = tokio::task::spawn_blocking(move || {
            look_for_leaks(&egress, &checked, &body).map(|()| (checked, body))
        });
        looking.await.unwrap_or_else(|_| {
            Err(Error::RequestBodyBroken("it could not be looked through".to_owned()))
        })
    }

    /// The request as it is sent: with the secrets that belong into it.
    async fn complete(
        &self,
        checked: CheckedRequest,
        body: Bytes,
        record: &Record,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let CheckedRequest { mut url, target, method, mut headers, .. } = checked;
        let settings = &self.egress.settings;
        let private: Vec<_> =
            settings.reach.private.iter().map(|placed| placed.value.clone()).collect();
        let path = url.path().to_owned();
        let mut known = false;
        for (index, secret) in settings.secrets.iter().enumerate() {
            if !secret.rule.goes(&target, method.as_str(), &path, &private) {
                continue;
            }
            let value = self.egress.secret(index).await?;
            known = true;
            match &secret.rule.placement {
                Placement::Header { name, prefix } => {
                    let fail = |reason: String| Error::Secret(secret.rule.name.clone(), reason);
                    let name =
                        HeaderName::try_from(name).map_err(|error| fail(error.to_string()))?;
                    let mut value = HeaderValue::try_from(format!("{prefix}{value}"))
                        .map_err(|_| fail("it fits in no header".to_owned()))?;
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                Placement::Query { name } => {
                    let others: Vec<(String, String)> =
                        url.query_pairs().into_owned().filter(|(known, _)| known != name).collect();
                    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
                }
            }
            record.secret(&secret.rule.name);
        }
        if known {
            self.egress.look_for_secrets();
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

/// Refuses what would carry a secret away: one of the operator's, which a guest can't know by
/// right, or what has the form of one.
fn look_for_leaks(egress: &Egress, checked: &CheckedRequest, body: &Bytes) -> Result<(), Error> {
    let CheckedRequest { url, target, method, headers, .. } = checked;
    let settings = &egress.settings;
    if let Some(echoes) = egress.echoes() {
        let in_headers = || {
            headers.iter().any(|(name, value)| {
                echoes.is_in(value.as_bytes()) || echoes.is_in(name.as_str().as_bytes())
            })
        };
        if echoes.is_in(url.as_str().as_bytes()) || in_headers() || echoes.is_in(body) {
            return Err(refused(
                method,
                target,
                "the rule that no request carries a secret that the host didn't put in",
                "No key changes that.",
            ));
        }
    }
    if settings.credentials_to.iter().any(|pattern| pattern.matches(&target.host)) {
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
        if let Some(kind) = shape(text) {
            let rule = format!(
                "the rule that no request carries what looks like a secret: {}",
                neutral_line(cut(&kind, 100))
            );
            let remedy = format!(
                "To have it sent to that host nevertheless, name it in [{}] of berth.toml: `credentials_to = [\"{}\"]`; better, name the secret \
                 itself in [{0}.secrets.NAME], so that no tool has to know it.",
                settings.reach.table, target.host,
            );
            return Err(refused(method, target, rule, remedy));
        }
    }
    Ok(())
}

/// What a text holds that looks like a secret, as it is or as a server may read it.
fn shape(text: Cow<'_, str>) -> Option<String> {
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

/// All of a guest's body.
async fn collected<B>(body: B, most: u64) -> Result<Bytes, Error>
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

/// The answer as a guest gets it. `wanted`: whether its body is more than a size.
fn answered(
    response: Response<Incoming>,
    wanted: bool,
    bounds: Bounds,
    record: Record,
    place: Place,
) -> Result<Response<Body>, Error> {
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    let body = if wanted {
        Answer::new(body, &mut headers, bounds, record, place)?.boxed_unsync()
    } else {
        Body::default()
    };
    // Without the client's own extensions.
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    Ok(response)
}
