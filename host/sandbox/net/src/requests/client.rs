//! Creates a client for each origin. Origins don't share connections, so the rules for a connection
//! never change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolhold_policy::egress::{Target, TargetHost};

use crate::requests::error::{OutboundError, one_line};
use crate::requests::rules;
use crate::{Network, ProxyServer};

/// Time limit for connecting, including the TLS handshake.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Maximum number of idle connections of a client, and the time after which they close.
const IDLE_CONNECTIONS: usize = 2;
const IDLE: Duration = Duration::from_secs(10);

/// Maximum number of headers of an answer. An answer with more headers fails.
const MAX_HEADERS: usize = 128;

/// Builds a client that connects only to the host of `target`, or to the proxy. `is_named` means
/// that the operator named the origin, so its addresses may be private.
pub(crate) async fn build(
    network: &Network,
    target: &Target,
    is_named: bool,
) -> Result<reqwest::Client, OutboundError> {
    let tls = network.tls().await.map_err(from_egress)?;
    let proxy = network.proxy_for(target).map_err(from_egress)?;
    let resolver = Resolver {
        network: network.clone(),
        target: target.clone(),
        is_named,
        proxy: proxy.clone(),
    };
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(resolver))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        // Another crate may enable the features for decoding, which count for the whole program.
        // The decoded size would have no limit, so this client never decodes.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .http1_only()
        .http1_max_headers(MAX_HEADERS)
        .connect_timeout(CONNECT_TIME)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .tcp_nodelay(true)
        .user_agent(concat!("toolhold/", env!("CARGO_PKG_VERSION")));
    if let Some(ProxyServer { uri, authorization }) = proxy {
        let mut proxy = reqwest::Proxy::all(uri.to_string()).map_err(|error| setup(&error))?;
        if let Some(value) = authorization {
            proxy = proxy.custom_http_auth(value);
        }
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(|error| setup(&error))
}

fn setup(error: &reqwest::Error) -> OutboundError {
    OutboundError::Setup(one_line(&error.to_string()))
}

/// Checks the addresses of a host before a request through a proxy. Direct requests check the
/// addresses when the client looks them up. `is_named` means that the operator named the origin.
pub(crate) async fn check_before_proxy(
    network: &Network,
    target: &Target,
    is_named: bool,
) -> Result<(), OutboundError> {
    let TargetHost::Name(name) = &target.host else { return Ok(()) };
    // The proxy resolves the name, so this machine doesn't know the addresses.
    if network.proxy.as_ref().is_some_and(|proxy| proxy.resolves) {
        return Ok(());
    }
    if network.proxy_for(target).map_err(from_egress)?.is_some() {
        look_up_checked(network, target, name, is_named).await?;
    }
    Ok(())
}

/// Looks up the addresses of a target's name. A single blocked address refuses the name. `is_named`
/// means that the operator named the origin.
async fn look_up_checked(
    network: &Network,
    target: &Target,
    name: &str,
    is_named: bool,
) -> Result<Vec<SocketAddr>, OutboundError> {
    let addresses = network.look_up(name).await.map_err(|error| {
        OutboundError::Name(target.host.to_string(), one_line(&error.to_string()))
    })?;
    for address in &addresses {
        rules::check_address(target, *address, is_named)?;
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
}

struct Resolver {
    network: Network,
    target: Target,
    is_named: bool,
    proxy: Option<ProxyServer>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let network = self.network.clone();
        let target = self.target.clone();
        let is_named = self.is_named;
        let proxy = self.proxy.as_ref().and_then(|proxy| proxy.uri.host()).map(str::to_owned);
        Box::pin(async move {
            let requested = name.as_str();
            let addresses = match proxy {
                Some(proxy) => look_up_proxy(&network, &proxy, requested).await?,
                None => look_up_target(&network, &target, requested, is_named).await?,
            };
            Ok::<Addrs, _>(Box::new(addresses.into_iter()))
        })
    }
}

/// Looks up the addresses of the proxy. The operator chose the proxy, so any address is allowed.
async fn look_up_proxy(
    network: &Network,
    proxy: &str,
    requested: &str,
) -> Result<Vec<SocketAddr>, OutboundError> {
    if !proxy.eq_ignore_ascii_case(requested) {
        return Err(other_host(requested));
    }
    let addresses = network.look_up_proxy(requested).await.map_err(from_egress)?;
    // The client replaces port 0 with the port of the proxy.
    let proxy_port = 0;
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, proxy_port)).collect())
}

/// Looks up the addresses of the target, which the rules must allow. `is_named` means that the
/// operator named the origin.
async fn look_up_target(
    network: &Network,
    target: &Target,
    requested: &str,
    is_named: bool,
) -> Result<Vec<SocketAddr>, OutboundError> {
    if let TargetHost::Name(host) = &target.host
        && host.eq_ignore_ascii_case(requested.trim_end_matches('.'))
    {
        return look_up_checked(network, target, host, is_named).await;
    }
    Err(other_host(requested))
}

/// Returns the error for a lookup of another host, because a connection to that host bypasses the
/// rules.
fn other_host(requested: &str) -> OutboundError {
    OutboundError::Setup(format!("{} is not the host of this request", one_line(requested)))
}

fn from_egress(error: crate::Error) -> OutboundError {
    match error {
        crate::Error::Setup(reason) => OutboundError::Setup(one_line(&reason)),
        other => OutboundError::Setup(one_line(&other.to_string())),
    }
}
