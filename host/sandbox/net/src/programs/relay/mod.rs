//! Serves the network of a command: resolves names, and takes the connections of programs.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::access::HostAccess;
use super::connection::AllowedConnection;
use super::failure_limit::FailureLimit;
use super::names::Names;
use super::pair::tcp_pair;
use super::resolver::{self, PAUSE};
use super::serve::serve;

/// Maximum number of simultaneous connections of one network. Further connections wait, because
/// each takes a descriptor of the host, which often may have only 1,024.
const MAX_CONNECTIONS: usize = 256;

/// Announced connections that the relay hasn't accepted yet.
const MAX_EXPECTED: usize = 1024;

/// Time limit between the announcement of a connection and its acceptance. The gate announces a
/// connection right after the kernel has made it.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// Time limit for the connections of a network after its end. A program may have ended right after
/// it has sent its bytes, while the relay still looks the host up or connects to it.
const DRAIN: Duration = Duration::from_secs(3);

/// The ends of the relays that were dropped, and may still have connections.
static ENDED: Mutex<Vec<watch::Sender<()>>> = Mutex::new(Vec::new());

/// Waits until the relays that were dropped have delivered what programs had sent to them. This
/// takes a few seconds at most. The end of the process would cut the connections short.
pub async fn drain_ended_relays() {
    let ended = std::mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
    let drained = async {
        for relay in &ended {
            relay.closed().await;
        }
    };
    let _ = timeout(DRAIN, drained).await;
}

/// Serves the network of commands until it is dropped. Then it takes no new connections, and ends
/// the present ones after a few seconds.
pub struct HostRelay {
    shared: Arc<Shared>,
    accesses: Mutex<Vec<NetworkAccess>>,
    /// Tells the tasks that accept connections about the end of the relay.
    end: watch::Sender<()>,
    /// The tasks that resolve names.
    resolvers: Vec<AbortHandle>,
    permits: Arc<Semaphore>,
    runtime: Handle,
}

/// The access of one table's programs in this network.
struct NetworkAccess {
    /// The access of the table in all networks. Gone after a change of the configuration.
    table: Weak<HostAccess>,
    own: Arc<HostAccess>,
}

impl fmt::Debug for HostRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRelay").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    names: Arc<Mutex<Names>>,
    v4: Option<SocketAddr>,
    v6: Option<SocketAddr>,
    /// The allowed connections by the address of the program's socket.
    expected: Mutex<HashMap<SocketAddr, (Instant, AllowedConnection)>>,
    announced: Notify,
    /// Limits the records of failures, for all programs in the network.
    failures: Arc<FailureLimit>,
}

impl HostRelay {
    /// Starts to serve a network on the threads of `runtime`, with sockets in this network:
    /// listeners at its loopback addresses of IPv4 and IPv6, and the sockets for DNS queries at
    /// port 53.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket can't be used.
    pub fn start(
        v4: std::net::TcpListener,
        v6: Option<std::net::TcpListener>,
        dns_udp: std::net::UdpSocket,
        dns_tcp: std::net::TcpListener,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let _entered = runtime.enter();
        let v6_address = v6.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let mut relay = Self::new(runtime, Some(v4.local_addr()?), v6_address);
        let shared = &relay.shared;
        for listener in [Some(v4), v6].into_iter().flatten() {
            let listener = listen(listener)?;
            let permits = Arc::clone(&relay.permits);
            runtime.spawn(accept(listener, Arc::clone(shared), permits, relay.end.subscribe()));
        }
        dns_udp.set_nonblocking(true)?;
        let udp = resolver::serve_udp(UdpSocket::from_std(dns_udp)?, Arc::clone(&shared.names));
        let tcp = resolver::serve_tcp(listen(dns_tcp)?, Arc::clone(&shared.names));
        relay.resolvers =
            vec![runtime.spawn(udp).abort_handle(), runtime.spawn(tcp).abort_handle()];
        Ok(relay)
    }

    /// Serves commands in the machine's network on the threads of `runtime`. Nothing listens there,
    /// because other users could connect: the relay makes each connection itself.
    pub fn without_network(runtime: &Handle) -> Self {
        Self::new(runtime, None, None)
    }

    fn new(runtime: &Handle, v4: Option<SocketAddr>, v6: Option<SocketAddr>) -> Self {
        Self {
            shared: Arc::new(Shared {
                names: Arc::default(),
                v4,
                v6,
                expected: Mutex::default(),
                announced: Notify::new(),
                failures: Arc::default(),
            }),
            accesses: Mutex::default(),
            end: watch::Sender::new(()),
            resolvers: Vec::new(),
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            runtime: runtime.clone(),
        }
    }

    /// Makes a connection that is allowed. Returns the program's end.
    pub(super) fn connect(&self, connection: AllowedConnection) -> io::Result<OwnedFd> {
        self.serve_pair(|stream| serve(connection, stream))
    }

    /// Makes a connection on which names are looked up. Returns the program's end.
    pub(super) fn connect_to_resolver(&self) -> io::Result<OwnedFd> {
        let names = Arc::clone(&self.shared.names);
        self.serve_pair(|stream| async move {
            // A program that ends its lookup early needs no answer.
            let _ = resolver::answer_stream(stream, &names).await;
        })
    }

    /// Serves one end of a new connection until the end of the relay. Returns the other end.
    fn serve_pair<S>(&self, serve_end: impl FnOnce(TcpStream) -> S) -> io::Result<OwnedFd>
    where
        S: Future<Output = ()> + Send + 'static,
    {
        // The gate can't wait, because its thread serves all processes of the command.
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Errno::CONNREFUSED)?;
        let [of_program, of_host] = tcp_pair()?;
        of_host.set_nonblocking(true)?;
        let _entered = self.runtime.enter();
        let serving = serve_end(TcpStream::from_std(of_host)?);
        let mut end = self.end.subscribe();
        self.runtime.spawn(async move {
            let _permit = permit;
            let ended = async {
                // An error means that the relay was dropped.
                let _ = end.changed().await;
                tokio::time::sleep(DRAIN).await;
            };
            tokio::select! {
                () = serving => {}
                () = ended => {}
            }
        });
        Ok(of_program.into())
    }

    /// Returns the name that has a synthetic address.
    pub(super) fn name_of(&self, address: IpAddr) -> Option<String> {
        let names = self.shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.name_of(address).map(str::to_owned)
    }

    /// Returns the access of a table with connections that count for this network alone.
    pub(super) fn own_access(&self, access: &Arc<HostAccess>) -> Arc<HostAccess> {
        let mut accesses = self.accesses.lock().unwrap_or_else(PoisonError::into_inner);
        accesses.retain(|known| known.table.strong_count() > 0);
        let table = Arc::downgrade(access);
        if let Some(known) = accesses.iter().find(|known| known.table.ptr_eq(&table)) {
            return Arc::clone(&known.own);
        }
        let own = Arc::new(access.with_own_connections());
        accesses.push(NetworkAccess { table, own: Arc::clone(&own) });
        own
    }

    /// Returns the limit for the records of failures.
    pub(super) fn failures(&self) -> Arc<FailureLimit> {
        Arc::clone(&self.shared.failures)
    }

    /// Returns the relay's address for a socket, or `None` if a socket of IPv6 (`is_v6`) can't
    /// reach the relay. `is_mapped` means that the socket connects to an IPv4 address.
    pub(super) fn address(&self, is_v6: bool, is_mapped: bool) -> Option<SocketAddr> {
        match (is_v6, is_mapped, self.shared.v4) {
            (true, true, Some(SocketAddr::V4(v4))) => {
                Some(SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()))
            }
            (true, ..) => self.shared.v6,
            (false, _, v4) => v4,
        }
    }

    /// Announces the connection of a socket at the address `from`.
    ///
    /// # Errors
    ///
    /// Fails if too many connections were announced.
    pub(super) fn expect(&self, from: SocketAddr, connection: AllowedConnection) -> io::Result<()> {
        let mut expected = self.shared.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if expected.len() >= MAX_EXPECTED {
            expected.retain(|_, (since, _)| since.elapsed() < ANNOUNCED);
        }
        if expected.len() >= MAX_EXPECTED {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        expected.insert(canonical(from), (Instant::now(), connection));
        drop(expected);
        self.shared.announced.notify_waiters();
        Ok(())
    }
}

impl Drop for HostRelay {
    fn drop(&mut self) {
        self.end.send_replace(());
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|relay| !relay.is_closed());
        ended.push(self.end.clone());
        drop(ended);
        for resolver in &self.resolvers {
            resolver.abort();
        }
    }
}

impl Shared {
    /// Returns the announced connection of a socket. Returns `None` if the gate has allowed none.
    async fn take(&self, from: SocketAddr) -> Option<AllowedConnection> {
        let from = canonical(from);
        let find = async {
            loop {
                // A connection that is announced after the search wakes this task.
                let mut announced = std::pin::pin!(self.announced.notified());
                announced.as_mut().enable();
                if let Some(connection) = self.remove(from) {
                    return connection;
                }
                announced.await;
            }
        };
        timeout(ANNOUNCED, find).await.ok()
    }

    fn remove(&self, from: SocketAddr) -> Option<AllowedConnection> {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.remove(&from).map(|(_, connection)| connection)
    }
}

/// Serves the connections of programs until the end of the relay, and then the present ones for at
/// most [`DRAIN`].
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    mut end: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    tokio::select! {
        () = accept_each(&listener, &shared, &permits, &mut connections) => {}
        _ = end.changed() => {}
    }
    if let Ok(waiting) = listener.into_std() {
        accept_waiting(&waiting, &shared, &permits, &mut connections);
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    // The connections that remain end with the set.
    let _ = timeout(DRAIN, drained).await;
}

/// Accepts the connections of programs.
async fn accept_each(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) {
    while let Ok(permit) = Arc::clone(permits).acquire_owned().await {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Without this, the set would keep each connection that has ended.
        while connections.try_join_next().is_some() {}
        connections.spawn(serve_allowed(Arc::clone(shared), stream, from, permit));
    }
}

/// Accepts the connections that wait at the end of the relay. The programs have sent their bytes,
/// and may have ended.
fn accept_waiting(
    listener: &std::net::TcpListener,
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) {
    while let Ok(permit) = Arc::clone(permits).try_acquire_owned()
        && let Ok((accepted, from)) = listener.accept()
    {
        if accepted.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(accepted)
        {
            connections.spawn(serve_allowed(Arc::clone(shared), stream, from, permit));
        }
    }
}

/// Serves a connection of a program. Closes it if the gate hasn't allowed it.
async fn serve_allowed(
    shared: Arc<Shared>,
    stream: TcpStream,
    from: SocketAddr,
    _permit: OwnedSemaphorePermit,
) {
    if let Some(connection) = shared.take(from).await {
        // The program decides when small pieces are sent, so they aren't delayed here.
        let _ = stream.set_nodelay(true);
        serve(connection, stream).await;
    }
}

fn listen(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
