//! Makes the connections of plugins. No other code does this. A name is looked up once, each of its
//! addresses is checked, and the connection goes to a checked address.

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

/// The time limit of a name lookup and the connection together.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The time limit for one address, if the name has several addresses.
const ADDRESS_TIME: Duration = Duration::from_secs(4);

/// The most connections of one plugin, including idle ones. A further connection waits until
/// another one closes.
const MAX_CONNECTIONS: usize = 128;

/// The most addresses of one name that the host tries.
const MAX_ADDRESSES: usize = 32;

/// The concurrent lookups of all plugins. Each can block a thread until the system's resolver gives
/// up.
static LOOKUPS: Semaphore = Semaphore::const_new(16);

/// Makes the connections of one plugin.
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
        let proxy = settings.network.proxy_matcher();
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Self(Arc::new(Inner { settings, proxy, permits }))
    }

    async fn connect(&self, uri: Uri) -> Result<TokioIo<Stream>, Error> {
        let target =
            Target::parse(&uri.to_string()).map_err(|error| Error::Url(error.to_string()))?;
        let until = Instant::now() + CONNECT_TIME;
        let acquire = Arc::clone(&self.0.permits).acquire_owned();
        let Ok(Ok(permit)) = timeout_at(until, acquire).await else { return Err(Error::Busy) };
        // A request to this machine doesn't use the proxy. The proxy would connect to itself, and
        // could read an unencrypted request.
        let proxy = match &self.0.proxy {
            Some(proxy) if !is_this_machine(&target.host) => proxy.intercept(&uri),
            _ => None,
        };
        let tcp = match proxy {
            Some(proxy) => self.connect_through(&proxy, &target, until).await?,
            None => {
                let addresses = self.addresses(&target, until).await?;
                dial(&addresses, target.port, until).await?
            }
        };
        Ok(TokioIo::new(Stream { tcp, _permit: permit }))
    }

    /// Returns the addresses of a target. The rules allow each of them.
    async fn addresses(&self, target: &Target, until: Instant) -> Result<Vec<IpAddr>, Error> {
        let Settings { reach, network, .. } = &*self.0.settings;
        let addresses = match &target.host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => look_up(network, name, until).await?,
        };
        for address in &addresses {
            let mut listening = network.listening.to_vec();
            // A program that listens on all addresses of the machine also listens on this address,
            // if the address belongs to the machine.
            let listens_on_all = network
                .listening
                .iter()
                .any(|own| own.ip().is_unspecified() && own.port() == target.port);
            if listens_on_all && is_own_address(*address) {
                listening.push(SocketAddr::new(*address, target.port));
            }
            reach
                .address(target, *address, &listening)
                .map_err(|denial| Error::Address(Box::new(denial)))?;
        }
        Ok(addresses)
    }

    /// Opens a tunnel through the proxy. The proxy gets the checked address, so that it can't
    /// resolve the name to another one. If the configuration lets the proxy resolve names, the
    /// proxy gets the name.
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
            _ => match self.addresses(target, until).await?.first() {
                Some(IpAddr::V6(address)) => format!("[{address}]"),
                Some(IpAddr::V4(address)) => address.to_string(),
                None => return Err(Error::Name("the name has no address".to_owned())),
            },
        };
        let to = format!("https://{host}:{}", target.port)
            .parse::<Uri>()
            .map_err(|error| Error::Url(error.to_string()))?;

        let mut tunnel = Tunnel::new(proxy.uri().clone(), ToProxy { until });
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        match timeout_at(until, tunnel.call(to)).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error);
                Err(Error::Proxy(cause.map_or_else(|| error.to_string(), ToString::to_string)))
            }
            Err(_) => Err(Error::Proxy("the proxy took too long".to_owned())),
        }
    }
}

/// Functions for Toolhold's own requests, which use another client.
impl Network {
    /// Looks up the addresses of a name with [`Network::resolver`] or the system. The addresses
    /// aren't checked against any rule.
    ///
    /// # Errors
    ///
    /// Returns an error if the name has no address, or the lookup fails or times out.
    pub async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        look_up(self, name, Instant::now() + CONNECT_TIME).await
    }

    /// Looks up the addresses of a proxy's name with the system. The name comes from the
    /// configuration.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::look_up`].
    pub async fn look_up_proxy(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        look_up_by_system(name, Instant::now() + CONNECT_TIME).await
    }

    /// Returns the proxy for requests to a target, or `None` if they use no proxy. Requests to this
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

    /// Returns the TLS configuration of a client, with the trusted authorities. The first call is
    /// slow.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] if an authority can't be used.
    pub async fn tls(&self) -> Result<rustls::ClientConfig, Error> {
        let trust = Arc::clone(&self.trust);
        let own = self.authorities.clone();
        match tokio::task::spawn_blocking(move || trust.config(&own)).await {
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

/// A proxy that is used for a request.
#[derive(Clone)]
pub struct ProxyServer {
    /// The proxy's address, `http://host:port`.
    pub uri: Uri,
    /// The header with the operator's user name and password.
    pub authorization: Option<http::HeaderValue>,
}

/// The output leaves out the password.
impl std::fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyServer").field("uri", &self.uri).finish_non_exhaustive()
    }
}

fn check_proxy(proxy: &Intercept) -> Result<(), Error> {
    if proxy.uri().scheme_str() == Some("http") {
        return Ok(());
    }
    let reason = "the proxy isn't of the form `http://host:port`, the only supported kind";
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

/// Checks whether a host is this machine, by its name or address.
fn is_this_machine(host: &TargetHost) -> bool {
    match host {
        TargetHost::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        TargetHost::Address(address) => address.to_canonical().is_loopback(),
    }
}

/// Checks whether this machine has an address. A machine can only bind its own addresses.
fn is_own_address(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// The connection to the proxy. The operator chose the proxy, so the rules for plugins don't apply.
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
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let addresses = look_up_by_system(&host, until).await?;
            dial(&addresses, uri.port_u16().unwrap_or(80), until).await.map(TokioIo::new)
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

async fn finish_lookup(
    lookup: impl Future<Output = io::Result<Vec<IpAddr>>>,
    until: Instant,
) -> Result<Vec<IpAddr>, Error> {
    match timeout_at(until, lookup).await {
        Err(_) => Err(Error::NameTimeout),
        Ok(Err(error)) => Err(Error::Name(error.to_string())),
        Ok(Ok(addresses)) if addresses.is_empty() => {
            Err(Error::Name("the name has no address".to_owned()))
        }
        Ok(Ok(mut addresses)) => {
            addresses.truncate(MAX_ADDRESSES);
            Ok(addresses)
        }
    }
}

/// The system's resolver, with `/etc/hosts` and the other settings of this machine.
#[derive(Debug)]
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        let name = name.to_owned();
        // A lookup can't be cancelled. It uses its permit until it ends, even if the request is
        // dropped.
        let lookup = tokio::spawn(async move {
            let _permit = LOOKUPS.acquire().await;
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in tokio::net::lookup_host((name.as_str(), 0)).await? {
                if !addresses.contains(&address.ip()) {
                    addresses.push(address.ip());
                }
            }
            Ok(addresses)
        });
        Box::pin(async move { lookup.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[IpAddr], port: u16, until: Instant) -> Result<TcpStream, Error> {
    let mut failure = Error::ConnectionTimeout;
    for (index, address) in addresses.iter().enumerate() {
        let is_last = index + 1 == addresses.len();
        let end = if is_last { until } else { until.min(Instant::now() + ADDRESS_TIME) };
        match timeout_at(end, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => {
                // Requests are sent as a whole, so waiting for more data would only delay them.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = Error::from_connection(&error),
            Err(_) => failure = Error::ConnectionTimeout,
        }
    }
    Err(failure)
}
