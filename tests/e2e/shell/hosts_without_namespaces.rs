//! Hosts on a machine that allows no user namespaces: commands are in the machine's network, and
//! reach the granted hosts and nothing else there.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::{Approver, Reply, Request, Scope};

use super::hosts::{
    exchange_addresses, granted_with, hello, own_address, reach_the_granted_host_and_no_other,
};
use super::{call, run, scene, there_is};
use crate::approvals::Person;
use crate::support::server::{Authority, Server};
use crate::support::{Cli, Ended, output_under, refusing, run_without, wait_until};

const BEST_EFFORT: &str = "tools.shell.sandbox=best-effort";

/// The calls that Docker's own filter refuses, as far as the sandbox uses them: `unshare` and
/// `pidfd_getfd`.
pub(crate) const REFUSED: [i64; 2] = [if cfg!(target_arch = "x86_64") { 272 } else { 97 }, 438];

#[test]
fn programs_reach_the_granted_host_and_no_other() {
    run_without(&REFUSED, reach_the_granted_host_and_no_other(&[BEST_EFFORT]));
}

/// The calls without which the network of a session can be made, but no view: `mount_setattr` and
/// `pidfd_getfd`.
const REFUSED_VIEW: [i64; 2] = [442, 438];

#[test]
fn first_command_reaches_its_hosts_if_only_the_view_fails() {
    run_without(&REFUSED_VIEW, reach_the_granted_host_and_no_other(&[BEST_EFFORT]));
}

#[test]
fn exchanged_address_reaches_nothing_that_is_not_granted() {
    run_without(&REFUSED, exchange_addresses(&[BEST_EFFORT]));
}

#[test]
fn strict_sandbox_starts_nothing_and_names_the_reason() {
    let cli = Cli::new();
    let line = [
        "call",
        "--yes",
        "--set",
        "tools.autonomy=full",
        "--set",
        "tools.shell.hosts=[\"npm.test\"]",
        "bash",
        "command=echo made > made",
    ];
    let output = output_under(&[refusing(&REFUSED)], &mut cli.command(&line));
    let Ended { code, stdout, stderr } = Ended::from_output(output);
    let text = format!("{stdout}{stderr}");
    assert!(code != 0 && text.contains("network") && text.contains("best-effort"), "{text}");
    assert!(!cli.work().join("made").exists());
}

/// Ways to a server of this machine. The arguments are a port of its loopback, another address with
/// the same port, and the path of a Unix socket.
const WAYS: &str = r#"
import ctypes, socket, struct, sys
port, other, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
FAST_OPEN, SOURCE_ROUTE, MPTCP = 0x20000000, bytes([131, 7, 4, 127, 0, 0, 1, 0]), 262
FAST_OPEN_CONNECT, INTERFACE_NUMBER, CONNECT_X32 = 30, 62, 0x4000002A
ADDRESS = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), bytes([127, 0, 0, 1]))
libc = ctypes.CDLL(None, use_errno=True)
def check(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), "a call failed")
def tcp():
    s = socket.socket()
    s.settimeout(3)
    return s
def connect(address):
    s = tcp()
    s.connect((address, port))
    s.sendall(b"secret")
def loopback(): connect("127.0.0.1")
def other_loopback(): connect("127.0.0.2")
def any_address(): connect("0.0.0.0")
def own_address(): connect(other)
def six():
    s = socket.socket(socket.AF_INET6)
    s.connect(("::ffff:127.0.0.1", port))
def no_family():
    s = tcp()
    check(libc.connect(s.fileno(), bytes(16), 16))
def other_number():
    s = tcp()
    check(libc.syscall(CONNECT_X32, s.fileno(), ADDRESS, len(ADDRESS)))
def deferred():
    s = tcp()
    s.setsockopt(socket.IPPROTO_TCP, FAST_OPEN_CONNECT, 1)
    s.connect(("127.0.0.1", port))
    s.send(b"secret")
def several_messages():
    s = tcp()
    name, data = (ctypes.create_string_buffer(bytes) for bytes in (ADDRESS, b"secret"))
    part = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(data), 6))
    pointers = ctypes.addressof(name), len(ADDRESS), ctypes.addressof(part)
    message = ctypes.create_string_buffer(struct.pack("@PIPNPNi4xI4x", *pointers, 1, 0, 0, 0, 0))
    check(libc.sendmmsg(s.fileno(), message, 1, FAST_OPEN))
def fast_open(): tcp().sendto(b"secret", FAST_OPEN, ("127.0.0.1", port))
def fast_open_message(): tcp().sendmsg([b"secret"], [], FAST_OPEN, ("127.0.0.1", port))
def several_paths():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    s.connect(("127.0.0.1", port))
def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"secret", ("127.0.0.1", port))
def unix(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"secret", path)
def pair(): socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"secret", path)
def raw_pair(): socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].sendto(b"secret", path)
def bind(): tcp().bind(("127.0.0.1", 0))
def listen(): tcp().listen()
def source_route(): tcp().setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, SOURCE_ROUTE)
def interface_number(): tcp().setsockopt(socket.SOL_SOCKET, INTERFACE_NUMBER, 1)
def interface(): tcp().setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
ways = (loopback, other_loopback, any_address, own_address, six, no_family, other_number, deferred,
        fast_open, fast_open_message, several_messages, several_paths, datagram, unix, pair,
        raw_pair, bind, listen, source_route, interface_number, interface)
for way in ways:
    try:
        way()
        print(way.__name__, "done")
    except OSError as error:
        print(way.__name__, "failed", error.errno)
"#;

#[test]
fn no_way_leads_to_the_machine() {
    run_without(&REFUSED, async {
        if !there_is("python3") {
            return;
        }
        let granted = Server::plain(hello);
        let scene = granted_with(&[BEST_EFFORT], &granted, |root| {
            fs::write(root.join("granted/ways.py"), WAYS).expect("it is written");
        })
        .await;
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = tcp.local_addr().expect("an address").port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).expect("the port is free");
        let other = TcpListener::bind((own_address(), port)).expect("the port is free there");
        let path = scene.root().join("outside.sock");
        let unix = UnixDatagram::bind(&path).expect("a socket is made");
        tcp.set_nonblocking(true).expect("it can be asked without waiting");
        udp.set_nonblocking(true).expect("it can be asked without waiting");
        other.set_nonblocking(true).expect("it can be asked without waiting");
        unix.set_nonblocking(true).expect("it can be asked without waiting");
        let arguments = [port.to_string(), own_address().to_string(), path.display().to_string()];
        let line =
            format!("readlink /proc/self/ns/net; /usr/bin/python3 ways.py {}", arguments.join(" "));
        let came = run(&scene, &line).await;
        let machine = fs::read_link("/proc/self/ns/net").expect("/proc is mounted");
        assert!(came.stdout.contains(&machine.display().to_string()), "{came:?}");
        assert!(came.stdout.contains("interface failed"), "all ways were tried: {came:?}");
        assert!(!came.stdout.contains("done"), "{came:?}");
        assert_eq!(reached([&tcp, &other], &udp, &unix), [false; 4], "{came:?}");

        // Without the sandbox, the same program reaches all of them.
        let ways = scene.granted.join("ways.py");
        let ended = Command::new("/usr/bin/python3").arg(ways).args(&arguments).output();
        assert_eq!(reached([&tcp, &other], &udp, &unix), [true; 4], "{ended:?}");
    });
}

/// Returns whether each of these sockets was reached.
fn reached([one, other]: [&TcpListener; 2], udp: &UdpSocket, unix: &UnixDatagram) -> [bool; 4] {
    let mut bytes = [0; 16];
    [
        one.accept().is_ok(),
        other.accept().is_ok(),
        udp.recv(&mut bytes).is_ok(),
        unix.recv(&mut bytes).is_ok(),
    ]
}

/// Connects, and then tries to lead the socket elsewhere.
const CONNECTED: &str = r#"
import ctypes, fcntl, os, socket, sys
host, port, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
FAST_OPEN = 0x20000000
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket()
copy = s.dup()
s.settimeout(20)
s.connect((host, port))
waits = not fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK
print("peer", s.getpeername()[0], "waits", waits, "inherited", s.get_inheritable())
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def disconnect():
    if libc.connect(s.fileno(), bytes(16), 16) != 0:
        raise OSError(ctypes.get_errno(), "it can't be disconnected")
def attempt():
    for name, way in (
        ("disconnect", disconnect),
        ("again", lambda: s.connect(("127.0.0.1", other))),
        ("fast open", lambda: s.sendto(b"x", FAST_OPEN, ("127.0.0.1", other))),
        ("copy", lambda: copy.sendto(b"x", FAST_OPEN, ("127.0.0.1", other))),
        ("copy again", lambda: copy.connect(("127.0.0.1", other))),
        ("route", lambda: s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes(4))),
        ("interface", lambda: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")),
    ):
        try:
            way()
            print(name, "done")
        except OSError as error:
            print(name, "failed")
attempt()
s.sendall(f"GET / HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
answer = b""
while chunk := s.recv(1000):
    answer += chunk
print(answer[-5:])
try:
    s.shutdown(socket.SHUT_RDWR)
except OSError:
    pass
attempt()
print("tried twice")
"#;

#[test]
fn connected_socket_leads_nowhere_else() {
    run_without(&REFUSED, async {
        if !there_is("python3") {
            return;
        }
        let (granted, other) = (Server::plain(hello), Server::plain(hello));
        let scene = granted_with(&[BEST_EFFORT], &granted, |root| {
            fs::write(root.join("granted/connected.py"), CONNECTED).expect("it is written");
        })
        .await;
        let ports = format!("{} {}", granted.port(), other.port());
        let line = format!("/usr/bin/python3 connected.py npm.test {ports}");
        let came = run(&scene, &line).await;
        // The flags are those of the program's own socket, which has a time limit.
        assert!(came.stdout.contains("waits False inherited False"), "{came:?}");
        assert!(came.stdout.contains("b'hello'") && !came.stdout.contains("done"), "{came:?}");
        assert!(came.stdout.contains("tried twice"), "{came:?}");
        assert_eq!((granted.connections(), other.connections()), (1, 0));
    });
}

#[test]
fn person_is_asked_about_a_host() {
    run_without(&REFUSED, async {
        if !there_is("curl") {
            return;
        }
        let server = Server::plain(hello);
        let curl = "tools.shell.allowed_commands=[\"curl\"]";
        let scene = scene(&[BEST_EFFORT, "tools.shell.network=ask", curl], |_| {}).await;
        let line = format!("curl -sS --max-time 60 http://npm.test:{}/", server.port());
        let no = Person::saying(Reply::No { by: "a test".to_owned(), reason: String::new() });
        for (person, expected) in [(no, 0), (Person::yes(Scope::Once), 1)] {
            let arguments = json!({ "command": line });
            let approver: Arc<dyn Approver> = Arc::clone(&person) as _;
            let request = Request { approver: Some(approver), ..Request::new("bash", arguments) };
            let answer = scene.host.call(request).await;
            let asked = person.asked().into_iter().filter_map(|question| question.host);
            let entries: Vec<String> = asked.map(|host| host.entry).collect();
            let entry = format!("http://npm.test:{}", server.port());
            assert_eq!(entries, [entry], "{:?}", answer.outcome);
            assert_eq!(server.connections(), expected, "{:?}", answer.outcome);
        }
    });
}

#[test]
fn host_whose_requests_would_be_read_is_not_reached() {
    run_without(&REFUSED, async {
        if !there_is("curl") {
            return;
        }
        let authority = Authority::new();
        let tls = authority.server(&["npm.test"], &[], |_| {});
        let (read, unread) = (Server::tls(tls.clone(), hello), Server::tls(tls, hello));
        let hosts = format!(
            "tools.shell.hosts=[{{host=\"npm.test\", port={}, methods=[\"GET\"]}}, \
             \"https://npm.test:{}\"]",
            read.port(),
            unread.port()
        );
        let curl = "tools.shell.allowed_commands=[\"curl\"]";
        let scene = scene(&[BEST_EFFORT, &hosts, "tools.shell.network=ask", curl], |_| {}).await;
        let refused = format!("{:?}", call(&scene.host, get(&read)).await.outcome);
        assert!(refused.contains("read only with the namespaces"), "{refused}");
        let passed = format!("{:?}", call(&scene.host, get(&unread)).await.outcome);
        assert!(passed.contains("hello"), "{passed}");
        assert_eq!((read.connections(), unread.connections()), (0, 1));
    });
}

/// The arguments of a command that gets the answer of a server.
fn get(server: &Server) -> Value {
    let url = format!("https://npm.test:{}/", server.port());
    json!({ "command": format!("curl -ksS --max-time 20 {url}") })
}

/// Connects a number while a second thread gives it to other sockets and closes it. Then makes as
/// many connections as possible.
const NUMBERS: &str = r#"
import os, socket, sys, threading, time
address = socket.gethostbyname("npm.test"), int(sys.argv[1])
s = socket.socket()
number, ended, made = s.fileno(), False, 0
def exchange():
    while not ended:
        other = socket.socket()
        os.dup2(other.fileno(), number)
        other.close()
        try:
            os.close(number)
        except OSError:
            pass
thread = threading.Thread(target=exchange)
thread.start()
for _ in range(300):
    try:
        s.connect(address)
        made += 1
    except OSError:
        pass
ended = True
thread.join()
s.detach()
try:
    os.close(number)
except OSError:
    pass
kept, end = [], time.monotonic() + 30
while len(kept) < 256 and time.monotonic() < end:
    one = socket.socket()
    try:
        one.connect(address)
        kept.append(one)
    except ConnectionRefusedError:
        one.close()
try:
    socket.socket().connect(address)
    kept.append(None)
except ConnectionRefusedError:
    pass
print("exchanged", made, "kept", len(kept), "end")
"#;

#[test]
fn host_keeps_no_socket_of_an_exchanged_or_refused_connection() {
    run_without(&REFUSED, async {
        if !there_is("python3") {
            return;
        }
        let server = Server::plain(hello);
        let scene = granted_with(&[BEST_EFFORT], &server, |root| {
            fs::write(root.join("granted/numbers.py"), NUMBERS).expect("it is written");
        })
        .await;
        let before = tcp_sockets().len();
        let came = run(&scene, &format!("/usr/bin/python3 numbers.py {}", server.port())).await;
        // The first connections are no longer counted, and no further one is made.
        assert!(came.stdout.contains(" kept 256 end"), "{came:?}");
        assert!(!came.stdout.contains("exchanged 0 "), "{came:?}");
        let closed = tokio::task::spawn_blocking(move || {
            wait_until("the sockets of the host are closed", || tcp_sockets().len() <= before);
        });
        closed.await.expect("they are closed");
        assert_eq!(server.connections(), 0);
    });
}

/// Another process of this machine looks for a listener of the relay while a command is connected.
#[test]
fn relay_listens_nowhere() {
    run_without(&REFUSED, async {
        if !there_is("curl") {
            return;
        }
        let (asked, wait) = std::sync::mpsc::channel();
        let (go_on, release) = std::sync::mpsc::channel::<()>();
        let release = std::sync::Mutex::new(release);
        let server = Server::plain(move |request, wire| {
            asked.send(()).expect("the test waits");
            let _ = release.lock().expect("no other request").recv();
            hello(request, wire)
        });
        let scene = granted_with(&[BEST_EFFORT], &server, |_| {}).await;
        let before = listeners();
        let line = format!("curl -sS --max-time 60 http://npm.test:{}/", server.port());
        let (came, ()) = tokio::join!(run(&scene, &line), async {
            tokio::task::spawn_blocking(move || wait.recv())
                .await
                .expect("it waits")
                .expect("a request");
            assert_eq!(listeners(), before);
            go_on.send(()).expect("the server waits");
        });
        assert_eq!(came.stdout, "hello");
    });
}

/// The local addresses of this process's listening sockets.
fn listeners() -> Vec<String> {
    let mut sockets = tcp_sockets();
    sockets.retain(|(_, state)| state == "0A");
    sockets.into_iter().map(|(address, _)| address).collect()
}

/// The local addresses and the states of this process's TCP sockets.
fn tcp_sockets() -> Vec<(String, String)> {
    let own: Vec<String> = fs::read_dir("/proc/self/fd")
        .expect("/proc is mounted")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let sockets = fs::read_to_string("/proc/self/net/tcp").expect("/proc is mounted");
    let mut found = Vec::new();
    for line in sockets.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if own.contains(&format!("socket:[{}]", fields[9])) {
            found.push((fields[1].to_owned(), fields[3].to_owned()));
        }
    }
    found
}
