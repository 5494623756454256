//! The address that `toolhold serve` listens on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use toolhold_core::config::Serve;

use super::settings::authority;
use crate::error::ServeError;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `127.0.0.1:8000`, or `8000` for short. Port 0 means a free port.
    Tcp(SocketAddr),
    /// `unix:/path/to/socket`. Only the user who runs the server can connect.
    Unix(PathBuf),
}

/// The error for an invalid [`ListenAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenAddressError {
    /// The path of a socket is relative.
    #[error("a socket's path starts with `/`")]
    RelativeSocket,
    /// The text has none of the forms.
    #[error(
        "use an address with a port (`127.0.0.1:8000`), a port (`8000`), or a socket \
         (`unix:/path/to/socket`)"
    )]
    Form,
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(ListenAddressError::RelativeSocket);
            }
            return Ok(Self::Unix(path));
        }
        if let Ok(port) = text.parse() {
            return Ok(Self::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)));
        }
        let address = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}").parse(),
            None => text.parse(),
        };
        address.map(Self::Tcp).map_err(|_| ListenAddressError::Form)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// Checks that the settings allow this address. The error names the missing setting.
    pub(super) fn check(&self, settings: &Serve, tls: bool) -> Result<(), ServeError> {
        let Self::Tcp(address) = self else { return Ok(()) };
        if is_local(address.ip()) {
            return Ok(());
        }
        if !tls && !settings.plain_http {
            return Err(ServeError::Settings(format!(
                "other machines can reach {address}, and without TLS, tokens are sent unencrypted. \
                 Set `certificate` and `key` in [serve], or `plain_http = true` if a proxy in \
                 front uses TLS"
            )));
        }
        if settings.url.is_empty() {
            return Err(ServeError::Settings(format!(
                "other machines can reach {address}: set the address for these machines in \
                 [serve], for example `url = \"https://toolhold.example.com\"`. Requests for any \
                 other host are refused"
            )));
        }
        Ok(())
    }

    /// Returns the origins of pages on the server's own address.
    pub(super) fn origins(&self, settings: &Serve, tls: bool) -> Vec<String> {
        let mut origins = Vec::new();
        if let Self::Tcp(address) = self {
            let scheme = if tls { "https" } else { "http" };
            let port = address.port();
            for host in ["localhost", "127.0.0.1", "[::1]"] {
                origins.push(format!("{scheme}://{host}:{port}"));
            }
            origins.push(format!("{scheme}://{address}"));
        }
        if let Ok(url) = settings.url.parse::<http::Uri>()
            && let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority())
        {
            origins.push(format!("{scheme}://{authority}"));
        }
        origins
    }

    /// Returns the names that requests may have in the header `Host`.
    pub(super) fn hosts(&self, settings: &Serve) -> Vec<String> {
        let mut hosts: Vec<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if let Self::Tcp(address) = self
            && !address.ip().is_unspecified()
        {
            hosts.push(address.ip().to_string());
        }
        hosts.extend(authority(&settings.url));
        hosts
    }
}

fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_address_is_loopback_or_a_socket() {
        let tcp = |text: &str| match text.parse() {
            Ok(ListenAddress::Tcp(address)) => address.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(tcp("8000"), "127.0.0.1:8000");
        assert_eq!(tcp("localhost:0"), "127.0.0.1:0");
        assert_eq!(tcp("[::1]:80"), "[::1]:80");
        assert_eq!("unix:/run/toolhold".parse(), Ok(ListenAddress::Unix("/run/toolhold".into())));
        for wrong in [
            "",
            "unix:",
            "unix:run",
            "example.com:80",
            "127.0.0.1",
            ":80",
            "70000",
            "http://127.0.0.1:80",
        ] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_machines_need_a_host_name_and_tls() {
        let named = Serve { url: "https://toolhold.example.com".to_owned(), ..Serve::default() };
        for (place, settings, tls, right) in [
            ("8000", Serve::default(), false, true),
            ("[::ffff:127.0.0.1]:8000", Serve::default(), false, true),
            ("0.0.0.0:8000", Serve::default(), false, false),
            ("0.0.0.0:8000", Serve::default(), true, false),
            ("[::]:8000", named.clone(), false, false),
            ("192.168.1.2:8000", named.clone(), true, true),
            ("192.168.1.2:8000", Serve { plain_http: true, ..named.clone() }, false, true),
        ] {
            let place: ListenAddress = place.parse().expect("is a place");
            assert_eq!(place.check(&settings, tls).is_ok(), right, "{place} {settings:?} {tls}");
        }
    }
}
