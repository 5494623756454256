//! Servers that run as jobs: the web tools of their session reach them, and nothing in their place.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::{Answer, Audience, Category, Host, Request, Session};

use super::{scene, there_is, yes};
use crate::mcp::client::records;
use crate::support::server::{Server, answer};
use crate::support::{Scene, failure, refused, soon};

/// Serves HTTP at a port, and writes each request into a file: `server.py LOG ADDRESS PORT`.
const SERVER: &str = "import http.server, socket, sys, time
log, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get('content-length', 0))).decode()
        with open(log, 'a') as file:
            file.write(f'{self.command} {self.path}\\n{self.headers}{body}\\n')
        if self.path == '/never':
            time.sleep(600)
        to = self.path.partition('?to=')[2]
        if self.path == '/endless':
            self.send_response(200)
            self.send_header('content-type', 'text/plain')
            self.end_headers()
            while True:
                self.wfile.write(b'a' * 65536)
        text = f'{log} has {self.command} {self.path} {body}'.encode()
        self.send_response(302 if to else 200)
        if to:
            self.send_header('location', to)
        self.send_header('content-type', 'text/plain')
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in address else socket.AF_INET
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
server = Server((address, port), Handler)
open(log, 'w').close()
server.serve_forever()
";

/// What the shared loopback needs, with a server of the machine at the same port.
struct Scenery {
    scene: Scene,
    /// Listens on the loopback of the machine.
    machine: TcpListener,
    port: u16,
}

impl Scenery {
    async fn new(settings: &[&str]) -> Self {
        let machine = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        machine.set_nonblocking(true).expect("it can be asked without waiting");
        let port = machine.local_addr().expect("it is bound").port();
        let mut all = vec![
            "tools.shell.network=\"deny\"",
            "tools.retry.max_attempts=0",
            "tools.web.timeout=5",
        ];
        all.extend(settings);
        let prepare = |root: &std::path::Path| {
            fs::write(root.join("granted/server.py"), SERVER).expect("it is written");
        };
        Self { scene: scene(&all, prepare).await, machine, port }
    }

    /// Starts a server as a job, which listens then. Returns its ID.
    async fn serve(&self, session: &Session, log: &str, address: &str) -> String {
        let command = format!("exec /usr/bin/python3 server.py {log} {address} {}", self.port);
        let arguments = json!({ "command": command, "background": true });
        let told = call(&self.scene.host, session, "bash", arguments).await;
        let told = told.outcome.expect("it starts").joined_text();
        let id = told.split(' ').find(|word| word.starts_with("job-")).expect("it has an ID");
        soon("it listens", || self.scene.granted.join(log).exists()).await;
        id.trim_end_matches('.').to_owned()
    }

    async fn fetch(&self, session: &Session, url: &str) -> Answer {
        let url = url.replace("PORT", &self.port.to_string());
        call(&self.scene.host, session, "fetch", json!({ "url": url })).await
    }

    /// The requests that a server got.
    fn log(&self, log: &str) -> String {
        fs::read_to_string(self.scene.granted.join(log)).unwrap_or_default()
    }

    #[track_caller]
    fn assert_machine_untouched(&self) {
        let error = self.machine.accept().expect_err("nobody connected to the machine");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }

    fn no_job(&self) -> String {
        format!("no job of this session listens at port {}", self.port)
    }
}

async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    let request = Request {
        session: Some(session.clone()),
        approver: Some(yes()),
        audience: Audience::Person,
        ..Request::new(tool, arguments)
    };
    host.call(request).await
}

#[track_caller]
fn shown(answer: &Answer) -> String {
    answer
        .outcome
        .as_ref()
        .unwrap_or_else(|failure| panic!("it succeeds: {failure:?}"))
        .joined_text()
}

const ON: &str = "tools.web.allowed_domains=[\"job\"]";

#[tokio::test(flavor = "multi_thread")]
async fn web_tools_reach_the_job_of_their_session_and_never_the_machine() {
    if !there_is("python3") {
        return;
    }
    let scenery = Scenery::new(&[ON]).await;
    let [one, other, third] = ["one", "other", "third"].map(Session::new);
    let early = scenery.fetch(&one, "http://localhost:PORT/").await;
    refused(&early, &scenery.no_job());
    let told = early.outcome.expect_err("it is refused").feedback();
    assert!(told.contains("Then repeat the call") && !told.contains("Don't repeat"), "{told}");
    let id = scenery.serve(&one, "first", "127.0.0.1").await;
    for host in ["127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]", "0x7f.1"] {
        let answer = scenery.fetch(&one, &format!("http://{host}:PORT/page?a=b")).await;
        assert!(shown(&answer).contains("first has GET /page?a=b"), "{host}: {answer:?}");
    }
    let arguments = json!({ "url": format!("http://127.0.0.1:{}/form", scenery.port), "method": "POST", "body": "sent" });
    let posted = call(&scenery.scene.host, &one, "http_request", arguments).await;
    assert!(shown(&posted).contains("first has POST /form sent"), "{posted:?}");
    assert!(scenery.log("first").contains(&format!("host: 127.0.0.1:{}", scenery.port)));
    // The record says what was reached.
    let all = records(&scenery.scene.granted.with_file_name("toolhold/data"));
    let served: Vec<&Value> =
        all.iter().filter(|record| record["kind"] == "egress" && record["job"] == *id).collect();
    assert!(served.len() == 6, "{all:?}");
    assert!(
        served.iter().all(|record| record["address"] == "127.0.0.1" && record["status"] == 200)
    );

    // A session without jobs, one with a job that listens nowhere, one with a server of its own.
    let before = scenery.log("first");
    refused(&scenery.fetch(&other, "http://localhost:PORT/").await, &scenery.no_job());
    let sleeps = json!({ "command": "sleep 600", "background": true });
    shown(&call(&scenery.scene.host, &other, "bash", sleeps).await);
    refused(&scenery.fetch(&other, "http://localhost:PORT/").await, &scenery.no_job());
    scenery.serve(&third, "third", "::1").await;
    assert!(shown(&scenery.fetch(&third, "http://localhost:PORT/").await).contains("third has"));
    assert!(shown(&scenery.fetch(&third, "http://[::1]:PORT/").await).contains("third has"));
    refused(&scenery.fetch(&third, "http://127.0.0.1:PORT/").await, &scenery.no_job());
    assert_eq!(scenery.log("first"), before, "no other session reached it");

    // Other loopback addresses, names and schemes stay blocked.
    for url in ["http://127.0.0.2:PORT/", "http://a.localhost:PORT/", "https://localhost:PORT/"] {
        refused(&scenery.fetch(&one, url).await, "private addresses are blocked");
    }
    // It ends, and nothing takes its place.
    shown(&call(&scenery.scene.host, &one, "job_stop", json!({ "id": id })).await);
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let url = format!("http://{host}:PORT/");
        refused(&scenery.fetch(&one, &url).await, &scenery.no_job());
    }
    scenery.assert_machine_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_jobs_are_reached_and_only_where_the_operator_allows_it() {
    if !there_is("python3") {
        return;
    }
    let session = Session::new("one");
    let off = Scenery::new(&[]).await;
    off.serve(&session, "off", "127.0.0.1").await;
    let key = "[tools.web]\nallowed_domains = [\"job\"]";
    let remedy = |answer: &Answer| {
        let failure = refused(answer, "private addresses are blocked");
        failure.denial.as_ref().map(|denial| denial.remedy.clone()).unwrap_or_default()
    };
    for url in ["http://127.0.0.1:PORT/", "http://localhost:PORT/"] {
        let remedy = remedy(&off.fetch(&session, url).await);
        assert!(remedy.ends_with(key) && remedy.contains("allowed_private_hosts"), "{remedy}");
    }
    // It isn't named where it would change nothing.
    for url in ["http://127.0.0.2:PORT/", "https://localhost:PORT/", "http://10.0.0.1/"] {
        let remedy = remedy(&off.fetch(&session, url).await);
        assert!(!remedy.contains("\"job\""), "{url}: {remedy}");
    }
    let other = off.fetch(&Session::new("without jobs"), "http://localhost:PORT/").await;
    assert!(!remedy(&other).contains("\"job\""), "{other:?}");
    assert_eq!(off.log("off"), "");
    off.assert_machine_untouched();

    let denied = Scenery::new(&[ON, "tools.web.denied_domains=[\"127.0.0.1\"]"]).await;
    denied.serve(&session, "denied", "127.0.0.1").await;
    refused(&denied.fetch(&session, "http://localhost:PORT/").await, "denied_domains");
    assert_eq!(denied.log("denied"), "");
    let denied = Scenery::new(&["tools.web.denied_domains=[\"127.0.0.1\"]"]).await;
    denied.serve(&session, "denied", "127.0.0.1").await;
    let still = denied.fetch(&session, "http://localhost:PORT/").await;
    assert!(!remedy(&still).contains("\"job\""), "{still:?}");

    // A command of the session that isn't a job listens at the port.
    let on = Scenery::new(&[ON]).await;
    let sleeps = json!({ "command": "sleep 600", "background": true });
    shown(&call(&on.scene.host, &session, "bash", sleeps).await);
    let told = remedy(&on.fetch(&session, "https://localhost:PORT/").await);
    assert!(told.ends_with("is reached by `http` without TLS"), "{told}");
    let command = format!(
        "timeout 30 /usr/bin/python3 server.py command 0.0.0.0 {} & until [ -e stop ]; do sleep 0.05; done; kill %1",
        on.port
    );
    let (host, its) = (on.scene.host.clone(), session.clone());
    let runs = tokio::spawn(async move {
        call(&host, &its, "bash", json!({ "command": command, "timeout": 40 })).await
    });
    soon("the command listens", || on.scene.granted.join("command").exists()).await;
    refused(&on.fetch(&session, "http://localhost:PORT/").await, &on.no_job());
    // Nor if a job shares the port: the kernel would choose between them.
    on.serve(&session, "shared", "0.0.0.0").await;
    for _ in 0..4 {
        refused(&on.fetch(&session, "http://localhost:PORT/").await, &on.no_job());
    }
    assert_eq!(on.log("shared"), "");
    fs::write(on.scene.granted.join("stop"), "").expect("it is written");
    runs.await.expect("it runs").outcome.expect("it succeeds");
    assert_eq!(on.log("command"), "");
    assert!(shown(&on.fetch(&session, "http://localhost:PORT/").await).contains("shared has"));
    on.assert_machine_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_lead_neither_to_a_job_nor_from_it_to_the_machine() {
    if !there_is("python3") {
        return;
    }
    let leads = Server::plain(|asked, wire| {
        let to = asked.path().split_once("?to=").map(|(_, to)| to.to_owned());
        match to {
            Some(to) => answer(wire, "302 Found", &[("location", &to)], b""),
            None => answer(wire, "200 OK", &[("content-type", "text/plain")], b"elsewhere"),
        }
    });
    let opened = format!("tools.web.allowed_private_hosts=[\"{}\"]", leads.address);
    let scenery = Scenery::new(&[ON, &opened]).await;
    let session = Session::new("one");
    scenery.serve(&session, "job", "127.0.0.1").await;
    let rule = "only a call whose arguments name a job's server can send requests to it";
    let elsewhere = format!("http://{}/?to=", leads.address);
    let own = "http://127.0.0.1:PORT";
    for url in [
        format!("{elsewhere}{own}/secret"),
        format!("{elsewhere}http://localhost:PORT/secret"),
        // Another name of the same server is another origin.
        format!("{own}/?to=http://localhost:PORT/secret"),
        // The call names it, but something else leads back to it.
        format!("{own}/?to={elsewhere}{own}/secret"),
    ] {
        refused(&scenery.fetch(&session, &url).await, rule);
    }
    assert!(!scenery.log("job").contains("GET /secret"), "{}", scenery.log("job"));
    // Its own redirects, and those to what is granted, are followed.
    let within = scenery.fetch(&session, &format!("{own}/?to=/next")).await;
    assert!(shown(&within).contains("job has GET /next"), "{within:?}");
    let leaves = scenery.fetch(&session, &format!("{own}/?to=http://{}/", leads.address)).await;
    assert!(shown(&leaves).contains("elsewhere"), "{leaves:?}");
    // The machine has another server, which nothing opens.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    other.set_nonblocking(true).expect("it can be asked without waiting");
    let at = other.local_addr().expect("it is bound");
    for (to, rule) in [
        (format!("http://{at}/"), rule),
        (format!("http://localhost:{}/", at.port()), rule),
        (format!("https://{at}/"), "private addresses are blocked"),
        ("http://169.254.169.254/".to_owned(), "private addresses are blocked"),
    ] {
        refused(&scenery.fetch(&session, &format!("{own}/?to={to}")).await, rule);
    }
    assert!(other.accept().is_err(), "nobody connected to the machine");
    scenery.assert_machine_untouched();
}

#[tokio::test(flavor = "multi_thread")]
async fn job_gets_no_secret_and_its_answers_are_bounded() {
    if !there_is("python3") {
        return;
    }
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let file = tempfile::NamedTempFile::new().expect("a file is made");
    fs::write(file.path(), token).expect("it is written");
    let machine = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = machine.local_addr().expect("it is bound").port();
    let secret = format!(
        "tools.web.secrets.token={{file={:?}, hosts=[\"localhost:{port}\", \"127.0.0.1:{port}\"]}}",
        file.path()
    );
    let mut scenery = Scenery::new(&[
        ON,
        &secret,
        "tools.web.credentials_to=[\"localhost\"]",
        "tools.web.timeout=2",
    ])
    .await;
    scenery.port = port;
    let session = Session::new("one");
    scenery.serve(&session, "job", "127.0.0.1").await;
    assert!(shown(&scenery.fetch(&session, "http://localhost:PORT/").await).contains("job has"));
    let arguments = json!({
        "url": format!("http://localhost:{port}/leak"),
        "headers": { "authorization": format!("Bearer {token}") },
    });
    let leaks = call(&scenery.scene.host, &session, "http_request", arguments).await;
    refused(&leaks, "looks like a secret");
    assert!(!scenery.log("job").contains("ghp_") && !scenery.log("job").contains("/leak"));

    let began = Instant::now();
    let silent = scenery.fetch(&session, "http://localhost:PORT/never").await;
    failure(&silent, Category::Timeout, Some("timed-out"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let endless = scenery.fetch(&session, "http://localhost:PORT/endless").await;
    assert!(endless.outcome.is_ok_and(|output| output.joined_text().len() < 64 * 1024));
    // It goes on serving.
    assert!(
        shown(&scenery.fetch(&session, "http://localhost:PORT/after").await).contains("/after")
    );
}
