//! Connections of programs, through a relay on this machine's loopback.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use toolhold_contract::{
    BoxFuture, ConnectionGate as _, Denial, HostApprover, ProgramConnection, WaitClock, WantedHost,
};
use toolhold_net::requests::{DoorRecord, Recorder};
use toolhold_net::{HostAccess, HostGate, HostQuestions, HostRelay};
use toolhold_policy::egress::HostPattern;

use super::server::{Authority, Server, answer};
use super::*;

/// Decides on hosts in the same way, after a signal.
#[derive(Debug)]
pub(super) struct Person {
    approves: bool,
    asked: Mutex<Vec<WantedHost>>,
    /// Answers when it has a permit.
    answers: Semaphore,
    waits: Arc<WaitClock>,
}

impl Person {
    pub(super) fn new(approves: bool, answers: usize) -> Arc<Self> {
        let answers = Semaphore::new(answers);
        Arc::new(Self { approves, asked: Mutex::default(), answers, waits: Arc::default() })
    }

    fn asked(&self) -> Vec<WantedHost> {
        self.asked.lock().expect("a lock").clone()
    }

    fn entries(&self) -> Vec<String> {
        self.asked().into_iter().map(|wanted| wanted.entry).collect()
    }
}

impl HostApprover for Person {
    fn approve(&self, wanted: WantedHost) -> BoxFuture<'_, Result<(), Denial>> {
        Box::pin(async move {
            self.asked.lock().expect("a lock").push(wanted);
            self.answers.acquire().await.expect("it stays open").forget();
            let rule = "the person says no".to_owned();
            let denial = Denial {
                capability: "http".to_owned(),
                action: "connect".to_owned(),
                rule,
                place: String::new(),
                remedy: String::new(),
            };
            if self.approves { Ok(()) } else { Err(denial) }
        })
    }
}

/// A relay, and the gate of one call's commands.
pub(super) struct Programs {
    gate: HostGate,
    pub(super) access: Arc<HostAccess>,
    pub(super) report: Arc<Report>,
    pub(super) dns: SocketAddr,
    relay: SocketAddr,
    _runtime: Runtime,
}

impl Programs {
    /// Grants `hosts` to programs. Every name resolves to this machine.
    pub(super) fn new(hosts: &[String], authority: Option<&Authority>) -> Self {
        Self::with_settings(granting(hosts, authority))
    }

    /// Grants no host. `person` decides on hosts, and every name resolves to this machine.
    fn asking(person: &Arc<Person>, denied: &str) -> Self {
        let mut settings = settings(&[]);
        settings.network.resolver = Some(Arc::new(Loopback));
        settings.reach.denied.push(placed(HostPattern::new(denied).expect("a pattern")));
        Self::with_person(settings, Some(Arc::default()), 2, Some(person))
    }

    pub(super) fn with_settings(settings: Settings) -> Self {
        Self::with_report(settings, Some(Arc::default()), 2)
    }

    /// Without a report, the programs continue after their call.
    pub(super) fn with_report(
        settings: Settings,
        report: Option<Arc<Report>>,
        threads: usize,
    ) -> Self {
        Self::with_person(settings, report, threads, None)
    }

    pub(super) fn with_person(
        settings: Settings,
        report: Option<Arc<Report>>,
        threads: usize,
        person: Option<&Arc<Person>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a reactor starts");
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let (v4, dns_tcp) = (listen(), listen());
        let dns_udp = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let dns = dns_udp.local_addr().expect("an address");
        let relay = v4.local_addr().expect("an address");
        let started =
            HostRelay::start(v4, None, dns_udp, dns_tcp, runtime.handle()).expect("it starts");
        let access = Arc::new(HostAccess::new(Arc::new(Egress::new(settings))));
        let mut gate = HostGate::new(Arc::new(started), Arc::clone(&access), report.clone());
        if let Some(person) = person {
            let waits = Arc::clone(&person.waits);
            gate = gate.with_questions(HostQuestions::new(Arc::clone(person) as _, waits));
        }
        let report = report.unwrap_or_default();
        Self { gate, access, report, dns, relay, _runtime: runtime }
    }

    /// Asks the relay's resolver for the address of a name.
    fn look_up(&self, name: &str) -> IpAddr {
        let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).expect("a short label"));
            query.extend_from_slice(label.as_bytes());
        }
        query.extend_from_slice(&[0, 0, 1, 0, 1]);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.send_to(&query, self.dns).expect("it is sent");
        let mut answer = [0; 512];
        let (length, _) = socket.recv_from(&mut answer).expect("an answer");
        let octets: [u8; 4] = answer[length - 4..length].try_into().expect("four bytes");
        assert_eq!(octets[..2], [198, 18], "a synthetic address");
        octets.into()
    }

    fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = new_socket(SocketFlags::CLOEXEC);
        let program = "curl".to_owned();
        self.gate.connect(&ProgramConnection { socket: socket.as_fd(), address, program })?;
        Ok(socket.into())
    }

    /// Connects as a program does that looks up a name.
    pub(super) fn connect(&self, name: &str, port: u16) -> io::Result<TcpStream> {
        self.connect_to(SocketAddr::new(self.look_up(name), port))
    }

    pub(super) fn records(&self) -> Vec<RequestRecord> {
        self.report.entries().requests.clone()
    }
}

/// Settings that grant `hosts`. Every name resolves to this machine.
pub(super) fn granting(hosts: &[String], authority: Option<&Authority>) -> Settings {
    let mut settings = settings(&[]);
    settings.network.resolver = Some(Arc::new(Loopback));
    settings.network.authorities.extend(authority.map(Authority::file));
    for host in hosts {
        grant(&mut settings, host);
        let private = settings.reach.grants.last().and_then(|one| one.value.private_host());
        settings.reach.private.extend(private.map(placed));
    }
    settings
}

fn new_socket(flags: SocketFlags) -> OwnedFd {
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
}

/// Starts TLS with a server name.
pub(super) fn tls(
    stream: TcpStream,
    name: &str,
    authority: &Authority,
) -> StreamOwned<ClientConnection, TcpStream> {
    let certificates = std::fs::read_to_string(authority.file()).expect("a file");
    let client = ClientConnection::new(Arc::new(client_config(&certificates)), server_name(name));
    StreamOwned::new(client.expect("a client"), stream)
}

pub(super) fn server_name(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).expect("a name")
}

/// A client that trusts certificates in PEM format.
pub(super) fn client_config(certificates: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificates.as_bytes()) {
        roots.add(certificate.expect("a certificate")).expect("it is valid");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Sends a request and reads the whole answer.
pub(super) fn ask(mut stream: impl io::Read + io::Write, host: &str) -> io::Result<String> {
    write!(stream, "GET /a HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    stream.flush()?;
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        // A server may close a connection without the end of TLS.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn hello(_: &server::Asked, wire: &mut dyn server::Wire) -> io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"hello")?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

pub(super) fn waits_until(reached: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn tls_reaches_the_granted_host_and_is_recorded() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["npm.test"], &[], |_| {}), hello);
    let programs = Programs::new(&[format!("https://npm.test:{}", server.port())], None);
    let stream = programs.connect("npm.test", server.port()).expect("it is granted");
    let text = ask(tls(stream, "npm.test", &authority), "npm.test").expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
    waits_until(|| programs.records().iter().all(|record| record.received > 0));
    let [record] = &programs.records()[..] else { panic!("{:?}", programs.records()) };
    assert_eq!(record.url, format!("https://npm.test:{}/", server.port()));
    assert_eq!((&*record.method, record.program.as_deref()), ("CONNECT", Some("curl")));
    assert!(record.sent > 100 && !record.refused && record.failed.is_none(), "{record:?}");
    assert_eq!(record.address, Some(IpAddr::from([127, 0, 0, 1])));
}

#[test]
fn other_host_and_other_port_are_refused_before_a_connection() {
    let server = Server::plain(hello);
    let port = server.port();
    let programs = Programs::new(&[format!("http://npm.test:{port}")], None);
    assert!(programs.gate.last_denial().is_none());
    let other_port = Server::plain(hello);
    for (name, port) in
        [("other.test", port), ("npm.test.evil.test", port), ("npm.test", other_port.port())]
    {
        let error = programs.connect(name, port).expect_err("it isn't granted");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
    }
    // An address doesn't stand for the granted name.
    for address in ["127.0.0.2", "10.1.2.3", "169.254.169.254", "8.8.8.8"] {
        let address: SocketAddr = format!("{address}:{port}").parse().expect("an address");
        let error = programs.connect_to(address).expect_err("it isn't granted");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{address}");
    }
    assert_eq!(server.connections() + other_port.connections(), 0);
    let records = programs.records();
    assert!(records.len() == 7 && records.iter().all(|record| record.refused), "{records:?}");
    let (_, denial) = programs.gate.last_denial().expect("the last connection was denied");
    assert!(denial.action.contains("8.8.8.8"), "{denial}");
}

#[test]
fn server_name_of_another_host_breaks_the_connection() {
    let authority = Authority::new();
    let names = ["npm.test", "other.test"];
    let server = Server::tls(authority.server(&names, &[], |_| {}), hello);
    let programs = Programs::new(&[format!("https://npm.test:{}", server.port())], None);
    for name in ["other.test", "127.0.0.1"] {
        let stream = programs.connect("npm.test", server.port()).expect("the host is granted");
        assert!(ask(tls(stream, name, &authority), "npm.test").is_err(), "{name}");
    }
    assert_eq!(server.connections(), 0);
    let failed = |record: &RequestRecord| record.failed.clone().unwrap_or_default();
    waits_until(|| programs.records().iter().all(|record| record.failed.is_some()));
    let failures: Vec<String> = programs.records().iter().map(failed).collect();
    assert!(
        failures[0].contains("other.test") && failures[1].contains("no server name"),
        "{failures:?}"
    );
}

#[test]
fn request_for_another_host_on_the_same_connection_is_not_passed_on() {
    let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"hello"));
    let port = server.port();
    let programs = Programs::new(&[format!("http://npm.test:{port}")], None);
    let mut stream = programs.connect("npm.test", port).expect("the host is granted");
    write!(
        stream,
        "GET /one HTTP/1.1\r\nhost: npm.test:{port}\r\n\r\nGET /two HTTP/1.1\r\nhost: other.test\r\n\r\n"
    )
    .expect("it is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("two answers");
    assert!(text.contains("hello") && text.contains("502"), "{text}");
    assert!(text.contains(&format!("another host than http://npm.test:{port}")), "{text}");

    let cases = [
        format!("GET /three HTTP/1.1\r\nhost: npm.test:{port}\r\nhost: other.test\r\n\r\n"),
        format!("GET http://other.test/three HTTP/1.1\r\nhost: npm.test:{port}\r\n\r\n"),
        "GET /three HTTP/1.0\r\n\r\n".to_owned(),
        format!("CONNECT npm.test:{port} HTTP/1.1\r\nhost: npm.test:{port}\r\n\r\n"),
        format!(
            "POST /three HTTP/1.1\r\nhost: npm.test:{port}\r\ncontent-length: 4\r\ntransfer-encoding: \
             chunked\r\n\r\n0\r\n\r\nGET /four HTTP/1.1\r\nhost: other.test\r\n\r\n"
        ),
    ];
    for case in &cases {
        let mut stream = programs.connect("npm.test", port).expect("the host is granted");
        stream.write_all(case.as_bytes()).expect("it is sent");
        stream.shutdown(std::net::Shutdown::Write).expect("an end");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
    }
    let paths: Vec<String> = server.asked().iter().map(|asked| asked.path().to_owned()).collect();
    // The server of this test takes the end of a chunked body for a request without a path.
    let known = ["/one", "/three", ""];
    assert!(paths.iter().all(|path| known.contains(&&**path)), "{paths:?}");
    assert!(paths.iter().filter(|path| *path == "/three").count() <= 1, "{paths:?}");
}

#[test]
fn server_speaks_first_only_at_a_port_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(b"SSH-2.0-test\r\n"));
        }
    });
    let programs = Programs::new(&[format!("git.test:{port}")], None);
    let mut text = String::new();
    let mut stream = programs.connect("git.test", port).expect("it is granted");
    stream.read_to_string(&mut text).expect("a text");
    assert_eq!(text, "SSH-2.0-test\r\n");

    // With a scheme, other protocols aren't granted.
    let programs = Programs::new(&[format!("https://git.test:{port}")], None);
    let mut stream = programs.connect("git.test", port).expect("the host is granted");
    stream.write_all(b"SSH-2.0-client\r\n").expect("it is sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert_eq!(text, "");
}

#[test]
fn socket_that_does_not_block_is_connected_later() {
    let server = Server::plain(hello);
    let port = server.port();
    let programs = Programs::new(&[format!("http://npm.test:{port}")], None);
    let address = SocketAddr::new(programs.look_up("npm.test"), port);
    let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let program = "node".to_owned();
    let connected =
        programs.gate.connect(&ProgramConnection { socket: socket.as_fd(), address, program });
    if let Err(error) = connected {
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::INPROGRESS.raw_os_error()));
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false).expect("it blocks");
    let text = ask(stream, &format!("npm.test:{port}")).expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
}

#[test]
fn connection_that_no_gate_has_allowed_is_closed() {
    let programs = Programs::new(&["npm.test".to_owned()], None);
    let mut stream = TcpStream::connect(programs.relay).expect("the relay listens");
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: npm.test\r\n\r\n");
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    assert!(text.is_empty(), "{text:?}");
    assert!(programs.records().is_empty());
}

#[test]
fn name_that_changes_to_a_private_address_is_refused() {
    let server = Server::plain(hello);
    let mut settings = settings(&[]);
    grant(&mut settings, &format!("http://example.org:{}", server.port()));
    settings.network.resolver = Some(Arc::new(Loopback));
    let programs = Programs::with_settings(settings);
    let stream = programs.connect("example.org", server.port()).expect("the host is granted");
    let text = ask(stream, &format!("example.org:{}", server.port())).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("loopback"), "{text}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn granted_name_at_an_address_where_toolhold_listens_is_refused() {
    let server = Server::plain(hello);
    let host = format!("npm.test:{}", server.port());
    let mut settings = granting(&[format!("http://{host}")], None);
    settings.network.listening = [server.address].into();
    let programs = Programs::with_settings(settings);
    let stream = programs.connect("npm.test", server.port()).expect("the host is granted");
    let text = ask(stream, &host).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("where Toolhold listens"), "{text}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn upgrade_is_passed_on_to_websocket_alone() {
    let server = Server::plain(|asked, wire| {
        let protocol = asked.header("upgrade").unwrap_or("none").to_owned();
        if protocol == "none" {
            return answer(wire, "200 OK", &[], b"none");
        }
        write!(
            wire,
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
        )?;
        wire.flush()?;
        let mut ping = [0; 4];
        wire.read_exact(&mut ping)?;
        wire.write_all(&ping)?;
        Err(io::ErrorKind::ConnectionAborted.into())
    });
    let port = server.port();
    let programs = Programs::new(&[format!("http://npm.test:{port}")], None);
    for (index, (protocol, passes)) in [("websocket", true), ("h2c", false)].iter().enumerate() {
        let mut stream = programs.connect("npm.test", port).expect("it is granted");
        write!(
            stream,
            "GET / HTTP/1.1\r\nhost: npm.test:{port}\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
        )
        .expect("it is sent");
        let mut start = [0; 12];
        stream.read_exact(&mut start).expect("an answer");
        let status = if *passes { "HTTP/1.1 101" } else { "HTTP/1.1 200" };
        assert_eq!(String::from_utf8_lossy(&start), status, "{protocol}");
        if *passes {
            stream.write_all(b"ping").expect("it is sent");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("an end");
            assert!(rest.ends_with(b"ping"), "{}", String::from_utf8_lossy(&rest));
        }
        // Of the upgraded connection, the bytes of both directions are counted.
        let passed = if *passes { 4 } else { 0 };
        waits_until(|| programs.records()[index].sent == passed);
        let body = if *passes { 4 } else { "none".len() as u64 };
        waits_until(|| programs.records()[index].received == body);
    }
}

#[test]
fn request_is_recorded_with_its_bytes_and_address() {
    let server = Server::plain(hello);
    let port = server.port();
    let programs = Programs::new(&[format!("http://npm.test:{port}")], None);
    let mut stream = programs.connect("npm.test", port).expect("it is granted");
    write!(
        stream,
        "POST /a HTTP/1.1\r\nhost: npm.test:{port}\r\ncontent-length: 7\r\nconnection: close\r\n\r\n"
    )
    .expect("it is sent");
    // The bytes are counted in pieces.
    stream.write_all(b"sec").expect("it is sent");
    waits_until(|| programs.records().iter().any(|record| record.sent == 3));
    // The address is there before the answer.
    waits_until(|| programs.records()[0].address == Some(IpAddr::from([127, 0, 0, 1])));
    stream.write_all(b"rets").expect("it is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
    waits_until(|| programs.records()[0].received == 5);
    let [record] = &programs.records()[..] else { panic!("{:?}", programs.records()) };
    assert_eq!((record.sent, record.status), (7, Some(200)), "{record:?}");
    assert_eq!(record.address, Some(IpAddr::from([127, 0, 0, 1])), "{record:?}");
}

/// Keeps the connection open, and returns what it gets.
fn echo(listener: TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut bytes = [0; 4];
        let _ = stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes));
        std::thread::spawn(move || stream.read(&mut [0; 1]));
    }
}

#[test]
fn bytes_of_an_open_connection_are_already_recorded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || echo(listener));
    let programs = Programs::new(&[format!("git.test:{port}")], None);
    let mut stream = programs.connect("git.test", port).expect("it is granted");
    stream.write_all(b"ping").expect("it is sent");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer");
    // The connection is still open here.
    let [record] = &programs.records()[..] else { panic!("{:?}", programs.records()) };
    assert_eq!((record.sent, record.received), (4, 4), "{record:?}");
    assert_eq!(record.address, Some(IpAddr::from([127, 0, 0, 1])));
    assert!(record.time > Duration::ZERO);
}

/// A log whose first record may wait until the test ends the wait.
#[derive(Debug)]
pub(super) struct Log {
    records: Mutex<Vec<DoorRecord>>,
    wait: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Log {
    pub(super) fn new(wait: Option<mpsc::Receiver<()>>) -> Arc<Self> {
        Arc::new(Self { records: Mutex::default(), wait: Mutex::new(wait) })
    }

    pub(super) fn records(&self) -> Vec<DoorRecord> {
        self.records.lock().expect("nobody panicked").clone()
    }
}

impl Recorder for Log {
    fn record(&self, record: &DoorRecord) -> Result<(), toolhold_contract::Failure> {
        let wait = self.wait.lock().expect("nobody panicked").take();
        if let Some(wait) = wait {
            let _ = wait.recv();
        }
        self.records.lock().expect("nobody panicked").push(record.clone());
        Ok(())
    }
}

#[test]
fn slow_log_of_a_job_stops_no_other_connection() {
    let server = Server::plain(hello);
    let port = server.port();
    let (go_on, wait) = mpsc::channel();
    let log = Log::new(Some(wait));
    let mut settings = settings(&[]);
    settings.network.resolver = Some(Arc::new(Loopback));
    settings.network.log = Some(Arc::clone(&log) as _);
    grant(&mut settings, &format!("http://npm.test:{port}"));
    let private = settings.reach.grants.last().and_then(|one| one.value.private_host());
    settings.reach.private.extend(private.map(placed));
    // The runtime has one thread, which a record would block.
    let programs = Programs::with_report(settings, None, 1);
    let host = format!("npm.test:{port}");
    for _ in 0..3 {
        let stream = programs.connect("npm.test", port).expect("it is granted");
        assert!(ask(stream, &host).expect("an answer").ends_with("hello"));
    }
    go_on.send(()).expect("the first record waits");
    waits_until(|| log.records().len() == 3);
    for record in log.records() {
        assert_eq!((record.bytes, record.status, &*record.path), (5, Some(200), "/a"));
        assert_eq!(record.address, Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(record.program.as_deref(), Some("curl"));
    }
}

#[test]
fn refused_connections_of_jobs_fill_no_log_and_hide_no_other_connection() {
    let server = Server::plain(hello);
    let port = server.port();
    let log = Log::new(None);
    let mut settings = granting(&[format!("http://npm.test:{port}")], None);
    settings.network.log = Some(Arc::clone(&log) as _);
    let programs = Programs::with_report(settings, None, 2);
    // The limit for each minute is 60.
    for _ in 0..150 {
        programs.connect("other.test", port).expect_err("it isn't granted");
    }
    let stream = programs.connect("npm.test", port).expect("it is granted");
    let text = ask(stream, &format!("npm.test:{port}")).expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
    waits_until(|| log.records().iter().any(|record| record.failed.is_none()));
    let refused = log.records().iter().filter(|record| record.refused).count();
    // A slow machine may need more than a minute.
    assert!((60..150).contains(&refused), "{refused}");
}

#[test]
fn each_response_that_breaks_off_is_recorded_as_a_failure() {
    let server = Server::plain(|_, wire| {
        wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello")?;
        Err(io::ErrorKind::ConnectionAborted.into())
    });
    let port = server.port();
    let log = Log::new(None);
    let mut settings = granting(&[format!("http://npm.test:{port}")], None);
    settings.network.log = Some(Arc::clone(&log) as _);
    let programs = Programs::with_report(settings, None, 2);
    // The limit of records is only for connections that carry nothing outside.
    let attempts = 70;
    for _ in 0..attempts {
        let stream = programs.connect("npm.test", port).expect("it is granted");
        let _ = ask(stream, &format!("npm.test:{port}"));
    }
    waits_until(|| log.records().len() == attempts);
    for record in log.records() {
        assert_eq!((record.status, record.bytes, record.refused), (Some(200), 5, false));
        assert!(record.failed.is_some(), "{record:?}");
    }
}

#[test]
fn connection_waits_for_the_person_and_its_time_is_measured() {
    let server = Server::plain(hello);
    let port = server.port();
    let person = Person::new(true, 0);
    let programs = Programs::asking(&person, "denied.test");
    let host = format!("npm.test:{port}");
    let stream = programs.connect("npm.test", port).expect("the relay holds it");
    let asking = {
        let host = host.clone();
        std::thread::spawn(move || ask(stream, &host))
    };
    waits_until(|| person.asked().len() == 1);
    let wanted = WantedHost { entry: format!("http://{host}"), program: "curl".to_owned() };
    assert_eq!(person.asked(), [wanted]);
    waits_until(|| programs.gate.waited() >= Duration::from_millis(20));
    assert_eq!(server.connections(), 0, "nobody has answered yet");
    person.answers.add_permits(1);
    let text = asking.join().expect("no panic").expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
    let waited = programs.gate.waited();
    // The approval is for the rest of the call.
    let stream = programs.connect("npm.test", port).expect("it is approved");
    assert!(ask(stream, &host).expect("an answer").ends_with("hello"));
    assert_eq!((person.asked().len(), server.connections()), (1, 2));
    assert_eq!(programs.gate.waited(), waited, "nobody was asked again");
}

#[test]
fn denied_host_is_not_reached_and_named() {
    let server = Server::plain(hello);
    let port = server.port();
    let person = Person::new(false, 8);
    let programs = Programs::asking(&person, "denied.test");
    let stream = programs.connect("npm.test", port).expect("the relay holds it");
    let _ = ask(stream, "npm.test");
    waits_until(|| programs.records().iter().any(|record| record.refused));
    assert_eq!(server.connections(), 0);
    let said = programs.report.entries().unsaid.clone();
    assert!(said.len() == 1 && said[0].contains("the person says no"), "{said:?}");
    // Programs try a broken connection again, and give up after this error.
    let error = programs.connect("npm.test", port).expect_err("it is denied");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!((person.asked().len(), server.connections()), (1, 0));
}

#[test]
fn nobody_is_asked_about_a_host_that_a_rule_denies_for_good() {
    let server = Server::plain(hello);
    let port = server.port();
    let person = Person::new(true, 8);
    let programs = Programs::asking(&person, "denied.test");
    for name in ["denied.test", "metadata.google.internal"] {
        let error = programs.connect(name, port).expect_err("it is denied");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
    }
    // A person can't see whose an address is.
    for address in ["127.0.0.2", "10.1.2.3", "8.8.8.8"] {
        let address = format!("{address}:{port}").parse().expect("an address");
        let error = programs.connect_to(address).expect_err("it isn't granted");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{address}");
    }
    assert!(person.asked().is_empty() && server.connections() == 0, "{:?}", person.asked());
}

#[test]
fn approval_of_a_public_name_opens_no_private_address() {
    let server = Server::plain(hello);
    let port = server.port();
    let person = Person::new(true, 8);
    let programs = Programs::asking(&person, "denied.test");
    let stream = programs.connect("example.org", port).expect("the relay holds it");
    let text = ask(stream, &format!("example.org:{port}")).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 403") && text.contains("loopback"), "{text}");
    assert_eq!((person.asked().len(), server.connections()), (1, 0));
}

#[test]
fn question_names_the_protocol_and_not_another_server_name() {
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["npm.test"], &[], |_| {}), hello);
    let port = server.port();
    let person = Person::new(true, 8);
    let programs = Programs::asking(&person, "denied.test");
    let stream = programs.connect("npm.test", port).expect("the relay holds it");
    assert!(ask(tls(stream, "other.test", &authority), "npm.test").is_err());
    assert!(person.asked().is_empty(), "{:?}", person.asked());
    let stream = programs.connect("npm.test", port).expect("the relay holds it");
    let text = ask(tls(stream, "npm.test", &authority), "npm.test").expect("an answer");
    assert!(text.ends_with("hello"), "{text}");
    // The approval is for TLS only.
    let mut stream = programs.connect("npm.test", port).expect("the relay holds it");
    stream.write_all(b"SSH-2.0-client\r\n").expect("it is sent");
    waits_until(|| person.asked().len() == 2);
    assert_eq!(person.entries(), [format!("https://npm.test:{port}"), format!("npm.test:{port}")]);
}
