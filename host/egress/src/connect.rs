//! Connections: the one place that makes any. A name is looked up once, each of its addresses is
//! decided on, and the connection goes to one of these very addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use berth_policy::egress::{Target, TargetHost};
use http::Uri;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::stream::Stream;
use super::{Error, Network, Resolve, Settings};

/// How long looking a name up and connecting may take, both together, and one address of several.
const CONNECT: Duration = Duration::from_secs(10);
const ADDRESS: Duration = Duration::from_secs(4);

/// Connections of one plugin, those that wait among them. One more waits for another to go.
const CONNECTIONS: usize = 128;

/// Addresses of one name that are looked at.
const MAX_ADDRESSES: usize = 32;

/// Look-ups at a time, of all plugins: each may take a thread of those that block until the
/// system's resolver gives up.
static LOOKUPS: Semaphore = Semaphore::const_new(16);

/// Makes the connections of one plugin.
#[derive(Clone, Debug)]
pub(super) struct Connector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    proxy: Option<Matcher>,
    places: Arc<Semaphore>,
}

impl Connector {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let proxy = settings.network.proxy.as_ref();
        let proxy = proxy.map(|proxy| {
            Matcher::builder().all(proxy.url.clone()).no(proxy.except.clone()).build()
        });
        Self(Arc::new(Inner { settings, proxy, places: Arc::new(Semaphore::new(CONNECTIONS)) }))
    }

    async fn connect(&self, uri: Uri) -> Result<TokioIo<Stream>, Error> {
        let target = Target::parse(&uri.to_string()).map_err(Error::Url)?;
        let until = Instant::now() + CONNECT;
        let Ok(Ok(place)) = timeout_at(until, Arc::clone(&self.0.places).acquire_owned()).await
        else {
            return Err(Error::Busy);
        };
        // What is here is not where the proxy is, and what goes there in the open is not for it to
        // read.
        let proxy = self.0.proxy.as_ref().filter(|_| !is_here(&target.host));
        let tcp = match proxy.and_then(|proxy| proxy.intercept(&uri)) {
            Some(proxy) => self.through(&proxy, &target, until).await?,
            None => dial(&self.addresses(&target, until).await?, target.port, until).await?,
        };
        Ok(TokioIo::new(Stream { tcp, _place: place }))
    }

    /// The addresses of a target, each of which it may be reached at.
    async fn addresses(&self, target: &Target, until: Instant) -> Result<Vec<IpAddr>, Error> {
        let Settings { reach, network, .. } = &*self.0.settings;
        let addresses = match &target.host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => look_up(network, name, until).await?,
        };
        for address in &addresses {
            // Where it listens at all addresses of the machine, at this one too, if that is one of
            // them.
            let all = |own: &&SocketAddr| {
                own.ip().is_unspecified() && own.port() == target.port && is_own(*address)
            };
            let here =
                network.listening.iter().find(all).map(|own| SocketAddr::new(*address, own.port()));
            let listening: Vec<SocketAddr> =
                network.listening.iter().copied().chain(here).collect();
            reach
                .address(target, *address, &listening)
                .map_err(|denial| Error::Address(Box::new(denial)))?;
        }
        Ok(addresses)
    }

    /// A tunnel through the proxy. It is told the address that was looked at, so that it can't find
    /// another one behind the name, unless the operator leaves names to it.
    async fn through(
        &self,
        proxy: &Intercept,
        target: &Target,
        until: Instant,
    ) -> Result<TcpStream, Error> {
        if proxy.uri().scheme_str() != Some("http") {
            return Err(Error::Setup(
                "the proxy isn't of the form `http://host:port`, the only supported kind"
                    .to_owned(),
            ));
        }
        let names = self.0.settings.network.proxy.as_ref().is_some_and(|proxy| proxy.resolves);
        let host = match &target.host {
            TargetHost::Name(name) if names => name.clone(),
            _ => match self.addresses(target, until).await?.first() {
                Some(IpAddr::V6(address)) => format!("[{address}]"),
                Some(IpAddr::V4(address)) => address.to_string(),
                None => return Err(Error::Name("it has no address".to_owned())),
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
            Ok(Err(error)) => Err(Error::Proxy(
                std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), ToString::to_string),
            )),
            Err(_) => Err(Error::Proxy("it took too long".to_owned())),
        }
    }
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

/// Whether a host is this machine by what it is called.
fn is_here(host: &TargetHost) -> bool {
    match host {
        TargetHost::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        TargetHost::Address(address) => address.to_canonical().is_loopback(),
    }
}

/// Whether an address is one of this machine's: only those can be bound.
fn is_own(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// Connects to the proxy, which the operator names: no rule of a plugin's is about it.
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
            let addresses = system_look_up(&host, until).await?;
            dial(&addresses, uri.port_u16().unwrap_or(80), until).await.map(TokioIo::new)
        })
    }
}

async fn look_up(network: &Network, name: &str, until: Instant) -> Result<Vec<IpAddr>, Error> {
    match &network.resolver {
        Some(resolver) => in_time(resolver.resolve(name), until).await,
        None => system_look_up(name, until).await,
    }
}

async fn system_look_up(name: &str, until: Instant) -> Result<Vec<IpAddr>, Error> {
    in_time(SystemResolver.resolve(name), until).await
}

async fn in_time(
    looking: impl Future<Output = io::Result<Vec<IpAddr>>>,
    until: Instant,
) -> Result<Vec<IpAddr>, Error> {
    match timeout_at(until, looking).await {
        Err(_) => Err(Error::NameTimeout),
        Ok(Err(error)) => Err(Error::Name(error.to_string())),
        Ok(Ok(addresses)) if addresses.is_empty() => {
            Err(Error::Name("it has no address".to_owned()))
        }
        Ok(Ok(mut addresses)) => {
            addresses.truncate(MAX_ADDRESSES);
            Ok(addresses)
        }
    }
}

/// The system's resolver, which knows `/etc/hosts` and whatever else this machine is set up with.
#[derive(Debug)]
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        let name = name.to_owned();
        // It can't be ended, so it keeps its place until it is over, also when nobody waits any
        // more.
        let looking = tokio::spawn(async move {
            let _place = LOOKUPS.acquire().await;
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in tokio::net::lookup_host((name.as_str(), 0)).await? {
                if !addresses.contains(&address.ip()) {
                    addresses.push(address.ip());
                }
            }
            Ok(addresses)
        });
        Box::pin(async move { looking.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// Connects to the first of some addresses that answers.
async fn dial(addresses: &[IpAddr], port: u16, until: Instant) -> Result<TcpStream, Error> {
    let mut failed = Error::ConnectionTimeout;
    for (index, address) in addresses.iter().enumerate() {
        let last = index + 1 == addresses.len();
        let end = if last { until } else { until.min(Instant::now() + ADDRESS) };
        match timeout_at(end, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => {
                // What is sent is whole requests; waiting for more of them only costs.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failed = Error::from_connection(&error),
            Err(_) => failed = Error::ConnectionTimeout,
        }
    }
    Err(failed)
}
