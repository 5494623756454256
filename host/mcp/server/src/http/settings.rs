//! Finds errors in `[serve]`.

use toolhold_core::NAME;
use toolhold_core::config::{OAuth, Serve};

use super::{keys, tls};

/// Returns the errors in the settings of serving over HTTP. Each error names the key to change. The
/// address and the keys of an authorization server are checked later, when serving starts.
pub fn problems(settings: &Serve) -> Vec<String> {
    let Serve { url, allowed_origins, oauth, .. } = settings;
    let mut problems = Vec::new();
    if !url.is_empty() && authority(url).is_none() {
        problems.push(format!(
            "`url = {url:?}` in [serve] isn't a valid URL: use `https://HOST` or `https://HOST:PORT`"
        ));
    }
    for origin in allowed_origins {
        if !is_origin(origin) {
            problems.push(format!(
                "`allowed_origins` in [serve] has {origin:?}, which isn't an origin: write \
                 `https://host` or `https://host:PORT`, in lower case and without the default port"
            ));
        }
    }
    if let Err(error) = tls::acceptor(settings) {
        problems.push(error.to_string());
    }
    if *oauth != OAuth::default() {
        problems.extend(oauth_problems(oauth, url));
    }
    problems
}

/// Returns the errors in the settings of an authorization server. `url` is this server's address.
fn oauth_problems(oauth: &OAuth, url: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if oauth.issuer.is_empty() {
        problems.push(
            "[serve.oauth] has no `issuer`, so no token of an authorization server is valid"
                .to_owned(),
        );
    }
    if oauth.issuer == NAME {
        problems.push(format!(
            "`issuer = {NAME:?}` in [serve.oauth] is the issuer of the tokens of `toolhold token`: \
             use the URL of your authorization server"
        ));
    }
    if url.is_empty() {
        problems.push(
            "[serve.oauth] needs this server's address, the audience of tokens: set `url = \"https://toolhold.example.com\"` in [serve]"
                .to_owned(),
        );
    }
    if let Err(error) = keys::parse_source(&oauth.keys) {
        problems.push(keys::setting_error(&oauth.keys, &error));
    }
    problems
}

/// Checks whether `origin` has the form in which browsers send an origin.
fn is_origin(origin: &str) -> bool {
    let default_port = if origin.starts_with("https:") { ":443" } else { ":80" };
    authority(origin).is_some()
        && !origin.ends_with('/')
        && !origin.ends_with(default_port)
        && origin == origin.to_lowercase()
}

/// Returns the host and port of an address, or `None` for an address with a path, a user or a
/// query.
pub(super) fn authority(url: &str) -> Option<String> {
    let url: http::Uri = url.trim_end_matches('/').parse().ok()?;
    let authority = url.authority()?;
    let is_http = matches!(url.scheme_str(), Some("https" | "http"));
    let has_path = !matches!(url.path(), "" | "/");
    let has_user = authority.as_str().contains('@');
    if !is_http || has_path || has_user || url.query().is_some() {
        return None;
    }
    Some(authority.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_errors_of_the_settings_are_named_at_once() {
        let right =
            Serve { url: "https://toolhold.example.com:8443/".to_owned(), ..Serve::default() };
        assert_eq!(problems(&Serve::default()), [""; 0]);
        assert_eq!(problems(&right), [""; 0]);
        for url in [
            "https://a@example.com",
            "https://example.com/path",
            "example.com",
            "ftp://example.com",
            "https://",
        ] {
            assert_eq!(
                problems(&Serve { url: url.to_owned(), ..Serve::default() }).len(),
                1,
                "{url}"
            );
        }
        let origins = |origins: &[&str]| Serve {
            allowed_origins: origins.iter().map(ToString::to_string).collect(),
            ..Serve::default()
        };
        assert_eq!(problems(&origins(&["https://example.com", "http://localhost:3000"])), [""; 0]);
        let wrong = [
            "https://example.com/",
            "https://Example.com",
            "https://example.com:443",
            "*",
            "null",
            "example.com",
        ];
        assert_eq!(problems(&origins(&wrong)).len(), wrong.len());
        let own_issuer = OAuth { issuer: NAME.to_owned(), ..OAuth::default() };
        let named = problems(&Serve { oauth: own_issuer, ..right });
        assert!(named.iter().any(|problem| problem.contains("toolhold token")), "{named:?}");
        let keys = OAuth { keys: "keys.json".to_owned(), ..OAuth::default() };
        let all = Serve { oauth: keys, certificate: "/nowhere.pem".to_owned(), ..origins(&["*"]) };
        let named = problems(&all);
        for told in [
            "allowed_origins",
            "needs `key`",
            "no `issuer`",
            "needs this server's address",
            "absolute",
        ] {
            assert!(named.iter().any(|problem| problem.contains(told)), "{told}: {named:?}");
        }
    }
}
