//! Passes the bytes of a connection on without changing them.

use std::io;
use std::pin::pin;
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use toolhold_policy::egress::Scheme;

use super::connection::AllowedConnection;
use super::connection_record::{CONNECT, ConnectionRecord, Direction};
use super::first_bytes::{FirstBytes, Protocol, check_server_name, unknown_protocol};
use crate::Error;
use crate::record::Record;

const CHUNK: usize = 64 * 1024;

/// Time limit for the server's last bytes on an upgraded connection, after the program's side has
/// ended. A server of WebSocket answers a Close at once.
const REST: Duration = Duration::from_secs(3);

/// Passes bytes in both directions until both sides have ended, or one side fails.
async fn pass(
    program: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    record: &Record,
) -> io::Result<()> {
    let (from_program, to_program) = tokio::io::split(program);
    let (from_server, to_server) = tokio::io::split(server);
    tokio::try_join!(
        pass_one_way(from_program, to_server, record, Direction::ToServer),
        pass_one_way(from_server, to_program, record, Direction::ToProgram),
    )?;
    Ok(())
}

/// Passes bytes in both directions until both sides have ended, or one side fails. After the
/// program's side has ended, the server has [`REST`] to end its side, so that it can answer, but
/// doesn't keep the connection open. Fails only if the first side to end fails. The rest may fail,
/// because the side that has ended may be closed already.
pub(super) async fn pass_upgraded(
    program: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    record: &Record,
) -> io::Result<()> {
    let (from_program, to_program) = tokio::io::split(program);
    let (from_server, to_server) = tokio::io::split(server);
    let mut sending = pin!(pass_one_way(from_program, to_server, record, Direction::ToServer));
    let mut receiving = pin!(pass_one_way(from_server, to_program, record, Direction::ToProgram));
    tokio::select! {
        biased;
        sent = &mut sending => {
            sent?;
            let _ = timeout(REST, receiving).await;
        }
        received = &mut receiving => {
            received?;
            // The program reads the rest, and then ends its side.
            let _ = sending.await;
        }
    }
    Ok(())
}

async fn pass_one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    record: &Record,
    direction: Direction,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        direction.count(record, length);
        to.write_all(&chunk[..length]).await?;
        // TLS may hold bytes back until it is flushed.
        to.flush().await?;
    }
}

/// Passes the bytes of a connection on, if the rules allow its protocol.
pub(super) async fn serve(
    connection: &AllowedConnection,
    stream: &mut TcpStream,
    first: &FirstBytes,
    record: &ConnectionRecord,
) -> Result<(), Error> {
    match &first.protocol {
        Protocol::Tls(name) => check_server_name(&connection.host, name.as_deref())?,
        _ if connection.is_plain_tcp() => {}
        _ => return Err(unknown_protocol()),
    }
    let target = connection.target(Scheme::Https);
    let reach = &connection.access.egress.settings().reach;
    // The host can't see the methods and paths of the requests in a tunnel. So the connection is
    // granted only by an entry without limits for methods and paths, because other entries don't
    // match the method `CONNECT` with an empty path.
    let path = "";
    let no_approvals: [String; 0] = [];
    if let Err(denial) = reach.request(&target, CONNECT, path, &no_approvals) {
        return Err(Error::Refused(Box::new(denial)));
    }
    let uri = target.origin().parse::<Uri>().map_err(|error| Error::Url(error.to_string()))?;
    record.set_reached_host();
    let mut server = connection.access.connector.open(&target, &uri).await?;
    if !connection.access.has_proxy() {
        record.set_address(server.tcp.peer_addr().ok().map(|address| address.ip()));
    }
    Direction::ToServer.count(record, first.bytes.len());
    server.write_all(&first.bytes).await.map_err(|error| Error::from_connection(&error))?;
    pass(stream, server, record).await.map_err(|error| Error::from_connection(&error))
}
