//! Serves a connection of a program by its protocol.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use toolhold_contract::text::neutral_line;
use toolhold_policy::egress::Scheme;

use super::connection::AllowedConnection;
use super::connection_record::CONNECT;
use super::first_bytes::{self, Protocol};
use super::http::{self, with_first};
use super::terminated;
use super::tunnel;
use crate::Error;

/// How long a program of a protocol in which the server speaks first may stay silent.
const SILENCE: Duration = Duration::from_millis(300);

/// Passes a connection of a program on to its host, if the program talks to this host. If a person
/// has to approve the host, the connection waits for the answer.
pub(super) async fn serve(mut connection: AllowedConnection, mut stream: TcpStream) {
    let patience = if connection.may_be_plain_tcp() { Some(SILENCE) } else { None };
    let first = match first_bytes::read(&mut stream, patience).await {
        Ok(first) => first,
        Err(error) => {
            let record = connection.record(Scheme::Https, CONNECT);
            return record.set_failure(&Error::Connection(error.to_string()));
        }
    };
    if let Err(error) = connection.approve(&first.protocol).await {
        if let (Some(report), Some(denial)) = (&connection.report, error.denial()) {
            report.say(neutral_line(&denial.to_string()));
        }
        let scheme = if first.protocol == Protocol::Http { Scheme::Http } else { Scheme::Https };
        connection.record(scheme, CONNECT).set_failure(&error);
        return break_off(&stream);
    }
    match &first.protocol {
        Protocol::Http => {
            http::serve(with_first(stream, first.bytes), connection, Scheme::Http).await;
        }
        Protocol::Tls(name)
            if connection.access.reads_requests(&connection.target(Scheme::Https)) =>
        {
            terminated::serve(connection, stream, first.bytes, name.as_deref()).await;
        }
        Protocol::Tls(_) | Protocol::Other => {
            let record = connection.record(Scheme::Https, CONNECT);
            if let Err(error) = tunnel::serve(&connection, &mut stream, &first, &record).await {
                record.set_failure(&error);
                break_off(&stream);
            }
        }
    }
}

/// Lets the program see a broken connection, and no answer that could be the server's.
fn break_off(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
