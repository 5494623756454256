//! Stores, refreshes and removes the OAuth tokens of an upstream server.
//!
//! A library implements discovery, registration, PKCE and refreshing. Its requests go through the
//! host's outbound client, which blocks private addresses unless the configuration names the
//! origin.

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

use crate::gate::ConnectionState;

/// The purpose of the requests in the audit log.
const PURPOSE: &str = "mcp authorization";

/// Longest error with its causes in bytes. Longer errors are cut.
const MAX_ERROR_BYTES: usize = 600;

/// Longest address in an error in bytes. Longer addresses are cut.
const MAX_SHOWN_ADDRESS: usize = 200;

/// The path of an issuer's metadata. The issuer's own path may follow.
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";

/// The path of OpenID metadata. The issuer's own path may come before or after it.
const OPENID_PATH: &str = "/.well-known/openid-configuration";

#[derive(Debug, thiserror::Error)]
pub(crate) enum OAuthError {
    #[error(transparent)]
    Url(#[from] OutboundError),
    #[error("{}", explain(.0))]
    Library(AuthError),
    #[error("the server names no authorization server")]
    NoIssuer,
    #[error("{place} can't provide metadata for the authorization server {issuer}")]
    MetadataElsewhere { place: String, issuer: String },
    #[error(
        "the server's authorization server is {issuer}, but `issuer` in [mcp.servers.{name}.oauth] \
         is {expected}"
    )]
    OtherIssuer { issuer: String, name: String, expected: String },
    #[error("the login page {0} doesn't use https")]
    PageWithoutTls(String),
    #[error("the authorization server's token is empty")]
    EmptyToken,
    #[error("the authorization server's token has characters that headers don't allow")]
    InvalidToken,
}

impl From<AuthError> for OAuthError {
    fn from(error: AuthError) -> Self {
        Self::Library(error)
    }
}

/// The tokens of a server in Toolhold's data folder, which tools can't access.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    folder: PathBuf,
    name: String,
    url: String,
}

/// The content of the file. It is valid only for this URL.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct StoredTokens {
    url: String,
    credentials: Option<StoredCredentials>,
    #[serde(rename = "way")]
    login_details: LoginDetails,
}

/// What refreshing needs besides the tokens.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct LoginDetails {
    /// The server's header `WWW-Authenticate`, which led to the authorization server.
    pub(crate) challenge: Option<String>,
    /// The secret from the registration of Toolhold.
    pub(crate) client_secret: Option<String>,
}

impl TokenFile {
    pub(crate) fn new(folders: &Folders, name: &str, url: &str) -> Self {
        Self { folder: folders.server_tokens(), name: name.to_owned(), url: url.to_owned() }
    }

    fn file(&self) -> String {
        format!("{}.json", self.name)
    }

    /// Checks whether the file exists.
    pub(crate) fn is_present(&self) -> bool {
        state::exists(&self.folder, &self.file())
    }

    /// Reads the tokens. Blocks.
    pub(crate) fn read(&self) -> Result<Option<StoredCredentials>, HostError> {
        Ok(self.read_stored()?.credentials)
    }

    /// Returns whether the tokens of a login at this URL were removed. Returns `false` if the file
    /// can't be read. Blocks.
    pub(crate) fn is_logged_out(&self) -> bool {
        if !self.is_present() {
            return false;
        }
        match state::read::<StoredTokens>(&self.folder, &self.file()) {
            Ok(stored) => stored.url == self.url && stored.credentials.is_none(),
            Err(_) => false,
        }
    }

    /// Reads the file. The content for another URL is ignored.
    fn read_stored(&self) -> Result<StoredTokens, HostError> {
        let stored: StoredTokens = state::read(&self.folder, &self.file())?;
        Ok(if stored.url == self.url { stored } else { StoredTokens::default() })
    }

    /// Replaces the tokens, or removes the tokens if `credentials` is `None`. Blocks.
    pub(crate) fn write(&self, credentials: Option<StoredCredentials>) -> Result<(), HostError> {
        if credentials.is_none() && !self.is_present() {
            return Ok(());
        }
        state::update(&self.folder, &self.file(), |stored: &mut StoredTokens| {
            // A refresh keeps the details of the login. A new login writes its own details later.
            let keeps_details = credentials.is_some() && stored.url == self.url;
            let login_details = if keeps_details {
                std::mem::take(&mut stored.login_details)
            } else {
                LoginDetails::default()
            };
            *stored = StoredTokens { url: self.url.clone(), credentials, login_details };
            Ok(())
        })
    }

    /// Stores how a login got its tokens. Blocks.
    pub(crate) fn write_login_details(&self, login_details: LoginDetails) -> Result<(), HostError> {
        state::update(&self.folder, &self.file(), |stored: &mut StoredTokens| {
            stored.login_details = login_details;
            Ok(())
        })
    }

    /// Runs `work`, which reads or writes the file, on a thread that may block.
    async fn run_blocking<T: Send + 'static, E: std::error::Error + Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, AuthError> {
        let file = self.clone();
        let joined = tokio::task::spawn_blocking(move || work(file)).await;
        let result = joined.map_err(store_error)?;
        result.map_err(store_error)
    }
}

fn store_error(error: impl std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.run_blocking(|file| file.read()).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let tokens = serde_json::to_value(&credentials.token_response).map_err(store_error)?;
        if let Some(token) = tokens["access_token"].as_str() {
            check_token(token).map_err(store_error)?;
        }
        self.run_blocking(|file| file.write(Some(credentials))).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.run_blocking(|file| file.write(None)).await
    }

    /// Waits until no other host refreshes the tokens, and locks them. Many authorization servers
    /// revoke a refresh token that is used twice, so if two hosts used the same refresh token, both
    /// would lose the login.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = self.run_blocking(|file| {
            PrivateFolder::make(&file.folder)?.lock(&format!("{}.refresh", file.name))
        });
        Ok(Some(CredentialRefreshGuard::new(lock.await?)))
    }
}

/// Checks that a token can be sent in a header.
fn check_token(token: &str) -> Result<HeaderValue, OAuthError> {
    if token.is_empty() {
        return Err(OAuthError::EmptyToken);
    }
    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| OAuthError::InvalidToken)
}

/// Sends the library's requests through the host's outbound client.
struct DoorClient {
    outbound_client: OutboundClient,
    /// The name of the server's table.
    name: String,
    /// The URLs in the configuration.
    named: Vec<Url>,
    last_url: Arc<Mutex<String>>,
}

impl DoorClient {
    /// Makes the error of a failed request. If the outbound client denied the request because the
    /// configuration doesn't name the authorization server, the error names the missing setting.
    fn failed(&self, url: &str, error: &OutboundError) -> OAuthHttpClientError {
        let mut why = error.to_string();
        if error.is_unnamed() && url.contains(METADATA_PATH) {
            let issuer = json!(url.replacen(METADATA_PATH, "", 1));
            let name = &self.name;
            why += &format!(
                " If this is your authorization server, write `issuer = {issuer}` into \
                 [mcp.servers.{name}.oauth]"
            );
        }
        OAuthHttpClientError::from(why)
    }
}

impl OAuthHttpClient for DoorClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let OAuthHttpRequest { request: http_request, redirect_policy, .. } = request;
            let (parts, body) = http_request.into_parts();
            let url = parts.uri.to_string();
            self.last_url.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&url);
            let named: Vec<&Url> = self.named.iter().collect();
            let mut outbound = Request::chosen_by_server(PURPOSE, parts.method, &url, &named)
                .map_err(|error| self.failed(&url, &error))?
                .body(body);
            for (name, value) in &parts.headers {
                outbound = match name {
                    // A credential isn't sent to other origins after a redirect.
                    &AUTHORIZATION => {
                        let credential = Credential::new(outbound.url(), value.clone());
                        outbound.credential(Some(credential))
                    }
                    // Toolhold sets these headers itself.
                    &ACCEPT_ENCODING | &HOST => outbound,
                    name => outbound.header(name.clone(), value.clone()),
                };
            }
            if redirect_policy == OAuthHttpRedirectPolicy::Stop {
                outbound = outbound.stay();
            }

            let result = self.outbound_client.send(outbound).await;
            let answer = result.map_err(|error| self.failed(&url, &error))?;
            let status = answer.status();
            let headers = answer.headers().clone();
            // The progress isn't shown.
            let result = answer.bytes(&|_, _| ()).await;
            let body = result.map_err(|error| self.failed(&url, &error))?;

            let mut response = http::Response::new(body);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok(response)
        })
    }
}

/// Removes the tokens of a login at a server. Blocks.
///
/// # Errors
///
/// Returns an error if the file can't be written.
pub fn forget_tokens(folders: &Folders, name: &str, url: &str) -> Result<(), HostError> {
    TokenFile::new(folders, name, url).write(None)
}

/// Finds the authorization server, starting at the header in `challenge`. Returns the library's
/// manager and the metadata. Returns an error if the configuration names another authorization
/// server.
pub(crate) async fn find_issuer(
    outbound_client: OutboundClient,
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
        outbound_client,
        name: name.to_owned(),
        named,
        last_url: Arc::clone(&last_url),
    });
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(server.url.as_str(), client).await?;
    manager.set_credential_store(tokens);

    let resolved = manager.resolve_metadata_from_challenge(challenge).await?;
    // If the metadata wasn't discovered, it is a guess that the server's own origin is the
    // authorization server. Refuse it, because this origin would get the credentials for an
    // authorization server.
    if !resolved.source.is_discovered() {
        return Err(OAuthError::NoIssuer);
    }
    let issuer = resolved.metadata.issuer.as_deref().unwrap_or_default();
    let place = last_url.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The library accepts metadata at any URL for any issuer, so check that the URL belongs to the
    // issuer.
    if !is_metadata_url(&place, issuer) {
        let issuer = neutral_line(cut(issuer, MAX_SHOWN_ADDRESS));
        let place = neutral_line(cut(&place, MAX_SHOWN_ADDRESS));
        return Err(OAuthError::MetadataElsewhere { place, issuer });
    }
    let expected = &server.oauth.issuer;
    if !expected.is_empty() && issuer.trim_end_matches('/') != expected.trim_end_matches('/') {
        let issuer = neutral_line(cut(issuer, MAX_SHOWN_ADDRESS));
        let name = name.to_owned();
        return Err(OAuthError::OtherIssuer { issuer, name, expected: expected.clone() });
    }
    manager.set_metadata(resolved.metadata.clone());
    Ok((manager, resolved.metadata))
}

/// Returns whether `url` is one of the standard addresses of the metadata of `issuer`.
fn is_metadata_url(url: &str, issuer: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let Ok(issuer) = Url::parse(issuer) else { return false };
    let path = issuer.path().trim_end_matches('/');
    let metadata_paths = [
        METADATA_PATH.to_owned(),
        format!("{METADATA_PATH}{path}"),
        format!("{OPENID_PATH}{path}"),
        format!("{path}{OPENID_PATH}"),
    ];
    let has_metadata_path = metadata_paths.iter().any(|known_path| known_path == url.path());
    same_origin(&url, &issuer) && url.query().is_none() && has_metadata_path
}

/// The tokens of a login. Expired tokens are refreshed.
pub(crate) struct Tokens {
    manager: AuthorizationManager,
    file: TokenFile,
    /// Whether the tokens were refreshed early.
    is_refreshed: AtomicBool,
}

impl Tokens {
    /// Loads the tokens of a login. Returns `None` if there are no tokens for the server's issuer.
    /// `secret` is the configured secret for the authorization server.
    pub(crate) async fn load(
        outbound_client: OutboundClient,
        name: &str,
        server: &McpServer,
        file: TokenFile,
        secret: Option<Arc<SecretValue>>,
    ) -> Result<Option<Self>, OAuthError> {
        let StoredTokens { credentials, login_details, .. } =
            file.run_blocking(|file| file.read_stored()).await?;
        let Some(credentials) = credentials else { return Ok(None) };
        let challenge = login_details.challenge.as_deref();
        let (mut manager, _) =
            find_issuer(outbound_client, name, server, file.clone(), challenge).await?;
        // The library drops tokens of another issuer.
        if !manager.initialize_from_store().await? {
            return Ok(None);
        }
        let client_secret = match secret {
            Some(secret) => Some(secret.expose().to_owned()),
            None => login_details.client_secret,
        };
        if let Some(secret) = client_secret {
            let client = OAuthClientConfig::new(credentials.client_id, server.url.clone())
                .with_client_secret(secret);
            manager.configure_client(client)?;
        }
        Ok(Some(Self { manager, file, is_refreshed: AtomicBool::new(false) }))
    }

    pub(crate) async fn scopes(&self) -> Vec<String> {
        match self.file.load().await {
            Ok(Some(credentials)) => credentials.granted_scopes,
            _ => Vec::new(),
        }
    }

    /// Returns the value of the header `Authorization`. Refreshes an expired token.
    pub(crate) async fn current(
        &self,
        connection_state: &ConnectionState,
    ) -> Result<HeaderValue, OAuthError> {
        let token = self.manager.get_access_token().await?;
        let mut value = check_token(&token)?;
        value.set_sensitive(true);
        // The server may repeat the token in its answers, so the token is redacted there.
        connection_state.add_secret("token", &Arc::new(SecretValue::new(token)));
        Ok(value)
    }

    /// Refreshes the tokens before they expire. Works once, because a server could refuse every
    /// token. Returns whether the tokens are new.
    pub(crate) async fn refresh_early(&self) -> bool {
        let was_refreshed = self.is_refreshed.swap(true, Ordering::Relaxed);
        !was_refreshed && self.manager.refresh_token().await.is_ok()
    }
}

/// Formats an error with its causes. A cause that is already in the text isn't repeated.
fn explain(error: &AuthError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    neutral_line(cut(&text, MAX_ERROR_BYTES))
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
            assert!(is_metadata_url(place, issuer), "{place} for {issuer}");
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
            assert!(!is_metadata_url(place, issuer), "{place} for {issuer}");
        }
    }
}
