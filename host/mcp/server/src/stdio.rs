//! Serves the MCP client that started this process, on stdin and stdout.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use rustix::fs::FileType;
use rustix::stdio::{dup2_stdout, stderr, stdin, stdout};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use toolhold_core::{CancellationToken, Session};

use crate::admission::limit_open_requests;
use crate::error::ServeError;
use crate::lines::Lines;
use crate::server::Server;

/// Maximum length of a message in bytes. Longer messages are refused. The arguments of a call are
/// at most 1 MiB by default, but JSON escapes can make them longer.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Serves the client on stdin and stdout until the client closes stdin or `end` is cancelled. Open
/// calls are then cancelled and recorded.
///
/// The client gets only protocol messages. From now on, other output of this process to stdout goes
/// to stderr.
///
/// # Errors
///
/// Returns an error if stdin or stdout can't be used, or if the client violates the protocol.
pub async fn serve_stdio(
    server: Server,
    session: Session,
    end: CancellationToken,
) -> Result<(), ServeError> {
    let input = stdin().try_clone_to_owned().map_err(failed("stdin can't be duplicated"))?;
    let output = stdout().try_clone_to_owned().map_err(failed("stdout can't be duplicated"))?;
    // Only pipes and sockets are written through the duplicate. A file or terminal is written
    // through stdout itself, so stdout must not be redirected then.
    if is_pollable(&output).map_err(failed("the kind of stdout can't be determined"))? {
        dup2_stdout(stderr())
            .map_err(io::Error::from)
            .map_err(failed("stdout can't be redirected to stderr"))?;
    }
    let reading = reader(input).map_err(failed("stdin can't be read"))?;
    let writing = writer(output).map_err(failed("stdout can't be written to"))?;
    serve(server, session, reading, writing, end).await
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::Io { what, error }
}

/// Serves one client, which writes to `reading` and reads from `writing`.
pub(crate) async fn serve(
    server: Server,
    session: Session,
    reading: impl AsyncRead + Send + Unpin + 'static,
    writing: impl AsyncWrite + Send + Unpin + 'static,
    end: CancellationToken,
) -> Result<(), ServeError> {
    let calls = server.calls().clone();
    let server = server.connection(Some(session));
    let client_gone = server.closed().clone();
    let lines = Lines::new(reading, writing, MAX_MESSAGE_BYTES);
    let (server, transport) = limit_open_requests(server, lines, client_gone, end.clone());
    let result = match server.serve_with_ct(transport, end).await {
        Ok(service) => match service.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => {
                Err(ServeError::Protocol(error.to_string()))
            }
            Ok(_) => Ok(()),
        },
        // A client that leaves before the handshake is no error.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(ServeError::Protocol(error.to_string())),
    };
    calls.end().await;
    result
}

/// Creates a reader. Pipes and sockets are polled, because a switch to a blocking thread takes
/// longer than a call. Other files, such as terminals, are read on a blocking thread.
fn reader(input: OwnedFd) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    match kind(&input)? {
        FileType::Fifo => Ok(Box::new(pipe::Receiver::from_owned_fd(input)?)),
        FileType::Socket => Ok(Box::new(socket(input)?)),
        _ => Ok(Box::new(tokio::io::stdin())),
    }
}

fn writer(output: OwnedFd) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
    Ok(match kind(&output)? {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(output)?),
        FileType::Socket => Box::new(socket(output)?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn socket(fd: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let socket = UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}

fn is_pollable(fd: impl AsFd) -> io::Result<bool> {
    Ok(matches!(kind(fd)?, FileType::Fifo | FileType::Socket))
}

fn kind(fd: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}
