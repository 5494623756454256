//! Commands that connect without end, never read, never answer, or lose their host: the host keeps
//! to its bounds, serves others, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::{Category, Request, Session};

use super::process_lifetime::{assert_gone, mark, with_word};
use super::{ran, scene, there_is, yes};
use crate::support::{ATTACK_MIB, Scene, run, run_alone, soon, wait_until};

/// Connections that the relay of one network serves at the same time.
const RELAY_CONNECTIONS: usize = 256;

/// Connects `count` times at the same time from several processes, and leaves each request
/// unfinished.
const FLOOD: &str = r#"
import os, resource, socket, sys, time
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
address = socket.gethostbyname("npm.test")
each = 500
for _ in range(count // each):
    if os.fork() == 0:
        kept = []
        while len(kept) < each:
            s = socket.socket()
            s.setblocking(False)
            try:
                s.connect((address, port))
            except OSError:
                pass
            kept.append(s)
        while True:
            for s in kept:
                try:
                    s.send(b"GET / HTTP/1.1\r\nx: ")
                except OSError:
                    pass
            time.sleep(0.1)
open("started", "w").write("yes")
time.sleep(600)
"#;

/// A scene whose commands reach HTTP at a port, and with `other_protocols` everything there.
async fn granted(port: u16, other_protocols: bool, scripts: &[(&str, &str)]) -> Scene {
    let mut hosts = vec![format!("http://npm.test:{port}")];
    if other_protocols {
        hosts.push(format!("npm.test:{port}"));
    }
    let hosts = format!("tools.shell.hosts={hosts:?}");
    let settings = [&*hosts, "tools.shell.network=ask", "tools.shell.allowed_commands=[\"curl\"]"];
    scene(&settings, |root| {
        for (file, text) in scripts {
            fs::write(root.join("granted").join(file), text).expect("it is written");
        }
    })
    .await
}

fn request(session: &str, command: &str, seconds: u32) -> Request {
    Request {
        session: Some(Session::new(session)),
        approver: Some(yes()),
        ..Request::new("bash", json!({ "command": command, "timeout": seconds }))
    }
}

/// A server of this machine, and its port.
fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// Answers each request with a word, and keeps the connection.
fn serve_words(listener: TcpListener) -> Arc<AtomicUsize> {
    let count = Arc::<AtomicUsize>::default();
    let accepted = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            accepted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword");
                }
            });
        }
    });
    count
}

#[test]
fn soak_flood_of_connections_is_bounded_and_holds_nobody_up() {
    if !there_is("python3") || !there_is("curl") {
        return;
    }
    let connections = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 10_000 } else { 1000 };
    run_alone(ATTACK_MIB, async move {
        let (listener, port) = listen();
        let accepted = serve_words(listener);
        let scene = granted(port, false, &[("flood.py", FLOOD)]).await;
        let curl = format!("curl -sS --max-time 20 http://npm.test:{port}/");
        let asked = scene.host.call(request("other", &curl, 30)).await;
        assert_eq!(ran(&asked).map(|ran| ran.stdout), Some("word".to_owned()), "{asked:?}");
        let (before, dialled) = (descriptors(), accepted.load(Ordering::SeqCst));

        let flood = format!("exec /usr/bin/python3 flood.py {port} {connections}");
        let flood = request("hostile", &flood, 20);
        let host = Arc::clone(&scene.host);
        let flooding = tokio::spawn(async move { host.call(flood).await });
        let started = scene.granted.join("started");
        soon("it starts", || started.exists()).await;
        let (mut most, mut others) = (0, 0);
        while !flooding.is_finished() {
            most = most.max(descriptors());
            others += 1;
            scene.assert_serves().await;
            let asked = scene.host.call(request("other", &curl, 30)).await;
            assert_eq!(ran(&asked).map(|ran| ran.stdout), Some("word".to_owned()), "{asked:?}");
        }
        let ended = flooding.await.expect("the host does not panic");
        let failure = ended.outcome.expect_err("it ends at its time limit");
        assert_eq!(failure.category, Category::Timeout, "{failure:?}");
        let own = 100;
        assert!(most > before + RELAY_CONNECTIONS / 2, "the flood arrives: {most}");
        assert!(most < before + RELAY_CONNECTIONS + own, "{before} descriptors became {most}");
        // No request was finished, so nobody was dialled for it.
        assert!(accepted.load(Ordering::SeqCst) <= dialled + others, "{accepted:?} of {others}");
        soon("the descriptors are closed", || descriptors() < before + own).await;
    });
}

/// Asks, and never reads the answer. With an argument more, it doesn't speak HTTP.
const SLOW_READER: &str = r#"
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
host = sys.argv[1] + ":" + sys.argv[2]
s.sendall(b"\0" if len(sys.argv) > 3 else b"GET / HTTP/1.1\r\nhost: " + host.encode() + b"\r\n\r\n")
time.sleep(600)
"#;

/// Sends without end to a server that doesn't read.
const FAST_SENDER: &str = r#"
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
host = sys.argv[1] + ":" + sys.argv[2]
head = b"POST / HTTP/1.1\r\nhost: " + host.encode() + b"\r\ncontent-length: 99999999999\r\n\r\n"
s.sendall(b"\0" if len(sys.argv) > 3 else head)
s.settimeout(600)
while True:
    s.sendall(bytes(65536))
"#;

/// Sends without end, and counts the bytes of both sides.
fn send_endlessly(listener: TcpListener) -> Arc<AtomicU64> {
    let count = Arc::<AtomicU64>::default();
    let sent = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let sent = Arc::clone(&sent);
            std::thread::spawn(move || {
                let asked = stream.read(&mut [0; 1024]).unwrap_or_default();
                sent.fetch_add(asked as u64, Ordering::SeqCst);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
                while let Ok(written) = stream.write(&[0; 65536]) {
                    sent.fetch_add(written as u64, Ordering::SeqCst);
                }
            });
        }
    });
    count
}

/// Accepts, and never reads.
fn never_read(listener: TcpListener) {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            kept.push(stream);
        }
    });
}

#[test]
fn side_that_never_reads_fills_no_memory() {
    if !there_is("python3") {
        return;
    }
    let buffers = 64 << 20;
    run_alone(ATTACK_MIB, async move {
        let (sending, sending_port) = listen();
        let (deaf, deaf_port) = listen();
        let sent = send_endlessly(sending);
        never_read(deaf);
        let scripts = [("reader.py", SLOW_READER), ("sender.py", FAST_SENDER)];
        let (one, other) =
            (granted(sending_port, true, &scripts).await, granted(deaf_port, true, &scripts).await);
        for protocol in ["", " other"] {
            let reader =
                format!("exec /usr/bin/python3 reader.py npm.test {sending_port}{protocol}");
            let sender = format!("exec /usr/bin/python3 sender.py npm.test {deaf_port}{protocol}");
            let before = sent.load(Ordering::SeqCst);
            let (read, written) = tokio::join!(
                one.host.call(request("slow", &reader, 5)),
                other.host.call(request("slow", &sender, 5)),
            );
            for answer in [read, written] {
                let failure = answer.outcome.expect_err("it ends at its time limit");
                assert_eq!(failure.category, Category::Timeout, "{failure:?}");
            }
            let sent = sent.load(Ordering::SeqCst) - before;
            assert!((1..buffers).contains(&sent), "{sent} bytes for nobody{protocol}");
        }
        one.assert_serves().await;
    });
}

/// Sends the head of a request a byte at a time.
const SLOW_SENDER: &str = r#"
import socket, sys, time
kept = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) for _ in range(50)]
for byte in b"GET / HTTP/1.1\r\nhost: " + b"x" * 1000:
    for s in kept:
        try:
            s.send(bytes([byte]))
        except OSError:
            pass
    time.sleep(0.2)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn slow_request_is_never_dialled_and_holds_nobody_up() {
    if !there_is("python3") || !there_is("curl") {
        return;
    }
    let (listener, port) = listen();
    let accepted = serve_words(listener);
    let scene = granted(port, false, &[("slow.py", SLOW_SENDER)]).await;
    let slow = request("one", &format!("exec /usr/bin/python3 slow.py npm.test {port}"), 6);
    let host = Arc::clone(&scene.host);
    let running = tokio::spawn(async move { host.call(slow).await });
    let curl = format!("curl -sS --max-time 20 http://npm.test:{port}/");
    let mut served = 0;
    while !running.is_finished() {
        // Also in the same session, with the same relay.
        for session in ["one", "other"] {
            let asked = scene.host.call(request(session, &curl, 30)).await;
            assert_eq!(ran(&asked).map(|ran| ran.stdout), Some("word".to_owned()), "{asked:?}");
            served += 1;
        }
    }
    let failure = running.await.expect("the host does not panic").outcome.expect_err("it is ended");
    assert_eq!(failure.category, Category::Timeout, "{failure:?}");
    assert!(served >= 2 && accepted.load(Ordering::SeqCst) <= served, "{served} {accepted:?}");
}

/// What a command does when its host is killed. `HOST` and `PORT` are the granted server, `MARK` is
/// the time that nobody else sleeps.
const STATES: [(&str, &str); 7] = [
    ("a name was looked up", "getent hosts HOST"),
    ("a connection is silent", "exec 3<>/dev/tcp/HOST/PORT"),
    (
        "a request is unfinished",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'GET / HTTP/1.1\\r\\nhost: ' >&3",
    ),
    (
        "an answer comes",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'GET / HTTP/1.1\\r\\nhost: HOST:PORT\\r\\n\\r\\n' >&3 && \
         (cat <&3 >/dev/null &)",
    ),
    (
        "a body is sent",
        "exec 3<>/dev/tcp/HOST/PORT && printf 'POST / HTTP/1.1\\r\\nhost: HOST:PORT\\r\\n\
         content-length: 99999999999\\r\\n\\r\\n' >&3 && (cat /dev/zero >&3 &)",
    ),
    (
        "another protocol is spoken",
        "exec 3<>/dev/tcp/HOST/PORT && printf '\\0' >&3 && (cat <&3 >/dev/null &)",
    ),
    (
        "connections come and are refused",
        "(while :; do (exec 3<>/dev/tcp/HOST/PORT); (exec 3<>/dev/tcp/other.test/PORT); done 2>/dev/null &)",
    ),
];

/// The variable that makes this test the host that is killed: the command, the port, and whether the
/// command is a job.
const KILLED: &str = "TOOLHOLD_TEST_KILLED";

/// Runs a command until this process is killed.
fn be_killed(order: &str) {
    let parts: Vec<String> = order.splitn(3, '|').map(str::to_owned).collect();
    run(async move {
        let [port, kind, command] = &parts[..] else { panic!("it has three parts") };
        let is_job = kind == "job";
        let scene = granted(port.parse().expect("it is a port"), true, &[]).await;
        let arguments = json!({ "command": command, "background": is_job, "timeout": 60 });
        // A job ends with its session.
        let one = Session::new("one");
        let session = Some(one.clone());
        let request = Request { session, approver: Some(yes()), ..Request::new("bash", arguments) };
        let answer = scene.host.call(request).await;
        assert!(is_job && answer.outcome.is_ok(), "{:?}", answer.outcome);
        std::future::pending::<()>().await;
    });
}

/// The file of this name in the working directory of the only scene below `folder`.
fn file_of_scene(folder: &Path, name: &str) -> Option<String> {
    let mut scenes = fs::read_dir(folder).ok()?.flatten();
    scenes.find_map(|scene| fs::read_to_string(scene.path().join("granted").join(name)).ok())
}

/// Processes of this machine that are in a network.
fn processes_in(network: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let networks = entries.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
    networks.filter(|found| found == Path::new(network)).count()
}

/// The mounts of this machine, and the sockets in files below a folder.
fn leftovers(folder: &Path) -> (BTreeSet<String>, Vec<PathBuf>) {
    use std::os::unix::fs::FileTypeExt;

    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let mounts = mounts.lines().filter(|line| line.contains(&*folder.to_string_lossy()));
    let (mut sockets, mut pending) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_socket() {
                sockets.push(entry.path());
            }
        }
    }
    (mounts.map(str::to_owned).collect(), sockets)
}

#[test]
fn soak_killed_host_leaves_no_process_and_no_connection() {
    if let Ok(order) = std::env::var(KILLED) {
        return be_killed(&order);
    }
    let rounds: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 50 } else { 1 };
    let (listener, port) = listen();
    let open = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&open);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                talk(stream);
                counted.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let name = std::thread::current().name().expect("a test has a name").to_owned();
    for round in 0..rounds {
        for (number, (state, command)) in STATES.iter().enumerate() {
            let kind = if (round as usize + number).is_multiple_of(2) { "job" } else { "call" };
            let mark = mark(40 + number as u32, round);
            let command = command.replace("HOST", "npm.test").replace("PORT", &port.to_string());
            let command = format!(
                "{command}; readlink /proc/self/ns/net > network; echo > reached; sleep {mark}"
            );
            let folder = TempDir::new().expect("a temporary folder is made");
            let mut host = Command::new(std::env::current_exe().expect("this program is there"))
                .args([&name, "--exact", "--nocapture"])
                .env(KILLED, format!("{port}|{kind}|{command}"))
                .env("TMPDIR", folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("this program starts");
            wait_until(&format!("{state}, {kind}"), || {
                file_of_scene(folder.path(), "reached").is_some() && with_word(&mark) > 0
            });
            let network = file_of_scene(folder.path(), "network").expect("it is written");
            // SIGKILL: no code of the host runs any more.
            host.kill().expect("it can be killed");
            host.wait().expect("it ends");
            assert_gone(&mark);
            let network = network.trim();
            wait_until(&format!("{state}, {kind}: {network} is empty"), || {
                processes_in(network) == 0 && open.load(Ordering::SeqCst) == 0
            });
            let (mounts, sockets) = leftovers(folder.path());
            assert!(mounts.is_empty() && sockets.is_empty(), "{state}: {mounts:?} {sockets:?}");
        }
    }
}

/// After the first bytes, sends and reads without end, until the other side has gone.
fn talk(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
    let Ok(mut reader) = stream.try_clone() else { return };
    let reading = std::thread::spawn(move || {
        let mut chunk = [0; 65536];
        while reader.read(&mut chunk).is_ok_and(|read| read > 0) {}
    });
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
    while stream.write_all(&[0; 1024]).is_ok() {}
    let _ = reading.join();
}
