//! Servers on loopback that answer as a test says, and record the requests.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

/// A request as a server received it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// The first line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

pub(crate) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

type Answer = dyn Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync;

/// A server that runs until it is dropped. Each connection serves requests until the client closes
/// it or an answer fails.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn plain(
        answer: impl Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start(None, Arc::new(answer))
    }

    pub(crate) fn tls(
        config: Arc<ServerConfig>,
        answer: impl Fn(&Asked, &mut dyn Wire) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(config), Arc::new(answer))
    }

    fn start(tls: Option<Arc<ServerConfig>>, answer: Arc<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (received, connections, stopping) = (
            Arc::<Mutex<Vec<Asked>>>::default(),
            Arc::<AtomicUsize>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (seen, count, stopping_flag) =
            (Arc::clone(&received), Arc::clone(&connections), Arc::clone(&stopping));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopping_flag.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (tls, answer, seen) = (tls.clone(), Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let _ = match tls {
                        None => serve(stream, &seen, &*answer),
                        Some(tls) => ServerConnection::new(tls).map_err(io::Error::other).and_then(
                            |connection| {
                                serve(StreamOwned::new(connection, stream), &seen, &*answer)
                            },
                        ),
                    };
                });
            }
        });
        Self { address, received, connections, stopping, accepting: Some(accepting) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.received.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(stream: impl Wire, seen: &Mutex<Vec<Asked>>, answer: &Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut received = Asked { head, body: Vec::new() };
        let length =
            received.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        received.body.resize(length, 0);
        reader.read_exact(&mut received.body)?;
        seen.lock().expect("nobody panicked").push(received.clone());
        answer(&received, reader.get_mut())?;
        reader.get_mut().flush()?;
    }
}

/// Writes a complete answer.
pub(crate) fn answer(
    wire: &mut dyn Wire,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(wire, "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len())?;
    wire.write_all(body)
}

/// A certificate authority for tests.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key is made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a server's certificate for self-signed if both have the same name.
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).expect("it is signed");
        let folder = TempDir::new().expect("a folder is made");
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("it is written");
        Self { issuer: Issuer::new(params, key), folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The TLS configuration of a server with these names. `protocols` is in the order of
    /// preference.
    pub(crate) fn server(
        &self,
        names: &[&str],
        protocols: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key is made");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("it is signed");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions are supported");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("the key fits the certificate");
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
