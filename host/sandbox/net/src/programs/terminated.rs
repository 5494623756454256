//! Serves TLS connections of programs whose requests Toolhold reads, because a secret or a rule about
//! methods or paths needs it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use toolhold_policy::egress::Scheme;

use super::connection::AllowedConnection;
use super::connection_record::CONNECT;
use super::first_bytes::check_server_name;
use super::http::{self, with_first};
use crate::Error;

/// Time limit for the TLS handshake with a program.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Serves a connection. `first` are the bytes that were already read, and `name` is the server name
/// in them.
pub(super) async fn serve(
    connection: AllowedConnection,
    stream: TcpStream,
    first: Vec<u8>,
    name: Option<&str>,
) {
    let server = match check_server_name(&connection.host, name) {
        Ok(()) => connection.access.server(&connection.host),
        Err(error) => Err(error),
    };
    let accepted = match server {
        Ok(server) => match accept(stream, first, server).await {
            Ok(stream) => Ok(stream),
            Err(failure) => Err(handshake_error(&connection, &failure)),
        },
        Err(error) => Err(error),
    };
    match accepted {
        // Each request has its own record.
        Ok(stream) => http::serve(stream, connection, Scheme::Https).await,
        Err(error) => connection.record(Scheme::Https, CONNECT).set_failure(&error),
    }
}

/// Does the handshake with a program.
async fn accept(
    stream: TcpStream,
    first: Vec<u8>,
    server: Arc<ServerConfig>,
) -> io::Result<TlsStream<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>> {
    let handshake = TlsAcceptor::from(server).accept(with_first(stream, first));
    timeout(HANDSHAKE, handshake).await?
}

/// Returns the error for a failed handshake. If the program has refused the certificate, adds the
/// reason to the report.
fn handshake_error(connection: &AllowedConnection, failure: &io::Error) -> Error {
    if !is_untrusted(failure) {
        return Error::Tls(failure.to_string());
    }
    let reason = untrusted(connection);
    if let Some(report) = &connection.report {
        report.say(reason.clone());
    }
    Error::Tls(reason)
}

/// Checks whether a program has refused the certificate.
fn is_untrusted(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = inner else { return false };
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
    )
}

fn untrusted(connection: &AllowedConnection) -> String {
    let AllowedConnection { program, host, access, .. } = connection;
    let reason = access.reason_to_read(&connection.target(Scheme::Https));
    format!(
        "`{program}` refused Toolhold's certificate for {host}: it has its own list of trusted \
         certificates. Toolhold reads the requests to this host because of {reason}; without it, \
         the connection is passed on unread."
    )
}
