//! Authenticates HTTP callers with the server's token or with tokens of an authorization server.

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
use toolhold_core::config::{Folders, Serve, Who};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{HostError, state};
use toolhold_net::requests::OutboundClient;

use super::PATH;
use super::keys::{ALGORITHMS, Keys};
use super::local_tokens::{TokenChecker, TokenFault};
use crate::approver::FOLDER;
use crate::error::ServeError;

/// File with the server's token.
const TOKEN_FILE: &str = "token";

/// File with the token for `/metrics`.
const METRICS_TOKEN_FILE: &str = "metrics-token";

/// Maximum length of a token in bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Maximum length of a caller's name in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Maximum length of the reason of a refusal in bytes.
const MAX_REASON_BYTES: usize = 1000;

/// Allowed difference of clocks in seconds.
const MAX_CLOCK_DIFFERENCE: u64 = 60;

pub(super) enum Access {
    /// No authentication, because the socket's permissions admit only the user who runs the server.
    Anyone,
    /// The server's token. A keyed hash compares tokens, so that the time of a comparison reveals
    /// nothing.
    Token(Box<(hmac::Key, hmac::Tag)>),
    OAuth(Box<Tokens>),
}

/// Checks tokens of an authorization server.
pub(super) struct Tokens {
    keys: Keys,
    issuer: String,
    audience: String,
    scope: String,
    /// The first caller, who owns the workspace. `None` if callers share the workspace.
    owner: Option<OnceLock<Arc<str>>>,
    /// Shows clients where to get a token (RFC 9728).
    metadata: Value,
    metadata_url: String,
}

/// An authenticated caller.
#[derive(Debug)]
pub(super) enum Identity {
    /// The user who runs the server, by the name of this access.
    Local(Arc<str>),
    /// A caller with a token of an authorization server or of `toolhold token`.
    Principal {
        who: Who,
        /// Whether `toolhold token` limited the rights of the token.
        is_limited: bool,
    },
}

#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) why: String,
    pub(super) challenge: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// A key (RFC 7800). Only the owner of this key may use the token.
    #[serde(default)]
    cnf: Option<Value>,
    #[serde(default)]
    scope: Option<String>,
    /// Scopes in the form of some other authorization servers.
    #[serde(default)]
    scp: Option<Value>,
    #[serde(default)]
    groups: Option<Value>,
    /// Groups in the form of some other authorization servers.
    #[serde(default)]
    roles: Option<Value>,
    #[serde(default)]
    client_id: Option<Value>,
    /// The client in the form of OpenID Connect.
    #[serde(default)]
    azp: Option<Value>,
}

impl Identity {
    /// Returns the caller's unique name, for its sessions.
    pub(super) fn name(&self) -> Arc<str> {
        match self {
            Self::Local(name) => Arc::clone(name),
            Self::Principal { who, .. } => who.name().into(),
        }
    }

    /// Returns the caller, if it has a token of its own.
    pub(super) fn who(&self) -> Option<&Who> {
        match self {
            Self::Local(_) => None,
            Self::Principal { who, .. } => Some(who),
        }
    }
}

impl Access {
    /// Loads or creates the server's token. Also returns its file.
    pub(super) fn token(folders: &Folders) -> Result<(Self, PathBuf), ServeError> {
        Self::load_or_make(folders, TOKEN_FILE)
    }

    /// Loads or creates the token for `/metrics`, which allows no calls.
    pub(super) fn metrics_token(folders: &Folders) -> Result<Self, ServeError> {
        Ok(Self::load_or_make(folders, METRICS_TOKEN_FILE)?.0)
    }

    /// Loads or creates the token in the file `name`. Also returns the path of the file. The access
    /// contains a signature of the token, so that the time of a check reveals nothing.
    fn load_or_make(folders: &Folders, name: &str) -> Result<(Self, PathBuf), ServeError> {
        let folder = folders.data.join(FOLDER);
        let token = state::secret(&folder, name)?;
        let random = ring::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| ServeError::Io {
            what: "the key for checking tokens can't be created",
            error: std::io::Error::other("the system has no random bytes"),
        })?;
        let signature = hmac::sign(&key, token.as_bytes());
        Ok((Self::Token(Box::new((key, signature))), folder.join(name)))
    }

    /// Creates the access for the configured authorization server.
    ///
    /// # Errors
    ///
    /// Returns an error if the server's keys aren't available.
    pub(super) async fn oauth(
        settings: &Serve,
        outbound_client: &OutboundClient,
    ) -> Result<Self, ServeError> {
        let oauth = &settings.oauth;
        let url = settings.url.trim_end_matches('/');
        let resource = format!("{url}{PATH}");
        let scopes = if oauth.scope.is_empty() { Vec::new() } else { vec![&oauth.scope] };
        let metadata = json!({
            "resource": resource, "authorization_servers": [oauth.issuer], "scopes_supported": scopes,
            "bearer_methods_supported": ["header"], "resource_name": "Toolhold",
        });
        let audience = if oauth.audience.is_empty() { resource } else { oauth.audience.clone() };
        // In an unshared workspace, the first caller is the owner, and other callers are refused.
        let owner = if settings.shared_workspace { None } else { Some(OnceLock::new()) };
        Ok(Self::OAuth(Box::new(Tokens {
            keys: Keys::new(&oauth.keys, outbound_client.clone()).await?,
            issuer: oauth.issuer.clone(),
            audience,
            scope: oauth.scope.clone(),
            owner,
            metadata,
            metadata_url: format!("{url}/.well-known/oauth-protected-resource{PATH}"),
        })))
    }

    /// Returns the metadata for clients, or `None` without an authorization server.
    pub(super) fn metadata(&self) -> Option<&Value> {
        match self {
            Self::OAuth(tokens) => Some(&tokens.metadata),
            Self::Anyone | Self::Token(_) => None,
        }
    }

    /// Authenticates the caller of a request.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        match self {
            Self::Anyone => Ok(Identity::Local("socket".into())),
            Self::Token(key_and_signature) => {
                let (key, signature) = &**key_and_signature;
                let expected =
                    "the server's token, from the file that the server named at its start";
                let Some(sent_token) = bearer(headers) else {
                    let why = format!("send `Authorization: Bearer TOKEN`, with {expected}");
                    return Err(unauthorized(why, "Bearer"));
                };
                if hmac::verify(key, sent_token.as_bytes(), signature.as_ref()).is_err() {
                    let why = format!("the token is not {expected}");
                    return Err(unauthorized(why, "Bearer error=\"invalid_token\""));
                }
                Ok(Identity::Local("token".into()))
            }
            Self::OAuth(tokens) => {
                let who = tokens.caller(headers).await?;
                Ok(Identity::Principal { who, is_limited: false })
            }
        }
    }

    /// Refuses a second caller, if the callers have no hosts of their own and the first caller owns
    /// the workspace. Tokens of `toolhold token` are the operator's, who owns the workspace, too.
    pub(super) fn check_owner(&self, who: &Who) -> Result<(), Refused> {
        let Self::OAuth(tokens) = self else { return Ok(()) };
        if who.token.is_some() {
            return Ok(());
        }
        let Some(owner) = &tokens.owner else { return Ok(()) };
        let name: Arc<str> = who.name().into();
        if *owner.get_or_init(|| Arc::clone(&name)) == name {
            Ok(())
        } else {
            Err(another_caller())
        }
    }
}

/// Authenticates a caller by a token of `toolhold token`. Returns `None` for a request with another
/// token, or without a token.
pub(super) async fn caller_with_local_token(
    checker: &Arc<TokenChecker>,
    headers: &HeaderMap,
) -> Option<Result<Identity, Refused>> {
    let token = bearer(headers)?;
    if !TokenChecker::accepts(token) {
        return None;
    }
    let record = match checker.check(token).await {
        Ok(record) => record,
        Err(fault) => return Some(Err(refused_token(&fault))),
    };
    let is_limited = record.is_limited();
    Some(Ok(Identity::Principal { who: record.into_who(), is_limited }))
}

/// Creates the refusal of a token of `toolhold token`.
pub(super) fn refused_token(fault: &TokenFault) -> Refused {
    unauthorized(fault.to_string(), "Bearer error=\"invalid_token\"")
}

/// Creates the refusal of a caller that the operator denied.
pub(super) fn refused_caller(error: &HostError) -> Refused {
    let why = neutral_line(cut(&error.to_string(), MAX_REASON_BYTES));
    Refused { status: StatusCode::FORBIDDEN, why, challenge: None }
}

impl Tokens {
    async fn caller(&self, headers: &HeaderMap) -> Result<Who, Refused> {
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
        let has_valid_length = (1..=MAX_NAME_BYTES).contains(&claims.sub.len());
        if !has_valid_length || claims.sub.chars().any(char::is_control) {
            return Err(invalid(&metadata, "the token's `sub` isn't a name"));
        }

        Ok(claims.into_who(&self.issuer))
    }

    /// Checks a token. Returns its claims, or the reason why it is invalid.
    async fn claims(&self, token: &str) -> Result<Claims, &'static str> {
        let header = decode_header(token).map_err(|_| "the token isn't a JSON Web Token")?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("the token's signature algorithm isn't accepted");
        }
        // A token with an unknown critical header is invalid (RFC 7515), and this server knows no
        // critical headers.
        if has_critical_header(token) {
            return Err("the token has an unknown critical header");
        }
        let mut last_reason = "the token isn't signed with a key of the authorization server";
        let mut verified_claims = None;
        for key in self.keys.get(header.kid.as_deref(), header.alg).await {
            match decode::<Claims>(token, &key, &self.validation(header.alg)) {
                Ok(token) => verified_claims = Some(token.claims),
                Err(error) => last_reason = reason(error.kind()),
            }
        }
        let claims = verified_claims.ok_or(last_reason)?;
        // A token that is bound to a key may be used only by the owner of the key. This server
        // can't check who owns the key, so it refuses such tokens.
        let is_dpop = header.typ.is_some_and(|typ| typ.to_ascii_lowercase().contains("dpop"));
        if is_dpop || claims.cnf.is_some() {
            return Err("the token is bound to a key (`cnf`, DPoP), but only bearer tokens are \
                        accepted");
        }
        Ok(claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = MAX_CLOCK_DIFFERENCE;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

impl Claims {
    /// Returns the scopes in the claims `scope` and `scp`. Authorization servers use either claim.
    fn scopes(&self) -> impl Iterator<Item = &str> {
        let mut scopes: Vec<&str> = Vec::new();
        if let Some(scope) = &self.scope {
            scopes.extend(scope.split(' '));
        }
        match &self.scp {
            Some(Value::Array(scp)) => scopes.extend(scp.iter().filter_map(Value::as_str)),
            Some(Value::String(scp)) => scopes.extend(scp.split(' ')),
            _ => {}
        }
        scopes.into_iter()
    }

    fn into_who(self, issuer: &str) -> Who {
        let mut groups = strings(self.groups);
        groups.extend(strings(self.roles));
        // Two tokens with the same groups have the same rights, in any order.
        groups.sort_unstable();
        groups.dedup();
        // A claim with a client has one string.
        let mut clients = strings(self.client_id).into_iter().chain(strings(self.azp));
        let client = clients.next();
        Who { issuer: issuer.to_owned(), subject: self.sub, groups, client, token: None }
    }
}

/// Returns the strings of a claim that is a string or a list of strings.
fn strings(claim: Option<Value>) -> Vec<String> {
    let values = match claim {
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
        None => Vec::new(),
    };
    let mut strings = Vec::new();
    for value in values {
        if let Value::String(string) = value {
            strings.push(string);
        }
    }
    strings
}

/// Returns the token of a request, or `None` if the header `Authorization` is missing, invalid or
/// repeated.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, after_scheme) = value.split_once(' ')?;
    let token = after_scheme.trim();
    let has_valid_length = (1..=MAX_TOKEN_BYTES).contains(&token.len());
    if has_valid_length && scheme.eq_ignore_ascii_case("bearer") { Some(token) } else { None }
}

/// Creates the refusal of a second caller, who must not read or write the files of the first
/// caller.
fn another_caller() -> Refused {
    Refused {
        status: StatusCode::FORBIDDEN,
        why: "this server already works for another user (`sub`): write a table [principals.NAME] \
             with the rights of each user, or set `shared_workspace = true` in [serve] to let all \
             users work in the same directory"
            .to_owned(),
        challenge: None,
    }
}

/// Refuses a token. `metadata` is the challenge's parameter with the address of the metadata.
fn invalid(metadata: &str, why: &str) -> Refused {
    let challenge = format!("Bearer {metadata}, error=\"invalid_token\"");
    unauthorized(format!("the token is invalid: {why}"), &challenge)
}

fn unauthorized(why: String, challenge: &str) -> Refused {
    Refused {
        status: StatusCode::UNAUTHORIZED,
        why: neutral_line(cut(&why, MAX_REASON_BYTES)),
        challenge: HeaderValue::from_str(challenge).ok(),
    }
}

/// Checks whether a token's header has the field `crit`. The caller has already refused invalid
/// headers.
fn has_critical_header(token: &str) -> bool {
    let Some((encoded_header, _)) = token.split_once('.') else { return false };
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(encoded_header) else { return false };
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(header) => header.get("crit").is_some(),
        Err(_) => false,
    }
}

/// Describes an error. The text contains no part of the token.
fn reason(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidAudience => "the token is for another server",
        ErrorKind::InvalidIssuer => "the token is from another authorization server",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks `exp`, `iss`, `aud` or `sub`",
        ErrorKind::InvalidSignature => "the token's signature is wrong",
        _ => "the token isn't from the authorization server",
    }
}

/// The response header for [`Refused::challenge`].
pub(super) const CHALLENGE: http::HeaderName = WWW_AUTHENTICATE;
