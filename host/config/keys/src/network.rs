//! `[network]`: the proxy and the certificate authorities of requests.

use std::net::IpAddr;

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_policy::egress::HostPattern;

use crate::hosts::host_grant;
use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};

// A project's file can't set these keys, because a proxy or an authority can read all requests.
section! {
    /// The proxy and the certificate authorities for the requests of plugins and of Toolhold
    /// itself.
    #[derive(Eq)]
    pub struct Network {
        /// The proxy for requests, for example `"http://proxy.example.com:3128"`. `""` means no
        /// proxy. If absent, `HTTPS_PROXY` or `ALL_PROXY` of your environment is used. Set a proxy
        /// with a password in these variables.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["http://proxy.example.com:3128"]))]
        pub proxy: Option<WrittenProxy>, Narrowing::Ignored;
        /// Hosts that are reached without the proxy: names (including all names below them),
        /// addresses and ranges. If absent, `NO_PROXY` is used.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = [["localhost", "10.0.0.0/8"]]))]
        pub no_proxy: Option<Vec<WithoutProxy>>, Narrowing::Ignored;
        /// Whether the proxy resolves names that this machine can't resolve. The addresses of these
        /// names aren't checked.
        pub proxy_resolves: bool, Narrowing::OnlyFalse;
        /// PEM files with certificates of authorities. These authorities are trusted in addition to
        /// the system's authorities. A relative path starts at the folder of the `toolhold.toml`
        /// that names it.
        #[schemars(extend("examples" = [["~/company-ca.pem"]]))]
        pub authorities: Vec<String>, Narrowing::Ignored;
    }
}

/// The address of a proxy: `http://host:port`. An empty text means no proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenProxy(String);

as_written!(WrittenProxy);

impl<'de> Deserialize<'de> for WrittenProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        if written.is_empty() {
            return Ok(Self(written));
        }
        // Messages and the output of `toolhold config show` must not contain a password.
        if written.contains('@') {
            return Err(serde::de::Error::custom(
                "this file can't contain a proxy's user name and password: remove the key, and set \
                 HTTPS_PROXY in the environment to the whole address",
            ));
        }
        if !is_http_address(&written) {
            return Err(serde::de::Error::custom(
                "takes the address of an HTTP proxy, as in \"http://proxy.example.com:3128\", or \"\" for none",
            ));
        }
        Ok(Self(written))
    }
}

fn is_http_address(text: &str) -> bool {
    let Some(address) = text.strip_prefix("http://") else { return false };
    let host = address.strip_suffix('/').unwrap_or(address);
    let Ok(grant) = host_grant(host) else { return false };
    grant.scheme.is_none() && !grant.host.as_str().contains('*')
}

inline_schema!(WrittenProxy, "Proxy", json_schema!({ "type": "string" }));

/// Hosts that are reached without the proxy: a name with all names below it, an address, a range,
/// or `*` for all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutProxy(String);

impl WithoutProxy {
    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether a text is a host, a range of addresses, or `*`.
    fn is_valid(written: &str) -> bool {
        if let Some((address, length)) = written.split_once('/') {
            return is_range(address, length);
        }
        if written == "*" || written.parse::<IpAddr>().is_ok() {
            return true;
        }
        // As in other programs, a leading dot changes nothing.
        let name = written.strip_prefix('.').unwrap_or(written);
        !written.contains(['*', '[']) && HostPattern::new(name).is_ok()
    }
}

impl<'de> Deserialize<'de> for WithoutProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        if !Self::is_valid(&written) {
            return Err(serde::de::Error::custom(
                "takes a list of hosts: \"example.com\" for that name and all names below it, an \
                 address, a range such as \"10.0.0.0/8\", or \"*\"",
            ));
        }
        Ok(Self(written))
    }
}

/// Checks whether a network such as `10.0.0.0/8` is valid. `length` is the number of bits that all
/// addresses of the network share.
fn is_range(address: &str, length: &str) -> bool {
    let address_bits = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= address_bits)
}

inline_schema!(WithoutProxy, "WithoutProxy", json_schema!({ "type": "string", "minLength": 1 }));
