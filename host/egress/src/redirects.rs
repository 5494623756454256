//! Which requests of a call follow a redirect. Guests follow redirects themselves, since each is
//! one more request that is decided on; how many they follow, and what goes along, is not left to
//! them.

use std::sync::{Mutex, PoisonError};

use berth_policy::egress::Target;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use url::Url;

use super::Error;

/// Redirects in a row that are followed.
pub(super) const MAX_REDIRECTS: u32 = 3;

/// Headers that are for the one whom they were meant for.
const CREDENTIALS: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-csrf-token"),
];

/// The redirects that a call was answered with.
#[derive(Debug, Default)]
pub(super) struct Redirects(Mutex<Vec<Redirect>>);

#[derive(Debug)]
struct Redirect {
    /// The origin that it led away from.
    from: String,
    to: Url,
    /// How many were followed, with this one.
    hop: u32,
    elsewhere: bool,
}

impl Redirects {
    /// How many redirects led to a request.
    pub(super) fn hop(&self, url: &Url) -> u32 {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        redirects.iter().find(|redirect| redirect.to == to).map_or(0, |redirect| redirect.hop)
    }

    /// The origin from which a redirect led to a request.
    pub(super) fn led_from(&self, url: &Url) -> Option<String> {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = without_fragment(url);
        redirects.iter().find(|redirect| redirect.to == to).map(|redirect| redirect.from.clone())
    }

    /// How many redirects led to a request that is sent. Takes off what is not for another origin.
    ///
    /// # Errors
    ///
    /// Where they are too many.
    pub(super) fn follow(&self, url: &Url, headers: &mut HeaderMap) -> Result<u32, Error> {
        let redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(redirect) =
            redirects.iter().rev().find(|redirect| redirect.to == without_fragment(url))
        else {
            return Ok(0);
        };
        if redirect.hop > MAX_REDIRECTS {
            return Err(Error::Redirects(MAX_REDIRECTS));
        }
        if redirect.elsewhere {
            for name in CREDENTIALS {
                headers.remove(name);
            }
        }
        Ok(redirect.hop)
    }

    /// Remembers where an answer leads. `hop`: how many redirects led to it.
    pub(super) fn answered(
        &self,
        url: &Url,
        hop: u32,
        status: http::StatusCode,
        headers: &HeaderMap,
    ) {
        if !status.is_redirection() {
            return;
        }
        let Some(to) =
            headers.get(http::header::LOCATION).and_then(|to| url.join(to.to_str().ok()?).ok())
        else {
            return;
        };
        // In the form in which the request for it will be looked at. What has none is not
        // requested.
        let Some(to) =
            Target::with_url(to.as_str()).ok().and_then(|(_, text)| Url::parse(&text).ok())
        else {
            return;
        };
        let elsewhere = to.origin() != url.origin();
        let mut redirects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What has led away from an origin once does so however often it comes again, and a circle
        // does not begin anew.
        let to = without_fragment(&to);
        let known = redirects
            .iter()
            .filter(|known| known.to == to)
            .fold((hop + 1, elsewhere), |(hop, elsewhere), known| {
                (hop.max(known.hop), elsewhere || known.elsewhere)
            });
        redirects.retain(|known| known.to != to);
        redirects.push(Redirect {
            from: url.origin().ascii_serialization(),
            to,
            hop: known.0,
            elsewhere: known.1,
        });
    }
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, StatusCode};

    fn url(text: &str) -> Url {
        Url::parse(text).expect("it is one")
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("it is one")))
            .collect()
    }

    #[test]
    fn credentials_stay_with_their_origin_and_the_fourth_redirect_is_not_followed() {
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
            redirects.answered(
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
        let mut other = sent();
        assert_eq!(redirects.follow(&url("https://b.test/2"), &mut other).ok(), Some(2));
        assert_eq!(other, headers(&[(http::header::ACCEPT, "*/*")]));
        assert!(matches!(
            redirects.follow(&url("https://b.test/4"), &mut sent()),
            Err(Error::Redirects(3))
        ));
        assert_eq!(redirects.follow(&url("https://b.test/other"), &mut sent()).ok(), Some(0));
    }

    #[test]
    fn a_redirect_is_known_however_its_url_is_spelled() {
        for spelled in ["https://B.test./x#y", "https://b.test:443/a/../x", "//b.test/x"] {
            let redirects = Redirects::default();
            redirects.answered(
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
    fn a_circle_comes_to_an_end() {
        let redirects = Redirects::default();
        let mut hop = 0;
        let mut followed = 0;
        for _ in 0..10 {
            for (from, to) in
                [("https://a.test/", "https://a.test/x"), ("https://a.test/x", "https://a.test/")]
            {
                redirects.answered(
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
