//! Tokens for a server at a URL: from an authorization server, to that URL alone.
//!
//! The protocol is the library's: discovery, registration, PKCE, refreshing. Each of its requests
//! leaves by the door, where only the origins that the operator named may be private.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use berth_core::HostError;
use berth_core::config::{Folders, McpServer};
use berth_core::state;
use berth_core::text::{cut, neutral_line};
use berth_egress::SecretValue;
use berth_private::PrivateFolder;
use berth_requests::{Credential, Door, Request, check_url};
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialRefreshGuard, CredentialStore, OAuthHttpClient,
    OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
    StoredCredentials,
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::gate::Ended;

/// What the requests are for, in their records.
const PURPOSE: &str = "mcp authorization";

/// The tokens of one server, in Berth's data folder, which no tool reaches.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    folder: PathBuf,
    name: String,
    url: String,
}

/// What the file has. Tokens are for the URL that they were made for.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Kept {
    url: String,
    credentials: Option<StoredCredentials>,
}

impl TokenFile {
    /// That of the server `name`.
    pub(crate) fn new(folders: &Folders, name: &str, url: &str) -> Self {
        let folder = folders.servers().join("tokens");
        Self { folder, name: name.to_owned(), url: url.to_owned() }
    }

    fn file(&self) -> String {
        format!("{}.json", self.name)
    }

    /// Whether there may be tokens.
    pub(crate) fn may_be(&self) -> bool {
        state::exists(&self.folder, &self.file())
    }

    /// The tokens for this URL. Blocks.
    ///
    /// # Errors
    ///
    /// They can't be read.
    pub(crate) fn read(&self) -> Result<Option<StoredCredentials>, HostError> {
        let kept: Kept = state::read(&self.folder, &self.file())?;
        Ok(kept.credentials.filter(|_| kept.url == self.url))
    }

    /// Replaces the tokens. Blocks.
    ///
    /// # Errors
    ///
    /// They can't be written.
    pub(crate) fn write(&self, credentials: Option<StoredCredentials>) -> Result<(), HostError> {
        if credentials.is_none() && !self.may_be() {
            return Ok(());
        }
        state::update(&self.folder, &self.file(), |kept: &mut Kept| {
            *kept = Kept { url: self.url.clone(), credentials };
            Ok(())
        })
    }

    /// Runs something that blocks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, AuthError> {
        let file = self.clone();
        tokio::task::spawn_blocking(move || work(file))
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
            .map_err(AuthError::CredentialStoreError)
    }
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.blocking(|file| file.read().map_err(|error| error.to_string())).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.blocking(|file| file.write(Some(credentials)).map_err(|error| error.to_string())).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.blocking(|file| file.write(None).map_err(|error| error.to_string())).await
    }

    /// One host at a time: of two that use the same refresh token, one would lose the tokens.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = |file: Self| {
            let folder = PrivateFolder::make(&file.folder).map_err(|error| error.to_string())?;
            folder.lock(&format!("{}.refresh", file.name)).map_err(|error| error.to_string())
        };
        Ok(Some(CredentialRefreshGuard::new(self.blocking(lock).await?)))
    }
}

/// The door, for the library.
struct ByDoor {
    door: Door,
    /// The URLs that the operator named.
    named: Vec<Url>,
}

impl OAuthHttpClient for ByDoor {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let failed =
                |error: &dyn std::error::Error| OAuthHttpClientError::from(error.to_string());
            let OAuthHttpRequest { request, redirect_policy, .. } = request;
            let (parts, body) = request.into_parts();
            let url = parts.uri.to_string();
            let named: Vec<&Url> = self.named.iter().collect();
            let mut sent = Request::chosen_by_server(PURPOSE, parts.method, &url, &named)
                .map_err(|error| failed(&error))?
                .body(body);
            for (name, value) in &parts.headers {
                sent = match name {
                    // Redirects don't take it elsewhere.
                    &AUTHORIZATION => {
                        let credential = Credential::new(sent.url(), value.clone());
                        sent.credential(Some(credential))
                    }
                    &ACCEPT_ENCODING | &HOST => sent,
                    name => sent.header(name.clone(), value.clone()),
                };
            }
            if redirect_policy == OAuthHttpRedirectPolicy::Stop {
                sent = sent.stay();
            }
            let answer = self.door.send(sent).await.map_err(|error| failed(&error))?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let body = answer.bytes(&|_, _| ()).await.map_err(|error| failed(&error))?;
            let mut response = http::Response::new(body);
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok(response)
        })
    }
}

/// The library's part for one server.
///
/// # Errors
///
/// A URL can't be used, for people.
pub(crate) async fn manager(
    door: Door,
    server: &McpServer,
    tokens: TokenFile,
) -> Result<AuthorizationManager, String> {
    let mut named = Vec::new();
    for url in [&server.url, &server.oauth.issuer] {
        if !url.is_empty() {
            named.push(check_url(url).map_err(|error| error.to_string())?);
        }
    }
    let client = Arc::new(ByDoor { door, named });
    let manager = AuthorizationManager::new_with_oauth_http_client(server.url.as_str(), client);
    let mut manager = manager.await.map_err(|error| explain(&error))?;
    manager.set_credential_store(tokens);
    Ok(manager)
}

/// The tokens of a login, which are refreshed when their time is over.
pub(crate) struct Tokens {
    manager: AuthorizationManager,
    /// Whether they were refreshed before their time.
    is_refreshed: AtomicBool,
}

impl Tokens {
    /// Those of the file. `None`: it has none for this URL.
    ///
    /// # Errors
    ///
    /// The authorization server can't be asked, for people.
    pub(crate) async fn load(
        door: Door,
        server: &McpServer,
        file: TokenFile,
    ) -> Result<Option<Self>, String> {
        if file.load().await.map_err(|error| explain(&error))?.is_none() {
            return Ok(None);
        }
        let mut manager = manager(door, server, file).await?;
        let is_there = manager.initialize_from_store().await.map_err(|error| explain(&error))?;
        Ok(is_there.then(|| Self { manager, is_refreshed: AtomicBool::new(false) }))
    }

    /// The value of the header `Authorization`.
    ///
    /// # Errors
    ///
    /// There is no token any more, for people.
    pub(crate) async fn current(&self, ended: &Ended) -> Result<HeaderValue, String> {
        let token = self.manager.get_access_token().await.map_err(|error| explain(&error))?;
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| "its token isn't valid in a header".to_owned())?;
        value.set_sensitive(true);
        ended.learns("token", &Arc::new(SecretValue::new(token)));
        Ok(value)
    }

    /// Refreshes them although their time isn't over, once. Whether that worked.
    pub(crate) async fn refresh_early(&self) -> bool {
        !self.is_refreshed.swap(true, Ordering::Relaxed)
            && self.manager.refresh_token().await.is_ok()
    }
}

/// What went wrong, for people, with the innermost cause.
pub(crate) fn explain(error: &AuthError) -> String {
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
