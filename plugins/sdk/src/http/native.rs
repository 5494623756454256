//! Sockets of the operating system instead of the host, for unit tests: HTTP/1.0 without TLS and
//! without rules.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Answer, Hop, HttpError, HttpErrorKind};

/// The default timeout in a test.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// The greatest size of status and headers in bytes.
const MAX_HEAD: usize = 64 * 1024;

pub(super) fn exchange(hop: &Hop) -> Result<Answer, HttpError> {
    if hop.url.scheme() == "https" {
        return Err(HttpError::new(HttpErrorKind::Tls, "unit tests have no TLS"));
    }
    let received = talk(hop).map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => HttpErrorKind::Timeout,
            _ => HttpErrorKind::Connection,
        };
        HttpError::new(kind, error.to_string())
    })?;
    let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(malformed)?;
    let head = &received[..end];
    let mut body = received[end + 4..].to_vec();
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end());
    let status = lines.next().and_then(|line| {
        str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
    });
    let headers = lines.map(header).collect::<Option<_>>().ok_or_else(malformed)?;
    let cut = body.len() > hop.max_body;
    body.truncate(hop.max_body);
    Ok(Answer { status: status.ok_or_else(malformed)?, headers, body, cut })
}

fn malformed() -> HttpError {
    HttpError::new(HttpErrorKind::Malformed, "the answer breaks the protocol")
}

fn header(line: &[u8]) -> Option<(String, String)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((
        super::text(line[..colon].to_ascii_lowercase()),
        super::text(line[colon + 1..].trim_ascii().to_vec()),
    ))
}

/// Sends the request, and reads until the server closes the connection or the limit is reached.
fn talk(hop: &Hop) -> io::Result<Vec<u8>> {
    let address =
        hop.url.socket_addrs(|| None)?.into_iter().next().ok_or(ErrorKind::HostUnreachable)?;
    let time = hop.timeout.unwrap_or(DEFAULT_TIME);
    let mut stream = TcpStream::connect_timeout(&address, time)?;
    stream.set_read_timeout(Some(time))?;
    let path = &hop.url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut request =
        format!("{} {path} HTTP/1.0\r\nhost: {}\r\n", hop.method, hop.url.authority());
    for (name, value) in &hop.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", hop.body.len()));
    stream.write_all(request.as_bytes())?;
    stream.write_all(&hop.body)?;
    let mut received = Vec::new();
    stream.take((MAX_HEAD + hop.max_body) as u64 + 1).read_to_end(&mut received)?;
    Ok(received)
}
