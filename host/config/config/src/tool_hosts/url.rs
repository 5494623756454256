//! Makes entries for `hosts` from the URLs in the settings of tools.

use toolhold_policy::egress::{Scheme, Target};

/// Bytes of the longest URL that is read.
const MAX_URL: usize = 2048;

/// The default ports of the protocols of git without HTTP.
const PORTS: [(&str, u16); 2] = [("ssh", 22), ("git", 9418)];

/// Returns the entry that grants the host of a URL. Returns `None` if the URL has no host, or one
/// that isn't valid. User name, password and path aren't in the entry.
pub(super) fn entry(url: &str) -> Option<String> {
    let url = url.trim();
    // Programs read a backslash in different ways, so the host isn't certain.
    if url.len() > MAX_URL || url.contains('\\') {
        return None;
    }
    let Some((scheme, rest)) = url.split_once("://") else { return entry_of_ssh(url) };
    // cargo writes `sparse+https://`, and pip writes `git+https://`.
    let (_, scheme) = scheme.rsplit_once('+').unwrap_or(("", scheme));
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_, host_and_port) = authority.rsplit_once('@').unwrap_or(("", authority));
    if let Some((_, port)) = PORTS.iter().find(|(name, _)| *name == scheme) {
        return entry_of_port(host_and_port, *port);
    }
    let target = Target::parse(&format!("{scheme}://{host_and_port}/")).ok()?;
    Some(target.origin())
}

/// Returns the entry for a place such as `git@example.org:me/project`, which git reaches by ssh.
fn entry_of_ssh(place: &str) -> Option<String> {
    let (user_and_host, _) = place.split_once(':')?;
    let (_, host) = user_and_host.split_once('@')?;
    let (_, port) = PORTS[0];
    entry_of_port(host, port)
}

/// Returns the entry that grants a port, which is `default` if `host_and_port` has none.
fn entry_of_port(host_and_port: &str, default: u16) -> Option<String> {
    let target = Target::parse(&format!("https://{host_and_port}/")).ok()?;
    let has_port = target.port != Scheme::Https.port() || host_and_port.ends_with(":443");
    let port = if has_port { target.port } else { default };
    Some(format!("{}:{port}", target.host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_the_host_and_never_a_credential() {
        for (url, expected) in [
            ("https://npm.corp.example/api/npm/", Some("https://npm.corp.example")),
            (
                "https://me:hunter2@npm.corp.example:8443/a?b#c",
                Some("https://npm.corp.example:8443"),
            ),
            ("https://a@b@npm.corp.example", Some("https://npm.corp.example")),
            ("HTTP://Mirror.example:80/simple", Some("http://mirror.example")),
            ("http://10.1.2.3:8081/", Some("http://10.1.2.3:8081")),
            ("https://[fd00::1]:444/", Some("https://[fd00::1]:444")),
            ("sparse+https://crates.corp.example/index/", Some("https://crates.corp.example")),
            ("ssh://git@git.corp.example/x", Some("git.corp.example:22")),
            ("ssh://git@git.corp.example:2222/x", Some("git.corp.example:2222")),
            ("git+ssh://git@git.corp.example:443/x", Some("git.corp.example:443")),
            ("git://git.corp.example/x", Some("git.corp.example:9418")),
            ("git@git.corp.example:me/x", Some("git.corp.example:22")),
            ("https://*.example/", None),
            ("https://*/", None),
            ("*", None),
            ("job", None),
            ("https://job/", Some("https://job")),
            ("https://${HOST}/", None),
            ("https://a.example\\@b.example/", None),
            ("https://user:pass@/", None),
            ("https:///path", None),
            ("https://", None),
            ("file:///srv/mirror", None),
            ("gopher://a.example/", None),
            ("C:\\mirror", None),
            ("./mirror", None),
            ("", None),
        ] {
            assert_eq!(entry(url).as_deref(), expected, "{url}");
        }
        assert_eq!(entry(&format!("https://a.example/{}", "a".repeat(MAX_URL))), None);
    }
}
