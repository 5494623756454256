//! Authenticates callers over HTTP with the server's own token or with tokens of an authorization
//! server.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};
use toolhold_core::config::{Folders, Serve};
use toolhold_core::state;
use toolhold_core::text::{cut, neutral_line};
use toolhold_net::requests::OutboundClient;

use super::PATH;
use super::keys::{ALGORITHMS, Keys};
use crate::approver::FOLDER;
use crate::error::ServeError;

/// File of the server's own token in the folder of the MCP server.
const TOKEN: &str = "token";

/// File of the token for metrics only.
const METRICS_TOKEN: &str = "metrics-token";

/// Bytes of a token.
const MAX_TOKEN: usize = 16 << 10;

/// Bytes of a caller's name.
const NAME: usize = 200;

/// Allowed difference of clocks in seconds.
const LEEWAY: u64 = 60;

/// How callers are authenticated.
pub(super) enum Access {
    /// No authentication. Only the user who runs the server can connect.
    Anyone,
    /// The server's own token, compared by a keyed hash with a random key of this process.
    Token(Box<(hmac::Key, hmac::Tag)>),
    /// A token of an authorization server.
    OAuth(Box<Tokens>),
}

/// The tokens of an authorization server.
pub(super) struct Tokens {
    keys: Keys,
    issuer: String,
    audience: String,
    scope: String,
    /// The first caller, who owns the workspace. `None` if the workspace is shared.
    owner: Option<OnceLock<Arc<str>>>,
    /// The data that a client needs to get a token.
    metadata: Value,
    /// The address of the metadata.
    metadata_url: String,
}

/// The refusal of a caller: the message, and steps that the caller can try.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) why: String,
    pub(super) challenge: Option<HeaderValue>,
}

/// The claims of a token that are checked.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// The key of the token (RFC 7800). Only the owner of this key may use the token.
    #[serde(default)]
    cnf: Option<Value>,
    #[serde(default)]
    scope: Option<String>,
    /// The form that some servers use.
    #[serde(default)]
    scp: Option<Value>,
}

impl Access {
    /// Loads the server's own token. Also returns the token's file.
    ///
    /// # Errors
    ///
    /// Returns an error if the token can't be read or created.
    pub(super) fn token(folders: &Folders) -> Result<(Self, PathBuf), ServeError> {
        Self::load_or_make(folders, TOKEN)
    }

    /// Loads the token for metrics. This token allows no calls.
    ///
    /// # Errors
    ///
    /// Returns an error if the token can't be read or created.
    pub(super) fn metrics_token(folders: &Folders) -> Result<Self, ServeError> {
        Ok(Self::load_or_make(folders, METRICS_TOKEN)?.0)
    }

    fn load_or_make(folders: &Folders, name: &str) -> Result<(Self, PathBuf), ServeError> {
        let folder = folders.data.join(FOLDER);
        let token = state::secret(&folder, name)?;
        let random = ring::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| ServeError::Io {
            what: "making a key",
            error: std::io::Error::other("the system has no random bytes"),
        })?;
        let token = hmac::sign(&key, token.as_bytes());
        Ok((Self::Token(Box::new((key, token))), folder.join(name)))
    }

    /// Makes the access with tokens of the configured authorization server.
    ///
    /// # Errors
    ///
    /// A setting is missing or wrong, or the keys aren't available.
    pub(super) async fn oauth(settings: &Serve, door: &OutboundClient) -> Result<Self, ServeError> {
        let oauth = &settings.oauth;
        let url = settings.url.trim_end_matches('/');
        let resource = format!("{url}{PATH}");
        let scopes = if oauth.scope.is_empty() { Vec::new() } else { vec![&oauth.scope] };
        let metadata = json!({
            "resource": resource, "authorization_servers": [oauth.issuer], "scopes_supported": scopes,
            "bearer_methods_supported": ["header"], "resource_name": "Toolhold",
        });
        let audience = if oauth.audience.is_empty() { resource } else { oauth.audience.clone() };
        let owner = if settings.shared_workspace { None } else { Some(OnceLock::new()) };
        Ok(Self::OAuth(Box::new(Tokens {
            keys: Keys::new(&oauth.keys, door.clone()).await?,
            issuer: oauth.issuer.clone(),
            audience,
            scope: oauth.scope.clone(),
            owner,
            metadata,
            metadata_url: format!("{url}/.well-known/oauth-protected-resource{PATH}"),
        })))
    }

    /// Returns the metadata that says where to get tokens (RFC 9728). Returns `None` without an
    /// authorization server.
    pub(super) fn metadata(&self) -> Option<&Value> {
        match self {
            Self::OAuth(tokens) => Some(&tokens.metadata),
            Self::Anyone | Self::Token(_) => None,
        }
    }

    /// Authenticates the caller of a request. Returns the caller's name.
    ///
    /// # Errors
    ///
    /// The caller is refused.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Arc<str>, Refused> {
        match self {
            Self::Anyone => Ok("socket".into()),
            Self::Token(own) => {
                let (key, token) = &**own;
                let right =
                    "the server's token, from the file that the server named when it started";
                let Some(sent_token) = bearer(headers) else {
                    let why = format!("send `Authorization: Bearer TOKEN`, with {right}");
                    return Err(unauthorized(why, "Bearer"));
                };
                if hmac::verify(key, sent_token.as_bytes(), token.as_ref()).is_err() {
                    let why = format!("the token is not {right}");
                    return Err(unauthorized(why, "Bearer error=\"invalid_token\""));
                }
                Ok("token".into())
            }
            Self::OAuth(tokens) => tokens.caller(headers).await,
        }
    }
}

impl Tokens {
    /// Authenticates the caller of a request. Returns the caller's name.
    async fn caller(&self, headers: &HeaderMap) -> Result<Arc<str>, Refused> {
        let metadata = format!("resource_metadata=\"{}\"", self.metadata_url);
        let Some(token) = bearer(headers) else {
            let scope = if self.scope.is_empty() {
                String::new()
            } else {
                format!(", scope=\"{}\"", self.scope)
            };
            let why = format!(
                "send `Authorization: Bearer TOKEN`, with a token of {} for {}",
                self.issuer, self.audience
            );
            return Err(unauthorized(why, &format!("Bearer {metadata}{scope}")));
        };
        let claims = self.claims(token).await.map_err(|why| invalid(&metadata, why))?;
        if !self.scope.is_empty() && !claims.scopes().any(|scope| scope == self.scope) {
            let challenge = format!(
                "Bearer {metadata}, error=\"insufficient_scope\", scope=\"{}\"",
                self.scope
            );
            let why = format!("the token lacks the scope `{}`", self.scope);
            return Err(Refused {
                status: StatusCode::FORBIDDEN,
                why,
                challenge: HeaderValue::from_str(&challenge).ok(),
            });
        }
        let has_length = (1..=NAME).contains(&claims.sub.len());
        if !has_length || claims.sub.chars().any(char::is_control) {
            return Err(invalid(&metadata, "its `sub` isn't a name"));
        }

        // The caller's name is a part of a session's name, so two callers must not have the same
        // name. This includes callers of two issuers.
        let caller: Arc<str> = json!([self.issuer, claims.sub]).to_string().into();
        if let Some(owner) = &self.owner
            && *owner.get_or_init(|| Arc::clone(&caller)) != caller
        {
            return Err(another_caller());
        }
        Ok(caller)
    }

    /// Checks a token, and returns its claims.
    ///
    /// # Errors
    ///
    /// Returns the reason if the token isn't valid.
    async fn claims(&self, token: &str) -> Result<Claims, &'static str> {
        let header = decode_header(token).map_err(|_| "it isn't a JSON Web Token")?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("its signature algorithm isn't accepted");
        }
        // A token with critical extensions must be understood, and no extension is known here.
        if has_critical_header(token) {
            return Err("it has an unknown critical header");
        }
        let mut why = "it isn't signed with a key of the authorization server";
        let mut claims = None;
        for key in self.keys.get(header.kid.as_deref(), header.alg).await {
            match decode::<Claims>(token, &key, &self.validation(header.alg)) {
                Ok(token) => claims = Some(token.claims),
                Err(error) => why = reason(error.kind()),
            }
        }
        let claims = claims.ok_or(why)?;
        // The caller doesn't prove that it has the key.
        let is_dpop = header.typ.is_some_and(|typ| typ.to_ascii_lowercase().contains("dpop"));
        if is_dpop || claims.cnf.is_some() {
            return Err("it is bound to a key (`cnf`, DPoP), but only bearer tokens are accepted");
        }
        Ok(claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

impl Claims {
    fn scopes(&self) -> impl Iterator<Item = &str> {
        let listed = self.scp.iter().flat_map(|scp| match scp {
            Value::Array(scopes) => scopes.iter().filter_map(Value::as_str).collect(),
            Value::String(scopes) => scopes.split(' ').collect(),
            _ => Vec::new(),
        });
        self.scope.iter().flat_map(|scopes| scopes.split(' ')).chain(listed)
    }
}

/// Returns the token of a request. Returns `None` unless the request has exactly one valid token.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.trim();
    let has_length = (1..=MAX_TOKEN).contains(&token.len());
    if has_length && scheme.eq_ignore_ascii_case("bearer") { Some(token) } else { None }
}

/// Makes the refusal of a second caller. Without the refusal, all callers would read and write the
/// same files with the same rights.
fn another_caller() -> Refused {
    Refused {
        status: StatusCode::FORBIDDEN,
        why: "this server works in the directory of another user (`sub`), who came first; start a server for each user, or set `shared_workspace = true` in [serve] to let all users work in its directory".to_owned(),
        challenge: None,
    }
}

/// Makes the refusal of a token. `metadata` is the parameter of the challenge with the metadata's
/// address.
fn invalid(metadata: &str, why: &str) -> Refused {
    let challenge = format!("Bearer {metadata}, error=\"invalid_token\"");
    unauthorized(format!("the token is invalid: {why}"), &challenge)
}

fn unauthorized(why: String, challenge: &str) -> Refused {
    Refused {
        status: StatusCode::UNAUTHORIZED,
        why: neutral_line(cut(&why, 1000)),
        challenge: HeaderValue::from_str(challenge).ok(),
    }
}

/// Checks whether a token's header has `crit`. An unreadable header is refused elsewhere.
fn has_critical_header(token: &str) -> bool {
    let encoded = token.split('.').next().unwrap_or_default();
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(encoded) else { return false };
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(header) => header.get("crit").is_some(),
        Err(_) => false,
    }
}

/// Describes an error without text from the token.
fn reason(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidAudience => "it is for another server",
        ErrorKind::InvalidIssuer => "it is of another authorization server",
        ErrorKind::MissingRequiredClaim(_) => "it lacks `exp`, `iss`, `aud` or `sub`",
        ErrorKind::InvalidSignature => "its signature is wrong",
        _ => "it isn't a token of the authorization server",
    }
}

/// The response header for a challenge.
pub(super) const CHALLENGE: http::HeaderName = WWW_AUTHENTICATE;
