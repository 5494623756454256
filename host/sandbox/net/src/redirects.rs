//! Limits the redirects in a row, and removes credentials from requests to another origin. A guest
//! follows redirects itself, so each redirect is a new request that is checked like any other.

use std::sync::{Mutex, PoisonError};

use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue};
use toolhold_policy::egress::Target;
use url::Url;

use super::Error;

/// Maximum number of redirects in a row. A further redirect is refused.
pub(super) const MAX_REDIRECTS: u32 = 3;

/// Headers with credentials, which aren't sent to another origin.
const CREDENTIALS: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-csrf-token"),
];

#[derive(Debug, Default)]
pub(super) struct Redirects(Mutex<Vec<Redirect>>);

#[derive(Debug)]
struct Redirect {
    from: String,
    to: Url,
    /// The number of redirects that led to `to`, including this redirect.
    hop: u32,
    /// Whether this redirect or an earlier redirect changed the origin.
    changes_origin: bool,
}

impl Redirects {
    pub(super) fn hop(&self, url: &Url) -> u32 {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        redirects.iter().find(|redirect| redirect.to == to).map_or(0, |redirect| redirect.hop)
    }

    pub(super) fn source(&self, url: &Url) -> Option<String> {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        redirects.iter().find(|redirect| redirect.to == to).map(|redirect| redirect.from.clone())
    }

    pub(super) fn is_from_elsewhere(&self, url: &Url) -> bool {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        redirects.iter().any(|redirect| redirect.to == to && redirect.changes_origin)
    }

    /// Returns the number of redirects in a row that led to a request. After a change of the
    /// origin, removes the credentials from `headers`. Returns [`Error::Redirects`] above the
    /// limit.
    pub(super) fn follow(&self, url: &Url, headers: &mut HeaderMap) -> Result<u32, Error> {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        let Some(redirect) = redirects.iter().find(|redirect| redirect.to == to) else {
            return Ok(0);
        };
        if redirect.hop > MAX_REDIRECTS {
            return Err(Error::Redirects(MAX_REDIRECTS));
        }
        if redirect.changes_origin {
            for name in CREDENTIALS {
                headers.remove(name);
            }
        }
        Ok(redirect.hop)
    }

    /// Records an answer that redirects to a valid URL. `hop` is the number of redirects that led
    /// to the answer.
    pub(super) fn record(
        &self,
        url: &Url,
        hop: u32,
        status: http::StatusCode,
        headers: &HeaderMap,
    ) {
        if !status.is_redirection() {
            return;
        }
        let Some(to) = headers.get(http::header::LOCATION).and_then(|to| resolve(url, to)) else {
            return;
        };
        let mut redirect = Redirect {
            from: url.origin().ascii_serialization(),
            to: without_fragment(&to),
            hop: hop + 1,
            changes_origin: to.origin() != url.origin(),
        };
        let mut redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = without_fragment(url);
        redirect.changes_origin |=
            redirects.iter().any(|earlier| earlier.to == from && earlier.changes_origin);
        // A known URL keeps its number of redirects, so a loop can't reset the number.
        for known in redirects.iter().filter(|known| known.to == redirect.to) {
            redirect.hop = redirect.hop.max(known.hop);
            redirect.changes_origin = redirect.changes_origin || known.changes_origin;
        }
        redirects.retain(|known| known.to != redirect.to);
        redirects.push(redirect);
    }
}

/// Returns the URL of a redirect in its normal form, or `None` for a URL that can't be requested.
fn resolve(url: &Url, location: &HeaderValue) -> Option<Url> {
    let joined = url.join(location.to_str().ok()?).ok()?;
    let (_, normal) = Target::with_url(joined.as_str()).ok()?;
    Url::parse(&normal).ok()
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("it is valid")
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("it is valid")))
            .collect()
    }

    #[test]
    fn credentials_stay_with_their_origin_and_redirects_are_bounded() {
        let redirects = Redirects::default();
        let sent = || {
            headers(&[(AUTHORIZATION, "Bearer x"), (COOKIE, "a=b"), (http::header::ACCEPT, "*/*")])
        };
        let mut last = url("https://a.test/");
        for (hop, next) in
            ["https://a.test/1", "https://b.test/2", "https://b.test/3", "https://b.test/4"]
                .into_iter()
                .enumerate()
        {
            redirects.record(
                &last,
                u32::try_from(hop).expect("few"),
                StatusCode::FOUND,
                &headers(&[(http::header::LOCATION, next)]),
            );
            last = url(next);
        }
        let mut same = sent();
        assert_eq!(redirects.follow(&url("https://a.test/1#x"), &mut same).ok(), Some(1));
        assert_eq!(same, sent());
        // The credentials stay away after a further redirect of the other origin.
        for (other, hop) in [("https://b.test/2", 2), ("https://b.test/3", 3)] {
            let mut left = sent();
            assert_eq!(redirects.follow(&url(other), &mut left).ok(), Some(hop));
            assert_eq!(left, headers(&[(http::header::ACCEPT, "*/*")]), "{other}");
        }
        assert!(matches!(
            redirects.follow(&url("https://b.test/4"), &mut sent()),
            Err(Error::Redirects(3))
        ));
        assert_eq!(redirects.follow(&url("https://b.test/other"), &mut sent()).ok(), Some(0));
    }

    #[test]
    fn redirect_is_known_in_any_form_of_its_url() {
        for spelled in ["https://B.test./x#y", "https://b.test:443/a/../x", "//b.test/x"] {
            let redirects = Redirects::default();
            redirects.record(
                &url("https://a.test/"),
                0,
                StatusCode::FOUND,
                &headers(&[(http::header::LOCATION, spelled)]),
            );
            let mut sent = headers(&[(AUTHORIZATION, "Bearer x")]);
            assert_eq!(
                redirects.follow(&url("https://b.test/x"), &mut sent).ok(),
                Some(1),
                "{spelled}"
            );
            assert!(sent.is_empty(), "{spelled}");
        }
    }

    #[test]
    fn redirect_loop_ends() {
        let redirects = Redirects::default();
        let mut hop = 0;
        let mut followed = 0;
        for _ in 0..10 {
            for (from, to) in
                [("https://a.test/", "https://a.test/x"), ("https://a.test/x", "https://a.test/")]
            {
                redirects.record(
                    &url(from),
                    hop,
                    StatusCode::FOUND,
                    &headers(&[(http::header::LOCATION, to)]),
                );
                let Ok(next) = redirects.follow(&url(to), &mut HeaderMap::new()) else { continue };
                hop = next;
                followed += 1;
            }
        }
        assert_eq!(followed, 3);
    }
}
