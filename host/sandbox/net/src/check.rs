//! Decides whether a plugin's request may be sent. The decision depends on the method, the URL and
//! the origin of a redirect, and the request must not contain a secret.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, TE, TRAILER,
};
use http::{Method, request};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{Denial, JobServers, Report};
use toolhold_policy::egress::{ReachStatus, Target};
use toolhold_policy::spelling;
use toolhold_redaction::{self as redaction, Keys};
use url::Url;

use super::record::{Record, redacted_url};
use super::redirects::Redirects;
use super::{Echoes, Egress, Error, Settings};

/// Headers that only the host sets, because they belong to the connection.
const HOST_HEADERS: [HeaderName; 6] = [HOST, ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER];

/// Headers that override the method of a request on some servers.
const OVERRIDES: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// The largest body that is scanned for secrets on the reactor's thread. The scan takes less time
/// than moving the body to another thread.
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
    /// The servers that run as jobs of the call's session, if the session has jobs.
    pub servers: Option<Arc<dyn JobServers>>,
}

/// A request that the rules allow.
pub(super) struct CheckedRequest {
    pub(super) url: Url,
    pub(super) target: Target,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) hop: u32,
    /// The addresses where the job of the session may listen, if the request is for a job.
    pub(super) job_addresses: Option<&'static [IpAddr]>,
}

/// The check of one request.
pub(super) struct Check<'a> {
    pub(super) egress: &'a Arc<Egress>,
    pub(super) scope: &'a Scope,
    pub(super) redirects: &'a Redirects,
}

impl Check<'_> {
    /// Checks the method, the URL and the headers of a request.
    pub(super) fn head(
        &self,
        parts: request::Parts,
        record: &Record,
        is_beyond_limit: bool,
    ) -> Result<CheckedRequest, Error> {
        let Settings { limits, reach, asks, .. } = &*self.egress.settings;
        let text = parts.uri.to_string();
        if is_beyond_limit {
            record.set_invalid_url(&text);
            return Err(Error::Requests(limits.requests));
        }
        let (target, text) = Target::with_url(&text).map_err(|error| {
            record.set_invalid_url(&text);
            Error::Url(error.to_string())
        })?;
        let url = Url::parse(&text).map_err(|error| Error::Url(error.to_string()))?;
        record.set_url(&url, self.redirects.hop(&url));
        let method = parts.method;
        self.check_method(&method, &target, &parts.headers)?;

        let from = self.redirects.source(&url);
        let status = reach
            .status(&target, method.as_str(), &self.scope.origins)
            .map_err(|denial| refusal(denial, from.as_deref()))?;
        if let ReachStatus::Unlisted(missing) = status {
            let mut denial = reach.unlisted(&target, method.as_str(), missing);
            if from.is_some() && *asks {
                denial.remedy.push_str(&format!(
                    " Or request {} in a call of its own, which a person can approve.",
                    redacted_url(&url)
                ));
            }
            return Err(refusal(denial, from.as_deref()));
        }
        let job_addresses = reach.job_addresses(&target);
        if job_addresses.is_some() {
            self.check_origin_of_job(&target, &method, &url)
                .map_err(|denial| refusal(denial, from.as_deref()))?;
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

    /// Refuses forbidden methods. If the call only reads, also refuses methods that change
    /// something.
    fn check_method(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
    ) -> Result<(), Error> {
        if method == Method::CONNECT || method == Method::TRACE {
            let rule = "CONNECT and TRACE are refused";
            return Err(refused(method, target, rule, "No configuration key can change this."));
        }
        if !self.scope.read_only {
            return Ok(());
        }
        if method != Method::GET && method != Method::HEAD {
            let rule = "a call that only reads may use GET and HEAD only";
            let remedy = "The tool's author has to drop `read-only`, or declare with which arguments a call only reads (`reads-with`), and request write access if the plugin asks for `files`.";
            return Err(refused(method, target, rule, remedy));
        }
        if OVERRIDES.iter().any(|name| headers.contains_key(*name)) {
            let rule = "a call that only reads may not name another method in a header";
            let remedy = "Leave out the header, or use that method for the request itself.";
            return Err(refused(method, target, rule, remedy));
        }
        Ok(())
    }

    /// Refuses a request to a job's server, unless the call names the server's origin, and the
    /// request was not redirected from another origin.
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
    pub(super) async fn body(
        &self,
        checked: CheckedRequest,
        body: Bytes,
    ) -> Result<(CheckedRequest, Bytes), Error> {
        if body.len() <= MAX_INLINE_SCAN {
            return refuse_leaks(self.egress, &checked, &body).map(|()| (checked, body));
        }
        let egress = Arc::clone(self.egress);
        let scan = tokio::task::spawn_blocking(move || {
            refuse_leaks(&egress, &checked, &body).map(|()| (checked, body))
        });
        scan.await.unwrap_or_else(|_| {
            Err(Error::RequestBodyBroken("the scan for secrets failed".to_owned()))
        })
    }
}

/// Returns the error for a denied request. `from`: the origin that redirected to the request.
fn refusal(mut denial: Denial, from: Option<&str>) -> Error {
    if let Some(from) = from {
        denial.action = format!("{} (a redirect from {from})", denial.action);
    }
    Error::Refused(Box::new(denial))
}

/// Refuses a request that contains a configured secret or text in the form of a secret. A guest
/// never gets a configured secret from the host.
fn refuse_leaks(egress: &Egress, checked: &CheckedRequest, body: &Bytes) -> Result<(), Error> {
    let CheckedRequest { url, target, method, headers, .. } = checked;
    let settings = &egress.settings;
    if let Some(echoes) = egress.echoes()
        && has_configured_secret(&echoes, url, headers, body)
    {
        let rule = "a configured secret may not be in a request unless the host puts it in";
        return Err(refused(method, target, rule, "No configuration key can change this."));
    }
    let is_to_job = checked.job_addresses.is_some();
    if !is_to_job && settings.credentials_to.iter().any(|pattern| pattern.matches(&target.host)) {
        return Ok(());
    }

    let mut texts = vec![Cow::from(url.as_str()), String::from_utf8_lossy(body)];
    for (name, value) in url.query_pairs() {
        texts.extend([name, value]);
    }
    for (name, value) in headers {
        texts.push(name.as_str().into());
        texts.push(String::from_utf8_lossy(value.as_bytes()));
    }
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

/// Checks whether a configured secret is in a part of a request.
fn has_configured_secret(echoes: &Echoes, url: &Url, headers: &HeaderMap, body: &[u8]) -> bool {
    if echoes.contains(url.as_str().as_bytes()) {
        return true;
    }
    for (name, value) in headers {
        if echoes.contains(value.as_bytes()) || echoes.contains(name.as_str().as_bytes()) {
            return true;
        }
    }
    echoes.contains(body)
}

/// Returns the kind of secret that a text seems to contain, either directly or after a server
/// decodes the text.
fn kind_of_secret(text: Cow<'_, str>) -> Option<String> {
    let mut text = text;
    for _ in 0..=spelling::DEPTH {
        let marked = redaction::text(&text, Keys::Unknown);
        if marked != text
            && let Some(kind) = redaction::first_mark(&marked)
        {
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
