//! Traces and metrics of calls: what arrives, what never leaves, and collectors that delay nothing.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_contract::{BoxFuture, Call, Definition, Outcome, Output, ToolSource};
use toolhold_core::config::{self, Config, Folders, Inputs, Who};
use toolhold_core::{Host, Request};
use toolhold_export::{Post, Posted, Signals, Telemetry, Transport, Unsent, flush_telemetry};

use super::otlp::{attribute, decoded, items};
use crate::support::server::{Asked, Authority, Server, Wire, answer};
use crate::support::{Cli, builtin, shared_cache, toolhold};

const SPANS: [&str; 3] = ["resourceSpans", "scopeSpans", "spans"];
const METRICS: [&str; 3] = ["resourceMetrics", "scopeMetrics", "metrics"];

fn ok(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    answer(wire, "200 OK", &[], b"")
}

/// Tools of the program.
struct Tools;

impl ToolSource for Tools {
    fn name(&self) -> &str {
        "program"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::new(Definition::new("act", "Acts", json!({ "type": "object" })))]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            if call.arguments["waits"] == true {
                std::future::pending::<()>().await;
            }
            Ok(Output::text("the answer"))
        })
    }
}

fn configured(folders: &Folders, endpoint: &str) -> Config {
    let settings = vec![
        "tools.autonomy=full".to_owned(),
        "audit.enabled=false".to_owned(),
        "telemetry.interval_secs=1".to_owned(),
        format!("telemetry.endpoint={endpoint:?}"),
    ];
    config::load(folders, &Inputs { settings, ..Inputs::default() }).expect("it is valid")
}

fn anna() -> Who {
    Who {
        issuer: "https://login.example.org".to_owned(),
        subject: "anna".to_owned(),
        groups: vec!["dev".to_owned(), "ops".to_owned()],
        client: None,
        token: None,
    }
}

async fn host(folder: &TempDir, endpoint: &str, telemetry: Option<Arc<Telemetry>>) -> Host {
    let folders = Folders { cache: shared_cache(), ..Folders::inside(folder.path()) };
    let loaded = configured(&folders, endpoint);
    let telemetry = match telemetry {
        Some(telemetry) => Some(telemetry),
        None => Telemetry::from_config(&loaded, &folders).expect("it starts"),
    };
    let builder = Host::builder().config(loaded).folders(folders).working_directory(folder.path());
    builder
        .provider(Arc::new(Tools))
        .builtins(&[builtin("file")])
        .helper(toolhold())
        .observer(telemetry.expect("it is on"))
        .principal(anna())
        .build()
        .await
        .expect("the host is built")
}

/// The points of a metric with their attributes.
fn points(metrics: &[Value], name: &str) -> Vec<Value> {
    let metric = metrics.iter().rfind(|metric| metric["name"] == name);
    let metric = metric.unwrap_or_else(|| panic!("{name} is missing in {metrics:?}"));
    let kind = ["sum", "gauge", "histogram"].into_iter().find(|kind| metric.get(kind).is_some());
    metric[kind.expect("it has points")]["dataPoints"].as_array().cloned().unwrap_or_default()
}

#[test]
fn commands_send_spans_and_counts_and_no_text_of_a_call() {
    let cli = Cli::new();
    let server = Server::plain(ok);
    let port = server.port();
    cli.configure(&format!(
        "[telemetry]\nendpoint = \"http://127.0.0.1:{port}\"\n\
         [telemetry.secrets.collector]\nfile = \"token\"\n"
    ));
    fs::write(cli.root.path().join("config/token"), "the-collectors-token\n").expect("written");
    fs::write(cli.work().join("classified.txt"), "unmentionable").expect("written");
    cli.run(&["call", "read", "path=classified.txt"]).ends(0);
    cli.run(&["call", "read", "path=../secret.txt"]).ends(3);
    cli.run(&["call", "no-such-unmentionable"]).ends(2);
    cli.run(&["call", "write", "path=classified2.txt", "content=unmentionable", "--yes"]).ends(0);
    let requests = server.asked();
    assert_eq!(requests.len(), 8, "{:?}", requests.iter().map(Asked::path).collect::<Vec<_>>());
    for request in &requests {
        assert_eq!(request.header("authorization"), Some("Bearer the-collectors-token"));
        let body = String::from_utf8_lossy(&request.body);
        for text in ["classified", "unmentionable", "secret.txt", "/work", "the-collectors"] {
            assert!(!body.contains(text), "{text} in {body:?}");
        }
    }
    let Some(read) = decoded(&requests) else { return };
    let spans: Vec<_> = read.iter().flat_map(|request| items(request, SPANS)).collect();
    let [success, denied, unknown, written] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(success["name"], "execute_tool read");
    assert_eq!(attribute(success, "gen_ai.operation.name").as_deref(), Some("execute_tool"));
    assert_eq!(attribute(success, "gen_ai.tool.name").as_deref(), Some("read"));
    assert_eq!(attribute(success, "toolhold.provider").as_deref(), Some("file"));
    assert!(
        attribute(success, "toolhold.step_ms.run").is_some() && success.get("status").is_none()
    );
    let time = |span: &Value, key: &str| span[key].as_str().and_then(|time| time.parse().ok());
    let (start, end): (Option<u64>, Option<u64>) =
        (time(success, "startTimeUnixNano"), time(success, "endTimeUnixNano"));
    assert!(start > Some(0) && start < end, "{success}");
    assert_eq!(attribute(denied, "error.type").as_deref(), Some("policy_blocked"));
    assert_eq!(denied["status"]["code"], "STATUS_CODE_ERROR");
    let event = &denied["events"][0];
    assert_eq!(event["name"], "toolhold.denial");
    assert_eq!(attribute(event, "toolhold.rule").as_deref(), Some("allowed_paths"), "{event}");
    assert_eq!(unknown["name"], "execute_tool _OTHER");
    assert_eq!(written["name"], "execute_tool write");

    let metrics: Vec<_> = read.iter().map(|request| items(request, METRICS)).collect();
    let of_call: Vec<_> = metrics.iter().filter(|metrics| !metrics.is_empty()).collect();
    assert_eq!(of_call.len(), 4);
    let call = &points(of_call[1], "toolhold.calls")[0];
    assert_eq!(
        (&call["asInt"], attribute(call, "error.type").as_deref()),
        (&json!("1"), Some("policy_blocked"))
    );
    assert_eq!(points(of_call[1], "toolhold.denied")[0]["asInt"], "1");
    let duration = &points(of_call[0], "toolhold.call.duration")[0];
    assert_eq!(duration["count"], "1");
    assert_eq!(duration["bucketCounts"].as_array().map(Vec::len), Some(13));
    // A tool can't read the secret.
    cli.run(&["call", "read", "path=../config/token"]).ends(3);
}

#[test]
fn collector_with_tls_is_sent_to_only_if_its_authority_is_trusted() {
    let cli = Cli::new();
    let authority = Authority::new();
    let server = Server::tls(authority.server(&["localhost"], &["http/1.1"], |_| {}), ok);
    let telemetry = format!("[telemetry]\nendpoint = \"https://localhost:{}\"\n", server.port());
    cli.configure(&telemetry);
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert_eq!(server.asked().len(), 0, "nobody trusts it");
    cli.configure(&format!("{telemetry}[network]\nauthorities = [{:?}]\n", authority.file()));
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    let asked = server.asked();
    let paths: Vec<_> = asked.iter().map(Asked::path).collect();
    assert!(paths.contains(&"/v1/traces") && paths.contains(&"/v1/metrics"), "{paths:?}");
}

#[test]
fn project_can_only_switch_telemetry_off() {
    let cli = Cli::new();
    let (server, evil) = (Server::plain(ok), Server::plain(ok));
    let project = cli.work().join("toolhold.toml");
    let endpoint = |server: &Server| format!("endpoint = \"http://{}\"\n", server.address);
    fs::write(&project, format!("[telemetry]\n{}", endpoint(&evil))).expect("written");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    cli.configure(&format!("[telemetry]\n{}", endpoint(&server)));
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert_eq!((evil.connections(), server.asked().len()), (0, 2));
    fs::write(&project, "[telemetry]\ntraces = false\nmetrics = false\n").expect("written");
    cli.run(&["call", "read", "path=notes.txt"]).ends(0);
    assert_eq!((evil.connections(), server.asked().len()), (0, 2));
}

#[test]
fn collector_that_hangs_closes_or_talks_nonsense_delays_no_answer() {
    let cli = Cli::new();
    let call = || {
        let begun = Instant::now();
        cli.run(&["call", "read", "path=notes.txt"]).ends(0);
        begun.elapsed()
    };
    call();
    let hangs = |_: &Asked, wire: &mut dyn Wire| wire.read_exact(&mut [0]);
    let closes = |_: &Asked, _: &mut dyn Wire| Err(io::Error::other("it is closed"));
    let garbage = |_: &Asked, wire: &mut dyn Wire| wire.write_all(b"\0\xff garbage\r\n\r\n");
    let endless = |_: &Asked, wire: &mut dyn Wire| {
        wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            wire.write_all(&[b'x'; 65536])?;
        }
    };
    let servers = [
        Server::plain(hangs),
        Server::plain(closes),
        Server::plain(garbage),
        Server::plain(endless),
    ];
    let places = servers.iter().map(|server| server.address.to_string());
    for place in places.chain(["127.0.0.1:1".to_owned()]) {
        cli.configure(&format!("[telemetry]\nendpoint = \"http://{place}\"\n"));
        // It waits half a second for the last sending, after the answer.
        let took = call();
        assert!(took < Duration::from_secs(5), "{place}: {took:?}");
    }
    assert!(servers.iter().all(|server| server.connections() > 0));
}

/// Counts requests, and never answers one.
struct Hangs(std::sync::mpsc::SyncSender<()>);

impl Transport for Hangs {
    fn post(&mut self, _: &Post<'_>) -> Result<Posted, Unsent> {
        let _ = self.0.try_send(());
        loop {
            std::thread::park();
        }
    }
}

#[tokio::test]
async fn hanging_collector_costs_calls_nothing_and_a_bounded_queue() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let (asked, waits) = std::sync::mpsc::sync_channel(1);
    let every = Duration::from_millis(1);
    let signals = Signals { traces: true, metrics: true, every };
    let telemetry = Telemetry::start(signals, Box::new(Hangs(asked))).expect("it starts");
    let host = host(&folder, "http://127.0.0.1:1", Some(telemetry)).await;
    waits.recv_timeout(Duration::from_secs(10)).expect("it is asked");
    let begun = Instant::now();
    for _ in 0..5000 {
        let answer = host.call(Request::new("act", json!({}))).await;
        assert!(answer.outcome.is_ok());
    }
    // More than there is room for, and each is answered.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_counted_and_traced_from_its_caller() {
    let folder = TempDir::new().expect("a temporary folder is made");
    let server = Server::plain(ok);
    let host = Arc::new(host(&folder, &format!("http://{}", server.address), None).await);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut request = Request::new("act", json!({}));
    request.meta = json!({ "traceparent": parent }).as_object().cloned();
    host.call(request).await.outcome.expect("it succeeds");
    for _ in 0..3 {
        host.call(Request::new("act", json!({}))).await.outcome.expect("it succeeds");
    }
    // One whose caller goes away.
    let waiting = host.call(Request::new("act", json!({ "waits": true })));
    let dropped = tokio::time::timeout(Duration::from_millis(50), waiting).await;
    assert!(dropped.is_err(), "nobody waits for it");
    tokio::task::spawn_blocking(|| flush_telemetry(Duration::from_secs(10)))
        .await
        .expect("it is sent");
    drop(host);
    let Some(read) = decoded(&server.asked()) else { return };
    let spans: Vec<_> = read.iter().flat_map(|request| items(request, SPANS)).collect();
    assert_eq!(spans.len(), 4, "{spans:?}");
    // Python shows bytes in base64.
    let trace = "S/kvNXezTaajzpKdDg5HNg==";
    let of_caller: Vec<_> = spans.iter().filter(|span| span["traceId"] == trace).collect();
    assert_eq!(of_caller.len(), 1);
    assert_eq!(of_caller[0]["parentSpanId"], "APBnqgupArc=");
    assert_eq!(attribute(of_caller[0], "enduser.id").as_deref(), Some("anna"));
    let groups = json!({ "values": [{ "stringValue": "dev" }, { "stringValue": "ops" }] });
    assert_eq!(attribute(of_caller[0], "toolhold.groups"), Some(groups.to_string()));
    let metrics: Vec<_> = read.iter().flat_map(|request| items(request, METRICS)).collect();
    let calls = points(&metrics, "toolhold.calls");
    let count = |error: Option<&str>| {
        calls.iter().find(|call| attribute(call, "error.type").as_deref() == error)
    };
    assert_eq!(count(None).expect("calls succeeded")["asInt"], "4");
    assert_eq!(count(Some("cancelled")).expect("one was dropped")["asInt"], "1");
    let plugins = points(&metrics, "toolhold.plugins");
    assert_eq!(attribute(&plugins[0], "toolhold.plugin.state").as_deref(), Some("running"));
    assert_eq!(plugins[0]["asInt"], "1");
}
