//! The part of a server that belongs to one user: the host, and the connections and sessions of its
//! callers. The user of this machine has one, and so has each principal.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::task::JoinSet;
use toolhold_core::CancellationToken;
use toolhold_core::config::{Folders, Serve};

use super::callers::Callers;
use super::sessions::{Connections, Handshakes};
use crate::error::ServeError;
use crate::live::LiveHost;
use crate::metrics::Metrics;
use crate::server::Server;

/// Settings that all tenants of a server share.
#[derive(Clone)]
pub(super) struct TenantSettings {
    pub(super) metrics: Arc<Metrics>,
    pub(super) allowed_hosts: Vec<String>,
    /// Maximum length of a request's body in bytes.
    pub(super) max_body: usize,
    /// Ends the streams that wait for notifications.
    pub(super) streams: CancellationToken,
}

pub(super) struct Tenant {
    server: Server,
    pub(super) service: StreamableHttpService<Server, Connections>,
    pub(super) connections: Arc<Connections>,
    pub(super) callers: Callers,
    streams: CancellationToken,
}

impl Tenant {
    /// Creates the tenant of a server. `folders` and `limits` are those of its user.
    ///
    /// # Errors
    ///
    /// Returns an error if the key of the connections can't be read or created.
    pub(super) fn new(
        server: &Server,
        folders: &Folders,
        limits: &Serve,
        settings: &TenantSettings,
    ) -> Result<Self, ServeError> {
        let server = server.counted(Arc::clone(&settings.metrics));
        let streams = settings.streams.child_token();
        let connections = Arc::new(Connections::new(folders)?);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(settings.allowed_hosts.clone())
            .disable_allowed_origins()
            .with_json_response(true)
            .with_cancellation_token(streams.clone());
        config.session_store = Some(Arc::new(Handshakes::new(folders)));
        config.max_request_body_bytes = settings.max_body;
        let service_server = server.clone();
        let service = StreamableHttpService::new(
            move || Ok(service_server.connection(None)),
            Arc::clone(&connections),
            config,
        );
        Ok(Self { server, service, connections, callers: Callers::new(limits), streams })
    }

    pub(super) fn live(&self) -> Arc<LiveHost> {
        self.server.live()
    }

    /// Checks whether no call and no job runs.
    pub(super) fn is_idle(&self) -> bool {
        self.server.calls().is_idle() && self.live().current().is_idle()
    }

    /// Waits at most `grace` for running calls, then cancels them, and waits until they are
    /// recorded. Streams stay open.
    async fn end_calls(&self, grace: Duration) {
        let calls = self.server.calls();
        if !calls.ended_within(grace).await {
            tracing::warn!("calls that still run after {} s are ended", grace.as_secs());
        }
        calls.end().await;
    }

    /// Ends the calls and the streams at once, and drops the tenant on a thread for blocking work.
    pub(super) async fn end(self: Arc<Self>) {
        self.callers.end_all();
        self.server.calls().end().await;
        self.connections.close_all().await;
        self.streams.cancel();
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// Ends the calls of several tenants at the same time. Running calls get `grace` to end.
pub(super) async fn end_calls(tenants: Vec<Arc<Tenant>>, grace: Duration) {
    let mut ending = JoinSet::new();
    for tenant in tenants {
        ending.spawn(async move { tenant.end_calls(grace).await });
    }
    while ending.join_next().await.is_some() {}
}
