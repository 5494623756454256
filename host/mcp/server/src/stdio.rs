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

use crate::admission::bounded;
use crate::error::ServeError;
use crate::lines::Lines;
use crate::server::Server;

/// The size of the largest message, in bytes. The arguments of a call are at most 1 MiB by default,
/// and may be longer as JSON.
const MESSAGE: usize = 4 << 20;

/// Serves the client on stdin and stdout until the client closes stdin or `end` is cancelled. Calls
/// that run at this time are ended and recorded. The client has its own session, so it shares no
/// approvals, counters or stored answers.
///
/// Only protocol messages reach the client. From this call on, other output of this process to
/// stdout goes to stderr.
///
/// # Errors
///
/// See [`ServeError`].
pub async fn serve_stdio(
    server: Server,
    session: Session,
    end: CancellationToken,
) -> Result<(), ServeError> {
    let input = stdin().try_clone_to_owned().map_err(failed("taking stdin"))?;
    let output = stdout().try_clone_to_owned().map_err(failed("taking stdout"))?;
    if is_pollable(&output).map_err(failed("looking at stdout"))? {
        dup2_stdout(stderr())
            .map_err(|error| failed("keeping stdout for the protocol")(error.into()))?;
    }
    let reading = reader(input).map_err(failed("reading stdin"))?;
    let writing = writer(output).map_err(failed("writing to stdout"))?;
    serve(server, session, reading, writing, end).await
}

/// Returns a function for `map_err` that adds the failed step to an I/O error.
fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::Io { what, error }
}

/// Serves one client. The client writes to `reading` and reads from `writing`.
pub(crate) async fn serve(
    server: Server,
    session: Session,
    reading: impl AsyncRead + Send + Unpin + 'static,
    writing: impl AsyncWrite + Send + Unpin + 'static,
    end: CancellationToken,
) -> Result<(), ServeError> {
    let calls = server.calls().clone();
    let server = server.connection(Some(session));
    let gone = server.closed().clone();
    let (server, transport) =
        bounded(server, Lines::new(reading, writing, MESSAGE), gone, end.clone());
    let result = match server.serve_with_ct(transport, end).await {
        Ok(service) => match service.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => {
                Err(ServeError::Protocol(error.to_string()))
            }
            Ok(_) => Ok(()),
        },
        // The client disconnected before the session started.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(ServeError::Protocol(error.to_string())),
    };
    calls.end().await;
    result
}

/// Makes a reader. For a pipe or a socket, the reactor waits on the thread that then handles the
/// message, because a switch to another thread would take longer than the call. Other files, such
/// as a terminal, are read on a thread that may block.
fn reader(input: OwnedFd) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    Ok(match kind(&input)? {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(input)?),
        FileType::Socket => Box::new(socket(input)?),
        _ => Box::new(tokio::io::stdin()),
    })
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

/// Checks whether a descriptor is a pipe or a socket.
fn is_pollable(fd: impl AsFd) -> io::Result<bool> {
    Ok(matches!(kind(fd)?, FileType::Fifo | FileType::Socket))
}

fn kind(fd: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}
