//! Sends requests to servers that run as jobs of the call's session.
//!
//! These requests look up no name, use no proxy and leave no connection open. Each request uses a
//! socket of the session's own network, which reaches only the loopback address of that network.

use std::net::{IpAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use toolhold_contract::{Denial, JobServer, JobServers, NoJobServer};
use toolhold_policy::egress::Target;

use super::connect::CONNECT_TIME;
use super::record::Record;
use super::{Error, MAX_HEADERS};

#[derive(Debug)]
pub(super) struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The remedy for a request to a job that doesn't exist or doesn't listen yet.
pub(super) const REPEAT: &str = "Start the server as a job, or wait until the running job listens. \
                                 Then repeat the call.";

/// Returns the server of a job that listens at one of the addresses and the target's port.
pub(super) async fn find(
    servers: Option<Arc<dyn JobServers>>,
    addresses: &'static [IpAddr],
    target: &Target,
    method: &http::Method,
) -> Result<JobServer, Error> {
    let port = target.port;
    let until = (Instant::now() + CONNECT_TIME).into_std();
    let search = tokio::task::spawn_blocking(move || match servers {
        Some(servers) => servers.find(addresses, port, until),
        None => Err(NoJobServer::NotListening),
    });
    match search.await {
        Ok(Ok(server)) => Ok(server),
        Ok(Err(NoJobServer::NotListening)) => {
            Err(Error::NoJob(Box::new(no_listener_denial(target, method))))
        }
        Ok(Err(NoJobServer::Failed(reason))) => Err(Error::Connection(reason)),
        Err(error) => Err(Error::Connection(error.to_string())),
    }
}

/// Returns the denial of a request for which no job listens.
fn no_listener_denial(target: &Target, method: &http::Method) -> Denial {
    Denial {
        capability: "http".to_owned(),
        action: format!("{method} {}", target.origin()),
        rule: format!("no job of this session listens at port {}", target.port),
        place: "\"job\" in `allowed_domains` in [tools.web]".to_owned(),
        remedy: format!(
            "Start the server as a job, without the network: `bash` with `background = true`. \
             For a server of this machine, {} has to be in `allowed_private_hosts` in [tools.web].",
            target.host_and_port()
        ),
    }
}

/// Sends a request to the server of a job. The caller limits the time.
pub(super) async fn send(
    server: JobServer,
    mut request: Request<Full<Bytes>>,
    max_header_bytes: usize,
    record: &Record,
) -> Result<(Response<Incoming>, Connection), Error> {
    record.set_job(&server.job, server.address.ip());
    let tcp = connect(server).await?;
    // A request is written in one piece, so waiting for more data would only delay it.
    let _ = tcp.set_nodelay(true);

    move_host_to_header(&mut request)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(max_header_bytes).max_headers(MAX_HEADERS);
    let handshake = builder.handshake(TokioIo::new(tcp)).await;
    let (mut sender, connection) = handshake.map_err(|error| Error::from_hyper(&error))?;
    // If the connection fails, reading the answer also fails, so this error isn't needed.
    let task = tokio::spawn(async move { drop(connection.await) });
    let connection = Connection(task.abort_handle());
    let response = sender.send_request(request).await.map_err(|error| Error::from_hyper(&error))?;
    Ok((response, connection))
}

/// Connects the socket of the session's network to the server.
async fn connect(server: JobServer) -> Result<TcpStream, Error> {
    let Ok(descriptor) = server.socket.downcast::<OwnedFd>() else {
        return Err(Error::Connection("the job's socket isn't a TCP socket".to_owned()));
    };
    let socket = TcpSocket::from_std_stream(StdStream::from(*descriptor));
    let until = Instant::now() + CONNECT_TIME;
    match tokio::time::timeout_at(until, socket.connect(server.address)).await {
        Ok(connected) => connected.map_err(|error| Error::from_connection(&error)),
        Err(_) => Err(Error::ConnectionTimeout),
    }
}

/// Converts a request to the form for a server without a proxy: the host is in a header, and the
/// first line contains only the path.
fn move_host_to_header(request: &mut Request<Full<Bytes>>) -> Result<(), Error> {
    let uri = request.uri();
    let host = uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    let path = match uri.path_and_query() {
        Some(path) => path.as_str().parse::<Uri>(),
        None => "/".parse::<Uri>(),
    };
    let (Some(Ok(host)), Ok(path)) = (host, path) else {
        return Err(Error::Url("the URL has no host".to_owned()));
    };
    request.headers_mut().insert(HOST, host);
    *request.uri_mut() = path;
    Ok(())
}
