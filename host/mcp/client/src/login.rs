//! Logs a person in at the authorization server of an upstream server (OAuth).

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::auth::{AuthorizationRequest, AuthorizationSession};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolhold_core::HostError;
use toolhold_core::config::{Config, Folders, McpServer, working_directory};
use toolhold_core::text::{cut, neutral_line};
use toolhold_net::requests::check_url;
use url::Url;

use crate::START;
use crate::connection::Connection;
use crate::launch::{Launch, Surroundings};
use crate::oauth::{OAuthError, TokenFile, Way, find};

/// Time for a person to agree in the browser.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time for a browser to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Most bytes of the beginning of such a request.
const MAX_REQUEST: usize = 16 * 1024;

/// The scope for which some authorization servers give out tokens to refresh others.
const OFFLINE: &str = "offline_access";

/// The path that the browser comes back to.
const PATH: &str = "/callback";

/// The page at which a person logs in.
#[derive(Clone, Debug)]
pub struct LoginPage {
    /// The authorization server, as it names itself.
    pub issuer: String,
    /// The address for the browser.
    pub address: Url,
    /// The address that the browser comes back to, on this machine.
    pub back: String,
}

/// The reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server, the authorization server or the person refused it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The browser can't come back, or the page can't be shown.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Lets a person log in at the server's authorization server, and keeps the tokens. `show` shows
/// the person the page.
///
/// # Errors
///
/// The servers can't be reached, the login was refused, or nobody came back in time.
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
    let found = find(launch.door(), name, server, tokens.clone(), challenge.as_deref()).await;
    let (mut manager, metadata) = found.map_err(|error| failed(name, error))?;
    let mut scopes = server.oauth.scopes.clone();
    if scopes.is_empty() {
        scopes = manager.select_initial_scopes(&[]).await;
    } else if metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE)
        && !scopes.iter().any(|scope| scope == OFFLINE)
    {
        scopes.push(OFFLINE.to_owned());
    }
    let mut way = Way { challenge, client_secret: None };
    let (client_id, secret) = match &*server.oauth.client_id {
        "" => {
            let named: Vec<&str> = scopes.iter().map(String::as_str).collect();
            let client = manager
                .register_client("Toolhold", &back, &named)
                .await
                .map_err(|error| failed(name, OAuthError::from(error)))?;
            way.client_secret.clone_from(&client.client_secret);
            (client.client_id, client.client_secret)
        }
        written => {
            let secret = tokio::task::spawn_blocking(move || launch.client_secret())
                .await
                .unwrap_or_else(|error| Err(error.into()))
                .map_err(|error| failed(name, error))?;
            (written.to_owned(), secret.map(|secret| secret.expose().to_owned()))
        }
    };
    let mut request = AuthorizationRequest::new(back.clone())
        .with_initial_scope_selection()
        .with_scopes(scopes)
        .with_preregistered_client(client_id);
    if let Some(secret) = secret {
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
    let answered = tokio::time::timeout(PATIENCE, returned(&listener, &page.back, &state)).await;
    let returned = answered.map_err(|_| {
        failed(name, format!("the browser didn't return within {} s", PATIENCE.as_secs()))
    })??;
    if let Some(refusal) = query(&returned, "error") {
        return Err(failed(name, format!("it was refused: {}", neutral_line(cut(&refusal, 200)))));
    }
    let done = session.handle_callback_url(returned.as_str()).await;
    done.map_err(|error| failed(name, OAuthError::from(error)))?;
    tokens.write_way(way)?;
    Ok(())
}

fn failed(name: &str, why: impl std::fmt::Display) -> LoginError {
    LoginError::Host(HostError::Config(format!("the login at `{name}` failed: {why}")))
}

/// The address for the browser: https, unless the operator named its place on this machine.
fn browser_address(address: &str, server: &McpServer) -> Result<Url, OAuthError> {
    let url = check_url(address)?;
    let is_named = [&server.url, &server.oauth.issuer].into_iter().any(|named| {
        Url::parse(named).is_ok_and(|named| toolhold_net::requests::same_origin(&named, &url))
    });
    if url.scheme() == "https" || is_named {
        return Ok(url);
    }
    Err(OAuthError::PageWithoutTls(neutral_line(cut(address, 200))))
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits for the browser that comes back with this state. Other clients learn nothing.
async fn returned(listener: &TcpListener, back: &str, state: &str) -> std::io::Result<Url> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let request = tokio::time::timeout(REQUEST_TIME, requested(&mut stream)).await;
        let target = request.ok().flatten().unwrap_or_default();
        let url = Url::parse(back).ok().and_then(|back| back.join(&target).ok());
        let found = url.filter(|url| {
            target.starts_with('/')
                && url.path() == PATH
                && query(url, "state").as_deref() == Some(state)
        });
        let (status, text) = match &found {
            Some(_) => ("200 OK", "Continue in the terminal. You can close this page."),
            None => ("404 Not Found", "Page not found."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\nReferrer-Policy: no-referrer\r\n\r\n{text}\n",
            text.len() + 1
        );
        let _ = tokio::time::timeout(REQUEST_TIME, stream.write_all(answer.as_bytes())).await;
        if let Some(url) = found {
            return Ok(url);
        }
    }
}

/// The target of a GET.
async fn requested(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = std::str::from_utf8(&head).ok()?.lines().next()?.to_owned();
    let target = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
    Some(target.to_owned())
}
