//! Makes a client for each origin. Origins don't share connections, so the rules of a connection
//! never change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolhold_policy::egress::{Target, TargetHost};

use crate::requests::error::{OutboundError, words};
use crate::requests::rules;
use crate::{Network, ProxyServer};

/// The time limit for connecting, including the handshake.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Most idle connections of a client, and their idle timeout.
const IDLE_CONNECTIONS: usize = 2;
const IDLE: Duration = Duration::from_secs(10);

/// The most headers of an answer.
const MAX_HEADERS: usize = 128;

/// Makes a client for one origin.
///
/// # Errors
///
/// [`OutboundError::Setup`] if the proxy or an authority can't be used.
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
        // Another crate may enable decoding for the whole program.
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
    OutboundError::Setup(words(&error.to_string()))
}

/// Checks the addresses of a host before a request through a proxy that resolves the name itself.
/// Without a proxy, the lookup of the connection checks the addresses.
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

/// Looks up the addresses of a target's name. One blocked address is enough to refuse the name.
async fn look_up_checked(
    network: &Network,
    target: &Target,
    name: &str,
    is_named: bool,
) -> Result<Vec<SocketAddr>, OutboundError> {
    let addresses = network
        .look_up(name)
        .await
        .map_err(|error| OutboundError::Name(target.host.to_string(), words(&error.to_string())))?;
    for address in &addresses {
        rules::check_address(target, *address, is_named)?;
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port)).collect())
}

/// A resolver for the name of one target and the name of its proxy.
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
            let addresses = match (&target.host, proxy) {
                // The operator chose the proxy, so any address is allowed.
                (_, Some(proxy)) if proxy.eq_ignore_ascii_case(requested) => {
                    let addresses = network.look_up_proxy(requested).await.map_err(from_egress)?;
                    addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect()
                }
                (TargetHost::Name(name), None)
                    if name.eq_ignore_ascii_case(requested.trim_end_matches('.')) =>
                {
                    look_up_checked(&network, &target, name, is_named).await?
                }
                _ => {
                    let reason = format!("{} is not the host of this request", words(requested));
                    return Err(OutboundError::Setup(reason).into());
                }
            };
            Ok::<Addrs, _>(Box::new(addresses.into_iter()))
        })
    }
}

fn from_egress(error: crate::Error) -> OutboundError {
    match error {
        crate::Error::Setup(reason) => OutboundError::Setup(words(&reason)),
        other => OutboundError::Setup(words(&other.to_string())),
    }
}
