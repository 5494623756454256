//! Serves clients over Streamable HTTP: authentication, limits and shutdown.

mod access;
mod answering;
mod callers;
mod connections;
mod keys;
mod listen_address;
mod sessions;
mod settings;
mod tls;
mod unauthenticated;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use toolhold_core::CancellationToken;
use toolhold_core::config::{Folders, Serve};
use toolhold_net::requests::OutboundClient;

use access::Access;
use answering::Answering;
use connections::Listener;

use crate::error::ServeError;
use crate::server::Server;
pub use listen_address::{ListenAddress, ListenAddressError};
pub use settings::problems;

/// The path of the protocol's endpoint.
const PATH: &str = "/mcp";

/// Time for clients to read responses when no call runs any more.
const LAST: Duration = Duration::from_secs(2);

/// A listening server.
pub struct Http {
    listener: Listener,
    access: Access,
    metrics_access: Access,
    tls: Option<tokio_rustls::TlsAcceptor>,
    settings: Serve,
    place: ListenAddress,
    token_file: Option<PathBuf>,
    folders: Folders,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Http {
    /// Starts to listen. Callers authenticate with the token in the data folder, which is created
    /// at the first start.
    ///
    /// If `settings` name an authorization server, callers authenticate only with its tokens, and
    /// `door` fetches its keys. If `authenticated` is false, callers don't authenticate. This is
    /// possible only with a Unix socket, because only the user who runs this process can connect to
    /// the socket.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is wrong, if the address can't be used, or if a file can't be
    /// read.
    pub async fn bind(
        place: ListenAddress,
        settings: Serve,
        folders: &Folders,
        authenticated: bool,
        door: &OutboundClient,
    ) -> Result<Self, ServeError> {
        let has_issuer = !settings.oauth.issuer.is_empty();
        let problems = problems(&settings);
        if !problems.is_empty() {
            return Err(ServeError::Settings(problems.join("\n")));
        }
        let (access, token_file) = match (&place, authenticated) {
            (_, false) if has_issuer => {
                let why = "`--no-auth` contradicts [serve.oauth]: leave out one of the two";
                return Err(ServeError::Settings(why.to_owned()));
            }
            (ListenAddress::Unix(_), false) => (Access::Anyone, None),
            (ListenAddress::Tcp(_), false) => {
                return Err(ServeError::Settings(
                    "`--no-auth` needs a Unix socket, since every program and web page on this machine reaches a port. Use `--http unix:/path/to/socket`, or leave out `--no-auth`"
                        .to_owned(),
                ));
            }
            (_, true) if has_issuer => (Access::oauth(&settings, door).await?, None),
            (_, true) => {
                let (access, file) = Access::token(folders)?;
                (access, Some(file))
            }
        };
        let metrics_access = Access::metrics_token(folders)?;
        let tls = tls::acceptor(&settings)?;
        place.check(&settings, tls.is_some())?;
        let (listener, place) = Listener::bind(&place).await?;
        Ok(Self {
            listener,
            access,
            metrics_access,
            tls,
            settings,
            place,
            token_file,
            folders: folders.clone(),
        })
    }

    /// Returns the address for clients: the configured address, or else the address on this
    /// machine.
    pub fn url(&self) -> String {
        if !self.settings.url.is_empty() {
            return format!("{}{PATH}", self.settings.url.trim_end_matches('/'));
        }
        match &self.place {
            ListenAddress::Unix(_) => format!("http://localhost{PATH}"),
            ListenAddress::Tcp(address) if self.tls.is_some() => format!("https://{address}{PATH}"),
            ListenAddress::Tcp(address) => format!("http://{address}{PATH}"),
        }
    }

    /// Returns the address that the server listens on, with the real port in place of port 0.
    pub fn place(&self) -> &ListenAddress {
        &self.place
    }

    /// Returns the file with the server's own token. Returns `None` if callers don't use this
    /// token.
    pub fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }
}

/// Serves clients until `end` is cancelled. After this, no new clients are accepted. Running calls
/// have `grace_secs` of `settings` to end. Calls that take longer are ended, and their records are
/// written.
///
/// # Errors
///
/// Returns an error if the stored handshakes can't be read.
pub async fn serve_http(
    server: Server,
    http: Http,
    end: CancellationToken,
) -> Result<(), ServeError> {
    let Http { listener, access, metrics_access, tls, settings, place, folders, .. } = http;
    let calls = server.calls().clone();
    let grace = Duration::from_secs(settings.grace_secs.get());
    let connections = settings.max_connections.get();
    let own_origins = place.origins(&settings, tls.is_some());
    let answering = Arc::new(Answering::new(
        &server,
        [access, metrics_access],
        settings,
        &place,
        own_origins,
        &folders,
    )?);
    let open = connections::accept(listener, tls, connections, Arc::clone(&answering), &end).await;
    answering.draining.store(true, Ordering::Relaxed);
    if !calls.ended_within(grace).await {
        tracing::warn!("calls that still run after {} s are ended", grace.as_secs());
    }
    calls.end().await;
    answering.wait_for_answers(LAST).await;
    // The streams on which clients wait without a request.
    answering.streams.cancel();
    open.closed_within(LAST).await;
    Ok(())
}
