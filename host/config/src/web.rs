//! Where requests to the network may go, and what is put into them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use berth_policy::egress::{Grant, HostPattern, PrivateHosts, Scheme};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::rule::{Rule, rules};
use super::{Bounded, Secret};

/// Where the built-in web tools reach, and what of an answer they take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Web {
    /// Whether there are web tools: `false` takes them out of the catalogue.
    pub enabled: bool,
    /// Hosts that are reached without asking, as in `"docs.rs"`, `"*.example.com"` for all names below one, or
    /// `"https://example.com:8443"`; a table can also say by which `methods`.
    pub allowed_domains: Vec<HostGrant>,
    /// Hosts that are never reached, by no plugin, whatever else is granted.
    pub denied_domains: Vec<WrittenHost>,
    /// What becomes of requests to other public hosts.
    pub other_domains: OtherDomains,
    /// Private hosts that are opened, as `"localhost:3000"`, an address or a range such as `"10.1.0.0/16"`, each with or without a port. They
    /// are reached without TLS, too.
    pub allowed_private_hosts: Vec<WrittenPrivateHosts>,
    /// Whether other hosts are reached by TLS alone.
    pub https_only: bool,
    /// Seconds of one request, to the end of its answer.
    pub timeout: Bounded<1, 3600>,
    /// KiB of the body of one answer; what is longer is cut off there.
    pub max_body_kib: Bounded<1, 1_048_576>,
    /// Hosts to which a request may carry what looks like a secret.
    pub credentials_to: Vec<WrittenHost>,
    /// Secrets that Berth puts into requests, by names of yours. No tool and no model sees one.
    pub secrets: BTreeMap<String, Secret>,
}

rules!(Web {
    enabled: Rule::OnlyFalse,
    allowed_domains: Rule::Covered(HostGrant::covers_written),
    denied_domains: Rule::Adds,
    other_domains: Rule::Stricter(&["deny", "ask", "allow"]),
    allowed_private_hosts: Rule::Covered(WrittenPrivateHosts::covers_written),
    https_only: Rule::OnlyTrue,
    timeout: Rule::Smaller,
    max_body_kib: Rule::Smaller,
    credentials_to: Rule::Covered(WrittenHost::covers_written),
    secrets: Rule::Named(Secret::RULES),
});

impl Default for Web {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_domains: Vec::new(),
            denied_domains: Vec::new(),
            other_domains: OtherDomains::default(),
            allowed_private_hosts: Vec::new(),
            https_only: true,
            timeout: Bounded::clamped(15),
            max_body_kib: Bounded::clamped(1024),
            credentials_to: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }
}

/// What becomes of requests to hosts that no list names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum OtherDomains {
    /// They are refused.
    Deny,
    /// A person is asked before the call.
    #[default]
    Ask,
    /// They are sent.
    Allow,
}

/// How requests of all plugins leave this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Network {
    /// The proxy that requests go through, as `"http://proxy.example.com:3128"`; `""` is none. Where the key is absent: what `HTTPS_PROXY` or
    /// `ALL_PROXY` say in your environment, where a proxy's password belongs too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["http://proxy.example.com:3128"]))]
    pub proxy: Option<WrittenProxy>,
    /// Hosts that are reached without the proxy: names, with everything below them, addresses and ranges. Where the key is absent: what
    /// `NO_PROXY` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = [["localhost", "10.0.0.0/8"]]))]
    pub no_proxy: Option<Vec<WithoutProxy>>,
    /// Whether the proxy looks names up, where this machine can't. What they resolve to isn't checked then.
    pub proxy_resolves: bool,
    /// PEM files with certificates of authorities that are believed beside those of the system. A relative path starts at the folder of the
    /// `berth.toml` that names it.
    #[schemars(extend("examples" = [["~/company-ca.pem"]]))]
    pub authorities: Vec<String>,
}

// Whoever chooses the proxy or an authority reads along.
rules!(Network { proxy: Rule::Ignored, no_proxy: Rule::Ignored, proxy_resolves: Rule::OnlyFalse, authorities: Rule::Ignored });

/// A host, or `*.` and a name for all below it, or `*` for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenHost(String);

impl WrittenHost {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, other: &Self) -> bool {
        matches!((HostPattern::new(&self.0), HostPattern::new(&other.0)), (Ok(one), Ok(other)) if one.covers(&other))
    }

    /// Whether one entry of a list stands for all that another does.
    pub(super) fn covers_written(one: &Value, other: &Value) -> bool {
        both(one, other, Self::covers)
    }
}

impl<'de> Deserialize<'de> for WrittenHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        HostPattern::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

impl JsonSchema for WrittenHost {
    fn schema_name() -> Cow<'static, str> {
        "Host".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// Private hosts: a name, an address or a range, each with or without a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenPrivateHosts(String);

impl WrittenPrivateHosts {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether one entry of a list opens all that another does.
    pub(super) fn covers_written(one: &Value, other: &Value) -> bool {
        both(
            one,
            other,
            |one: &Self, other| matches!((PrivateHosts::new(&one.0), PrivateHosts::new(&other.0)), (Ok(one), Ok(other)) if one.covers(&other)),
        )
    }
}

impl<'de> Deserialize<'de> for WrittenPrivateHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        PrivateHosts::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

impl JsonSchema for WrittenPrivateHosts {
    fn schema_name() -> Cow<'static, str> {
        "PrivateHosts".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// The method of a request, in upper case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Method(String);

impl Method {
    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Bytes of a method's name.
const MAX_METHOD: usize = 32;

/// The methods that are registered for HTTP and for WebDAV, and the one that caches know.
const METHODS: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "SUBSCRIBE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let method = String::deserialize(deserializer)?.to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(serde::de::Error::custom(
                "a method is one such as \"GET\" or \"POST\", or one of WebDAV; CONNECT and TRACE are sent for nobody",
            ));
        }
        Ok(Self(method))
    }
}

impl JsonSchema for Method {
    fn schema_name() -> Cow<'static, str> {
        "Method".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_METHOD })
    }
}

/// How a request is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum UrlScheme {
    /// By TLS.
    Https,
    /// In the open.
    Http,
}

impl UrlScheme {
    fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// Requests that are granted: `"example.com"`, `"https://*.example.com:8443"`, or a table that also says by which methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGrant {
    /// Which hosts.
    pub host: WrittenHost,
    /// How they are reached; where absent, by https.
    pub scheme: Option<UrlScheme>,
    /// On which port; where absent, on the scheme's own.
    pub port: Option<u16>,
    /// By which methods; where empty, by all.
    pub methods: Vec<Method>,
}

impl HostGrant {
    /// Whether one entry of a list grants all that another does.
    pub(super) fn covers_written(one: &Value, other: &Value) -> bool {
        both(one, other, |one: &Self, other| {
            // One without a scheme doesn't stand for http: that is what it takes to be reached in the open.
            let scheme = one.scheme == other.scheme || one.scheme.is_none() && other.scheme == Some(UrlScheme::Https);
            let methods =
                one.methods.is_empty() || !other.methods.is_empty() && other.methods.iter().all(|method| one.methods.contains(method));
            one.host.covers(&other.host) && scheme && one.port == other.port && methods
        })
    }
}

/// Compares two entries as what they are. What can't be read covers nothing.
fn both<'de, T: Deserialize<'de>>(one: &'de Value, other: &'de Value, covers: impl FnOnce(&T, &T) -> bool) -> bool {
    matches!((T::deserialize(one), T::deserialize(other)), (Ok(one), Ok(other)) if covers(&one, &other))
}

/// Hosts, and how they are reached.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Long {
    /// Which hosts.
    host: WrittenHost,
    /// How they are reached; where absent, by https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheme: Option<UrlScheme>,
    /// On which port; where absent, on the scheme's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<Bounded<1, 65_535>>,
    /// By which methods; where absent, by all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    methods: Vec<Method>,
}

impl<'de> Deserialize<'de> for HostGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = HostGrant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host, as in \"api.example.com\", or { host = \"…\", methods = [\"GET\"] }")
            }

            fn visit_str<E: serde::de::Error>(self, written: &str) -> Result<HostGrant, E> {
                short(written).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HostGrant, A::Error> {
                let Long { host, scheme, port, methods } = Long::deserialize(MapAccessDeserializer::new(map))?;
                let port = port.and_then(|port| u16::try_from(port.get()).ok());
                Ok(HostGrant { host, scheme, port, methods })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Reads `[scheme://]host[:port]`.
fn short(written: &str) -> Result<HostGrant, String> {
    let Grant { hosts, scheme, port, .. } = Grant::new(written)?;
    let scheme = scheme.map(|scheme| match scheme {
        Scheme::Https => UrlScheme::Https,
        Scheme::Http => UrlScheme::Http,
    });
    Ok(HostGrant { host: WrittenHost(hosts.as_str().to_owned()), scheme, port, methods: Vec::new() })
}

/// As it is written where no methods are said.
impl fmt::Display for HostGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.as_str())?;
        }
        let host = self.host.as_str();
        let bare_v6 = host.contains(':') && !host.starts_with('[');
        match self.port {
            Some(port) if bare_v6 => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(host),
        }
    }
}

impl Serialize for HostGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.methods.is_empty() {
            return serializer.collect_str(self);
        }
        let port = self.port.map(|port| Bounded::clamped(port.into()));
        Long { host: self.host.clone(), scheme: self.scheme, port, methods: self.methods.clone() }.serialize(serializer)
    }
}

impl JsonSchema for HostGrant {
    fn schema_name() -> Cow<'static, str> {
        "HostGrant".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<Long>();
        json_schema!({
            "description": "Hosts: a name, `*.` and a name for all below it, an address, each with or without a scheme and a port.",
            "anyOf": [{ "type": "string", "minLength": 1 }, long],
        })
    }
}

/// The address of a proxy: `http://host:port`. Empty: none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenProxy(String);

impl WrittenProxy {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for WrittenProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        if written.is_empty() {
            return Ok(Self(written));
        }
        // A password mustn't be found in a message, nor stay in a file that is shown.
        if written.contains('@') {
            return Err(serde::de::Error::custom(
                "a proxy's name and password don't stand in this file; leave the key out, and set HTTPS_PROXY in the environment to the whole address",
            ));
        }
        let host = written.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let good = host.and_then(|host| short(host).ok()).filter(|grant| grant.scheme.is_none() && !grant.host.as_str().contains('*'));
        if good.is_none() {
            return Err(serde::de::Error::custom(
                "takes the address of an HTTP proxy, as in \"http://proxy.example.com:3128\", or \"\" for none",
            ));
        }
        Ok(Self(written))
    }
}

impl JsonSchema for WrittenProxy {
    fn schema_name() -> Cow<'static, str> {
        "Proxy".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Hosts that are reached without the proxy: a name with everything below it, an address, a range, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutProxy(String);

impl WithoutProxy {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_one(written: &str) -> bool {
        let is_range = |(address, length): (&str, &str)| {
            let most = match address.parse() {
                Ok(IpAddr::V4(_)) => 32,
                Ok(IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.parse::<u8>().is_ok_and(|length| length <= most)
        };
        match written.split_once('/') {
            Some(range) => is_range(range),
            None if written == "*" || written.parse::<IpAddr>().is_ok() => true,
            None => !written.contains(['*', '[']) && HostPattern::new(written.strip_prefix('.').unwrap_or(written)).is_ok(),
        }
    }
}

impl<'de> Deserialize<'de> for WithoutProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        if !Self::is_one(&written) {
            return Err(serde::de::Error::custom(
                "takes hosts, each by itself: \"example.com\" for that name and all below it, an address, a range as \"10.0.0.0/8\", or \"*\"",
            ));
        }
        Ok(Self(written))
    }
}

impl JsonSchema for WithoutProxy {
    fn schema_name() -> Cow<'static, str> {
        "WithoutProxy".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}
