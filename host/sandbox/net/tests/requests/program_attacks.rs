//! Attacks of programs on the relay: requests inside of requests, HTTP/2, and names as a tunnel.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::programs::Programs;
use super::server::{Server, answer};
use super::*;

/// Starts of requests that servers and proxies understand differently. Each is followed by a request
/// for `/smuggled`. `HOST` is the granted host.
const SMUGGLING: [&str; 22] = [
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0, 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length: +0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0x5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ncontent-length : 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding:\u{b}chunked\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\nx: y\r\n content-length: 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\nx: y\ncontent-length: 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\nx: y\rcontent-length: 5\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\nx: y\0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\nconnection: content-length\r\ncontent-length: 0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n0;a=\n\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n10000000000000000\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n-0\r\n\r\n",
    "GET /a HTTP/1.0\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: HOST\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\n\
     http2-settings: AAMAAABkAAQAAP__\r\n\r\n",
];

/// What a server must not be asked for: another host, and a path that only an approved request of
/// its own may have.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: other.test\r\n\r\n";

/// A server that records the bytes of each connection, and answers each of them at once.
struct Recording {
    port: u16,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Recording {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("an address").port();
        let recorded = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let threads = Arc::<Mutex<Vec<JoinHandle<()>>>>::default();
        let (records, handles) = (Arc::clone(&recorded), Arc::clone(&threads));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let records = Arc::clone(&records);
                let handle = std::thread::spawn(move || {
                    let bytes = read_and_answer(stream);
                    records.lock().expect("nobody panicked").push(bytes);
                });
                handles.lock().expect("nobody panicked").push(handle);
            }
        });
        Self { port, recorded, threads }
    }

    /// The bytes of all connections, after their ends.
    fn connections(&self) -> Vec<Vec<u8>> {
        let threads = std::mem::take(&mut *self.threads.lock().expect("nobody panicked"));
        threads.into_iter().for_each(|thread| thread.join().expect("nobody panicked"));
        std::mem::take(&mut self.recorded.lock().expect("nobody panicked"))
    }
}

/// Answers at each pause of the client, and reads on until it is silent.
fn read_and_answer(mut stream: TcpStream) -> Vec<u8> {
    let pause = Some(Duration::from_millis(200));
    stream.set_read_timeout(pause).expect("it has a time limit");
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    let mut answered = 0;
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return bytes,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            Err(_) if answered == bytes.len() => return bytes,
            Err(_) => {
                answered = bytes.len();
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    }
}

/// The first lines of the requests in the bytes, read as strictly as any server could. Panics if
/// servers could understand the bytes differently.
fn requests_in(mut bytes: &[u8]) -> Vec<String> {
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { break };
        let head = std::str::from_utf8(&bytes[..end]).expect("a head is text");
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        requests.push(lines.next().expect("a first line").to_owned());
        let (mut length, mut is_chunked, mut names) = (0, false, BTreeSet::new());
        for line in lines {
            assert!(!line.contains(['\r', '\n', '\0']), "{head:?}");
            let (name, value) = line.split_once(':').expect("a header has a colon");
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            assert!(!name.is_empty() && name.chars().all(is_token), "{head:?}");
            match (&*name.to_ascii_lowercase(), value.trim()) {
                ("content-length", value) => length = value.parse().expect("a number"),
                ("transfer-encoding", value) => is_chunked = value == "chunked",
                ("host", host) => assert!(host.starts_with("npm.test:"), "{head:?}"),
                _ => continue,
            }
            assert!(names.insert(name.to_ascii_lowercase()), "twice: {head:?}");
        }
        assert!(!names.contains("content-length") || !names.contains("transfer-encoding"));
        if !names.contains("transfer-encoding") {
            bytes = bytes.get(length..).unwrap_or_default();
            continue;
        }
        assert!(is_chunked, "{head:?}");
        bytes = after_chunks(bytes);
    }
    requests
}

/// The bytes after a chunked body, or nothing if it has no end.
fn after_chunks(mut bytes: &[u8]) -> &[u8] {
    loop {
        let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return &[] };
        let size = std::str::from_utf8(&bytes[..end]).expect("a size is text");
        let size = usize::from_str_radix(size, 16).expect("a size without an extension");
        bytes = bytes.get(end + 2 + size + 2..).unwrap_or_default();
        if size == 0 || bytes.is_empty() {
            return bytes;
        }
    }
}

#[test]
fn smuggled_request_is_no_request_for_any_server() {
    let server = Recording::start();
    let host = format!("npm.test:{}", server.port);
    let programs = Programs::new(&[format!("http://{host}")], None);
    let smuggling = SMUGGLING.iter().map(|start| format!("{start}{SMUGGLED}"));
    let sent: Vec<String> = smuggling.map(|text| text.replace("HOST", &host)).collect();
    // Whole, and in pieces that end anywhere.
    for piece in [usize::MAX, 1] {
        for text in &sent {
            let mut stream = programs.connect("npm.test", server.port).expect("it is granted");
            stream.set_nodelay(true).expect("it is possible");
            for piece in text.as_bytes().chunks(piece) {
                // The relay may have ended the connection.
                let _ = stream.write_all(piece);
            }
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    let mut stream = programs.connect("npm.test", server.port).expect("it is granted");
    write!(stream, "GET /last HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
        .expect("it is sent");
    let _ = stream.read_to_end(&mut Vec::new());

    let connections = server.connections();
    let requests: Vec<String> = connections.iter().flat_map(|bytes| requests_in(bytes)).collect();
    assert!(requests.contains(&"GET /last HTTP/1.1".to_owned()), "{requests:?}");
    for request in &requests {
        assert!(
            ["POST /a HTTP/1.1", "GET /a HTTP/1.1", "GET /last HTTP/1.1"].contains(&&**request),
            "{request}"
        );
    }
}

fn reactor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor starts")
}

type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// Starts HTTP/2 on a connection.
async fn start_http2(stream: TcpStream) -> Http2Sender {
    stream.set_nonblocking(true).expect("it doesn't block");
    let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).expect("a stream"));
    let connected = http2::handshake(TokioExecutor::new(), stream).await;
    let (sender, connection) = connected.expect("the relay speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

#[test]
fn http2_names_no_other_host_than_the_one_that_was_looked_up() {
    let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"hello"));
    let host = format!("npm.test:{}", server.port());
    let programs = Programs::new(&[format!("http://{host}")], None);
    let (passed, refused) = (StatusCode::OK, StatusCode::BAD_GATEWAY);
    // The authority, and a header beside it.
    let cases = [
        (&*host, None, passed),
        ("other.test", None, refused),
        ("npm.test", None, refused),
        (&host, Some("other.test"), refused),
        ("other.test", Some(&*host), refused),
        ("user@other.test", None, refused),
    ];
    let reactor = reactor();
    for (authority, header, expected) in cases {
        let mut request = Request::get(format!("http://{authority}/"));
        if let Some(header) = header {
            request = request.header("host", header);
        }
        let request = request.body(Full::default()).expect("it is a request");
        let stream = programs.connect("npm.test", server.port()).expect("it is granted");
        let answer =
            reactor.block_on(async { start_http2(stream).await.send_request(request).await });
        assert_eq!(answer.expect("an answer").status(), expected, "{authority} {header:?}");
    }
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn requests_on_one_connection_of_http2_are_bounded() {
    let server = Server::plain(|_, _| {
        std::thread::park();
        Ok(())
    });
    let host = format!("npm.test:{}", server.port());
    let programs = Programs::new(&[format!("http://{host}")], None);
    let connect = || programs.connect("npm.test", server.port()).expect("it is granted");
    reactor().block_on(async {
        let sender = start_http2(connect()).await;
        for _ in 0..100 {
            let request = Request::get(format!("http://{host}/")).body(Full::default());
            let mut sender = sender.clone();
            let request = request.expect("it is a request");
            tokio::spawn(async move { sender.send_request(request).await });
        }
        // Requests on other connections come after all that could come on this one.
        let mut others = Vec::new();
        for count in [16, 17, 18] {
            while server.asked().len() < count {
                tokio::task::yield_now().await;
            }
            let mut other = connect();
            write!(other, "GET /other HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("it is sent");
            others.push(other);
        }
    });
    let at_first = server.asked().iter().filter(|asked| asked.path() == "/").count();
    assert_eq!(at_first, 16);
}

/// Counts the lookups that leave the relay.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Resolve for Counting {
    fn resolve<'r>(
        &'r self,
        _: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

/// Asks the resolver for a long name. Returns the bytes of the answer.
fn query(dns: SocketAddr, number: usize) -> usize {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [format!("{number:060}"), format!("{number:060x}"), "npm".into(), "test".into()] {
        query.push(u8::try_from(label.len()).expect("a short label"));
        query.extend_from_slice(label.as_bytes());
    }
    // A, AAAA, TXT, NULL and ANY.
    let kind = [1, 28, 16, 10, 255][number % 5];
    query.extend_from_slice(&[0, 0, kind, 0, 1]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.send_to(&query, dns).expect("it is sent");
    socket.recv(&mut [0; 1024]).expect("an answer")
}

#[test]
fn names_leave_only_with_a_granted_connection() {
    let counting = Arc::new(Counting::default());
    let mut settings = settings(&[]);
    grant(&mut settings, "npm.test");
    grant(&mut settings, "*.npm.test");
    settings.network.resolver = Some(Arc::clone(&counting) as _);
    let programs = Programs::with_settings(settings);
    for number in 0..10_000 {
        assert!(query(programs.dns, number) > 12);
    }
    assert!(programs.connect("a-secret.other.test", 443).is_err());
    assert!(programs.connect("npm.test", 80).is_err());
    assert_eq!(counting.0.load(Ordering::SeqCst), 0);
}
