//! The types of keys that are hosts, private hosts or methods of requests.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use toolhold_policy::egress::{
    Grant, HostGrantError, HostPattern, JOB, PathPattern, PrivateHosts, Scheme,
};

use crate::Bounded;
use crate::string_types::inline_schema;

/// A host, `*.` and a name for all hosts below the name, or `*` for any host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenHost(String);

impl WrittenHost {
    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, other: &Self) -> bool {
        match (HostPattern::new(&self.0), HostPattern::new(&other.0)) {
            (Ok(own), Ok(other)) => own.covers(&other),
            _ => false,
        }
    }

    /// Checks whether the entry `one` covers all hosts of the entry `other`.
    pub fn covers_written(one: &Value, other: &Value) -> bool {
        covers_value(one, other, Self::covers)
    }
}

impl<'de> Deserialize<'de> for WrittenHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        HostPattern::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

inline_schema!(WrittenHost, "Host", json_schema!({ "type": "string", "minLength": 1 }));

/// Private hosts: a name, an address or a range, each with or without a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenPrivateHosts(String);

impl WrittenPrivateHosts {
    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, other: &Self) -> bool {
        match (PrivateHosts::new(&self.0), PrivateHosts::new(&other.0)) {
            (Ok(own), Ok(other)) => own.covers(&other),
            _ => false,
        }
    }

    /// Checks whether the entry `one` grants all hosts of the entry `other`.
    pub fn covers_written(one: &Value, other: &Value) -> bool {
        covers_value(one, other, Self::covers)
    }
}

impl<'de> Deserialize<'de> for WrittenPrivateHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        PrivateHosts::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

inline_schema!(
    WrittenPrivateHosts,
    "PrivateHosts",
    json_schema!({ "type": "string", "minLength": 1 })
);

/// The method of a request, in upper case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Method(String);

impl Method {
    /// Returns the name of the method.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const MAX_METHOD: usize = 32;

/// The registered methods of HTTP and WebDAV, and `PURGE` of caches.
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
                "a method isn't valid; use a method of HTTP or WebDAV, as in \"GET\"; CONNECT and TRACE are never sent",
            ));
        }
        Ok(Self(method))
    }
}

inline_schema!(
    Method,
    "Method",
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_METHOD })
);

/// A pattern for the paths of requests: `/repos/*/issues`, or `/repos/me/**` for all paths below
/// `/repos/me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenPathPattern(String);

impl WrittenPathPattern {
    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn covers(&self, other: &Self) -> bool {
        match (PathPattern::new(&self.0), PathPattern::new(&other.0)) {
            (Ok(own), Ok(other)) => own.covers(&other),
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for WrittenPathPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        PathPattern::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

inline_schema!(
    WrittenPathPattern,
    "PathPattern",
    json_schema!({ "type": "string", "pattern": "^/" })
);

/// The scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum UrlScheme {
    /// With TLS.
    Https,
    /// Without TLS.
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

/// Granted requests: `"example.com"`, `"https://*.example.com:8443"`, or a table that also names
/// methods and paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGrant {
    /// The hosts.
    pub host: WrittenHost,
    /// The scheme. `None` means https.
    pub scheme: Option<UrlScheme>,
    /// The port. `None` means the scheme's default port.
    pub port: Option<u16>,
    /// The methods. If empty, all methods are granted.
    pub methods: Vec<Method>,
    /// The paths. If empty, all paths are granted.
    pub paths: Vec<WrittenPathPattern>,
}

impl HostGrant {
    /// Checks whether the entry `one` grants all requests of the entry `other`.
    pub fn covers_written(one: &Value, other: &Value) -> bool {
        covers_value(one, other, Self::covers)
    }

    /// Checks whether the entry is for the servers of the session's jobs.
    pub fn is_job(&self) -> bool {
        self.host.as_str() == JOB && self.scheme.is_none() && self.port.is_none()
    }

    /// Checks whether the entry grants all requests of another entry. No pattern covers the jobs of
    /// a session, because even `*` means only hosts of the network.
    fn covers(&self, other: &Self) -> bool {
        self.is_job() == other.is_job()
            && self.host.covers(&other.host)
            && self.port == other.port
            && self.covers_scheme(other.scheme)
            && self.covers_methods(&other.methods)
            && self.covers_paths(&other.paths)
    }

    /// Checks whether the entry covers a scheme. An entry without a scheme doesn't cover http:
    /// requests without TLS need an entry with `http://`.
    fn covers_scheme(&self, other: Option<UrlScheme>) -> bool {
        match self.scheme {
            None => other != Some(UrlScheme::Http),
            Some(_) => self.scheme == other,
        }
    }

    /// Checks whether the entry grants all methods of another entry. An empty list means all
    /// methods.
    fn covers_methods(&self, other: &[Method]) -> bool {
        if self.methods.is_empty() || other.is_empty() {
            return self.methods.is_empty();
        }
        other.iter().all(|method| self.methods.contains(method))
    }

    /// Checks whether the entry grants all paths of another entry. An empty list means all paths.
    fn covers_paths(&self, other: &[WrittenPathPattern]) -> bool {
        if self.paths.is_empty() || other.is_empty() {
            return self.paths.is_empty();
        }
        other.iter().all(|path| self.paths.iter().any(|own| own.covers(path)))
    }
}

/// Checks whether the entry `one` covers the entry `other`. An entry that can't be parsed covers
/// nothing.
fn covers_value<'de, T: Deserialize<'de>>(
    one: &'de Value,
    other: &'de Value,
    covers: fn(&T, &T) -> bool,
) -> bool {
    match (T::deserialize(one), T::deserialize(other)) {
        (Ok(one), Ok(other)) => covers(&one, &other),
        _ => false,
    }
}

/// A grant of requests as a table.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Long {
    /// The hosts.
    host: WrittenHost,
    /// The scheme. If absent, https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheme: Option<UrlScheme>,
    /// The port. If absent, the scheme's default port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<Bounded<1, 65_535>>,
    /// The methods. If absent, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    methods: Vec<Method>,
    /// The paths: `"/repos/*/issues"`, or `"/repos/me/**"` for all paths below. If absent, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<WrittenPathPattern>,
}

impl<'de> Deserialize<'de> for HostGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = HostGrant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a host, as in \"api.example.com\", or { host = \"…\", methods = [\"GET\"] }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, written: &str) -> Result<HostGrant, E> {
                host_grant(written).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HostGrant, A::Error> {
                let Long { host, scheme, port, methods, paths } =
                    Long::deserialize(MapAccessDeserializer::new(map))?;
                // The type of the key allows only ports, which fit into 16 bits.
                let port = port.and_then(|port| u16::try_from(port.get()).ok());
                let grant = HostGrant { host, scheme, port, methods, paths };
                if grant.is_job() && !(grant.methods.is_empty() && grant.paths.is_empty()) {
                    return Err(serde::de::Error::custom(
                        "the entry `job` takes no `methods` or `paths`; write \"job\" alone",
                    ));
                }
                Ok(grant)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

pub(crate) fn host_grant(written: &str) -> Result<HostGrant, HostGrantError> {
    let Grant { hosts, scheme, port, .. } = Grant::new(written)?;
    let scheme = scheme.map(|scheme| match scheme {
        Scheme::Https => UrlScheme::Https,
        Scheme::Http => UrlScheme::Http,
    });
    Ok(HostGrant {
        host: WrittenHost(hosts.as_str().to_owned()),
        scheme,
        port,
        methods: Vec::new(),
        paths: Vec::new(),
    })
}

/// Writes the grant without its methods and paths.
impl fmt::Display for HostGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.as_str())?;
        }
        let host = self.host.as_str();
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        match self.port {
            Some(port) if is_bare_v6 => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(host),
        }
    }
}

impl Serialize for HostGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.methods.is_empty() && self.paths.is_empty() {
            return serializer.collect_str(self);
        }
        // Each port is in the range of the key, so `clamped` doesn't change it.
        let port = self.port.map(|port| Bounded::clamped(port.into()));
        Long {
            host: self.host.clone(),
            scheme: self.scheme,
            port,
            methods: self.methods.clone(),
            paths: self.paths.clone(),
        }
        .serialize(serializer)
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
