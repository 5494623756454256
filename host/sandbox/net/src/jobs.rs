//! Sends requests to servers that run as jobs of the call's session.
//!
//! The requests look up no name, use no proxy and leave no connection open. Each request goes
//! through a socket of the session's own network, so it can only reach the loopback address of that
//! network.

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
use tokio::net::TcpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use toolhold_contract::{Denial, JobServer, JobServers, NoJobServer};
use toolhold_policy::egress::Target;

use super::connect::CONNECT_TIME;
use super::record::Record;
use super::{Error, MAX_HEADERS};

/// A connection. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The remedy for a request to a job that doesn't exist, or doesn't listen yet.
pub(super) const REPEAT: &str = "Start the server as a job, or wait until the one that was started listens. Repeat the call then, not before.";

/// Returns the server of a job that listens on one of the addresses.
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
            Err(Error::NoJob(Box::new(not_listening(target, method))))
        }
        Ok(Err(NoJobServer::Failed(reason))) => Err(Error::Connection(reason)),
        Err(error) => Err(Error::Connection(error.to_string())),
    }
}

fn not_listening(target: &Target, method: &http::Method) -> Denial {
    Denial {
        capability: "http".to_owned(),
        action: format!("{method} {}", target.origin()),
        rule: format!("no job of this session listens at port {}", target.port),
        place: "`job_servers = true` in [tools.web]".to_owned(),
        remedy: format!(
            "Start the server as a job, without the network: `bash` with `background = true`. \
             For a server of this machine, {} has to be in `allowed_private_hosts` in [tools.web].",
            target.host_and_port()
        ),
    }
}

/// Sends a request to the server of a job. The caller bounds the time.
pub(super) async fn send(
    server: JobServer,
    mut request: Request<Full<Bytes>>,
    headers: usize,
    record: &Record,
) -> Result<(Response<Incoming>, Connection), Error> {
    record.set_job(&server.job, server.address.ip());
    let Ok(descriptor) = server.socket.downcast::<OwnedFd>() else {
        return Err(Error::Connection("the socket isn't one".to_owned()));
    };
    let socket = TcpSocket::from_std_stream(StdStream::from(*descriptor));
    let until = Instant::now() + CONNECT_TIME;
    let tcp = match tokio::time::timeout_at(until, socket.connect(server.address)).await {
        Ok(connected) => connected.map_err(|error| Error::from_connection(&error))?,
        Err(_) => return Err(Error::ConnectionTimeout),
    };
    let _ = tcp.set_nodelay(true);

    // In a request directly to the server, the host is in a header, and the first line has only the
    // path.
    let uri = request.uri();
    let host = uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>();
    let (Some(Ok(host)), Ok(path)) = (host, path) else {
        return Err(Error::Url("it has no host".to_owned()));
    };
    request.headers_mut().insert(HOST, host);
    *request.uri_mut() = path;

    let mut builder = http1::Builder::new();
    builder.max_buf_size(headers).max_headers(MAX_HEADERS);
    let handshake = builder.handshake(TokioIo::new(tcp)).await;
    let (mut sender, connection) = handshake.map_err(|error| Error::from_hyper(&error))?;
    // A failure of the connection is an error of the answer.
    let task = tokio::spawn(async move { drop(connection.await) });
    let connection = Connection(task.abort_handle());
    let response = sender.send_request(request).await.map_err(|error| Error::from_hyper(&error))?;
    Ok((response, connection))
}
