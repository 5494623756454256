//! Decides which URLs Toolhold's own requests may use, without I/O.

use std::net::IpAddr;

use toolhold_policy::egress::{Scheme, Target, TargetHost, forbidden};
use url::Url;

use crate::requests::error::{OutboundError, OutboundRemedy};

/// Parses a URL. Refuses a URL with a password, and a URL that programs read in different ways.
pub(crate) fn parse(url: &str) -> Result<Url, OutboundError> {
    let (_, normal) =
        Target::with_url(url).map_err(|error| OutboundError::Url(error.to_string()))?;
    Url::parse(&normal).map_err(|error| OutboundError::Url(error.to_string()))
}

/// Checks whether a request to a URL of the operator is possible.
///
/// # Errors
///
/// Returns an error if the URL can't be requested.
pub fn check_url(url: &str) -> Result<Url, OutboundError> {
    let url = parse(url)?;
    let named = [origin(&url)];
    check_scheme(&url, &named)?;
    Ok(url)
}

/// Returns the scheme, host and port of a URL.
pub fn origin(url: &Url) -> String {
    match Target::parse(url.as_str()) {
        Ok(target) => target.origin(),
        Err(_) => url.origin().ascii_serialization(),
    }
}

/// Checks whether two URLs have the same scheme, host and port.
pub fn same_origin(one: &Url, other: &Url) -> bool {
    origin(one) == origin(other)
}

pub(crate) fn target(url: &Url) -> Result<Target, OutboundError> {
    Target::parse(url.as_str()).map_err(|error| OutboundError::Url(error.to_string()))
}

/// Refuses a request without TLS, unless the operator named the origin and the origin is on this
/// machine.
pub(crate) fn check_scheme(url: &Url, named: &[String]) -> Result<(), OutboundError> {
    let target = target(url)?;
    let is_named = named.contains(&target.origin());
    let is_local = is_this_machine(&target.host);
    if target.scheme == Scheme::Https || (is_named && is_local) {
        return Ok(());
    }
    let (rule, remedy) = if is_local {
        (
            "requests without TLS are only allowed to an address that you named yourself",
            OutboundRemedy::NameIt,
        )
    } else {
        (
            "only https is allowed; http is only for this machine (`localhost` or a loopback \
             address)",
            OutboundRemedy::UseHttps,
        )
    };
    Err(OutboundError::Blocked { target: target.to_string(), rule: rule.to_owned(), remedy })
}

/// Checks a host that is an address. The addresses of a name are checked after the lookup.
pub(crate) fn check_host(target: &Target, is_named: bool) -> Result<(), OutboundError> {
    match target.host.address() {
        Some(address) => check_address(target, address, is_named),
        None => Ok(()),
    }
}

/// Refuses a blocked address. `is_named` means that the operator named the origin, so the address
/// may be private.
pub(crate) fn check_address(
    target: &Target,
    address: IpAddr,
    is_named: bool,
) -> Result<(), OutboundError> {
    // Without TLS, only a loopback address shows that the answer comes from this machine.
    if target.scheme == Scheme::Http && !address.to_canonical().is_loopback() {
        let rule = "requests without TLS are only allowed to this machine".to_owned();
        return Err(blocked(target, address, rule, OutboundRemedy::ResolveLocally));
    }
    let Some(range) = forbidden(address) else { return Ok(()) };
    if range.always {
        let rule = format!("the address is {}, which is always blocked", range.kind);
        return Err(blocked(target, address, rule, OutboundRemedy::Nothing));
    }
    if is_named {
        return Ok(());
    }
    let rule = format!("the address is {}, and private addresses are blocked", range.kind);
    Err(blocked(target, address, rule, OutboundRemedy::NameIt))
}

fn blocked(
    target: &Target,
    address: IpAddr,
    rule: String,
    remedy: OutboundRemedy,
) -> OutboundError {
    let target = match &target.host {
        TargetHost::Name(_) => format!("{target} (at {address})"),
        TargetHost::Address(_) => target.to_string(),
    };
    OutboundError::Blocked { target, rule, remedy }
}

fn is_this_machine(host: &TargetHost) -> bool {
    match host {
        TargetHost::Name(name) => name == "localhost",
        TargetHost::Address(address) => address.to_canonical().is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str, named: &[&str]) -> Result<(), OutboundError> {
        let url = parse(url)?;
        let named: Vec<String> =
            named.iter().map(|url| origin(&Url::parse(url).expect("is a URL"))).collect();
        check_scheme(&url, &named)?;
        let target = target(&url)?;
        check_host(&target, named.contains(&target.origin()))
    }

    #[test]
    fn only_the_named_origin_may_be_private() {
        for url in [
            "http://127.0.0.1:5000/v2",
            "http://[::1]:5000/",
            "http://localhost:5000/",
            "https://10.1.2.3/",
            "https://192.168.0.1:5000/",
            "https://[fd12::1]/",
        ] {
            assert_eq!(checked(url, &[url]), Ok(()), "{url}");
        }
        for (url, named) in [
            ("http://127.0.0.1:5001/", "http://127.0.0.1:5000/"),
            ("https://127.0.0.1:5000/", "http://127.0.0.1:5000/"),
            ("https://0x7f.1/", "https://example.com/"),
            ("https://2130706433/", "https://example.com/"),
            ("https://[::ffff:10.0.0.1]/", "https://example.com/"),
            ("https://[64:ff9b::a00:1]/", "https://example.com/"),
            ("https://10.1.2.3:8443/", "https://10.1.2.3/"),
            ("https://192.168.0.1/", "https://192.168.0.2/"),
            ("http://localhost:5001/", "https://example.com/"),
        ] {
            let found = checked(url, &[named]).expect_err(url);
            assert!(found.is_refusal() && found.to_string().contains("yourself"), "{url}: {found}");
        }
    }

    #[test]
    fn metadata_services_are_blocked_even_if_named() {
        for url in ["https://169.254.169.254/", "https://0.0.0.0/", "https://[fe80::1]/"] {
            let found = checked(url, &[url]).expect_err(url);
            assert!(found.to_string().contains("always blocked"), "{found}");
        }
    }

    #[test]
    fn http_is_for_this_machine_alone() {
        for url in ["http://example.com/", "http://10.0.0.1/", "http://localhost.example.com/"] {
            let found = checked(url, &[url]).expect_err(url);
            assert!(found.to_string().contains("only https is allowed"), "{found}");
        }
        let local = Target::parse("http://localhost/").expect("is a URL");
        let outside = "93.184.215.14".parse().expect("is an address");
        assert!(check_address(&local, outside, true).is_err(), "a name that leads elsewhere");
    }

    #[test]
    fn urls_with_passwords_or_two_meanings_are_refused() {
        for url in [
            "https://user:pw@example.com/",
            "https://example.com\\@evil.example/",
            "ftp://example.com/",
            "https:///x",
            "example.com",
        ] {
            assert!(matches!(check_url(url), Err(OutboundError::Url(_))), "{url}");
        }
    }
}
