//! Stores, refreshes and removes the OAuth tokens of an upstream server. The tokens are sent only
//! to the server's URL.
//!
//! A library implements the protocol: discovery, registration, PKCE and refreshing. Each request
//! uses the door. Private addresses are possible only for origins that the operator named.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialRefreshGuard,
    CredentialStore, OAuthClientConfig, OAuthHttpClient, OAuthHttpClientError,
    OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolhold_core::HostError;
use toolhold_core::config::{Folders, McpServer};
use toolhold_core::state;
use toolhold_core::text::{cut, neutral_line};
use toolhold_data_dir::PrivateFolder;
use toolhold_net::SecretValue;
use toolhold_net::requests::{
    Credential, OutboundClient, OutboundError, Request, check_url, same_origin,
};
use url::Url;

use crate::gate::ConnectionEnd;

/// The purpose of the requests in the audit log.
const PURPOSE: &str = "mcp authorization";

/// The text between the origin and the path of an issuer in the first address for its metadata.
const METADATA: &str = "/.well-known/oauth-authorization-server";

/// The text in the address of OpenID's metadata. The text may also follow the path.
const OPENID: &str = "/.well-known/openid-configuration";

/// The obstacle to getting or using the tokens of a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OAuthError {
    #[error(transparent)]
    Url(#[from] OutboundError),
    #[error("{}", explain(.0))]
    Library(AuthError),
    #[error("it names no authorization server")]
    NoIssuer,
    #[error("{place} can't speak for the authorization server {issuer}")]
    MetadataElsewhere { place: String, issuer: String },
    #[error(
        "its authorization server is {issuer}; `issuer` in [mcp.servers.{name}.oauth] allows {expected}"
    )]
    OtherIssuer { issuer: String, name: String, expected: String },
    #[error("its page {0} isn't at https")]
    PageWithoutTls(String),
    #[error("the authorization server's token is empty")]
    EmptyToken,
    #[error("the authorization server's token has characters that no header may have")]
    InvalidToken,
}

impl From<AuthError> for OAuthError {
    fn from(error: AuthError) -> Self {
        Self::Library(error)
    }
}

/// The tokens of one server, in Toolhold's data folder. Tools have no access to this folder.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    folder: PathBuf,
    name: String,
    url: String,
}

/// The content of the file. The tokens are only valid for this URL.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct StoredTokens {
    url: String,
    credentials: Option<StoredCredentials>,
    way: Way,
}

/// The data about a login: how it found its authorization server, and the secret that it got from
/// that server. Refreshing the tokens needs both.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Way {
    /// The server's header about the authorization that it needs.
    pub(crate) challenge: Option<String>,
    /// The secret that Toolhold was registered with.
    pub(crate) client_secret: Option<String>,
}

impl TokenFile {
    /// Names the file of the server `name`.
    pub(crate) fn new(folders: &Folders, name: &str, url: &str) -> Self {
        let folder = folders.servers().join("tokens");
        Self { folder, name: name.to_owned(), url: url.to_owned() }
    }

    fn file(&self) -> String {
        format!("{}.json", self.name)
    }

    /// Checks whether there may be tokens.
    pub(crate) fn may_be(&self) -> bool {
        state::exists(&self.folder, &self.file())
    }

    /// Reads the tokens for this URL. Blocks.
    ///
    /// # Errors
    ///
    /// The tokens can't be read.
    pub(crate) fn read(&self) -> Result<Option<StoredCredentials>, HostError> {
        Ok(self.read_stored()?.credentials)
    }

    /// Checks whether a login at this URL got tokens that no longer exist. Blocks.
    pub(crate) fn is_logged_out(&self) -> bool {
        if !self.may_be() {
            return false;
        }
        match state::read::<StoredTokens>(&self.folder, &self.file()) {
            Ok(stored) => stored.url == self.url && stored.credentials.is_none(),
            Err(_) => false,
        }
    }

    /// Reads the content of the file. The content for another URL is ignored.
    fn read_stored(&self) -> Result<StoredTokens, HostError> {
        let stored: StoredTokens = state::read(&self.folder, &self.file())?;
        Ok(if stored.url == self.url { stored } else { StoredTokens::default() })
    }

    /// Replaces the tokens. Blocks.
    ///
    /// # Errors
    ///
    /// The tokens can't be written.
    pub(crate) fn write(&self, credentials: Option<StoredCredentials>) -> Result<(), HostError> {
        if credentials.is_none() && !self.may_be() {
            return Ok(());
        }
        state::update(&self.folder, &self.file(), |stored: &mut StoredTokens| {
            let keeps_way = credentials.is_some() && stored.url == self.url;
            let way = if keeps_way { std::mem::take(&mut stored.way) } else { Way::default() };
            *stored = StoredTokens { url: self.url.clone(), credentials, way };
            Ok(())
        })
    }

    /// Stores how a login got the tokens that are in the file. Blocks.
    ///
    /// # Errors
    ///
    /// The file can't be written.
    pub(crate) fn write_way(&self, way: Way) -> Result<(), HostError> {
        state::update(&self.folder, &self.file(), |stored: &mut StoredTokens| {
            stored.way = way;
            Ok(())
        })
    }

    /// Runs blocking work on a thread for blocking work.
    async fn blocking<T: Send + 'static, E: std::error::Error + Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, AuthError> {
        let file = self.clone();
        let result = tokio::task::spawn_blocking(move || work(file)).await;
        result.map_err(store_error)?.map_err(store_error)
    }
}

/// Converts an error of the credential store to the library's form.
fn store_error(error: impl std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.blocking(|file| file.read()).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let tokens = serde_json::to_value(&credentials.token_response).map_err(store_error)?;
        if let Some(token) = tokens["access_token"].as_str() {
            check_token(token).map_err(store_error)?;
        }
        self.blocking(|file| file.write(Some(credentials))).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.blocking(|file| file.write(None)).await
    }

    /// Allows only one host to refresh at a time. If two hosts used the same refresh token, one
    /// host would lose the tokens.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = self.blocking(|file| {
            PrivateFolder::make(&file.folder)?.lock(&format!("{}.refresh", file.name))
        });
        Ok(Some(CredentialRefreshGuard::new(lock.await?)))
    }
}

/// Checks that a token can be sent in a header.
///
/// # Errors
///
/// The token can't be sent in a header, for people.
fn check_token(token: &str) -> Result<HeaderValue, OAuthError> {
    if token.is_empty() {
        return Err(OAuthError::EmptyToken);
    }
    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| OAuthError::InvalidToken)
}

/// Sends the requests of the library through the door.
struct DoorClient {
    door: OutboundClient,
    /// The name of the server's table.
    name: String,
    /// The URLs in the configuration.
    named: Vec<Url>,
    /// The URL of the last request.
    last_url: Arc<Mutex<String>>,
}

impl DoorClient {
    /// Returns the reason why a request failed. If only a key of the configuration is missing, the
    /// reason names the key.
    fn failed(&self, url: &str, error: &OutboundError) -> OAuthHttpClientError {
        let mut why = error.to_string();
        if error.is_unnamed() && url.contains(METADATA) {
            let issuer = json!(url.replacen(METADATA, "", 1));
            let name = &self.name;
            why += &format!(
                " If it is your authorization server, write `issuer = {issuer}` into [mcp.servers.{name}.oauth]"
            );
        }
        OAuthHttpClientError::from(why)
    }
}

impl OAuthHttpClient for DoorClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let OAuthHttpRequest { request, redirect_policy, .. } = request;
            let (parts, body) = request.into_parts();
            let url = parts.uri.to_string();
            self.last_url.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&url);
            let named: Vec<&Url> = self.named.iter().collect();
            let mut outbound = Request::chosen_by_server(PURPOSE, parts.method, &url, &named)
                .map_err(|error| self.failed(&url, &error))?
                .body(body);
            for (name, value) in &parts.headers {
                outbound = match name {
                    // Redirects don't take the header elsewhere.
                    &AUTHORIZATION => {
                        let credential = Credential::new(outbound.url(), value.clone());
                        outbound.credential(Some(credential))
                    }
                    // The door sets these headers.
                    &ACCEPT_ENCODING | &HOST => outbound,
                    name => outbound.header(name.clone(), value.clone()),
                };
            }
            if redirect_policy == OAuthHttpRedirectPolicy::Stop {
                outbound = outbound.stay();
            }

            let result = self.door.send(outbound).await;
            let answer = result.map_err(|error| self.failed(&url, &error))?;
            let status = answer.status();
            let headers = answer.headers().clone();
            let bytes = answer.bytes(&|_, _| ()).await;
            let body = bytes.map_err(|error| self.failed(&url, &error))?;
            let mut response = http::Response::new(body);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok(response)
        })
    }
}

/// Removes the tokens of a server and the data about its login. Blocks.
///
/// # Errors
///
/// Returns an error if the tokens can't be removed.
pub fn forget_tokens(folders: &Folders, name: &str, url: &str) -> Result<(), HostError> {
    TokenFile::new(folders, name, url).write(None)
}

/// Finds the authorization server of a server with the help of the server's header about
/// authorization. Returns the library's manager for the authorization server, and the metadata.
///
/// # Errors
///
/// Returns an error for people if the server names no authorization server, or not the configured
/// one.
pub(crate) async fn find_issuer(
    door: OutboundClient,
    name: &str,
    server: &McpServer,
    tokens: TokenFile,
    challenge: Option<&str>,
) -> Result<(AuthorizationManager, AuthorizationMetadata), OAuthError> {
    let mut named = Vec::new();
    for url in [&server.url, &server.oauth.issuer] {
        if !url.is_empty() {
            named.push(check_url(url)?);
        }
    }
    let last_url = Arc::new(Mutex::new(String::new()));
    let client = Arc::new(DoorClient {
        door,
        name: name.to_owned(),
        named,
        last_url: Arc::clone(&last_url),
    });
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(server.url.as_str(), client).await?;
    manager.set_credential_store(tokens);

    let resolved = manager.resolve_metadata_from_challenge(challenge).await?;
    // Other metadata is a guess at the server's own origin. That origin would then get data for
    // another server.
    if !resolved.source.is_discovered() {
        return Err(OAuthError::NoIssuer);
    }
    let issuer = resolved.metadata.issuer.as_deref().unwrap_or_default();
    let place = last_url.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The library trusts metadata at other URLs for any issuer that it names.
    if !may_speak_for(&place, issuer) {
        let issuer = neutral_line(cut(issuer, 200));
        let place = neutral_line(cut(&place, 200));
        return Err(OAuthError::MetadataElsewhere { place, issuer });
    }
    let expected = &server.oauth.issuer;
    if !expected.is_empty() && issuer.trim_end_matches('/') != expected.trim_end_matches('/') {
        let issuer = neutral_line(cut(issuer, 200));
        let name = name.to_owned();
        return Err(OAuthError::OtherIssuer { issuer, name, expected: expected.clone() });
    }
    manager.set_metadata(resolved.metadata.clone());
    Ok((manager, resolved.metadata))
}

/// Checks whether metadata at this URL may belong to the issuer. The URL must be one of the URLs
/// for the issuer's metadata.
fn may_speak_for(place: &str, issuer: &str) -> bool {
    let (Ok(place), Ok(issuer)) = (Url::parse(place), Url::parse(issuer)) else { return false };
    let path = issuer.path().trim_end_matches('/');
    let metadata_paths = [
        METADATA.to_owned(),
        format!("{METADATA}{path}"),
        format!("{OPENID}{path}"),
        format!("{path}{OPENID}"),
    ];
    same_origin(&place, &issuer)
        && place.query().is_none()
        && metadata_paths.iter().any(|known| known == place.path())
}

/// The tokens of a login. They are refreshed after they expire.
pub(crate) struct Tokens {
    manager: AuthorizationManager,
    file: TokenFile,
    /// Whether the tokens were refreshed before they expired.
    is_refreshed: AtomicBool,
}

impl Tokens {
    /// Loads the tokens from the file. Returns `None` if the file has no tokens for this URL.
    /// `secret` is the configured secret for the authorization server.
    ///
    /// # Errors
    ///
    /// Returns an error for people if the authorization server can't be asked.
    pub(crate) async fn load(
        door: OutboundClient,
        name: &str,
        server: &McpServer,
        file: TokenFile,
        secret: Option<Arc<SecretValue>>,
    ) -> Result<Option<Self>, OAuthError> {
        let StoredTokens { credentials, way, .. } =
            file.blocking(|file| file.read_stored()).await?;
        let Some(credentials) = credentials else { return Ok(None) };
        let challenge = way.challenge.as_deref();
        let (mut manager, _) = find_issuer(door, name, server, file.clone(), challenge).await?;
        // Tokens of another issuer are forgotten here.
        if !manager.initialize_from_store().await? {
            return Ok(None);
        }
        let client_secret = match secret {
            Some(secret) => Some(secret.expose().to_owned()),
            None => way.client_secret,
        };
        if let Some(secret) = client_secret {
            let client = OAuthClientConfig::new(credentials.client_id, server.url.clone())
                .with_client_secret(secret);
            manager.configure_client(client)?;
        }
        Ok(Some(Self { manager, file, is_refreshed: AtomicBool::new(false) }))
    }

    /// Returns the known scopes of the tokens.
    pub(crate) async fn scopes(&self) -> Vec<String> {
        match self.file.load().await {
            Ok(Some(credentials)) => credentials.granted_scopes,
            _ => Vec::new(),
        }
    }

    /// Returns the value of the header `Authorization`. Refreshes a token that has expired.
    ///
    /// # Errors
    ///
    /// Returns an error for people if there is no longer a token.
    pub(crate) async fn current(&self, ended: &ConnectionEnd) -> Result<HeaderValue, OAuthError> {
        let token = self.manager.get_access_token().await?;
        let mut value = check_token(&token)?;
        value.set_sensitive(true);
        ended.add_secret("token", &Arc::new(SecretValue::new(token)));
        Ok(value)
    }

    /// Refreshes the tokens before they expire, but only once. Returns whether the tokens are new.
    pub(crate) async fn refresh_early(&self) -> bool {
        let was_refreshed = self.is_refreshed.swap(true, Ordering::Relaxed);
        !was_refreshed && self.manager.refresh_token().await.is_ok()
    }
}

/// Formats an error and its causes for people.
fn explain(error: &AuthError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    neutral_line(cut(&text, 600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_counts_where_its_issuer_has_it() {
        for (place, issuer) in [
            ("https://a.example/.well-known/oauth-authorization-server", "https://a.example"),
            ("https://a.example/.well-known/oauth-authorization-server", "https://a.example/"),
            ("https://a.example/.well-known/openid-configuration", "https://a.example"),
            ("https://a.example/.well-known/oauth-authorization-server/t", "https://a.example/t"),
            ("https://a.example/.well-known/oauth-authorization-server", "https://a.example/t/"),
            ("https://a.example/.well-known/openid-configuration/t", "https://a.example/t"),
            ("https://a.example/t/.well-known/openid-configuration", "https://a.example/t"),
        ] {
            assert!(may_speak_for(place, issuer), "{place} for {issuer}");
        }
        for (place, issuer) in [
            ("https://b.example/.well-known/oauth-authorization-server", "https://a.example"),
            ("http://a.example/.well-known/oauth-authorization-server", "https://a.example"),
            ("https://a.example:8443/.well-known/oauth-authorization-server", "https://a.example"),
            ("https://a.example/x/.well-known/y", "https://a.example"),
            ("https://a.example/evil/.well-known/openid-configuration", "https://a.example/t"),
            ("https://a.example/.well-known/oauth-authorization-server/evil", "https://a.example"),
            ("https://a.example/.well-known/openid-configuration?x", "https://a.example"),
            ("https://a.example/.well-known/oauth-authorization-server", ""),
            ("", "https://a.example"),
        ] {
            assert!(!may_speak_for(place, issuer), "{place} for {issuer}");
        }
    }
}
