//! The network that the jobs and the commands of a session share.

use std::fs;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use toolhold_core::{Host, Request, Session};

use super::process_lifetime::{assert_gone, mark};
use super::session_state::answer;
use super::{scene, there_is};
use crate::mcp::client::{Client, LEGACY, text};
use crate::servers_hosts::start_proxy;
use crate::support::{Cli, Scene, soon, wait_until};

/// Answers each connection with a greeting, and writes its port into a file.
const SERVER: &str = "import socket, sys
s = socket.socket()
s.bind(('127.0.0.1', int(sys.argv[2]) if len(sys.argv) > 2 else 0))
s.listen()
open(sys.argv[1], 'w').write(str(s.getsockname()[1]))
while True:
    c, _ = s.accept()
    c.sendall(b'greeting\\n')
    c.close()
";

/// Connects, and shows what it is sent.
const CLIENT: &str = "import socket, sys
print(socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).makefile().read(), end='')
";

/// Tries what a process with rights in its network could do.
const RIGHTS: &str = "import ctypes, fcntl, os, socket, struct
def attempt(name, what):
    try:
        what()
        print(name, 'done')
    except OSError as error:
        print(name, error.errno)
s = socket.socket()
attempt('down', lambda: fcntl.ioctl(s, 0x8914, struct.pack('16sh22x', b'lo', 0)))
attempt('raw', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
libc = ctypes.CDLL(None, use_errno=True)
def setns():
    if libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0):
        raise OSError(ctypes.get_errno(), '')
attempt('setns', setns)
print([line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')][0])
";

async fn with_scripts(settings: &[&str]) -> Scene {
    scene(settings, |root| {
        let granted = root.join("granted");
        for (name, script) in [("server", SERVER), ("client", CLIENT), ("rights", RIGHTS)] {
            fs::write(granted.join(format!("{name}.py")), script).expect("it is written");
        }
    })
    .await
}

/// What a call shows, also if it fails.
async fn shown(host: &Host, session: &Session, arguments: serde_json::Value) -> String {
    answer(host, session, arguments).await.0
}

async fn output(host: &Host, session: &Session, command: &str) -> String {
    shown(host, session, json!({ "command": command })).await
}

async fn client(host: &Host, session: &Session, port: &str) -> String {
    output(host, session, &format!("/usr/bin/python3 client.py {port} 2>&1")).await
}

/// Starts a server as a job. Returns its ID and its port.
async fn serve(scene: &Scene, session: &Session, file: &str, port: &str) -> (String, String) {
    let command = format!("exec /usr/bin/python3 server.py {file} {port}");
    let arguments = json!({ "command": command, "background": true });
    let told = shown(&scene.host, session, arguments).await;
    let id = told.split(' ').find(|word| word.starts_with("job-")).expect("it has an ID");
    let file = scene.granted.join(file);
    let port = || fs::read_to_string(&file).unwrap_or_default();
    soon("it listens", || !port().is_empty()).await;
    (id.trim_end_matches('.').to_owned(), port())
}

fn connections(listener: &TcpListener) -> usize {
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    std::iter::from_fn(|| listener.accept().ok()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_a_job_is_reached_by_its_session_and_by_nobody_else() {
    if !there_is("python3") {
        return;
    }
    let scene = with_scripts(&["tools.shell.network=\"ask\""]).await;
    let host = &scene.host;
    let [one, other] = ["one", "other"].map(Session::new);
    let (first, port) = serve(&scene, &one, "first", "").await;
    for _ in 0..3 {
        assert_eq!(client(host, &one, &port).await, "greeting\n");
    }
    // Without a job of its own, and with one that has the same port.
    assert!(client(host, &other, &port).await.contains("refused"));
    let (second, _) = serve(&scene, &other, "second", &port).await;
    assert_eq!(client(host, &other, &port).await, "greeting\n");
    assert!(
        TcpStream::connect(format!("127.0.0.1:{port}")).is_err(),
        "the machine has no such server"
    );
    // A command with the network has that of the machine.
    let asks =
        json!({ "command": format!("/usr/bin/python3 client.py {port} 2>&1"), "network": true });
    assert!(shown(host, &one, asks).await.contains("refused"));
    let stop = |id: String| Request {
        session: Some(one.clone()),
        ..Request::new("job_stop", json!({ "id": id }))
    };
    assert!(host.call(stop(second)).await.outcome.is_err(), "it is the other session's");
    host.call(stop(first)).await.outcome.expect("it is stopped");
    assert!(client(host, &one, &port).await.contains("refused"), "it has ended");
    assert_eq!(client(host, &other, &port).await, "greeting\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_network_reaches_nothing_of_the_machine_and_gives_no_rights() {
    if !there_is("python3") {
        return;
    }
    let scene = with_scripts(&["tools.shell.network=\"deny\""]).await;
    let (host, session) = (&scene.host, Session::new("one"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let attempt = format!(
        "/usr/bin/python3 client.py {port} > seen 2>&1; readlink /proc/self/ns/net > network; sleep 600"
    );
    shown(host, &session, json!({ "command": attempt, "background": true })).await;
    let file = |name: &str| fs::read_to_string(scene.granted.join(name)).unwrap_or_default();
    soon("the job tried it", || !file("network").is_empty()).await;
    assert!(
        file("seen").contains("refused") && client(host, &session, &port).await.contains("refused")
    );
    assert_eq!(connections(&listener), 0, "no command reached the machine");
    let own = fs::read_link("/proc/self/ns/net").expect("it is mounted");
    let of = async |session: &Session| output(host, session, "readlink /proc/self/ns/net").await;
    assert_eq!(of(&session).await, file("network"));
    assert_ne!(Path::new(file("network").trim()), own);
    assert_ne!(of(&Session::new("other")).await, file("network"));
    let told = output(host, &session, "/usr/bin/python3 rights.py").await;
    assert_eq!(told, "down 1\nraw 1\nsetns 1\n0000000000000000\n");
    // Its commands don't see the job otherwise.
    let seen = output(host, &session, "ls /proc | grep -c '^[0-9]'; ls /dev/shm /tmp").await;
    assert!(
        seen.lines().next().is_some_and(|count| count.parse::<u32>().is_ok_and(|n| n < 6)),
        "{seen}"
    );
}

/// Processes of this machine that are in a network.
fn inside(network: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let networks = entries.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
    networks.filter(|found| found == Path::new(network)).count()
}

#[test]
fn shared_network_ends_with_a_killed_host() {
    let cli = Cli::new();
    let mark = mark(27, 0);
    let mut served = Client::new(&cli, &["--set", "tools.autonomy=full"], LEGACY, false);
    let job = json!({ "command": format!("sleep {mark}"), "background": true });
    assert_eq!(served.call("bash", job)["isError"], false);
    let shown = text(&served.call("bash", json!({ "command": "readlink /proc/self/ns/net" })));
    let at = shown.find("net:[").expect("it is shown");
    let network = shown[at..].split_inclusive(']').next().expect("it ends").to_owned();
    assert!(inside(&network) > 0, "the job is in it");
    // SIGKILL: no code of the host runs any more.
    drop(served);
    assert_gone(&mark);
    let until = Instant::now() + Duration::from_secs(20);
    while inside(&network) > 0 {
        assert!(Instant::now() < until, "{} processes are left in {network}", inside(&network));
        std::thread::yield_now();
    }
}

#[test]
fn bytes_of_an_ended_program_arrive_before_the_end_of_the_process() {
    let cli = Cli::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    // The proxy waits until the program has closed its connection.
    let closed = cli.work().join("closed");
    let proxy = start_proxy(move |_| {
        wait_until("the program has closed its connection", || closed.exists());
        Some(port)
    });
    cli.configure(&format!(
        "[network]\nproxy = \"http://{proxy}\"\nno_proxy = []\nproxy_resolves = true\n\
         [tools]\nautonomy = \"full\"\n[tools.shell]\nhosts = [\"far.example.org:{port}\"]\n"
    ));
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    });
    let command = format!(
        "command=exec 3<>/dev/tcp/far.example.org/{port} && printf m1 >&3 && exec 3>&- && touch closed"
    );
    cli.run(&["call", "--yes", "bash", &command]).ends(0);
    // If no connection has arrived, this one ends the thread.
    let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let bytes = received.join().expect("it doesn't panic").expect("a connection");
    assert_eq!(bytes, b"m1");
}
