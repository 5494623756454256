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

/// Time for clients to read their last responses at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// An HTTP server that already listens but doesn't run yet.
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
    /// If `settings` name an authorization server, callers authenticate with its tokens instead,
    /// and `outbound_client` fetches its keys. If `authenticated` is false, callers don't
    /// authenticate. Only a Unix socket allows this, because its permissions admit only the user
    /// who runs this process.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is wrong, the address can't be used, or a file can't be read.
    pub async fn bind(
        place: ListenAddress,
        settings: Serve,
        folders: &Folders,
        authenticated: bool,
        outbound_client: &OutboundClient,
    ) -> Result<Self, ServeError> {
        let has_issuer = !settings.oauth.issuer.is_empty();
        let problems = problems(&settings);
        if !problems.is_empty() {
            return Err(ServeError::Settings(problems.join("\n")));
        }
        let (access, token_file) = match (&place, authenticated) {
            (_, false) if has_issuer => {
                let why = "`--no-auth` contradicts [serve.oauth]: use only one of the two";
                return Err(ServeError::Settings(why.to_owned()));
            }
            (ListenAddress::Unix(_), false) => (Access::Anyone, None),
            (ListenAddress::Tcp(_), false) => {
                return Err(ServeError::Settings(
                    "`--no-auth` needs a Unix socket, because every program and web page on this \
                     machine can reach a port. Use `--http unix:/path/to/socket`, or leave out \
                     `--no-auth`"
                        .to_owned(),
                ));
            }
            (_, true) if has_issuer => (Access::oauth(&settings, outbound_client).await?, None),
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

    /// Returns the address for clients: the configured URL, or the address on this machine.
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

    /// Returns the address that the server listens on, with the real port instead of port 0.
    pub fn place(&self) -> &ListenAddress {
        &self.place
    }

    /// Returns the file with the server's token, or `None` if callers don't use this token.
    pub fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }
}

/// Serves clients until `end` is cancelled. Running calls then get `grace_secs` of the settings to
/// end. Longer calls are cancelled and recorded.
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
    let max_connections = settings.max_connections.get();
    let own_origins = place.origins(&settings, tls.is_some());
    let answering = Arc::new(Answering::new(
        &server,
        [access, metrics_access],
        settings,
        &place,
        own_origins,
        &folders,
    )?);
    // `accept` returns when `end` is cancelled.
    let open =
        connections::accept(listener, tls, max_connections, Arc::clone(&answering), &end).await;
    answering.draining.store(true, Ordering::Relaxed);
    if !calls.ended_within(grace).await {
        tracing::warn!("calls that still run after {} s are ended", grace.as_secs());
    }
    calls.end().await;
    answering.wait_for_answers(END_TIMEOUT).await;
    // Streams that wait for notifications don't end by themselves.
    answering.streams.cancel();
    open.closed_within(END_TIMEOUT).await;
    Ok(())
}
