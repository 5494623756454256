//! Serves clients over Streamable HTTP: authentication, limits and shutdown.

mod access;
mod answering;
mod approvals;
mod callers;
mod connections;
mod keys;
mod listen_address;
mod local_tokens;
mod principals;
mod refusals;
mod sessions;
mod settings;
mod tenant;
mod tls;
mod unauthenticated;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use toolhold_core::CancellationToken;
use toolhold_core::config::{Approvals, Folders, Serve};
use toolhold_net::requests::OutboundClient;

use access::Access;
use answering::Answering;
use connections::Listener;
use local_tokens::TokenChecker;
use webhook::Webhook;

use crate::error::ServeError;
use crate::server::Server;
pub use listen_address::{ListenAddress, ListenAddressError};
pub use local_tokens::{LocalTokens, NewToken, TokenError, TokenRecord};
pub use principals::{BuildHost, BuiltHost, OpenPrincipal, PrincipalError, Principals};
pub use settings::problems;
pub use webhook::webhook_problem;

/// The path of the protocol's endpoint.
const PATH: &str = "/mcp";

/// Time for clients to read their last responses at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// An HTTP server that already listens but doesn't run yet.
pub struct Http {
    listener: Listener,
    access: Access,
    /// `None` if callers don't authenticate, or have no hosts of their own.
    local_tokens: Option<Arc<TokenChecker>>,
    metrics_access: Access,
    tls: Option<tokio_rustls::TlsAcceptor>,
    settings: Serve,
    place: ListenAddress,
    token_file: Option<PathBuf>,
    folders: Folders,
    principals: Option<Arc<Principals>>,
    webhook: Option<Webhook>,
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
    /// If `settings` name an authorization server, its tokens replace the token in the data folder,
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
            local_tokens: None,
            metrics_access,
            tls,
            settings,
            place,
            token_file,
            folders: folders.clone(),
            principals: None,
            webhook: None,
        })
    }

    /// Serves callers with tokens from hosts of their own, as `principals` decides, and also
    /// accepts tokens of [`LocalTokens`]. By default, all callers have the host of the server, where
    /// the limits of such a token wouldn't apply.
    ///
    /// # Errors
    ///
    /// Returns an error if the key of the tokens can't be read or created.
    pub fn with_principals(self, principals: Arc<Principals>) -> Result<Self, ServeError> {
        let local_tokens = match self.access {
            Access::Anyone => None,
            Access::Token(_) | Access::OAuth(_) => {
                Some(Arc::new(TokenChecker::new(&self.folders)?))
            }
        };
        Ok(Self { principals: Some(principals), local_tokens, ..self })
    }

    /// Adds the webhook in `approvals`, if there is one. `outbound_client` sends its requests.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is wrong, or the file with the secret can't be read.
    pub fn with_webhook(
        self,
        approvals: &Approvals,
        outbound_client: &OutboundClient,
    ) -> Result<Self, ServeError> {
        let webhook = Webhook::new(approvals, &self.settings, &self.folders, outbound_client)?;
        Ok(Self { webhook, ..self })
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

    /// Returns the file with the secret that signs requests to the webhook, or `None` without a
    /// webhook.
    pub fn webhook_secret_file(&self) -> Option<&Path> {
        Some(self.webhook.as_ref()?.secret_file())
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
    let Http {
        listener,
        access,
        local_tokens,
        metrics_access,
        tls,
        settings,
        place,
        folders,
        principals,
        webhook,
        ..
    } = http;
    let live = server.live();
    let grace = Duration::from_secs(settings.grace_secs.get());
    let max_connections = settings.max_connections.get();
    let own_origins = place.origins(&settings, tls.is_some());
    let answering = Arc::new(Answering::new(
        &server,
        [access, metrics_access],
        local_tokens,
        principals.clone(),
        settings,
        &place,
        own_origins,
        &folders,
    )?);
    let token_checks = tokio::spawn({
        let answering = Arc::clone(&answering);
        async move { answering.end_invalid_callers().await }
    });
    let maintenance = principals
        .clone()
        .map(|principals| tokio::spawn(async move { principals.maintain(&live).await }));
    if let Some(webhook) = webhook {
        let end = end.clone();
        tokio::spawn(async move { end.run_until_cancelled(webhook.run()).await });
    }
    // `accept` returns when `end` is cancelled.
    let open =
        connections::accept(listener, tls, max_connections, Arc::clone(&answering), &end).await;
    answering.draining.store(true, Ordering::Relaxed);
    if let Some(maintenance) = maintenance {
        maintenance.abort();
    }
    answering.end_calls(grace).await;
    answering.wait_for_answers(END_TIMEOUT).await;
    // Streams that wait for notifications don't end by themselves.
    answering.end_streams();
    token_checks.abort();
    open.closed_within(END_TIMEOUT).await;
    if let Some(principals) = principals {
        principals.end().await;
    }
    Ok(())
}
