//! The keys of secrets: the source of each secret, and the requests that contain it. The
//! configuration itself contains no secret.

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

section! {
    /// A secret of commands. Commands see a placeholder instead of the secret.
    #[derive(Eq)]
    pub struct ShellSecret {
        /// The variable in which commands get the placeholder. Toolhold replaces the placeholder in
        /// the headers of requests to `hosts`, also in the user name and password of basic
        /// authentication.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("examples" = ["GH_TOKEN"]))]
        pub env: Option<VariableName>, Narrowing::Ignored;
        /// The source of the secret. If absent, the variable `env` of your environment.
        pub from: SecretOrigin, Narrowing::Table(SecretOrigin::RULES);
        /// The hosts that the secret is sent to, with TLS: `"api.example.com"`, `"*.example.com"`,
        /// or `"api.example.com:8443"`. At least one host is needed. `hosts` of `[tools.shell]` or
        /// an approval must also grant the host.
        pub hosts: Vec<WrittenSecretHost>, Narrowing::Ignored;
    }
}

section! {
    /// The source of a secret, which is one of `env`, `file` and `command`.
    #[derive(Eq)]
    pub struct SecretOrigin {
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
    }
}

impl From<&ShellSecret> for ServerSecret {
    fn from(secret: &ShellSecret) -> Self {
        let SecretOrigin { env, file, command } = secret.from.clone();
        let has_source = env.is_some() || !file.is_empty() || !command.is_empty();
        let env = if has_source { env } else { secret.env.clone() };
        Self { env, file, command, ..Self::default() }
    }
}

impl ShellSecret {
    /// Returns the rule for the requests with the secret.
    pub fn rule(&self, name: &str) -> Result<SecretRule, SecretHostError> {
        let hosts = self.hosts.iter().map(|host| SecretHost::new(host.as_str()));
        let variable = match &self.env {
            Some(variable) => variable.as_str().to_owned(),
            None => String::new(),
        };
        Ok(SecretRule {
            name: name.to_owned(),
            hosts: hosts.collect::<Result<_, _>>()?,
            methods: Vec::new(),
            paths: Vec::new(),
            placement: Placement::Placeholder { variable },
        })
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

    /// Returns the header with the secret, in lower case, and the text before the secret.
    pub fn placement(&self) -> (String, String) {
        let name = match &self.header {
            Some(header) => header.as_str().to_ascii_lowercase(),
            None => "authorization".to_owned(),
        };
        let prefix = match &self.prefix {
            Some(prefix) => prefix.as_str().to_owned(),
            None if name == "authorization" => "Bearer ".to_owned(),
            None => String::new(),
        };
        (name, prefix)
    }
}

/// A host to which a secret is sent, or `*.` and a name for all hosts below the name. The port is
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

/// Most bytes of a header's name, a prefix, a parameter's name and a path. A longer text is
/// refused.
const MAX_TEXT: usize = 128;

/// Headers that Toolhold sets itself.
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

/// Declares a string type that checks its text for one part of a request.
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
                // The value isn't shown, because it could be the secret itself.
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
    "takes the name of a header, as in \"Authorization\" or \"X-Api-Key\"; headers of the \
     transport, such as Connection, can't be set"
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
    "takes the start of a path, as in \"/repos\": letters, digits and signs, without `..`, `%` and \
     `?`"
);

impl Secret {
    /// Returns the header or the query parameter that carries the secret.
    pub fn placement(&self) -> Placement {
        if let Some(query) = &self.query {
            return Placement::Query { name: query.as_str().to_owned() };
        }
        let (name, prefix) = ServerSecret::from(self).placement();
        Placement::Header { name, prefix }
    }

    /// Returns the rule for the requests with the secret.
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

    /// Checks whether one request could carry both secrets in the same header or query parameter.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let have_same_place = match (self.placement(), other.placement()) {
            (Placement::Header { name, .. }, Placement::Header { name: other_name, .. }) => {
                name == other_name
            }
            (Placement::Query { name }, Placement::Query { name: other_name }) => {
                name == other_name
            }
            _ => false,
        };
        if !have_same_place {
            return false;
        }
        let have_common_host = any_pair(&self.hosts, &other.hosts, |own, other| {
            hosts_overlap(own.as_str(), other.as_str())
        });
        have_common_host && self.methods_overlap(other) && self.paths_overlap(other)
    }

    /// Checks whether both secrets may have the same method. An empty list means all methods.
    fn methods_overlap(&self, other: &Self) -> bool {
        self.methods.is_empty()
            || other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method))
    }

    /// Checks whether both secrets may have the same path. An empty list means all paths.
    fn paths_overlap(&self, other: &Self) -> bool {
        self.paths.is_empty()
            || other.paths.is_empty()
            || any_pair(&self.paths, &other.paths, |own, other| {
                is_below(own.as_str(), other.as_str()) || is_below(other.as_str(), own.as_str())
            })
    }
}

fn any_pair<T>(own_list: &[T], other_list: &[T], fits: fn(&T, &T) -> bool) -> bool {
    own_list.iter().any(|own| other_list.iter().any(|other| fits(own, other)))
}

/// Checks whether `path` is equal to `above` or below it, in whole segments.
fn is_below(path: &str, above: &str) -> bool {
    match path.strip_prefix(above.trim_end_matches('/')) {
        Some(below) => below.is_empty() || below.starts_with('/'),
        None => false,
    }
}

/// Checks whether a host could match both patterns. A `*` matches any text here, so the result may
/// be `true` for patterns that don't overlap.
fn hosts_overlap(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (SecretHost::new(one), SecretHost::new(other)) else {
        // An invalid host was refused before, and matches no request.
        return false;
    };
    if one.port() != other.port() {
        return false;
    }
    // The normal form of names is compared, because names may have letters of any language, or be
    // encoded.
    patterns_overlap(one.hosts().normal().as_bytes(), other.hosts().normal().as_bytes())
}

/// Checks whether a text could match both patterns.
fn patterns_overlap(one: &[u8], other: &[u8]) -> bool {
    // This is dynamic programming. `overlaps[n]` says whether the first `n` bytes of `one` overlap
    // the part of `other` that was read so far. At first, this part is empty.
    let mut overlaps = vec![true];
    for &letter in one {
        let shorter_overlaps = overlaps[overlaps.len() - 1];
        overlaps.push(letter == b'*' && shorter_overlaps);
    }
    for &other_letter in other {
        let mut next_overlaps = vec![other_letter == b'*' && overlaps[0]];
        for (index, &letter) in one.iter().enumerate() {
            let is_same_letter = overlaps[index] && letter == other_letter;
            // A `*` matches nothing, or another letter of the other pattern.
            let has_star = letter == b'*' || other_letter == b'*';
            let star_overlaps = next_overlaps[index] || overlaps[index + 1];
            next_overlaps.push(is_same_letter || (has_star && star_overlaps));
        }
        overlaps = next_overlaps;
    }
    overlaps[one.len()]
}

/// Checks whether a key is in a table of secrets. Messages don't show the values of these keys.
pub fn is_in_secrets(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let path = match &path[..] {
        ["principals", _, limited @ ..] => limited,
        path => path,
    };
    matches!(
        path,
        ["tools", "web" | "shell", "secrets", ..]
            | ["telemetry", "secrets", ..]
            | ["index", "qdrant", "secrets", ..]
            | ["plugins", _, "secrets", ..]
            | ["mcp", "servers", _, "secrets", ..]
            | ["providers", _, "secrets", ..]
            | ["mcp", "servers", _, "oauth", "secrets", ..]
    )
}
