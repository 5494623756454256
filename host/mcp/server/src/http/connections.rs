//! Accepts TCP and Unix socket connections, limits their number, and closes them when the server
//! ends.

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
use super::unauthenticated::{Newcomer, Newcomers};
use crate::error::ServeError;

/// Time limit for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Time limit for a request's headers, and for an idle connection.
const HEAD: Duration = Duration::from_secs(15);

/// Time after which a connection ends if its client doesn't read the response.
const STALL: Duration = Duration::from_secs(30);

/// Bytes of a request's headers.
const HEAD_BYTES: usize = 64 << 10;

/// Pause before the next accept if the system has no free descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// The listeners.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _bound: Bound },
}

/// The file of a socket. The file is removed with the listener. Device and inode show whether the
/// path still leads to the same file.
pub(super) struct Bound(PathBuf, Option<(u64, u64)>);

impl Bound {
    fn new(path: &Path) -> Self {
        Self(path.to_owned(), identity(path))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.1.is_some() && identity(&self.0) == self.1 {
            // The next listener removes a file that stays.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Starts to listen. Returns the address, with the real port instead of port 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use, or if the system refuses it.
    pub(super) async fn bind(place: &ListenAddress) -> Result<(Self, ListenAddress), ServeError> {
        let result = match place {
            ListenAddress::Tcp(address) => Self::bind_tcp(address).await,
            ListenAddress::Unix(path) => Self::bind_unix(path).await,
        };
        result.map_err(|error| ServeError::Listen { place: place.to_string(), error })
    }

    async fn bind_tcp(address: &SocketAddr) -> io::Result<(Self, ListenAddress)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((Self::Tcp(listener), ListenAddress::Tcp(address)))
    }

    async fn bind_unix(path: &Path) -> io::Result<(Self, ListenAddress)> {
        remove_unused_socket(path).await?;
        let listener = UnixListener::bind(path)?;
        let _bound = Bound::new(path);
        // The user of an earlier connection is checked like any other.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok((Self::Unix { listener, _bound }, ListenAddress::Unix(path.to_owned())))
    }

    /// Accepts a connection. Also returns its peer for the log.
    async fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // A lost peer is noticed after about two minutes.
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Ok((Box::new(stream), from.to_string()))
            }
            Self::Unix { listener, .. } => loop {
                let (stream, _) = listener.accept().await?;
                if is_own_user(&stream)? {
                    return Ok((Box::new(stream), "the socket".to_owned()));
                }
                tracing::warn!("a process of another user was turned away");
            },
        }
    }
}

type Stream = Box<dyn Both>;

/// The byte stream.
trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

/// Checks whether the process at the other end is this user's.
fn is_own_user(stream: &UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw())
}

/// Removes a socket without a listener.
///
/// # Errors
///
/// The path has another file, or the socket can't be removed.
async fn remove_unused_socket(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file there isn't a socket: name another path, or remove it",
        ));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

/// Open connections.
pub(super) struct Open(GracefulShutdown);

impl Open {
    /// Ends each connection after its current response.
    pub(super) async fn closed_within(self, patience: Duration) {
        if timeout(patience, self.0.shutdown()).await.is_err() {
            tracing::warn!("connections are closed because their clients don't read");
        }
    }
}

/// Accepts connections until `end` is cancelled. At most `most` of them are authenticated at a
/// time.
pub(super) async fn accept(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    most: u64,
    answering: Arc<Answering>,
    end: &CancellationToken,
) -> Open {
    let newcomers = Newcomers::new(most);
    let open = Open(GracefulShutdown::new());
    for number in 0.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("a connection could not be taken: {error}");
                sleep(BREATH).await;
                continue;
            }
        };
        let visitor = Arc::new(newcomers.enter(number, from));
        let leave = visitor.leave.clone();
        let tls = tls.clone();
        let answering = Arc::clone(&answering);
        let watcher = open.0.watcher();
        tokio::spawn(async move {
            let served = async {
                if let Some(stream) = shake_hands(stream, tls).await {
                    serve(stream, answering, watcher, visitor).await;
                }
            };
            tokio::select! {
                () = served => {}
                () = leave.cancelled() => {}
            }
        });
    }
    open
}

/// Makes the TLS handshake, if TLS is configured. Returns `None` if the handshake fails.
async fn shake_hands(stream: Stream, tls: Option<TlsAcceptor>) -> Option<Stream> {
    let Some(tls) = tls else { return Some(stream) };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        _ => None,
    }
}

/// Serves one connection until it ends.
async fn serve(
    stream: Stream,
    answering: Arc<Answering>,
    watcher: hyper_util::server::graceful::Watcher,
    visitor: Arc<Newcomer>,
) {
    let _counted = answering.metrics.connection();
    let service = service_fn(|request| {
        let answering = Arc::clone(&answering);
        let visitor = Arc::clone(&visitor);
        async move { Ok::<_, Infallible>(answering.answer(request, &visitor).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(StallGuard { stream, limit: None }), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A stream that ends if its client doesn't read the response.
struct StallGuard {
    stream: Stream,
    /// The time limit of a write that waits.
    limit: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    /// Fails a write that waits for longer than the limit.
    fn limit_wait<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.limit = None;
            return result;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(STALL)));
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
