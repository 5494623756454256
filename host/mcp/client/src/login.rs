//! Logs a person in at the authorization server of an upstream server (OAuth).

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, AuthorizationRequest, AuthorizationSession,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders, McpServer, working_directory};
use toolhold_core::text::{cut, neutral_line};
use toolhold_net::requests::{check_url, same_origin};
use url::Url;

use crate::START;
use crate::connection::Connection;
use crate::launch::{Launch, Surroundings};
use crate::oauth::{OAuthError, TokenFile, Way, find_issuer};

/// Time for a person to agree in the browser.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time for a browser to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Most bytes of the start of this request.
const MAX_REQUEST: usize = 16 * 1024;

/// The scope for refresh tokens. Some authorization servers require it.
const OFFLINE: &str = "offline_access";

/// The path that the browser comes back to.
const PATH: &str = "/callback";

/// The page at which a person logs in.
#[derive(Clone, Debug)]
pub struct LoginPage {
    /// The authorization server's name for itself.
    pub issuer: String,
    /// The address for the browser.
    pub address: Url,
    /// The address that the browser comes back to, on this machine.
    pub back: String,
}

/// The reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server, the authorization server or the person refused the login.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The browser can't come back, or the page can't be shown.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Lets a person log in at the server's authorization server, and stores the tokens. `show` shows
/// the page to the person.
///
/// # Errors
///
/// The servers can't be reached, the login was refused, or the browser didn't come back in time.
pub async fn login(
    config: &Config,
    folders: &Folders,
    name: &str,
    server: &McpServer,
    show: impl FnOnce(&LoginPage) -> std::io::Result<()>,
) -> Result<(), LoginError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let back = format!("http://127.0.0.1:{}{PATH}", listener.local_addr()?.port());
    let tokens = TokenFile::new(folders, name, &server.url);
    let around =
        Arc::new(Surroundings::new(config, folders, &working_directory()?, "toolhold mcp"));
    let launch = Arc::new(Launch::new(&around, name, server, String::new()));
    // A server may name its authorization server and its scopes only when it refuses a request.
    let challenge = tokio::time::timeout(START, Connection::challenge(&launch))
        .await
        .map_err(|_| failed(name, format!("it didn't answer within {} s", START.as_secs())))?
        .map_err(|error| failed(name, error))?;
    let (mut manager, metadata) =
        find_issuer(launch.door(), name, server, tokens.clone(), challenge.as_deref())
            .await
            .map_err(|error| failed(name, error))?;
    let scopes = select_scopes(&manager, &metadata, server).await;

    let mut way = Way { challenge, client_secret: None };
    let (client_id, client_secret) = match &*server.oauth.client_id {
        "" => {
            let scope_names: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let client = manager
                .register_client("Toolhold", &back, &scope_names)
                .await
                .map_err(|error| failed(name, OAuthError::from(error)))?;
            way.client_secret.clone_from(&client.client_secret);
            (client.client_id, client.client_secret)
        }
        client_id => {
            let secret = tokio::task::spawn_blocking(move || launch.client_secret())
                .await
                .unwrap_or_else(|error| Err(error.into()))
                .map_err(|error| failed(name, error))?;
            (client_id.to_owned(), secret.map(|secret| secret.expose().to_owned()))
        }
    };
    let mut request = AuthorizationRequest::new(back.clone())
        .with_initial_scope_selection()
        .with_scopes(scopes)
        .with_preregistered_client(client_id);
    if let Some(secret) = client_secret {
        request = request.with_client_secret(secret);
    }
    let session = AuthorizationSession::new(manager, request)
        .await
        .map_err(|(_, error)| failed(name, OAuthError::from(error)))?;

    let issuer = metadata.issuer.unwrap_or_default();
    let address = browser_address(session.get_authorization_url(), server)
        .map_err(|error| failed(name, error))?;
    let state = query(&address, "state").ok_or_else(|| failed(name, "there is no state"))?;
    let page = LoginPage { issuer, address, back };
    show(&page)?;
    let callback =
        tokio::time::timeout(PATIENCE, wait_for_browser(&listener, &page.back, &state)).await;
    let url = callback.map_err(|_| {
        failed(name, format!("the browser didn't return within {} s", PATIENCE.as_secs()))
    })??;
    if let Some(refusal) = query(&url, "error") {
        return Err(failed(name, format!("it was refused: {}", neutral_line(cut(&refusal, 200)))));
    }

    let result = session.handle_callback_url(url.as_str()).await;
    result.map_err(|error| failed(name, OAuthError::from(error)))?;
    tokens.write_way(way)?;
    Ok(())
}

/// Returns the configured scopes. Adds the scope for refresh tokens if the authorization server
/// knows it. Without configured scopes, the library selects the scopes.
async fn select_scopes(
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
    server: &McpServer,
) -> Vec<String> {
    let mut scopes = server.oauth.scopes.clone();
    if scopes.is_empty() {
        return manager.select_initial_scopes(&[]).await;
    }
    let has_offline = scopes.iter().any(|scope| scope == OFFLINE);
    let mut supported = metadata.scopes_supported.iter().flatten();
    if !has_offline && supported.any(|scope| scope == OFFLINE) {
        scopes.push(OFFLINE.to_owned());
    }
    scopes
}

fn failed(name: &str, why: impl std::fmt::Display) -> LoginError {
    LoginError::Host(HostError::Config(format!("the login at `{name}` failed: {why}")))
}

/// Checks the address for the browser. The address must use `https`, unless the configuration
/// contains its origin.
fn browser_address(address: &str, server: &McpServer) -> Result<Url, OAuthError> {
    let url = check_url(address)?;
    let is_configured = [&server.url, &server.oauth.issuer].into_iter().any(|configured| {
        Url::parse(configured).is_ok_and(|configured| same_origin(&configured, &url))
    });
    if url.scheme() == "https" || is_configured {
        return Ok(url);
    }
    Err(OAuthError::PageWithoutTls(neutral_line(cut(address, 200))))
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits for the browser's request with this state. Returns the whole address that the browser
/// opens. Other clients get no information.
async fn wait_for_browser(listener: &TcpListener, back: &str, state: &str) -> std::io::Result<Url> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let request = tokio::time::timeout(REQUEST_TIME, read_target(&mut stream)).await;
        let callback = match request {
            Ok(Some(target)) => parse_callback(back, &target, state),
            _ => None,
        };
        let (status, text) = match &callback {
            Some(_) => ("200 OK", "Continue in the terminal. You can close this page."),
            None => ("404 Not Found", "Page not found."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\nReferrer-Policy: no-referrer\r\n\r\n{text}\n",
            text.len() + 1
        );
        let _ = tokio::time::timeout(REQUEST_TIME, stream.write_all(answer.as_bytes())).await;
        if let Some(url) = callback {
            return Ok(url);
        }
    }
}

/// Parses the address of a request. Returns `None` if the address isn't the callback with this
/// state.
fn parse_callback(back: &str, target: &str, state: &str) -> Option<Url> {
    if !target.starts_with('/') {
        return None;
    }
    let url = Url::parse(back).ok()?.join(target).ok()?;
    let has_state = query(&url, "state").as_deref() == Some(state);
    if url.path() == PATH && has_state { Some(url) } else { None }
}

/// Reads a request. Returns the target if the request is a GET.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST {
            return None;
        }
        let length = stream.read_buf(&mut head).await.ok()?;
        if length == 0 {
            return None;
        }
    }
    let line = std::str::from_utf8(&head).ok()?.lines().next()?.to_owned();
    let target = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    Some(target.to_owned())
}
