//! Upstream servers reach the hosts in their `hosts`, and nothing else. What counts is what arrives
//! at the listening servers.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, records, text};
use crate::servers::until;
use crate::shell::hosts::own_address;
use crate::shell::hosts_without_namespaces::REFUSED;
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Cli, Ended, output_under, refusing};

/// A server whose tool fetches a URL without a proxy, or sends a datagram to an address.
const SERVER: &str = r#"
import json, socket, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def call(arguments):
    if "datagram" in arguments:
        host, port = arguments["datagram"].rsplit(":", 1)
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", (host, int(port)))
        return "sent"
    return opener.open(arguments["url"], timeout=20).read().decode()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        properties = {key: {"type": "string"} for key in ("url", "datagram")}
        answer = {"tools": [{"name": "fetch", "inputSchema":
                             {"type": "object", "properties": properties}}]}
    elif message["method"] == "tools/call":
        try:
            text, failed = call(message["params"].get("arguments", {})), False
        except OSError as error:
            text, failed = f"Error: {error}", True
        answer = {"content": [{"type": "text", "text": text}], "isError": failed}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"],
                          "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"#;

/// Says hello, and closes the connection.
fn hello(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    answer(wire, "200 OK", &[("connection", "close")], b"hello")
}

/// The port of a test's server for the target `HOST:PORT` of a tunnel.
type FindPort = dyn Fn(&str) -> Option<u16> + Send + Sync;

/// Starts a proxy that connects to servers on this machine. Toolhold uses the proxy, so the names
/// with a port in `find_port` lead to the servers of a test.
pub(crate) fn start_proxy(
    find_port: impl Fn(&str) -> Option<u16> + Send + Sync + 'static,
) -> SocketAddr {
    let find_port: Arc<FindPort> = Arc::new(find_port);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let find_port = Arc::clone(&find_port);
            std::thread::spawn(move || tunnel(stream, &*find_port));
        }
    });
    address
}

/// Returns the port in a target whose name is below `test`.
fn test_port(target: &str) -> Option<u16> {
    target.split_once(".test:")?.1.parse().ok()
}

fn tunnel(mut near: TcpStream, find_port: &FindPort) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && near.read(&mut byte)? > 0 {
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let Some(port) = target.and_then(find_port) else {
        return near.write_all(b"HTTP/1.1 502 No\r\n\r\n");
    };
    let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    near.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let mut near_reader = near.try_clone()?;
    let mut far_writer = far.try_clone()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut near_reader, &mut far_writer);
        far_writer.shutdown(Shutdown::Write)
    });
    io::copy(&mut far, &mut near)?;
    near.shutdown(Shutdown::Write)
}

struct Scene {
    cli: Cli,
    granted: Server,
    other: Server,
}

impl Scene {
    /// A server that may reach `granted` as `npm.test`. `more` are further lines of the
    /// configuration.
    fn new(more: &str) -> Self {
        let scene = Self::unapproved(more, |port| format!("[\"http://npm.test:{port}\"]"));
        scene.cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
        scene
    }

    fn unapproved(more: &str, hosts: impl FnOnce(u16) -> String) -> Self {
        let scene =
            Self { cli: Cli::new(), granted: Server::plain(hello), other: Server::plain(hello) };
        scene.configure(more, &hosts(scene.granted.port()));
        scene
    }

    fn configure(&self, more: &str, hosts: &str) {
        self.cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[network]\nproxy = \"http://{}\"\nno_proxy = []\n\
             proxy_resolves = true\n[mcp.servers.s]\ncommand = \"/usr/bin/python3\"\n\
             args = [\"-c\", {}]\nhosts = {hosts}\n{more}\n",
            start_proxy(test_port),
            json!(SERVER)
        ));
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/", self.granted.port())
    }

    fn fetch(&self, url: &str) -> Ended {
        self.cli.run(&["call", "s__fetch", &format!("url={url}")])
    }

    fn fetch_without_namespaces(&self, url: &str) -> Ended {
        let mut command = self.cli.command(&["call", "s__fetch", &format!("url={url}")]);
        Ended::from_output(output_under(&[refusing(&REFUSED)], &mut command))
    }

    /// The entries of the server's connections in the audit log.
    fn entries(&self) -> Vec<Value> {
        let mut all = records(&self.cli.root.path().join("data"));
        all.retain(|record| record["kind"] == "request" && record["purpose"] == "mcp.s");
        all
    }

    fn connections(&self) -> [usize; 2] {
        [self.granted.connections(), self.other.connections()]
    }
}

#[test]
fn server_reaches_the_granted_host_and_nothing_else() {
    let scene = Scene::new("");
    assert!(scene.fetch(&scene.url("npm.test")).ends(0).stdout.contains("hello"));
    assert_eq!(scene.connections(), [1, 0]);

    let port = scene.granted.port();
    let machine = own_address();
    let tcp = TcpListener::bind((machine, port)).expect("the port is free there");
    let udp = UdpSocket::bind((machine, port)).expect("the port is free there");
    for url in [
        scene.url("other.test"),
        scene.url("below.npm.test"),
        format!("http://npm.test:{}/", scene.other.port()),
        "http://npm.test/".to_owned(),
        format!("https://npm.test:{port}/"),
        scene.url("127.0.0.1"),
        scene.url("localhost"),
        scene.url(&machine.to_string()),
        scene.url(&format!("[::ffff:{machine}]")),
    ] {
        let ended = scene.fetch(&url);
        assert!(ended.code != 0 && !ended.stdout.contains("hello"), "{url}: {}", ended.stdout);
        assert_eq!(scene.connections(), [1, 0], "{url}");
    }
    scene.cli.run(&["call", "s__fetch", &format!("datagram={machine}:{port}")]);
    tcp.set_nonblocking(true).expect("it can be asked without waiting");
    udp.set_nonblocking(true).expect("it can be asked without waiting");
    assert!(tcp.accept().is_err() && udp.recv_from(&mut [0; 16]).is_err(), "nothing has arrived");
}

#[test]
fn refused_host_is_named_with_the_line_that_grants_it() {
    let scene = Scene::new("");
    let ended = scene.fetch(&scene.url("other.test"));
    let told = ended.stdout + &ended.stderr;
    let entry =
        format!("add \"other.test:{}\" to `hosts` in [mcp.servers.s]", scene.granted.port());
    assert!(told.contains(&entry) && told.contains("toolhold mcp approve s"), "{told}");
    let granted = scene.url("npm.test");
    let reaches = format!("reaches {}", granted.trim_end_matches('/'));
    for command in [&["mcp", "list"][..], &["doctor"]] {
        let shown = scene.cli.run(command).stdout;
        assert!(shown.contains(&reaches), "{shown}");
    }
}

#[test]
fn connections_of_a_running_server_are_recorded_one_by_one() {
    let scene = Scene::new("");
    let mut client = Client::new(&scene.cli, &[], LEGACY, false);
    let granted = scene.url("npm.test");
    for _ in 0..2 {
        let answer = client.call("s__fetch", json!({ "url": granted }));
        assert!(text(&answer).contains("hello"), "{answer}");
    }
    let refused = client.call("s__fetch", json!({ "url": scene.url("other.test") }));
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(scene.connections(), [2, 0]);

    until("the connections have entries", || scene.entries().len() == 3);
    let entries = scene.entries();
    let results = |host: &str| -> Vec<&str> {
        let of_host = entries.iter().filter(|entry| entry["host"] == host);
        of_host.filter_map(|entry| entry["result"].as_str()).collect()
    };
    assert_eq!(results("npm.test"), ["success", "success"], "{entries:?}");
    assert_eq!(results("other.test"), ["blocked"], "{entries:?}");
    for entry in &entries {
        let program = entry["program"].as_str().unwrap_or_default();
        assert!(program.starts_with("python"), "{entry}");
        let url = entry["url"].as_str().unwrap_or_default();
        assert!(url.contains(&scene.granted.port().to_string()), "{entry}");
    }
}

#[test]
fn changed_hosts_need_approval() {
    let scene = Scene::new("");
    let other = scene.url("other.test");
    let both = format!("[{:?}, {:?}]", scene.url("npm.test"), other);
    scene.configure("", &both);
    scene.fetch(&other).ends(2);
    scene.fetch(&scene.url("npm.test")).ends(2);
    assert_eq!(scene.connections(), [0, 0]);
    assert!(scene.cli.run(&["mcp", "list"]).ends(0).stdout.contains("changed"));
    let card = scene.cli.run(&["mcp", "approve", "s", "--yes"]).ends(0).stdout;
    let line = card.lines().find(|line| line.contains("hosts = ")).expect("the card has the hosts");
    assert!(line.contains("npm.test") && line.contains("other.test"), "{line}");
    assert!(scene.fetch(&other).ends(0).stdout.contains("hello"));
}

#[test]
fn ceiling_and_denied_domains_bound_the_hosts() {
    let scene = Scene::unapproved("", |port| {
        format!("[\"http://npm.test:{port}\", \"http://other.test:{port}\"]")
    });
    let ceiling = scene.cli.work().join("ceiling.toml");
    let bound = format!("[mcp.servers.s]\nhosts = [{:?}]\n", scene.url("npm.test"));
    fs::write(&ceiling, bound).expect("the ceiling is written");
    let run = |line: &[&str]| {
        let mut command = scene.cli.command(line);
        command.env("TOOLHOLD_CEILING", &ceiling);
        Ended::from_output(command.output().expect("toolhold starts"))
    };
    run(&["mcp", "approve", "s", "--yes"]).ends(0);
    let url = |host: &str| format!("url={}", scene.url(host));
    assert_ne!(run(&["call", "s__fetch", &url("other.test")]).code, 0);
    assert_eq!(scene.connections(), [0, 0]);
    assert!(run(&["call", "s__fetch", &url("npm.test")]).ends(0).stdout.contains("hello"));
    assert_eq!(scene.connections(), [1, 0]);

    let denied = Scene::new("[tools.web]\ndenied_domains = [\"npm.test\"]");
    assert_ne!(denied.fetch(&denied.url("npm.test")).code, 0);
    assert_eq!(denied.connections(), [0, 0]);
}

#[test]
fn hosts_beside_the_whole_network_are_an_error() {
    let scene = Scene::unapproved("network = true", |port| format!("[\"http://npm.test:{port}\"]"));
    let refused = scene.cli.run(&["mcp", "approve", "s", "--yes"]);
    let told = refused.stderr;
    assert_ne!(refused.code, 0, "{told}");
    assert!(told.contains("[mcp.servers.s] has both") && told.contains("`hosts`"), "{told}");
}

#[test]
fn server_reaches_its_hosts_without_namespaces() {
    let scene = Scene::new("[tools.shell]\nsandbox = \"best-effort\"");
    let granted = scene.url("npm.test");
    assert!(scene.fetch_without_namespaces(&granted).ends(0).stdout.contains("hello"));
    assert_eq!(scene.connections(), [1, 0]);
    let other = scene.other.port();
    for url in [format!("http://npm.test:{other}/"), format!("http://127.0.0.1:{other}/")] {
        assert!(!scene.fetch_without_namespaces(&url).stdout.contains("hello"), "{url}");
    }
    assert_eq!(scene.connections(), [1, 0]);
}
