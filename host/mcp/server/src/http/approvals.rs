//! Shows a question to a person who opens its one-time link, and takes the answer. The link is the
//! person's only credential, so these pages need no token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use ring::digest::{SHA256, digest};
use ring::hmac;
use tokio::time::timeout;
use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_core::{HostError, PostedQuestion, Questions, Reply, Scope, state};

use crate::approver::{FOLDER, KEY};
use crate::live::LiveHost;

/// The name of the approver in the audit log.
const BY: &str = "approval link";

/// Maximum length of a form in bytes. A form has a seal and an answer.
const MAX_FORM: usize = 256;

/// Time limit for receiving a form.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// Seconds after which a person has to open the link again.
const COOKIE_SECONDS: u32 = 600;

/// Wraps long lines, so that no part of a question is beside the window.
const STYLE: &str = "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
                     pre{white-space:pre-wrap;overflow-wrap:anywhere}\
                     button{font:inherit;padding:.5em 1em}";

type Page = Response<BoxBody<Bytes, Infallible>>;

pub(super) struct ApprovalPages {
    live: Arc<LiveHost>,
    folders: Folders,
    /// Seals forms.
    key: hmac::Key,
}

impl ApprovalPages {
    pub(super) fn new(live: Arc<LiveHost>, folders: &Folders) -> Result<Self, HostError> {
        let secret = state::secret(&folders.data.join(FOLDER), KEY)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Ok(Self { live, folders: folders.clone(), key })
    }

    /// Answers a request for the link with this key.
    pub(super) async fn answer(&self, key: &str, request: Request<Incoming>) -> Page {
        let method = request.method().clone();
        let result = match method {
            // Programs that preview links open them, too, so this approves nothing.
            Method::GET | Method::HEAD => self.show(key).await,
            Method::POST => self.take(key, request).await,
            _ => {
                let mut page = message(StatusCode::METHOD_NOT_ALLOWED, "This page has one form.");
                page.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
                Err(page)
            }
        };
        match result {
            Ok(page) | Err(page) => page,
        }
    }

    /// Shows the question with a form, which is valid together with the page's cookie.
    async fn show(&self, key: &str) -> Result<Page, Page> {
        let (_, posted) = self.find(key).await?;
        let text = shown_text(&posted);
        let secret =
            state::random_digits().map_err(|error| failed(&HostError::io("a form")(error)))?;
        let seal = hmac::sign(&self.key, sealed_bytes(key, &secret, &text).as_bytes());
        let content = format!(
            "<pre>{}</pre>\n<form method=\"post\"><input type=\"hidden\" name=\"seal\" value=\"{}\">\
             <button name=\"answer\" value=\"yes\">Allow this call</button> \
             <button name=\"answer\" value=\"no\">Deny</button></form>",
            escape(&text),
            URL_SAFE_NO_PAD.encode(seal),
        );
        let mut page = page(StatusCode::OK, &content);
        let cookie = HeaderValue::from_str(&format!(
            "{}={secret}; Max-Age={COOKIE_SECONDS}; HttpOnly; Secure; SameSite=Strict",
            cookie_name(&posted)
        ))
        .map_err(|error| failed(&error))?;
        page.headers_mut().insert(SET_COOKIE, cookie);
        Ok(page)
    }

    /// Takes the answer in a form.
    async fn take(&self, key: &str, request: Request<Incoming>) -> Result<Page, Page> {
        let (parts, body) = request.into_parts();
        let form = match timeout(FORM_TIMEOUT, Limited::new(body, MAX_FORM).collect()).await {
            Ok(Ok(form)) => form.to_bytes(),
            Ok(Err(_)) | Err(_) => return Err(wrong_form(StatusCode::BAD_REQUEST)),
        };
        let (seal, is_allowed) =
            parse_form(&form).ok_or_else(|| wrong_form(StatusCode::BAD_REQUEST))?;

        let (questions, posted) = self.find(key).await?;
        let text = shown_text(&posted);
        let secret = cookie(&parts.headers, &cookie_name(&posted)).unwrap_or_default();
        // The seal belongs to this link, to this browser, and to the text that the person read.
        let sealed = sealed_bytes(key, secret, &text);
        if hmac::verify(&self.key, sealed.as_bytes(), &seal).is_err() {
            return Err(wrong_form(StatusCode::FORBIDDEN));
        }

        let by = BY.to_owned();
        let reply = if is_allowed {
            Reply::Yes { scope: Scope::Once, by }
        } else {
            Reply::No { by, reason: String::new() }
        };
        let host = self.live.current();
        let answered = tokio::task::spawn_blocking(move || {
            host.answer_question(&questions, &posted, reply, BY)
        });
        match answered.await {
            Ok(Ok(())) if is_allowed => Ok(message(
                StatusCode::OK,
                "The call is allowed once. If it no longer waits, the agent has to repeat it.",
            )),
            Ok(Ok(())) => Ok(message(StatusCode::OK, "The call is denied.")),
            // Somebody else answered meanwhile.
            Ok(Err(HostError::Config(_))) => Err(gone()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Finds the question of a link.
    async fn find(&self, key: &str) -> Result<(Questions, PostedQuestion), Page> {
        let folders = self.folders.clone();
        let key = key.to_owned();
        match tokio::task::spawn_blocking(move || Questions::of_link(&folders, &key)).await {
            Ok(Ok(Some(found))) => Ok(found),
            Ok(Ok(None)) => Err(gone()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Returns what the page shows of a question: who asks, and everything about the call.
fn shown_text(posted: &PostedQuestion) -> String {
    let session = neutral_line(&posted.question.session);
    format!("session: {session}\n{}", posted.question.to_text())
}

/// Returns the bytes to seal. The prefix makes other seals with the same key invalid here.
fn sealed_bytes(key: &str, secret: &str, text: &str) -> String {
    format!("toolhold approval form\n{key}\n{secret}\n{text}")
}

/// Each question has its own cookie, so that two open pages don't disturb each other.
fn cookie_name(posted: &PostedQuestion) -> String {
    format!("toolhold-{}", posted.id)
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get(COOKIE)?.to_str().ok()?;
    cookies.split("; ").find_map(|cookie| cookie.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the seal and whether the call is allowed. A browser sends exactly this form.
fn parse_form(body: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (seal, answer) = std::str::from_utf8(body).ok()?.split_once("&answer=")?;
    let seal = URL_SAFE_NO_PAD.decode(seal.strip_prefix("seal=")?).ok()?;
    match answer {
        "yes" => Some((seal, true)),
        "no" => Some((seal, false)),
        _ => None,
    }
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn gone() -> Page {
    message(
        StatusCode::GONE,
        "This link isn't valid: the call was answered or withdrawn, its file has changed, the \
         question has expired, or there is a newer link. `toolhold approvals --url` makes links to \
         the calls that wait.",
    )
}

fn wrong_form(status: StatusCode) -> Page {
    message(
        status,
        "The answer isn't from this page in this browser, or the question has changed. Open the \
         link again.",
    )
}

fn failed(error: &dyn std::error::Error) -> Page {
    tracing::warn!("the page of an approval link failed: {error}");
    message(StatusCode::INTERNAL_SERVER_ERROR, "The server failed; its log has the reason.")
}

fn message(status: StatusCode, text: &str) -> Page {
    page(status, &format!("<p>{}</p>", escape(text)))
}

/// Makes a page without a script, which no other page may frame.
fn page(status: StatusCode, content: &str) -> Page {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Toolhold: approval</title>\n<style>{STYLE}</style>\n{content}\n</html>\n"
    );
    let mut page = Response::new(Full::new(Bytes::from(html)).boxed());
    *page.status_mut() = status;
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; frame-ancestors 'none'; \
         base-uri 'none'",
        STANDARD.encode(digest(&SHA256, STYLE.as_bytes()))
    );
    let headers = page.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // With `no-referrer`, a browser would send the form with the origin `null`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_html() {
        let hostile = "</pre><script>alert('1')</script>&lt;<img src=\"x\" onerror=\"y\"><!--";
        let escaped = escape(hostile);
        assert!(!escaped.contains(['<', '>', '"', '\'']), "{escaped}");
        assert!(escaped.contains("&amp;lt;"), "an entity stays text: {escaped}");
        assert_eq!(escape("a & b\nü"), "a &amp; b\nü");
    }

    #[test]
    fn only_the_form_of_the_page_is_an_answer() {
        assert_eq!(parse_form(b"seal=AP8&answer=yes"), Some((vec![0, 255], true)));
        assert_eq!(parse_form(b"seal=&answer=no"), Some((vec![], false)));
        for wrong in [
            "",
            "answer=yes",
            "seal=AP8",
            "seal=AP8&answer=",
            "seal=AP8&answer=session",
            "seal=A+8&answer=yes",
            "seal=\u{e9}&answer=yes",
            "seal=AP8&answer=no&answer=yes",
            " seal=AP8&answer=yes",
        ] {
            assert_eq!(parse_form(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers, "toolhold-a"), None);
        let sent = HeaderValue::from_static("xtoolhold-a=1; toolhold-ab=2; toolhold-a=3");
        headers.insert(COOKIE, sent);
        assert_eq!(cookie(&headers, "toolhold-a"), Some("3"));
        assert_eq!(cookie(&headers, "toolhold-b"), None);
    }
}
