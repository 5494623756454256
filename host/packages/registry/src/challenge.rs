//! Reads the login request in a registry's 401 answer. Decides which servers may get a password.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;
use url::{Host, Url};

/// Most bytes of a header. A longer header is ignored.
const MAX_HEADER: usize = 4096;

/// The usual port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// The login that a registry requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token from a token server.
    Bearer {
        /// The URL of the token server.
        realm: String,
        /// The registry's name for the service that accepts the token.
        service: Option<String>,
    },
    /// A user name and a password.
    Basic,
}

impl Challenge {
    /// Returns the first challenge for a token, or else a challenge for a password. Returns `None`
    /// if no challenge is supported.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut password_challenge = None;
        for value in headers.get_all(WWW_AUTHENTICATE) {
            let Ok(header) = value.to_str() else { continue };
            if header.len() > MAX_HEADER {
                continue;
            }
            match Self::parse(header) {
                Some(token @ Self::Bearer { .. }) => return Some(token),
                Some(Self::Basic) => password_challenge = Some(Self::Basic),
                None => {}
            }
        }
        password_challenge
    }

    fn parse(header: &str) -> Option<Self> {
        let trimmed = header.trim();
        let (scheme, parameters_text) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameters = parse_parameters(parameters_text);
        let realm = find_parameter(&parameters, "realm")?;
        let service = find_parameter(&parameters, "service");
        Some(Self::Bearer { realm, service })
    }
}

fn find_parameter(parameters: &[(String, String)], name: &str) -> Option<String> {
    let parameter = parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    parameter.map(|(_, value)| value.clone())
}

/// Parses parameters of the form `name="value",name=value`. Any other text ends the list.
fn parse_parameters(text: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut remaining = text.trim_start();
    while let Some((name, after_name)) = remaining.split_once('=') {
        let (value, after_value) = match after_name.strip_prefix('"') {
            Some(quoted) => {
                // A missing closing quote ends the list.
                let Some(split) = split_quoted(quoted) else { break };
                split
            }
            None => {
                let end = after_name.find(',').unwrap_or(after_name.len());
                (after_name[..end].trim().to_owned(), &after_name[end..])
            }
        };
        parameters.push((name.trim().to_owned(), value));
        remaining = after_value.trim_start().trim_start_matches(',').trim_start();
    }
    parameters
}

/// Splits the text after an opening quote into the quoted value and the text after the closing
/// quote.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            // A backslash escapes the next character.
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

/// Checks whether a registry's password may be sent to its token server. The registry chooses the
/// token server, so a malicious answer could name the attacker's server.
///
/// The token server must have the registry's host and port. With TLS on port 443, other names in
/// the registry's domain are accepted too, such as `auth.example.com` and `example.com` for
/// `registry.example.com`.
pub(crate) fn may_get_password(registry: &Url, realm: &Url) -> bool {
    if toolhold_net::requests::same_origin(registry, realm) {
        return true;
    }
    let has_usual_port = realm.port_or_known_default() == Some(HTTPS_PORT);
    let has_usual_tls = realm.scheme() == "https" && has_usual_port;
    if !has_usual_tls {
        return false;
    }
    let (Some(Host::Domain(registry_host)), Some(Host::Domain(realm_host))) =
        (registry.host(), realm.host())
    else {
        return false;
    };
    let Some((_, domain)) = registry_host.split_once('.') else { return false };
    // A domain without a dot, such as `com`, belongs to many owners.
    if !domain.contains('.') {
        return false;
    }
    match realm_host.strip_suffix(domain) {
        Some(subdomain) => subdomain.is_empty() || subdomain.ends_with('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(headers: &[&str]) -> Option<Challenge> {
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(WWW_AUTHENTICATE, HeaderValue::from_str(header).expect("is a value"));
        }
        Challenge::from_headers(&map)
    }

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        assert_eq!(
            read(&["Bearer realm=\"https://a.example/token\",service=\"a, b\\\"c\",scope=\"x:y\""]),
            bearer("https://a.example/token", Some("a, b\"c"))
        );
        assert_eq!(
            read(&["Basic realm=x", "bearer realm=https://a/ , service=s"]),
            bearer("https://a/", Some("s"))
        );
        assert_eq!(read(&["Basic"]), Some(Challenge::Basic));
        for none in
            ["Bearer", "Bearer realm", "Bearer realm=\"x", "Negotiate", "", "Bearer service=\"s\""]
        {
            assert_eq!(read(&[none]), None, "{none}");
        }
        assert_eq!(read(&[&format!("Bearer realm=\"{}\"", "x".repeat(5000))]), None);
    }

    #[test]
    fn password_goes_to_the_registry_and_its_domain_alone() {
        for (registry, realm, may) in [
            ("https://r.example.com/", "https://r.example.com/token", true),
            ("https://r.example.com/", "https://auth.example.com/token", true),
            ("https://r.example.com/", "https://example.com/token", true),
            ("http://127.0.0.1:5000/", "http://127.0.0.1:5000/token", true),
            ("https://r.example.com/", "http://r.example.com/token", false),
            ("https://r.example.com/", "https://r.example.com:8443/token", false),
            ("https://r.example.com/", "https://evilexample.com/token", false),
            ("https://r.example.com/", "https://auth.example.com:8443/", false),
            ("https://r.example.com/", "https://example.com.evil.example/", false),
            ("https://example.com/", "https://evil.com/token", false),
            ("https://r.example.com/", "https://com/token", false),
            ("http://127.0.0.1:5000/", "http://127.0.0.1:5001/token", false),
            ("https://10.0.0.1/", "https://10.0.0.2/", false),
            ("https://localhost/", "https://x.localhost/", false),
        ] {
            let [one, other] = [registry, realm].map(|url| Url::parse(url).expect("is a URL"));
            assert_eq!(may_get_password(&one, &other), may, "{registry} {realm}");
        }
    }
}
