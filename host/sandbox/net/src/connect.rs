//! Makes all connections of plugins. A name is looked up once, each address is checked, and the
//! connection goes to a checked address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use toolhold_policy::egress::{Target, TargetHost};
use tower_service::Service;

use super::stream::Stream;
use super::{Error, Network, Resolve, Settings};

/// Time limit of the lookup and the connection together.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Time limit for an address that isn't the last address.
const ADDRESS_TIME: Duration = Duration::from_secs(4);

/// Maximum number of connections of one plugin, or of the programs of one table in one network,
/// including idle connections. A further connection waits for a closed connection.
pub(super) const MAX_CONNECTIONS: usize = 128;

/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 32;

/// Maximum number of concurrent lookups of all plugins. Each may block a thread until the system's
/// resolver gives up.
static LOOKUPS: Semaphore = Semaphore::const_new(16);

#[derive(Clone, Debug)]
pub(super) struct Connector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    proxy: Option<Matcher>,
    permits: Arc<Semaphore>,
}

impl Connector {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self::with_permits(settings, Arc::new(Semaphore::new(MAX_CONNECTIONS)))
    }

    /// Makes a connector with other settings. The connections of both count together.
    pub(super) fn with_settings(&self, settings: Arc<Settings>) -> Self {
        Self::with_permits(settings, Arc::clone(&self.0.permits))
    }

    fn with_permits(settings: Arc<Settings>, permits: Arc<Semaphore>) -> Self {
        let proxy = settings.network.proxy_matcher();
        Self(Arc::new(Inner { settings, proxy, permits }))
    }

    async fn connect(&self, uri: Uri) -> Result<TokioIo<Stream>, Error> {
        let target =
            Target::parse(&uri.to_string()).map_err(|error| Error::Url(error.to_string()))?;
        self.open(&target, &uri).await.map(TokioIo::new)
    }

    /// Connects to the target of `uri`, directly or through the proxy.
    pub(super) async fn open(&self, target: &Target, uri: &Uri) -> Result<Stream, Error> {
        let until = Instant::now() + CONNECT_TIME;
        let acquire = Arc::clone(&self.0.permits).acquire_owned();
        // The semaphore is never closed, so only the timeout fails.
        let Ok(Ok(permit)) = timeout_at(until, acquire).await else { return Err(Error::Busy) };
        // A request to this machine must not use the proxy. For the proxy, the address means the
        // proxy's own machine, and the proxy can read an unencrypted request.
        let proxy = match &self.0.proxy {
            Some(proxy) if !is_this_machine(&target.host) => proxy.intercept(uri),
            Some(_) | None => None,
        };
        let tcp = match proxy {
            Some(proxy) => self.connect_through(&proxy, target, until).await?,
            None => {
                let addresses = self.addresses(target, until).await?;
                dial(&addresses, target.port, until).await?
            }
        };
        Ok(Stream { tcp, _permit: permit })
    }

    /// Returns the addresses of a target. The rules must allow all of them.
    async fn addresses(&self, target: &Target, until: Instant) -> Result<Vec<IpAddr>, Error> {
        let Settings { reach, network, .. } = &*self.0.settings;
        let addresses = match &target.host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => look_up(network, name, until).await?,
        };
        let listens_on_all = network
            .listening
            .iter()
            .any(|own| own.ip().is_unspecified() && own.port() == target.port);
        for address in &addresses {
            let mut listening = network.listening.to_vec();
            // A server that listens on all addresses listens on each address of this machine.
            if listens_on_all && is_own_address(*address) {
                listening.push(SocketAddr::new(*address, target.port));
            }
            reach
                .address(target, *address, &listening)
                .map_err(|denial| Error::Address(Box::new(denial)))?;
        }
        Ok(addresses)
    }

    /// Opens a tunnel through the proxy. The configuration can let the proxy resolve names.
    /// Otherwise, the proxy gets a checked address instead of a name, so it can't choose another
    /// address.
    async fn connect_through(
        &self,
        proxy: &Intercept,
        target: &Target,
        until: Instant,
    ) -> Result<TcpStream, Error> {
        check_proxy(proxy)?;
        let proxy_settings = self.0.settings.network.proxy.as_ref();
        let proxy_resolves = proxy_settings.is_some_and(|proxy| proxy.resolves);
        let host = match &target.host {
            TargetHost::Name(name) if proxy_resolves => name.clone(),
            TargetHost::Name(_) | TargetHost::Address(_) => {
                match self.addresses(target, until).await?.first() {
                    Some(IpAddr::V6(address)) => format!("[{address}]"),
                    Some(IpAddr::V4(address)) => address.to_string(),
                    None => return Err(Error::Name("the host name has no address".to_owned())),
                }
            }
        };
        let tunnel_target = format!("https://{host}:{}", target.port)
            .parse::<Uri>()
            .map_err(|error| Error::Url(error.to_string()))?;

        let mut tunnel = Tunnel::new(proxy.uri().clone(), ToProxy { until });
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        match timeout_at(until, tunnel.call(tunnel_target)).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(error)) => {
                let reason = match std::error::Error::source(&error) {
                    Some(cause) => cause.to_string(),
                    None => error.to_string(),
                };
                Err(Error::Proxy(reason))
            }
            Err(_) => Err(Error::Proxy("the proxy took too long".to_owned())),
        }
    }
}

/// Used by the client for Toolhold's own requests.
impl Network {
    /// Looks up the addresses of a name with [`Network::resolver`] or the system. The caller must
    /// check the addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has no address, or the lookup fails or times out.
    pub async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        look_up(self, name, Instant::now() + CONNECT_TIME).await
    }

    /// Looks up the addresses of a proxy with the system. The name comes from the configuration.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::look_up`].
    pub async fn look_up_proxy(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        look_up_by_system(name, Instant::now() + CONNECT_TIME).await
    }

    /// Returns the proxy for requests to a target, or `None` without a proxy. Requests to this
    /// machine never use a proxy.
    ///
    /// # Errors
    ///
    /// Returns an error if this kind of proxy isn't supported.
    pub fn proxy_for(&self, target: &Target) -> Result<Option<ProxyServer>, Error> {
        if is_this_machine(&target.host) {
            return Ok(None);
        }
        let uri = target.origin().parse::<Uri>().map_err(|error| Error::Url(error.to_string()))?;
        let Some(proxy) = self.proxy_matcher().and_then(|matcher| matcher.intercept(&uri)) else {
            return Ok(None);
        };
        check_proxy(&proxy)?;
        Ok(Some(ProxyServer {
            uri: proxy.uri().clone(),
            authorization: proxy.basic_auth().cloned(),
        }))
    }

    /// Returns the TLS configuration of a client with the trusted authorities. The first call reads
    /// the authorities, which is slow.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Setup`] if an authority can't be used.
    pub async fn tls(&self) -> Result<rustls::ClientConfig, Error> {
        let trust = Arc::clone(&self.trust);
        let authorities = self.authorities.clone();
        match tokio::task::spawn_blocking(move || trust.config(&authorities)).await {
            Ok(Ok(config)) => Ok(config),
            Ok(Err(error)) => Err(Error::Setup(error.to_string())),
            Err(error) => Err(Error::Setup(error.to_string())),
        }
    }

    fn proxy_matcher(&self) -> Option<Matcher> {
        let proxy = self.proxy.as_ref()?;
        Some(Matcher::builder().all(proxy.url.clone()).no(proxy.except.clone()).build())
    }
}

/// The proxy for a request.
#[derive(Clone)]
pub struct ProxyServer {
    /// The address of the proxy: `http://host:port`.
    pub uri: Uri,
    /// The header with the operator's user name and password.
    pub authorization: Option<http::HeaderValue>,
}

/// Doesn't show the password.
impl std::fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyServer").field("uri", &self.uri).finish_non_exhaustive()
    }
}

fn check_proxy(proxy: &Intercept) -> Result<(), Error> {
    if proxy.uri().scheme_str() == Some("http") {
        return Ok(());
    }
    let reason = "the proxy doesn't have the form `http://host:port`, the only supported form";
    Err(Error::Setup(reason.to_owned()))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await })
    }
}

fn is_this_machine(host: &TargetHost) -> bool {
    match host {
        TargetHost::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        TargetHost::Address(address) => address.to_canonical().is_loopback(),
    }
}

/// Checks whether an address belongs to this machine. A machine can bind only its own addresses.
fn is_own_address(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// The default port of a proxy.
const HTTP_PORT: u16 = 80;

/// Connects to the proxy. The operator chose the proxy, so the rules for plugins don't apply.
struct ToProxy {
    until: Instant,
}

impl Service<Uri> for ToProxy {
    type Response = TokioIo<TcpStream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let until = self.until;
        Box::pin(async move {
            // An address of the proxy always has a host. IPv6 addresses are in brackets.
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let addresses = look_up_by_system(&host, until).await?;
            let port = uri.port_u16().unwrap_or(HTTP_PORT);
            dial(&addresses, port, until).await.map(TokioIo::new)
        })
    }
}

async fn look_up(network: &Network, name: &str, until: Instant) -> Result<Vec<IpAddr>, Error> {
    match &network.resolver {
        Some(resolver) => finish_lookup(resolver.resolve(name), until).await,
        None => look_up_by_system(name, until).await,
    }
}

async fn look_up_by_system(name: &str, until: Instant) -> Result<Vec<IpAddr>, Error> {
    finish_lookup(SystemResolver.resolve(name), until).await
}

/// Waits for a lookup until a point in time. Limits the number of addresses.
async fn finish_lookup(
    lookup: impl Future<Output = io::Result<Vec<IpAddr>>>,
    until: Instant,
) -> Result<Vec<IpAddr>, Error> {
    match timeout_at(until, lookup).await {
        Err(_) => Err(Error::NameTimeout),
        Ok(Err(error)) => Err(Error::Name(error.to_string())),
        Ok(Ok(addresses)) if addresses.is_empty() => {
            Err(Error::Name("the host name has no address".to_owned()))
        }
        Ok(Ok(mut addresses)) => {
            addresses.truncate(MAX_ADDRESSES);
            Ok(addresses)
        }
    }
}

#[derive(Debug)]
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        let name = name.to_owned();
        // A lookup can't be cancelled, so it keeps its permit until its end, even if the request is
        // dropped.
        let lookup = tokio::spawn(async move {
            let _permit = LOOKUPS.acquire().await;
            let mut addresses: Vec<IpAddr> = Vec::new();
            let any_port = 0;
            for address in tokio::net::lookup_host((name.as_str(), any_port)).await? {
                if !addresses.contains(&address.ip()) {
                    addresses.push(address.ip());
                }
            }
            Ok(addresses)
        });
        Box::pin(async move { lookup.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// Connects to the first address that answers. The last address gets all the remaining time.
async fn dial(addresses: &[IpAddr], port: u16, until: Instant) -> Result<TcpStream, Error> {
    let mut failure = Error::ConnectionTimeout;
    for (index, address) in addresses.iter().enumerate() {
        let is_last = index + 1 == addresses.len();
        let end = if is_last { until } else { until.min(Instant::now() + ADDRESS_TIME) };
        match timeout_at(end, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => {
                // A request is written in one piece, so waiting for more data would only delay it.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = Error::from_connection(&error),
            Err(_) => failure = Error::ConnectionTimeout,
        }
    }
    Err(failure)
}
