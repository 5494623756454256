//! Decides whether a plugin's request may be sent, by its method, its URL, its redirects and the
//! secrets in it.

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

/// Headers that only the host sets, because they describe the connection.
const HOST_HEADERS: [HeaderName; 6] = [HOST, ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, TE, TRAILER];

/// Headers that override the method on some servers.
const OVERRIDES: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// Maximum size of a body that is scanned for secrets on an async thread, in bytes. For a small
/// body, moving it to another thread would take longer than the scan.
const MAX_INLINE_SCAN: usize = 32 * 1024;

/// Maximum length of the kind of a secret in an error, in bytes.
const MAX_SHOWN_KIND: usize = 100;

/// The call for which requests are sent.
#[derive(Debug)]
pub struct Scope {
    /// The report of the call, which records the requests.
    pub report: Arc<Report>,
    /// Whether the call only reads.
    pub read_only: bool,
    /// The origins that a person approved for the call.
    pub origins: Vec<String>,
    /// The servers of the session's jobs. `None` if the session has no jobs.
    pub servers: Option<Arc<dyn JobServers>>,
}

pub(super) struct CheckedRequest {
    pub(super) url: Url,
    pub(super) target: Target,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) hop: u32,
    /// The addresses at which a job may listen, for a request to a job.
    pub(super) job_addresses: Option<&'static [IpAddr]>,
}

pub(super) struct Check<'a> {
    pub(super) egress: &'a Arc<Egress>,
    pub(super) scope: &'a Scope,
    pub(super) redirects: &'a Redirects,
}

impl Check<'_> {
    /// Checks everything except for the body and for secrets.
    pub(super) fn check_head(
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
            .status(&target, method.as_str(), url.path(), &self.scope.origins)
            .map_err(|denial| denied_after_redirect(denial, from.as_deref()))?;
        if let ReachStatus::Unlisted(missing) = status {
            let mut denial = reach.unlisted(&target, method.as_str(), missing);
            if from.is_some() && *asks {
                denial.remedy.push_str(&format!(
                    " Or request {} in a separate call, which a person can approve.",
                    redacted_url(&url)
                ));
            }
            return Err(denied_after_redirect(denial, from.as_deref()));
        }
        let job_addresses = reach.job_addresses(&target);
        if job_addresses.is_some() {
            self.check_origin_of_job(&target, &method, &url)
                .map_err(|denial| denied_after_redirect(denial, from.as_deref()))?;
        }

        let mut headers = parts.headers;
        for name in HOST_HEADERS {
            headers.remove(name);
        }
        let separators = ": ".len() + "\r\n".len();
        let lengths =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + separators);
        let size: usize = lengths.sum();
        if size > limits.headers {
            return Err(Error::RequestHeaders(limits.headers));
        }
        let hop = self.redirects.follow(&url, &mut headers)?;
        Ok(CheckedRequest { url, target, method, headers, hop, job_addresses })
    }

    /// Refuses forbidden methods, and changing methods in a call that only reads.
    fn check_method(
        &self,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
    ) -> Result<(), Error> {
        if method == Method::CONNECT || method == Method::TRACE {
            let rule = "CONNECT and TRACE are refused";
            let remedy = "No configuration key can change this.";
            return Err(built_in_denial(method, target, rule, remedy));
        }
        if !self.scope.read_only {
            return Ok(());
        }
        if method != Method::GET && method != Method::HEAD {
            let rule = "a call that only reads may use GET and HEAD only";
            let remedy = "The tool's author has to remove `read-only`, or declare the arguments of \
                          calls that only read (`reads-with`), and request write access if the \
                          plugin asks for `files`.";
            return Err(built_in_denial(method, target, rule, remedy));
        }
        if OVERRIDES.iter().any(|name| headers.contains_key(*name)) {
            let rule = "a call that only reads may not set another method in a header";
            let remedy = "Leave out the header, or send the request with that method.";
            return Err(built_in_denial(method, target, rule, remedy));
        }
        Ok(())
    }

    /// Refuses a request to a job's server if the call doesn't name the server's origin, or if a
    /// redirect from another origin led to the request.
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
            rule: "only a call whose arguments name a job's server can send requests to \
                   it"
            .to_owned(),
            place: "built in".to_owned(),
            remedy: format!("Request {} in a separate call.", redacted_url(url)),
        })
    }

    /// Returns the request unless it contains a secret. A long body is scanned on a blocking
    /// thread.
    pub(super) async fn check_body(
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
        match scan.await {
            Ok(result) => result,
            // The scan panicked, or the program is ending.
            Err(_) => Err(Error::RequestBodyBroken("the scan for secrets failed".to_owned())),
        }
    }
}

/// Returns the error for a denial. A redirected request's error also names the redirect's origin.
fn denied_after_redirect(mut denial: Denial, from: Option<&str>) -> Error {
    if let Some(from) = from {
        denial.action = format!("{} (a redirect from {from})", denial.action);
    }
    Error::Refused(Box::new(denial))
}

/// Refuses a request that contains a configured secret or text in the form of a secret. Guests are
/// never given configured secrets, so no setting allows them in a request. Text in the form of a
/// secret is allowed for the hosts in `credentials_to`, but never for the server of a job.
fn refuse_leaks(egress: &Egress, checked: &CheckedRequest, body: &Bytes) -> Result<(), Error> {
    let CheckedRequest { url, target, method, headers, .. } = checked;
    let settings = &egress.settings;
    if let Some(echoes) = egress.echoes()
        && has_configured_secret(&echoes, url, headers, body)
    {
        let rule = "a request may not contain a configured secret, except where Toolhold inserts \
                    the secret";
        return Err(built_in_denial(method, target, rule, "No configuration key can change this."));
    }
    let is_to_job = checked.job_addresses.is_some();
    let mut allowed_hosts = settings.credentials_to.iter();
    if !is_to_job && allowed_hosts.any(|pattern| pattern.matches(&target.host)) {
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
                "a request may not contain a string that looks like a secret: {}",
                neutral_line(cut(&kind, MAX_SHOWN_KIND))
            );
            let remedy = format!(
                "Configure the secret in [{}.secrets.NAME], so that no tool needs to know the \
                 secret. Or, to allow secrets for that host, {}",
                settings.reach.table.name,
                settings.reach.table.lines(&format!("credentials_to = [\"{}\"]", target.host)),
            );
            return Err(built_in_denial(method, target, rule, remedy));
        }
    }
    Ok(())
}

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

/// Returns the kind of secret that a text seems to contain, even if the text was encoded several
/// times. Returns `None` without a secret.
fn kind_of_secret(mut text: Cow<'_, str>) -> Option<String> {
    for _ in 0..=spelling::DEPTH {
        // Redaction replaces a secret with a mark that names its kind.
        let redacted = redaction::text(&text, Keys::Unknown);
        if redacted != text
            && let Some(kind) = redaction::first_mark(&redacted)
        {
            return Some(kind.to_owned());
        }
        text = Cow::Owned(spelling::decoded(&text)?);
    }
    None
}

/// Returns the error for a request that a built-in rule refuses.
fn built_in_denial(
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
