//! Serving clients over Streamable HTTP: who is let in, how many at once, and until when.

mod access;
mod answering;
mod callers;
mod connections;
mod keys;
mod newcomers;
mod place;
mod sessions;
mod settings;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_core::CancellationToken;
use berth_core::config::{Folders, Serve};

use crate::error::ServeError;
use crate::server::Server;
use access::Access;
use answering::Answering;
use connections::Listener;
pub use place::Place;
pub use settings::problems;

/// The path of the protocol's one address.
const PATH: &str = "/mcp";

/// How long answers may take to be read, when there are no calls any more.
const LAST: Duration = Duration::from_secs(2);

/// A place where clients are awaited.
pub struct Http {
    listener: Listener,
    access: Access,
    metrics_access: Access,
    tls: Option<tokio_rustls::TlsAcceptor>,
    settings: Serve,
    place: Place,
    token_file: Option<PathBuf>,
    folders: Folders,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Http {
    /// Begins to listen. Callers are let in by the token in the data folder, which is made at the
    /// first start; where `settings` name an authorization server, by its tokens alone; and without
    /// any where `authenticated` is false, which only a Unix socket allows: only the user who runs
    /// this process reaches that.
    ///
    /// # Errors
    ///
    /// What is wrong with the settings, by the line that would mend it; the place is taken, or
    /// can't be listened at; a file can't be read.
    pub async fn bind(
        place: Place,
        settings: Serve,
        folders: &Folders,
        authenticated: bool,
    ) -> Result<Self, ServeError> {
        let has_issuer = !settings.oauth.issuer.is_empty();
        let problems = problems(&settings);
        if !problems.is_empty() {
            return Err(ServeError::Settings(problems.join("\n")));
        }
        let (access, token_file) = match (&place, authenticated) {
            (_, false) if has_issuer => {
                let why =
                    "`--no-auth` lets in who [serve.oauth] would not: leave out one of the two";
                return Err(ServeError::Settings(why.to_owned()));
            }
            (Place::Unix(_), false) => (Access::Anyone, None),
            (Place::Tcp(_), false) => {
                return Err(ServeError::Settings(
                    "without a token, only a Unix socket can be served: every program and web page on this machine reaches a port. Give \
                     `--http unix:/path/to/socket`, or leave out `--no-auth`"
                        .to_owned(),
                ));
            }
            (_, true) if has_issuer => (Access::oauth(&settings).await?, None),
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

    /// The address for clients: the one that the settings name, else that of this machine.
    pub fn url(&self) -> String {
        match &self.place {
            _ if !self.settings.url.is_empty() => {
                format!("{}{PATH}", self.settings.url.trim_end_matches('/'))
            }
            Place::Unix(_) => format!("http://localhost{PATH}"),
            Place::Tcp(address) => {
                format!("{}://{address}{PATH}", if self.tls.is_some() { "https" } else { "http" })
            }
        }
    }

    /// Where it listens: port 0 is the one that it became.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The file with the token that callers bring, where it is the server's own.
    pub fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }
}

/// Answers clients until `end` is cancelled. Nobody new is let in then; calls that run have
/// `grace_secs` of `settings` to end, and are ended after that, and their records written.
///
/// # Errors
///
/// What was kept of clients can't be read.
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
    answering.answered_within(LAST).await;
    // The streams on which clients wait for what never comes.
    answering.streams.cancel();
    open.closed_within(LAST).await;
    Ok(())
}
