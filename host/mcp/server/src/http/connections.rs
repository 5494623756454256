//! Accepts TCP and Unix socket connections, limits their number, and closes them at shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use toolhold_core::CancellationToken;

use super::answering::Answering;
use super::listen_address::ListenAddress;
use super::refusals::Limit;
use super::unauthenticated::{Newcomer, Newcomers};
use crate::error::ServeError;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for receiving a request's headers, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after which a connection is closed if its client doesn't read the response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a request's headers in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Pause after a failed accept, for example without free descriptors. A failed accept returns at
/// once, so the loop needs a pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _bound: Bound },
}

/// The file of a socket, with its device and inode. A drop removes the file, unless another server
/// has put a new file at the path.
pub(super) struct Bound(PathBuf, Option<(u64, u64)>);

impl Bound {
    fn new(path: &Path) -> Self {
        Self(path.to_owned(), identity(path))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.1.is_some() && identity(&self.0) == self.1 {
            // If this fails, the next server removes the file.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Starts to listen. The returned address has the real port instead of port 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or not permitted.
    pub(super) async fn bind(address: &ListenAddress) -> Result<(Self, ListenAddress), ServeError> {
        let result = match address {
            ListenAddress::Tcp(address) => Self::bind_tcp(address).await,
            ListenAddress::Unix(path) => Self::bind_unix(path).await,
        };
        result.map_err(|error| ServeError::Listen { place: address.to_string(), error })
    }

    async fn bind_tcp(address: &SocketAddr) -> io::Result<(Self, ListenAddress)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((Self::Tcp(listener), ListenAddress::Tcp(address)))
    }

    async fn bind_unix(path: &Path) -> io::Result<(Self, ListenAddress)> {
        remove_unused_socket(path).await?;
        let listener = UnixListener::bind(path)?;
        // A drop of `_bound` removes the socket, also if the next step fails.
        let _bound = Bound::new(path);
        // Another user's client may connect before this line, so `accept` checks the user of each
        // client.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok((Self::Unix { listener, _bound }, ListenAddress::Unix(path.to_owned())))
    }

    /// Accepts a connection. Also returns the name of the peer for the log.
    async fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer_address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // With this option, Linux closes the connection of a peer that has vanished.
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Ok((Box::new(stream), peer_address.to_string()))
            }
            Self::Unix { listener, .. } => loop {
                let (stream, _peer_address) = listener.accept().await?;
                if is_own_user(&stream)? {
                    return Ok((Box::new(stream), "the socket".to_owned()));
                }
                tracing::warn!("a connection of another user's process was refused");
            },
        }
    }
}

type Stream = Box<dyn Both>;

trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

fn is_own_user(stream: &UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw())
}

/// Removes the socket at `path` if no server listens on it. Returns an error for other kinds of
/// files.
async fn remove_unused_socket(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file at this path isn't a socket: use another path, or remove the file",
        ));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // Otherwise, another server may be listening on the socket. The socket stays, so `bind`
        // fails.
        _ => Ok(()),
    }
}

pub(super) struct OpenConnections(GracefulShutdown);

impl OpenConnections {
    /// Closes each connection after its current response. Waits at most `patience`.
    pub(super) async fn closed_within(self, patience: Duration) {
        if timeout(patience, self.0.shutdown()).await.is_err() {
            tracing::warn!("connections are closed because their clients don't read");
        }
    }
}

/// Accepts connections until `end` is cancelled. Authenticates at most `max_authenticated`
/// connections at a time.
pub(super) async fn accept(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    max_authenticated: u64,
    answering: Arc<Answering>,
    end: &CancellationToken,
) -> OpenConnections {
    let newcomers = Newcomers::new(max_authenticated);
    let open = OpenConnections(GracefulShutdown::new());
    for number in 0.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let newcomer = Arc::new(newcomers.enter(number, from).await);
        let tls = tls.clone();
        let answering = Arc::clone(&answering);
        let watcher = open.0.watcher();
        tokio::spawn(async move {
            let served = async {
                if let Some(stream) = shake_hands(stream, tls).await {
                    serve(stream, Arc::clone(&answering), watcher, Arc::clone(&newcomer)).await;
                }
            };
            tokio::select! {
                () = served => {}
                () = newcomer.close.cancelled() => {
                    answering.refusals.record(Limit::Newcomers, "", &newcomer.from);
                }
            }
        });
    }
    open
}

async fn shake_hands(stream: Stream, tls: Option<TlsAcceptor>) -> Option<Stream> {
    let Some(tls) = tls else { return Some(stream) };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        _ => None,
    }
}

async fn serve(
    stream: Stream,
    answering: Arc<Answering>,
    watcher: hyper_util::server::graceful::Watcher,
    newcomer: Arc<Newcomer>,
) {
    let _counted = answering.metrics.count_connection();
    let service = service_fn(|request| {
        let answering = Arc::clone(&answering);
        let newcomer = Arc::clone(&newcomer);
        async move { Ok::<_, Infallible>(answering.answer(request, &newcomer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(StallGuard { stream, limit: None }), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A stream that fails if its client doesn't read for [`STALL_TIMEOUT`].
struct StallGuard {
    stream: Stream,
    /// Set while a write waits.
    limit: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    /// Returns the result of a write, or an error if writes have been pending for
    /// [`STALL_TIMEOUT`].
    fn limit_wait<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.limit = None;
            return result;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
        match limit.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for StallGuard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit_wait(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.limit_wait(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit_wait(context, result)
    }
}
