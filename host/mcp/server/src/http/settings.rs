//! Finds errors in the settings of `[serve]` for HTTP, each with the line to change.

use toolhold_core::config::{OAuth, Serve};

use super::{keys, tls};

/// Returns the errors in the settings of serving over HTTP, each with the line to change. The keys
/// of an authorization server and the address are only checked when serving starts.
pub fn problems(settings: &Serve) -> Vec<String> {
    let Serve { url, allowed_origins, oauth, .. } = settings;
    let mut problems = Vec::new();
    if !url.is_empty() && authority(url).is_none() {
        problems.push(format!(
            "`url = {url:?}` in [serve] isn't a valid URL: use `https://HOST` or `https://HOST:PORT`"
        ));
    }
    for origin in allowed_origins.iter().filter(|origin| !is_origin(origin)) {
        problems.push(format!(
            "`allowed_origins` in [serve] has {origin:?}: an origin is `https://host` or `https://host:PORT`, as browsers write it: in lower case, and without the default port"
        ));
    }
    if let Err(error) = tls::acceptor(settings) {
        problems.push(error.to_string());
    }
    if *oauth != OAuth::default() {
        if oauth.issuer.is_empty() {
            problems.push(
                "[serve.oauth] has no `issuer`, so no token of an authorization server is valid"
                    .to_owned(),
            );
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
    }
    problems
}

/// Checks whether a browser would write an origin in this form.
fn is_origin(origin: &str) -> bool {
    let default_port = if origin.starts_with("https:") { ":443" } else { ":80" };
    authority(origin).is_some()
        && !origin.ends_with('/')
        && !origin.ends_with(default_port)
        && origin == origin.to_lowercase()
}

/// Returns the host and port of an address. Returns `None` if the address has parts other than a
/// scheme, a host and a port.
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
