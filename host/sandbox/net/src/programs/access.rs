//! The hosts that programs may reach, and the ways to these hosts.

use std::fmt;
use std::sync::{Arc, OnceLock};

use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ServerConfig;
use tokio::sync::OnceCell;
use toolhold_policy::Placed;
use toolhold_policy::egress::{Grant, Placement, Target, TargetHost};

use super::authority::Authority;
use super::body::PassedBody;
use super::placeholders::Placeholders;
use crate::connect::Connector;
use crate::echoes::Echoes;
use crate::requests::Recorder;
use crate::{Egress, Error, IDLE, IDLE_CONNECTIONS, MAX_HEADERS, Secret};

type ProgramClient = Client<HttpsConnector<Connector>, PassedBody>;

/// The hosts that the programs of one configuration table may reach.
///
/// All programs of the table have the same rights. So they share the placeholders and the
/// certificate authority, which are made at the first use.
#[derive(Debug)]
pub struct HostAccess {
    pub(super) egress: Arc<Egress>,
    pub(super) connector: Connector,
    client: LazyClient,
    /// The client for requests that become connections of WebSocket, which HTTP/2 doesn't have.
    upgrade_client: LazyClient,
    placeholders: Arc<OnceLock<Result<Placeholders, Error>>>,
    authority: Arc<OnceLock<Result<Authority, Error>>>,
}

impl HostAccess {
    /// Prepares the access without opening a connection or reading a secret.
    pub fn new(egress: Arc<Egress>) -> Self {
        let connector = Connector::new(Arc::clone(&egress.settings));
        Self {
            egress,
            connector,
            client: LazyClient::default(),
            upgrade_client: LazyClient::default(),
            placeholders: Arc::default(),
            authority: Arc::default(),
        }
    }

    /// Returns the environment variables with the placeholders of secrets.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random numbers.
    pub fn variables(&self) -> Result<Vec<(String, String)>, Error> {
        Ok(self.placeholders()?.variables().cloned().collect())
    }

    /// Returns the certificate, in PEM format, that programs have to trust. Returns `None` if no
    /// requests in TLS connections are read.
    ///
    /// # Errors
    ///
    /// Fails if the certificate can't be made.
    pub fn authority(&self) -> Result<Option<String>, Error> {
        let has_secrets = self.program_secrets().next().is_some();
        if has_secrets || self.egress.settings().reach.limits_some_tls_requests() {
            Ok(Some(self.made_authority()?.certificate().to_owned()))
        } else {
            Ok(None)
        }
    }

    /// Returns the TLS configuration for a host whose requests are read.
    pub(super) fn server(&self, host: &TargetHost) -> Result<Arc<ServerConfig>, Error> {
        let authority = self.made_authority()?;
        authority.server(host).map_err(|error| Error::Setup(error.to_string()))
    }

    fn made_authority(&self) -> Result<&Authority, Error> {
        let made = self
            .authority
            .get_or_init(|| Authority::new().map_err(|error| Error::Setup(error.to_string())));
        made.as_ref().map_err(Error::clone)
    }

    pub(super) fn placeholders(&self) -> Result<&Placeholders, Error> {
        let made = self.placeholders.get_or_init(|| Placeholders::new(self.egress.settings()));
        made.as_ref().map_err(Error::clone)
    }

    /// Returns the secrets for which programs have placeholders.
    fn program_secrets(&self) -> impl Iterator<Item = &Secret> {
        let secrets = self.egress.settings().secrets.iter();
        secrets.filter(|secret| matches!(secret.rule.placement, Placement::Placeholder { .. }))
    }

    /// Returns the secret that is for a target.
    fn secret_of(&self, target: &Target) -> Option<&Secret> {
        self.program_secrets()
            .find(|secret| secret.rule.hosts.iter().any(|host| host.matches(target)))
    }

    /// Checks whether the requests in TLS connections to a target have to be read.
    pub(super) fn reads_requests(&self, target: &Target) -> bool {
        self.secret_of(target).is_some() || self.egress.settings().reach.limits_requests(target)
    }

    /// Names the reason for which [`reads_requests`](Self::reads_requests) is true.
    pub(super) fn reason_to_read(&self, target: &Target) -> String {
        let table = &self.egress.settings().reach.table.name;
        match self.secret_of(target) {
            Some(secret) => format!("[{table}.secrets.{}]", secret.rule.name),
            None => format!("`methods` or `paths` in `hosts` of [{table}]"),
        }
    }

    /// Checks whether the host of a target gets a secret at any port, and so may repeat the secret
    /// in its responses.
    pub(super) fn may_echo(&self, target: &Target) -> bool {
        self.program_secrets()
            .any(|secret| secret.rule.hosts.iter().any(|own| own.hosts().matches(&target.host)))
    }

    /// Returns the search for secrets in responses of a target. Returns `None` if the target knows
    /// no secret.
    pub(super) fn echoes(&self, target: &Target) -> Option<Arc<Echoes>> {
        if self.may_echo(target) { self.egress.echoes() } else { None }
    }

    /// Returns whether a person can approve further hosts.
    pub fn asks(&self) -> bool {
        self.egress.settings().asks
    }

    /// Returns whether no host is granted.
    pub fn is_empty(&self) -> bool {
        self.egress.settings().reach.grants.is_empty()
    }

    /// Returns the access with a further entry. The connections of both count together.
    pub(super) fn with_entry(&self, grant: Grant) -> Self {
        let mut reach = self.egress.settings().reach.clone();
        let place = reach.place.clone();
        reach.add_entry(Placed { value: grant, place });
        let egress = Arc::new(self.egress.with_reach(reach));
        Self {
            connector: self.connector.with_settings(Arc::clone(&egress.settings)),
            ..self.with_egress(egress)
        }
    }

    /// Returns the same access with connections of its own, so that the programs in one network
    /// can't use up the connections of others.
    pub(super) fn with_own_connections(&self) -> Self {
        self.with_egress(Arc::clone(&self.egress))
    }

    fn with_egress(&self, egress: Arc<Egress>) -> Self {
        Self {
            // The programs already have these placeholders and trust this authority, so they stay.
            placeholders: Arc::clone(&self.placeholders),
            authority: Arc::clone(&self.authority),
            ..Self::new(egress)
        }
    }

    pub(super) fn log(&self) -> Option<Arc<dyn Recorder>> {
        self.egress.settings().network.log.clone()
    }

    /// Returns whether connections may go through a proxy, whose address isn't the server's.
    pub(super) fn has_proxy(&self) -> bool {
        self.egress.settings().network.proxy.is_some()
    }

    /// Returns the client for requests, which is made at the first request.
    pub(super) async fn client(&self, is_upgrade: bool) -> Result<&ProgramClient, Error> {
        let LazyClient(cell) = if is_upgrade { &self.upgrade_client } else { &self.client };
        cell.get_or_try_init(|| self.new_client(is_upgrade)).await
    }

    async fn new_client(&self, is_upgrade: bool) -> Result<ProgramClient, Error> {
        let tls = self.egress.settings().network.tls().await?;
        let builder =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = self.connector.clone();
        let connector = if is_upgrade {
            builder.enable_http1().wrap_connector(connector)
        } else {
            builder.enable_all_versions().wrap_connector(connector)
        };
        let mut client = Client::builder(TokioExecutor::new());
        client
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_headers(MAX_HEADERS);
        Ok(client.build(connector))
    }
}

/// A client for the requests of programs, which is made at the first request.
#[derive(Default)]
struct LazyClient(OnceCell<ProgramClient>);

impl fmt::Debug for LazyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyClient")
    }
}
