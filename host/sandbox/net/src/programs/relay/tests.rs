//! Upgraded connections, and the bounds of a network.

use std::io::Write as _;
use std::net::Ipv4Addr;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use toolhold_contract::Report;
use toolhold_policy::egress::{Grant, PrivateHosts, Reach, Scheme, TargetHost};
use toolhold_policy::{Origin, OwnTable, Placed};

use super::*;
use crate::{Egress, Limits, Network, Settings};

const PATIENCE: Duration = Duration::from_secs(10);

const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// A program with an upgraded connection.
struct UpgradedProgram {
    relay: HostRelay,
    permits: Arc<Semaphore>,
    report: Arc<Report>,
    stream: TcpStream,
}

impl UpgradedProgram {
    /// The failure in the record of the request.
    fn failure(&self) -> Option<String> {
        self.report.entries().requests[0].failed.clone()
    }
}

async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

/// Accepts an upgrade, and echoes four bytes.
async fn accept_upgrade(listener: TcpListener) -> io::Result<TcpStream> {
    let (mut stream, _) = listener.accept().await?;
    read_head(&mut stream).await?;
    stream.write_all(SWITCHED).await?;
    let mut ping = [0; 4];
    stream.read_exact(&mut ping).await?;
    stream.write_all(&ping).await?;
    Ok(stream)
}

/// Never ends the server's side.
async fn keep_open(_stream: TcpStream) -> io::Result<()> {
    std::future::pending().await
}

/// Answers after the program has ended its side.
async fn answer_end(mut stream: TcpStream) -> io::Result<()> {
    stream.read_to_end(&mut Vec::new()).await?;
    stream.write_all(b"bye").await
}

/// Breaks the connection after another byte.
async fn break_off(mut stream: TcpStream) -> io::Result<()> {
    stream.read_u8().await?;
    // Dropping the stream resets the connection.
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(())
}

/// Settings that open the loopback addresses of this machine.
fn loopback_settings() -> Settings {
    let place = Origin::default();
    let loopback = PrivateHosts::new("127.0.0.0/8").expect("it is valid");
    let reach = Reach {
        table: OwnTable::default(),
        grants: Vec::new(),
        denied: Vec::new(),
        private: vec![Placed { value: loopback, place: place.clone() }],
        job_servers: false,
        https_only: Placed { value: true, place: place.clone() },
        place,
        ceilings: Vec::new(),
    };
    let limits = Limits {
        time: PATIENCE,
        idle: PATIENCE,
        body: 0,
        request_body: 0,
        headers: 0,
        concurrent: 1,
        requests: 1,
    };
    Settings {
        reach,
        limits,
        time_key: String::new(),
        asks: false,
        secrets: Vec::new(),
        credentials_to: Vec::new(),
        network: Network::default(),
    }
}

fn allowed_connection(port: u16) -> AllowedConnection {
    connection_with(loopback_settings(), port)
}

fn connection_with(settings: Settings, port: u16) -> AllowedConnection {
    let egress = Egress::new(settings);
    AllowedConnection {
        host: TargetHost::Address(Ipv4Addr::LOCALHOST.into()),
        port,
        program: "node".to_owned(),
        access: Arc::new(HostAccess::new(Arc::new(egress))),
        questions: None,
        report: Some(Arc::default()),
        failures: Arc::default(),
    }
}

/// A relay at an address, without a task.
fn relay_at(address: SocketAddr) -> HostRelay {
    HostRelay::new(&Handle::current(), Some(address), None)
}

/// Lets a relay accept connections.
fn start_accepting(relay: &HostRelay, listener: TcpListener, permits: &Arc<Semaphore>) {
    let shared = Arc::clone(&relay.shared);
    tokio::spawn(accept(listener, shared, Arc::clone(permits), relay.end.subscribe()));
}

/// Connects a program to a server through a relay, and upgrades the connection. Then the server
/// goes on with `serve_upgraded`.
async fn upgrade<S>(serve_upgraded: fn(TcpStream) -> S) -> io::Result<UpgradedProgram>
where
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = server.local_addr()?.port();
    tokio::spawn(async move {
        let stream = accept_upgrade(server).await?;
        serve_upgraded(stream).await
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let relay = relay_at(address);
    // One permit is for the connection. The listener holds the other for the next connection.
    let permits = Arc::new(Semaphore::new(2));
    start_accepting(&relay, listener, &permits);

    let mut stream = TcpStream::connect(address).await?;
    let report = Arc::<Report>::default();
    let connection =
        AllowedConnection { report: Some(Arc::clone(&report)), ..allowed_connection(port) };
    relay.expect(stream.local_addr()?, connection)?;
    let request = format!(
        "GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let head = read_head(&mut stream).await?;
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"ping").await?;
    let mut ping = [0; 4];
    stream.read_exact(&mut ping).await?;
    assert_eq!(&ping, b"ping");
    Ok(UpgradedProgram { relay, permits, report, stream })
}

async fn wait_for_permits(permits: &Semaphore, count: usize) {
    let released = async {
        while permits.available_permits() < count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, released).await.expect("the connection ends");
}

#[tokio::test]
async fn upgraded_connection_holds_its_permit_until_the_program_ends() {
    let program = upgrade(keep_open).await.expect("it is upgraded");
    assert_eq!(program.permits.available_permits(), 0);
    // The server keeps its side open.
    drop(program.stream);
    wait_for_permits(&program.permits, 1).await;
}

#[tokio::test]
async fn program_that_has_ended_its_side_gets_the_answer_of_the_server() {
    let mut program = upgrade(answer_end).await.expect("it is upgraded");
    program.stream.shutdown().await.expect("its side ends");
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, program.stream.read_to_end(&mut rest)).await.expect("it ends");
    read.expect("an answer");
    assert_eq!(rest, b"bye");
    wait_for_permits(&program.permits, 1).await;
    assert_eq!(program.failure(), None);
}

#[tokio::test]
async fn upgraded_connection_that_breaks_off_is_recorded_as_a_failure() {
    let mut program = upgrade(break_off).await.expect("it is upgraded");
    program.stream.write_all(b"!").await.expect("it is sent");
    wait_for_permits(&program.permits, 1).await;
    let failure = program.failure().expect("a failure");
    assert!(failure.contains("the connection failed"), "{failure}");
}

/// Accepts connections, and keeps them open.
async fn keep_connections(listener: TcpListener) {
    let mut kept = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        kept.push(stream);
    }
}

#[tokio::test]
async fn programs_in_one_network_do_not_use_up_the_connections_of_others() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = server.local_addr().expect("an address");
    tokio::spawn(keep_connections(server));
    let AllowedConnection { access: table, .. } = allowed_connection(address.port());
    let target = allowed_connection(address.port()).target(Scheme::Http);
    let uri = target.origin().parse::<http::Uri>().expect("a URI");

    let relay = relay_at(address);
    let access = relay.own_access(&table);
    assert!(Arc::ptr_eq(&access, &relay.own_access(&table)));
    let mut open = Vec::new();
    for _ in 0..crate::connect::MAX_CONNECTIONS {
        open.push(access.connector.open(&target, &uri).await.expect("it connects"));
    }
    // Without the bound, it would connect in this time.
    let time_to_connect = Duration::from_millis(300);
    let further = timeout(time_to_connect, access.connector.open(&target, &uri)).await;
    assert!(further.is_err(), "it waits");
    let other = relay_at(address).own_access(&table);
    other.connector.open(&target, &uri).await.expect("it connects");
}

#[tokio::test]
async fn upgraded_connection_ends_with_its_relay() {
    let mut program = upgrade(keep_open).await.expect("it is upgraded");
    drop(program.relay);
    let read = timeout(PATIENCE, program.stream.read(&mut [0; 1])).await.expect("it ends");
    assert!(read.is_err() || read.is_ok_and(|length| length == 0));
    wait_for_permits(&program.permits, 2).await;
}

#[tokio::test]
async fn bytes_from_just_before_the_end_of_the_relay_arrive() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let port = server.local_addr().expect("an address").port();
    let mut settings = loopback_settings();
    let value = Grant::new(&format!("127.0.0.1:{port}")).expect("it is valid");
    settings.reach.grants.push(Placed { value, place: Origin::default() });

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = listener.local_addr().expect("an address");
    let relay = relay_at(address);
    let permits = Arc::new(Semaphore::new(2));
    start_accepting(&relay, listener, &permits);
    // Nothing here waits, so the relay accepts the connection only after its end.
    let mut stream = std::net::TcpStream::connect(address).expect("the relay listens");
    let from = stream.local_addr().expect("an address");
    relay.expect(from, connection_with(settings, port)).expect("it is announced");
    stream.write_all(b"m 1\n").expect("it is sent");
    drop(stream);
    drop(relay);

    let received = async {
        let (mut stream, _) = server.accept().await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    };
    let bytes = timeout(PATIENCE, received).await.expect("they arrive in time");
    assert_eq!(bytes.expect("a connection"), b"m 1\n");
    wait_for_permits(&permits, 2).await;
}
