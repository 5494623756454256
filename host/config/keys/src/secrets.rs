//! The keys of secrets for requests: the source of each secret, and the requests that contain it.
//! The configuration itself contains no secret.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_policy::egress::{Placement, SecretHost, SecretHostError, SecretRule};

use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};
use crate::{Method, VariableName};

// A secret's source and destination are in one table, so that they can be checked together.
section! {
    /// A secret: its source, which is one of `env`, `file` and `command`, and the requests that
    /// contain it.
    #[derive(Eq)]
    pub struct Secret {
        /// The variable of your environment with the secret.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["EXAMPLE_TOKEN"]))]
        pub env: Option<VariableName>, Narrowing::Ignored;
        /// The file that contains only the secret. `~` is the home directory. A relative path
        /// starts at the folder of the `toolhold.toml` that names it. No tool reads or writes the
        /// file.
        #[serde(skip_serializing_if = "String::is_empty")]
        #[schemars(extend("examples" = ["~/.config/example/token"]))]
        pub file: String, Narrowing::Ignored;
        /// The program that prints the secret, with its arguments: `["pass", "show", "example"]`.
        /// The program is started without a shell.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(extend("examples" = [["pass", "show", "example"]]))]
        pub command: Vec<String>, Narrowing::Ignored;
        /// The hosts that the secret is sent to: `"api.example.com"` and `"*.example.com"` with
        /// https on port 443, `"api.example.com:8443"` or `"localhost:3000"` on that port, or a URL
        /// such as `"http://127.0.0.1:3000"`. After a `*`, the name needs at least two parts. At
        /// least one host is needed.
        pub hosts: Vec<WrittenSecretHost>, Narrowing::Ignored;
        /// The methods of the requests that carry the secret. If empty, all.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(extend("examples" = [["GET"]]))]
        pub methods: Vec<Method>, Narrowing::Ignored;
        /// The prefixes of the requests' paths, in whole segments: `"/v1"` matches `/v1/items`, but
        /// not `/v10`. If empty, all paths match.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(extend("examples" = [["/v1"]]))]
        pub paths: Vec<PathPrefix>, Narrowing::Ignored;
        /// The header that carries the secret. If absent, `Authorization`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["X-Api-Key"]))]
        pub header: Option<HeaderName>, Narrowing::Ignored;
        /// The text before the secret in the header. If absent, `Bearer ` in `Authorization` and
        /// nothing in other headers.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["Token "]))]
        pub prefix: Option<Prefix>, Narrowing::Ignored;
        /// The query parameter that carries the secret, instead of a header.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["api_key"]))]
        pub query: Option<QueryName>, Narrowing::Ignored;
    }
}

section! {
    /// The secret of one server, from one of `env`, `file` and `command`. The secret is sent only
    /// to that server.
    #[derive(Eq)]
    pub struct ServerSecret {
        /// The variable of your environment with the secret.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["EXAMPLE_TOKEN"]))]
        pub env: Option<VariableName>, Narrowing::Ignored;
        /// The file that contains only the secret. `~` is the home directory. A relative path
        /// starts at the folder of the `toolhold.toml` that names it. No tool reads or writes the
        /// file.
        #[serde(skip_serializing_if = "String::is_empty")]
        #[schemars(extend("examples" = ["~/.config/example/token"]))]
        pub file: String, Narrowing::Ignored;
        /// The program that prints the secret, with its arguments: `["pass", "show", "example"]`.
        /// The program is started without a shell.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(extend("examples" = [["pass", "show", "example"]]))]
        pub command: Vec<String>, Narrowing::Ignored;
        /// The header that carries the secret. If absent, the header that the server expects.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["X-Api-Key"]))]
        pub header: Option<HeaderName>, Narrowing::Ignored;
        /// The text before the secret in the header. If absent, `Bearer ` in `Authorization` and
        /// nothing in other headers.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["Token "]))]
        pub prefix: Option<Prefix>, Narrowing::Ignored;
    }
}

impl From<&Secret> for ServerSecret {
    fn from(secret: &Secret) -> Self {
        let Secret { env, file, command, header, prefix, .. } = secret.clone();
        Self { env, file, command, header, prefix }
    }
}

impl ServerSecret {
    /// Returns the keys of the sources that are set.
    pub fn sources(&self) -> impl Iterator<Item = &'static str> {
        let sources = [
            ("env", self.env.is_some()),
            ("file", !self.file.is_empty()),
            ("command", !self.command.is_empty()),
        ];
        sources.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
    }

    /// Returns the header that carries the secret, in lower case, and the text before the secret.
    pub fn placement(&self) -> (String, String) {
        let name = match &self.header {
            Some(header) => header.as_str().to_ascii_lowercase(),
            None => "authorization".to_owned(),
        };
        let usual_prefix = if name == "authorization" { "Bearer " } else { "" };
        let prefix = self.prefix.as_ref().map_or(usual_prefix, Prefix::as_str).to_owned();
        (name, prefix)
    }
}

/// A host to which a secret is sent, or `*.` and a name for all hosts below that name. The port is
/// optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenSecretHost(String);

as_written!(WrittenSecretHost);

impl<'de> Deserialize<'de> for WrittenSecretHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        SecretHost::new(&written).map_err(serde::de::Error::custom)?;
        Ok(Self(written))
    }
}

inline_schema!(WrittenSecretHost, "SecretHost", json_schema!({ "type": "string", "minLength": 1 }));

/// Most characters of a header's name, of a prefix, of a parameter's name, and of a path.
const MAX_TEXT: usize = 128;

/// Headers of the transport, which Toolhold sets itself.
const CARRYING: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Declares a string type that checks whether its text is valid in one part of a request.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $fits:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct $name(String);

        as_written!($name);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let written = String::deserialize(deserializer)?;
                let fits: fn(&str) -> bool = $fits;
                // The error doesn't show the value, because the value could be the secret itself.
                if written.len() <= MAX_TEXT && fits(&written) { Ok(Self(written)) } else { Err(serde::de::Error::custom($expected)) }
            }
        }

        inline_schema!($name, stringify!($name), json_schema!({ "type": "string", "maxLength": MAX_TEXT }));
    };
}

text!(
    /// The name of a header.
    HeaderName,
    |name| !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        && !CARRYING.contains(&name.to_ascii_lowercase().as_str()),
    "takes the name of a header, as in \"Authorization\" or \"X-Api-Key\"; a header about the transport can't be set"
);

text!(
    /// The text before a secret in a header.
    Prefix,
    |prefix| prefix.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !prefix.starts_with(' '),
    "takes the text before the secret, as in \"Bearer \": letters, digits and signs"
);

text!(
    /// The name of a parameter of a URL's query.
    QueryName,
    |name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]".contains(&byte)),
    "takes the name of a parameter, as in \"api_key\""
);

text!(
    /// The beginning of a URL's path.
    PathPrefix,
    |path| path.starts_with('/')
        && path.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && !b"?#%\\\"<>".contains(&byte))
        && !path.split('/').any(|part| [".", ".."].contains(&part)),
    "takes the beginning of a path, as in \"/repos\": plain letters, digits and signs, without `..`, `%` and `?`"
);

impl Secret {
    /// Returns the place of the secret in a request.
    pub fn placement(&self) -> Placement {
        if let Some(query) = &self.query {
            return Placement::Query { name: query.as_str().to_owned() };
        }
        let (name, prefix) = ServerSecret::from(self).placement();
        Placement::Header { name, prefix }
    }

    /// Returns the rule for the requests that carry the secret.
    pub fn rule(&self, name: &str) -> Result<SecretRule, SecretHostError> {
        let hosts = self.hosts.iter().map(|host| SecretHost::new(host.as_str()));
        Ok(SecretRule {
            name: name.to_owned(),
            hosts: hosts.collect::<Result<_, _>>()?,
            methods: self.methods.iter().map(|method| method.as_str().to_owned()).collect(),
            paths: self.paths.iter().map(|path| path.as_str().to_owned()).collect(),
            placement: self.placement(),
        })
    }

    /// Checks whether one request could carry both secrets in the same place.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let have_same_place = match (self.placement(), other.placement()) {
            (Placement::Header { name, .. }, Placement::Header { name: other, .. }) => {
                name == other
            }
            (Placement::Query { name }, Placement::Query { name: other }) => name == other,
            _ => false,
        };
        have_same_place
            && any_pair(&self.hosts, &other.hosts, |one, other| {
                hosts_overlap(one.as_str(), other.as_str())
            })
            && self.methods_overlap(other)
            && self.paths_overlap(other)
    }

    /// Checks whether both secrets have a method in common. An empty list means all methods.
    fn methods_overlap(&self, other: &Self) -> bool {
        self.methods.is_empty()
            || other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method))
    }

    /// Checks whether one path could match both secrets. An empty list means all paths.
    fn paths_overlap(&self, other: &Self) -> bool {
        self.paths.is_empty()
            || other.paths.is_empty()
            || any_pair(&self.paths, &other.paths, |one, other| {
                is_below(one.as_str(), other.as_str()) || is_below(other.as_str(), one.as_str())
            })
    }
}

/// Checks whether `fits` is true for a pair of elements of the two lists.
fn any_pair<T>(one: &[T], other: &[T], fits: fn(&T, &T) -> bool) -> bool {
    one.iter().any(|one| other.iter().any(|other| fits(one, other)))
}

/// Checks whether `path` is equal to `above` or below it, in whole segments.
fn is_below(path: &str, above: &str) -> bool {
    match path.strip_prefix(above.trim_end_matches('/')) {
        Some(below) => below.is_empty() || below.starts_with('/'),
        None => false,
    }
}

/// Checks whether a host could match both patterns. A `*` matches any text here, so the answer may
/// be `true` for patterns that don't overlap.
fn hosts_overlap(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (SecretHost::new(one), SecretHost::new(other)) else { return false };
    if one.port() != other.port() {
        return false;
    }
    // Names are compared in their normal form, because a name may contain letters of any language,
    // or be encoded.
    let one_host = one.hosts().normal();
    let other_host = other.hosts().normal();
    let one = one_host.as_bytes();
    let other = other_host.as_bytes();
    // The list says for each prefix of `one`, by its length, whether the prefix overlaps the
    // current prefix of `other`. The prefix of `other` is empty at first.
    let mut overlaps = vec![true];
    for &letter in one {
        let shorter_overlaps = overlaps[overlaps.len() - 1];
        overlaps.push(letter == b'*' && shorter_overlaps);
    }
    for &other_letter in other {
        let mut next = vec![other_letter == b'*' && overlaps[0]];
        for (index, &letter) in one.iter().enumerate() {
            let is_same_letter = overlaps[index] && letter == other_letter;
            // A `*` matches nothing, or one more letter of the other pattern.
            let has_star = letter == b'*' || other_letter == b'*';
            let star_overlaps = next[index] || overlaps[index + 1];
            next.push(is_same_letter || (has_star && star_overlaps));
        }
        overlaps = next;
    }
    overlaps[one.len()]
}

/// Checks whether a key is in a table of secrets. Messages don't show the value of this key.
pub fn is_in_secrets(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path[..],
        ["tools", "web", "secrets", ..]
            | ["telemetry", "secrets", ..]
            | ["index", "qdrant", "secrets", ..]
            | ["plugins", _, "secrets", ..]
            | ["mcp", "servers", _, "secrets", ..]
            | ["providers", _, "secrets", ..]
            | ["mcp", "servers", _, "oauth", "secrets", ..]
    )
}
