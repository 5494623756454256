//! Logs a person in at an upstream server's authorization server (OAuth).

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

use crate::START_TIMEOUT;
use crate::connection::Connection;
use crate::launch::{Launch, Surroundings};
use crate::oauth::{LoginDetails, OAuthError, TokenFile, find_issuer};

/// Time for a person to log in in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest request of a browser in bytes. Longer requests are refused.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// The scope for refresh tokens. Some authorization servers require it.
const OFFLINE_SCOPE: &str = "offline_access";

const CALLBACK_PATH: &str = "/callback";

/// The end of a request's head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Longest address in an error in bytes. Longer addresses are cut.
const MAX_SHOWN_ADDRESS: usize = 200;

/// The page where a person logs in.
#[derive(Clone, Debug)]
pub struct LoginPage {
    /// The authorization server.
    pub issuer: String,
    /// The address of the page.
    pub address: Url,
    /// The address on this machine to which the page redirects the browser.
    pub back: String,
}

/// The reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server, the authorization server or the person refused the login.
    #[error(transparent)]
    Host(#[from] HostError),
    /// This machine can't listen for the browser, or the page can't be shown.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Logs a person in and stores the tokens. `show` shows the page.
///
/// # Errors
///
/// Returns an error if a server can't be reached, the login is refused, or the browser isn't
/// redirected in time.
pub async fn login(
    config: &Config,
    folders: &Folders,
    name: &str,
    server: &McpServer,
    show: impl FnOnce(&LoginPage) -> std::io::Result<()>,
) -> Result<(), LoginError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let back = format!("http://127.0.0.1:{}{CALLBACK_PATH}", listener.local_addr()?.port());
    let tokens = TokenFile::new(folders, name, &server.url);
    let surroundings =
        Arc::new(Surroundings::new(config, folders, &working_directory()?, "toolhold mcp"));
    let launch = Arc::new(Launch::new(&surroundings, name, server, String::new()));
    // Some servers name their authorization server and scopes only in a refusal.
    let challenge = tokio::time::timeout(START_TIMEOUT, Connection::challenge(&launch))
        .await
        .map_err(|_| {
            failed(name, format!("the server didn't answer within {} s", START_TIMEOUT.as_secs()))
        })?
        .map_err(|error| failed(name, error))?;
    let (mut manager, metadata) =
        find_issuer(launch.outbound_client(), name, server, tokens.clone(), challenge.as_deref())
            .await
            .map_err(|error| failed(name, error))?;
    let scopes = select_scopes(&manager, &metadata, server).await;

    let mut login_details = LoginDetails { challenge, client_secret: None };
    let (client_id, client_secret) = match &*server.oauth.client_id {
        "" => {
            let scope_names: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let client = manager
                .register_client("Toolhold", &back, &scope_names)
                .await
                .map_err(|error| failed(name, OAuthError::from(error)))?;
            login_details.client_secret.clone_from(&client.client_secret);
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
    let state = query(&address, "state")
        .ok_or_else(|| failed(name, "the authorization URL has no `state`"))?;
    let page = LoginPage { issuer, address, back };
    show(&page)?;
    let callback =
        tokio::time::timeout(LOGIN_TIMEOUT, wait_for_browser(&listener, &page.back, &state)).await;
    let url = callback.map_err(|_| {
        failed(name, format!("the browser didn't return within {} s", LOGIN_TIMEOUT.as_secs()))
    })??;
    if let Some(refusal) = query(&url, "error") {
        return Err(failed(
            name,
            format!(
                "the authorization server refused the login: {}",
                neutral_line(cut(&refusal, 200))
            ),
        ));
    }

    let result = session.handle_callback_url(url.as_str()).await;
    result.map_err(|error| failed(name, OAuthError::from(error)))?;
    tokens.write_login_details(login_details)?;
    Ok(())
}

/// Returns the configured scopes, and also [`OFFLINE_SCOPE`] if the authorization server supports
/// this scope. Without configured scopes, the library selects the scopes.
async fn select_scopes(
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
    server: &McpServer,
) -> Vec<String> {
    let mut scopes = server.oauth.scopes.clone();
    if scopes.is_empty() {
        return manager.select_initial_scopes(&[]).await;
    }
    let has_offline = scopes.iter().any(|scope| scope == OFFLINE_SCOPE);
    if !has_offline
        && let Some(supported) = &metadata.scopes_supported
        && supported.iter().any(|scope| scope == OFFLINE_SCOPE)
    {
        scopes.push(OFFLINE_SCOPE.to_owned());
    }
    scopes
}

fn failed(name: &str, why: impl std::fmt::Display) -> LoginError {
    LoginError::Host(HostError::Config(format!("the login at `{name}` failed: {why}")))
}

/// Checks the address of the login page. Requires `https`, except for an origin in the server's
/// configuration. Returns the parsed address.
fn browser_address(address: &str, server: &McpServer) -> Result<Url, OAuthError> {
    let url = check_url(address)?;
    if url.scheme() == "https" {
        return Ok(url);
    }
    for configured in [&server.url, &server.oauth.issuer] {
        if Url::parse(configured).is_ok_and(|configured_url| same_origin(&configured_url, &url)) {
            return Ok(url);
        }
    }
    Err(OAuthError::PageWithoutTls(neutral_line(cut(address, MAX_SHOWN_ADDRESS))))
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits until the login page redirects the browser to this machine. Returns the address of the
/// browser's request, which contains `state`. Requests without this `state` get status 404.
async fn wait_for_browser(
    listener: &TcpListener,
    callback_url: &str,
    state: &str,
) -> std::io::Result<Url> {
    loop {
        let (mut stream, _browser_address) = listener.accept().await?;
        let target = tokio::time::timeout(REQUEST_TIMEOUT, read_target(&mut stream)).await;
        let callback = match target {
            Ok(Some(target)) => parse_callback(callback_url, &target, state),
            // The request is invalid, or took too long.
            Ok(None) | Err(_) => None,
        };
        let (status, text) = match &callback {
            Some(_) => ("200 OK", "Continue in the terminal. You can close this page."),
            None => ("404 Not Found", "Page not found."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\nReferrer-Policy: no-referrer\r\n\r\n{text}\n",
            text.len() + "\n".len()
        );
        // A browser that can't be answered has still sent its request.
        let _ = tokio::time::timeout(REQUEST_TIMEOUT, stream.write_all(answer.as_bytes())).await;
        if let Some(url) = callback {
            return Ok(url);
        }
    }
}

/// Parses the target of a request. Returns `None` if the target isn't the callback with this
/// `state`.
fn parse_callback(callback_url: &str, target: &str, state: &str) -> Option<Url> {
    if !target.starts_with('/') {
        return None;
    }
    let url = Url::parse(callback_url).ok()?.join(target).ok()?;
    let has_state = query(&url, "state").as_deref() == Some(state);
    if url.path() == CALLBACK_PATH && has_state { Some(url) } else { None }
}

/// Reads the target of a GET request. Returns `None` for an invalid or too long request.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head: Vec<u8> = Vec::new();
    while !head.windows(HEAD_END.len()).any(|bytes| bytes == HEAD_END) {
        if head.len() > MAX_REQUEST_BYTES {
            return None;
        }
        let length = stream.read_buf(&mut head).await.ok()?;
        if length == 0 {
            return None;
        }
    }
    let head_text = String::from_utf8(head).ok()?;
    let request_line = head_text.lines().next()?;
    let target = request_line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    Some(target.to_owned())
}
