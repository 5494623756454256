//! Recognises the protocol of a connection by the first bytes of the program.

use std::io;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, timeout_at};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_policy::egress::TargetHost;

use crate::Error;

/// Bytes of the longest start of a connection: a TLS record has at most 16 KiB, and the start of
/// a TLS connection may have several records.
const MAX_FIRST: usize = 64 * 1024;

/// Time limit for the first bytes of a program, and for the bytes after them.
const FIRST_TIME: Duration = Duration::from_secs(60);
const NEXT_TIME: Duration = Duration::from_secs(10);

/// The first byte of a TLS connection, which is the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Bytes of the longest HTTP method that is recognised.
const MAX_METHOD: usize = 20;

/// Bytes of the longest host name in DNS.
const MAX_HOST_NAME: usize = 253;

/// The start of a connection.
#[derive(Debug)]
pub(super) struct FirstBytes {
    pub(super) protocol: Protocol,
    /// The bytes that were read. The server must get them.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// TLS, with the server name that the program has sent.
    Tls(Option<String>),
    Http,
    Other,
}

/// Reads from a program until the protocol is clear. With `patience`, a program that is silent
/// for this time gets [`Protocol::Other`], because the server may speak first.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    patience: Option<Duration>,
) -> io::Result<FirstBytes> {
    let usual_length = 1024;
    let mut bytes = Vec::with_capacity(usual_length);
    let first_end = Instant::now() + patience.unwrap_or(FIRST_TIME);
    let read = match timeout_at(first_end, stream.read_buf(&mut bytes)).await {
        Ok(read) => read?,
        Err(_) if patience.is_some() => {
            return Ok(FirstBytes { protocol: Protocol::Other, bytes });
        }
        Err(elapsed) => return Err(elapsed.into()),
    };
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }

    let end = Instant::now() + NEXT_TIME;
    loop {
        if let Some(protocol) = recognise(&bytes)? {
            return Ok(FirstBytes { protocol, bytes });
        }
        if bytes.len() >= MAX_FIRST {
            return Err(io::Error::other("the start of the TLS connection is too long"));
        }
        if timeout_at(end, stream.read_buf(&mut bytes)).await?? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the protocol. Returns `None` if more bytes are needed.
fn recognise(bytes: &[u8]) -> io::Result<Option<Protocol>> {
    if bytes.first() == Some(&HANDSHAKE) {
        return server_name(bytes);
    }
    let method_length = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    if method_length > MAX_METHOD {
        return Ok(Some(Protocol::Other));
    }
    match bytes.get(method_length) {
        None => Ok(None),
        Some(b' ') if method_length > 0 => Ok(Some(Protocol::Http)),
        Some(_) => Ok(Some(Protocol::Other)),
    }
}

/// Returns TLS with the server name of the program's first message. Returns `None` if the message
/// isn't complete.
fn server_name(mut bytes: &[u8]) -> io::Result<Option<Protocol>> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes)?;
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                return Ok(Some(Protocol::Tls(name)));
            }
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
    Ok(None)
}

pub(super) fn unknown_protocol() -> Error {
    let reason = "the program uses neither TLS nor HTTP, which needs an entry with the port in \
                  `hosts`";
    Error::Connection(reason.to_owned())
}

/// Checks the server name of TLS. A server may have several names at one address, so the
/// address doesn't decide which of them the program reaches.
pub(super) fn check_server_name(host: &TargetHost, name: Option<&str>) -> Result<(), Error> {
    let is_same = match (host, name) {
        (TargetHost::Name(looked_up), Some(name)) => {
            name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(looked_up)
        }
        (TargetHost::Name(_), None) => false,
        (TargetHost::Address(_), name) => name.is_none(),
    };
    if is_same {
        return Ok(());
    }
    let sent = match name {
        Some(name) => {
            format!("the server name `{}`", neutral_line(cut(name, MAX_HOST_NAME)))
        }
        None => "no server name".to_owned(),
    };
    Err(Error::Tls(format!("the program looked up {host}, but sent {sent} in TLS")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    fn hello(host: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory");
        bytes
    }

    #[test]
    fn tls_is_recognised_with_its_server_name_at_any_cut() {
        let tls = |name: &str| Some(Protocol::Tls(Some(name.to_owned())));
        let bytes = hello("example.org");
        assert_eq!(recognise(&bytes).expect("TLS"), tls("example.org"));
        for length in 1..bytes.len() {
            assert_eq!(recognise(&bytes[..length]).expect("a part of TLS"), None, "{length}");
        }
        assert_eq!(recognise(&hello("127.0.0.1")).expect("TLS"), Some(Protocol::Tls(None)));
        assert!(recognise(&[HANDSHAKE, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn http_is_recognised_by_its_method() {
        let cases = [
            ("GET / HTTP/1.1\r\n", Some(Protocol::Http)),
            ("PRI * HTTP/2.0\r\n", Some(Protocol::Http)),
            ("GE", None),
            ("SSH-2.0-x", Some(Protocol::Other)),
            (" GET /", Some(Protocol::Other)),
            ("\0", Some(Protocol::Other)),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", Some(Protocol::Other)),
        ];
        for (start, protocol) in cases {
            assert_eq!(recognise(start.as_bytes()).expect("no TLS"), protocol, "{start}");
        }
    }

    #[tokio::test]
    async fn silent_program_waits_for_the_server_only_with_patience() {
        let (mut near, far) = tokio::io::duplex(64);
        let first = read(&mut near, Some(Duration::from_millis(300))).await.expect("silence");
        assert!(first.protocol == Protocol::Other && first.bytes.is_empty(), "{first:?}");
        drop(far);
        let error = read(&mut near, None).await.expect_err("no bytes");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
