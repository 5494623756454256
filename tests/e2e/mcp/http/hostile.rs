//! Hostile and crashing clients over HTTP: the next one is served, and their resources are freed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};
use toolhold_core::audit::User;

use super::super::client::{LEGACY, MODERN};
use super::super::hostile::resident;
use super::super::looping_settings;
use super::calls;
use super::client::{Answered, Answering, Serving, modern};
use crate::support::{Cli, plugin};

/// A request that reads a file, with these header lines.
fn read(serving: &Serving, head: &[(&str, &str)]) -> u16 {
    serving
        .modern(
            "tools/call",
            &json!({ "name": "read", "arguments": { "path": "notes.txt" } }),
            head,
        )
        .whole()
        .status
}

#[test]
fn pages_of_others_and_names_of_others_are_turned_away() {
    let cli = Cli::asking();
    let serving =
        Serving::new(&cli, &["--set", "serve.allowed_origins=[\"https://app.example.com\"]"]);
    let port = serving.place.rsplit_once(':').expect("it has a port").1.to_owned();
    let own = format!("http://{}", serving.place);
    for origin in [
        "http://evil.example",
        "null",
        "",
        "https://app.example.com.evil.example",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://evil@app.example.com",
        "file://",
        "https://APP.example.com.",
    ] {
        assert_eq!(read(&serving, &[("origin", origin)]), 403, "{origin:?}");
    }
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.2",
        "[::2]",
        "0.0.0.0",
        "",
        "@",
    ] {
        assert!(matches!(read(&serving, &[("host", host)]), 400 | 403), "{host:?}");
    }
    assert_eq!(read(&serving, &[("origin", &own.replace("http:", "https:"))]), 403);
    assert!(calls(&cli).is_empty(), "none of them called: {:?}", calls(&cli));
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), "127.0.0.1".to_owned()] {
        assert_eq!(read(&serving, &[("host", &host)]), 200, "{host}");
    }
    assert_eq!(read(&serving, &[("origin", &own)]), 200);
    let allowed = [("origin", "https://app.example.com")];
    let answer = serving.modern("tools/list", &json!({}), &allowed).whole();
    assert_eq!(
        (answer.status, answer.head["access-control-allow-origin"].as_str()),
        (200, allowed[0].1)
    );
    let asked = serving.raw(&serving.request("OPTIONS", "/mcp", &allowed, "")).whole();
    assert!(
        asked.status == 204 && asked.head["access-control-allow-headers"].contains("authorization"),
        "{asked:?}"
    );
    let asked = serving
        .raw(&serving.request("OPTIONS", "/mcp", &[("origin", "http://evil.example")], ""))
        .whole();
    assert!(!asked.head.contains_key("access-control-allow-origin"), "{asked:?}");
}

#[test]
fn invalid_request_is_refused_and_the_next_is_answered() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &["--set", "serve.max_body_kib=64"]);
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}",
        "[".repeat(60_000)
    );
    for nonsense in ["", "nonsense", "{}", "[]", "null", "\"x\"", "{\"jsonrpc\":\"1.0\"}", &deep] {
        let answer = serving.raw(&serving.request("POST", "/mcp", &[], nonsense)).whole();
        assert_eq!(answer.status, 400, "{nonsense:.20}: {answer:?}");
        let error: Value = serde_json::from_str(&answer.body).expect("it is JSON");
        assert!([-32700, -32600].map(Value::from).contains(&error["error"]["code"]), "{error}");
        assert_eq!(
            error.get("id"),
            Some(&if nonsense == deep { json!(1) } else { json!(null) }),
            "{nonsense:.20}"
        );
    }
    let long = "x".repeat(64 << 10);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": long } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(serving.post(&message, &head).status, 413);
    let untold = serving.request(
        "POST",
        "/mcp",
        &[&head[..], &[("content-length", ""), ("transfer-encoding", "chunked")]].concat(),
        "",
    );
    let untold = String::from_utf8(untold).expect("is UTF-8").replace("content-length: \r\n", "");
    let text = message.to_string();
    let untold = format!("{untold}{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    assert_eq!(serving.raw(untold.as_bytes()).whole().status, 413, "it need not tell its length");
    let head =
        format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200 << 10));
    assert!(matches!(serving.raw(head.as_bytes()).whole().status, 0 | 431), "a head has a bound");
    let many = format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(1000));
    assert!(
        matches!(serving.raw(many.as_bytes()).whole().status, 0 | 431),
        "and so has the number of its lines"
    );
    for nonsense in [
        "nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "POST /mcp HTTP/9.9\r\n\r\n",
        "\0\0\0\0",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert!(
            matches!(serving.raw(nonsense.as_bytes()).whole().status, 0 | 400 | 505),
            "{nonsense:?}"
        );
    }
    assert_eq!(serving.get("/", &[]).status, 404);
    assert_eq!(serving.raw(&serving.request("PUT", "/mcp", &[], "")).whole().status, 405);
    assert_eq!(read(&serving, &[]), 200);
}

#[test]
fn connections_that_are_given_up_leave_room() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &["--set", "serve.max_connections=16"]);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let whole = serving.request("POST", "/mcp", &head, &message.to_string());
    for round in 0..16 {
        let end = whole.len() * round / 16;
        let half: Vec<_> = (0..16)
            .map(|_| {
                let mut stream = serving.connect();
                stream.write_all(&whole[..end]).expect("the server reads");
                stream
            })
            .collect();
        drop(half);
        assert_eq!(read(&serving, &[]), 200, "after {end} bytes");
    }
    let told = serving.get("/metrics", &[]).body;
    assert!(told.lines().any(|line| line.starts_with("toolhold_http_connections ")), "{told}");
}

#[test]
fn caller_gets_only_its_share() {
    let cli = Cli::asking();
    let mut settings = looping_settings();
    settings.extend(["--set", "serve.max_requests=2"].map(str::to_owned));
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let serving = Serving::new(&cli, &settings);
    let (message, head) =
        modern("tools/call", &json!({ "name": "hostile__loop_forever", "arguments": {} }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let looping: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = serving.connect();
            stream
                .write_all(&serving.request("POST", "/mcp", &head, &message.to_string()))
                .expect("the server reads");
            stream
        })
        .collect();
    while calls(&cli).iter().filter(|record| record["kind"] == "intent").count() < 2 {
        std::thread::yield_now();
    }
    let refused = serving.modern("tools/list", &json!({}), &[]).whole();
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(
        refused.head["retry-after"].parse::<u32>().is_ok_and(|wait| wait > 0)
            && refused.body.contains("max_requests"),
        "{refused:?}"
    );
    assert_eq!(serving.get("/healthz", &[]).status, 200);
    drop(looping);
    let since = std::time::Instant::now();
    while read(&serving, &[]) != 200 {
        assert!(since.elapsed().as_secs() < 60, "there is room again");
    }

    let few = Serving::new(&cli, &["--set", "serve.requests_per_minute=3"]);
    let statuses: Vec<_> = (0..5).map(|_| read(&few, &[])).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

/// Opens a stream of notifications, which keeps its connection and its request.
fn stream(serving: &Serving) -> Answering {
    let id = serving.handshake(LEGACY, false, &[]);
    let stream = serving.raw(&serving.request("GET", "/mcp", &[("mcp-session-id", &id)], ""));
    assert_eq!(stream.status, 200);
    stream
}

#[track_caller]
fn assert_refused(answer: &Answered, key: &str) {
    assert_eq!(answer.status, 429, "{answer:?}");
    let wait = answer.head["retry-after"].parse::<u32>();
    assert!(wait.is_ok_and(|wait| wait > 0) && answer.body.contains(key), "{answer:?}");
}

/// The number of refused requests for this reason.
fn refused_count(serving: &Serving, reason: &str) -> usize {
    let told = serving.get("/metrics", &[]).body;
    let user = if reason == "newcomers" { String::new() } else { User::local().name };
    let start = format!("toolhold_refused_total{{reason=\"{reason}\",user=\"{user}\"}} ");
    let line = told.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("{start} is not in {told}"));
    line.rsplit_once(' ').expect("it has a value").1.parse().expect("is a number")
}

#[test]
fn every_one_of_200_connections_gets_an_answer_or_429() {
    const CLIENTS: usize = 200;
    const WAITING: usize = 64;
    let cli = Cli::asking();
    let serving = &Serving::new(&cli, &["--set", "serve.max_connections=1"]);
    let only = stream(serving);
    let (sender, answers) = mpsc::channel();
    let params = &json!({ "name": "read", "arguments": { "path": "notes.txt" } });
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let sender = sender.clone();
            scope.spawn(move || sender.send(serving.modern("tools/call", params, &[]).whole()));
        }
        for answer in answers.iter().take(CLIENTS - WAITING) {
            assert_refused(&answer, "max_connections");
        }
        assert_eq!(serving.get("/healthz", &[]).status, 200);
        drop(only);
        for answer in answers.iter().take(WAITING) {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    });
    assert_eq!(read(serving, &[]), 200);
    assert_eq!(refused_count(serving, "connections"), CLIENTS - WAITING);
    let line = serving.logged("max_connections");
    assert!(
        line.starts_with("warning: a request of ") && line.contains(" from 127.0.0.1:"),
        "{line}"
    );
}

/// A connection that is closed while its client sends would lose the response.
#[test]
fn every_one_of_200_large_requests_gets_429() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &["--set", "serve.max_requests=1"]);
    // The server asks for the body of the only allowed request, and doesn't get it.
    let silent = [("content-length", "100000"), ("expect", "100-continue")];
    let silent = serving.request("POST", "/mcp", &silent, "");
    let mut only = serving.connect();
    only.write_all(&silent).expect("the server reads");
    let mut asked = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    only.read_exact(&mut asked).expect("the server answers");
    assert!(asked.starts_with(b"HTTP/1.1 100 "));
    let params = json!({ "name": "read", "arguments": { "path": "x".repeat(256 << 10) } });
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let answer = serving.modern("tools/call", &params, &[]).whole();
                assert_refused(&answer, "max_requests");
            });
        }
    });
    let mut refused = serving.connect();
    refused.write_all(&silent).expect("the server reads");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).expect("the server closes the connection");
    assert!(answer.contains("HTTP/1.1 429 "), "a body that never comes: {answer}");
    assert_eq!(refused_count(&serving, "requests"), 201);
    serving.logged("max_requests");
    drop(only);
    let since = Instant::now();
    while read(&serving, &[]) != 200 {
        assert!(since.elapsed().as_secs() < 60, "there is room again");
    }
}

#[test]
fn unfinished_handshakes_are_bounded() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let ids: Vec<_> = (0..70).map(|_| serving.handshake(LEGACY, false, &[])).collect();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for id in [&ids[0], &ids[69]] {
        assert_eq!(
            serving.post(&list, &[("mcp-session-id", id)]).status,
            200,
            "the one that was ended is taken up again"
        );
    }
    // The revision without a handshake doesn't bypass this.
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": MODERN, "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" } } });
    let begun = serving.post(&begin, &[("mcp-protocol-version", MODERN)]);
    if let Some(id) = begun.head.get("mcp-session-id") {
        assert_eq!(
            serving.post(&list, &[("mcp-session-id", id)]).status,
            200,
            "it is sealed, and counted: {begun:?}"
        );
    }
    assert_eq!(read(&serving, &[]), 200);
}

#[test]
fn memory_is_freed_for_readers_and_for_clients_that_do_not_read() {
    let cli = Cli::asking();
    let bench = plugin("bench");
    let serving = Serving::new(
        &cli,
        &["--plugin", bench.to_str().expect("is UTF-8"), "--set", "serve.max_requests=8"],
    );
    let text = "x".repeat(128 << 10);
    let params = json!({ "name": "bench__echo", "arguments": { "text": text } });
    let id = serving.handshake(LEGACY, false, &[]);
    let head = [("mcp-session-id", id.as_str())];
    let next = AtomicU64::new(1);
    let request = || {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        serving.request("POST", "/mcp", &head, &message.to_string())
    };
    let all = |count: usize, reads: bool| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..count {
                        let mut stream = serving.connect();
                        // A refused client has gone before it has written everything.
                        let _ = stream.write_all(&request());
                        let mut some = [0; 64];
                        let _ = if reads {
                            stream.read_to_end(&mut Vec::new())
                        } else {
                            stream.read(&mut some)
                        };
                    }
                });
            }
        });
    };
    all(2, true);
    let before = resident(serving.pid());
    // If they were kept, they would be 40 MiB.
    all(40, true);
    let after = resident(serving.pid());
    assert!(after < before + 24 * 1024, "read: {before} KiB before, {after} KiB after");
    all(40, false);
    let after = resident(serving.pid());
    assert!(after < before + 24 * 1024, "not read: {before} KiB before, {after} KiB after");
    let since = std::time::Instant::now();
    while serving.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }), &head).status
        != 200
    {
        assert!(since.elapsed().as_secs() < 60, "there is room again");
    }
}

#[test]
fn request_that_programs_in_front_read_in_another_way_is_refused() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let status = |path: &str, more: &[(&str, &str)], before: &str| {
        let request =
            serving.request("POST", path, &[&head[..], more].concat(), &message.to_string());
        let request = String::from_utf8(request).expect("is UTF-8").replacen(
            "\r\n",
            &format!("\r\n{before}"),
            1,
        );
        serving.raw(request.as_bytes()).whole().status
    };
    assert_eq!(status("/mcp", &[], ""), 200);
    let before = calls(&cli).len();
    assert_eq!(status(&format!("http://{}/mcp", serving.place), &[], ""), 400, "the absolute form");
    assert_eq!(status("/mcp", &[], &format!("Host: {}\r\n", serving.place)), 400, "a second host");
    for wrong in [
        "application/json; charset=utf-16",
        "application/json;Charset=\"latin1\"",
        "text/plain",
        "application/json;charset=",
    ] {
        assert_eq!(status("/mcp", &[("content-type", wrong)], ""), 415, "{wrong}");
    }
    assert_eq!(calls(&cli).len(), before, "none of them called");
    assert_eq!(status("/mcp", &[("content-type", "application/json; charset=\"UTF-8\"")], ""), 200);
}

/// A proxy that uses the length would take the rest for another client's request.
#[test]
fn request_with_a_length_beside_chunks_ends_its_connection() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &[]);
    let (message, head) =
        modern("tools/call", &json!({ "name": "read", "arguments": { "path": "notes.txt" } }));
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let text = message.to_string();
    let body = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let more = [("transfer-encoding", "chunked"), ("connection", "keep-alive")];
    let both = serving.request("POST", "/mcp", &[&head[..], &more].concat(), &body);
    assert!(String::from_utf8_lossy(&both).contains("content-length: "), "it has both");
    let mut stream = serving.connect();
    stream.write_all(&both).expect("the server reads");
    // The next request may find the connection closed already.
    let _ = stream.write_all(&serving.request("POST", "/mcp", &head, &text));
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    assert!(
        String::from_utf8_lossy(&answers).matches("HTTP/1.1 ").count() <= 1,
        "{}",
        String::from_utf8_lossy(&answers)
    );
    let calls = calls(&cli);
    assert!(
        calls.iter().filter(|record| record["kind"] == "outcome").count() <= 1,
        "what came behind called nothing: {calls:?}"
    );
}

#[test]
fn connections_without_a_token_leave_room_for_others() {
    let cli = Cli::asking();
    let serving = Serving::new(&cli, &["--set", "serve.max_connections=1"]);
    let idle: Vec<_> = (0..300).map(|_| serving.connect()).collect();
    let open = || {
        let told = serving.get("/metrics", &[]).body;
        let open = told
            .lines()
            .find_map(|line| line.strip_prefix("toolhold_http_connections "))
            .expect("it is counted");
        open.parse::<u32>().expect("it is a number")
    };
    // Closed connections need a moment.
    let since = std::time::Instant::now();
    while open() > 256 {
        assert!(since.elapsed().as_secs() < 60, "{} are open", open());
    }
    assert_eq!(read(&serving, &[]), 200);
    assert!(refused_count(&serving, "newcomers") >= 300 - 256);
    serving.logged("haven't sent a token");
    drop(idle);
}

#[test]
fn caller_that_is_not_let_in_is_logged_with_the_reason_and_its_address() {
    let cli = Cli::asking();
    let mut server = cli.command(&["serve", "--http", "0", "--log", "info"]);
    let mut server = server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("toolhold starts");
    let mut lines = BufReader::new(server.stderr.take().expect("it is piped"))
        .lines()
        .map(|line| line.expect("is UTF-8"));
    let place = lines
        .find_map(|line| Some(line.strip_prefix("serving ")?.split_once(" at ")?.1.to_owned()))
        .expect("it serves");
    let mut stream = TcpStream::connect(&place).expect("it listens");
    let from = stream.local_addr().expect("it is connected");
    let request =
        format!("POST /mcp HTTP/1.1\r\nhost: {place}\r\nauthorization: Bearer guessed\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let told = lines.find(|line| line.contains("a caller from")).expect("it is logged");
    assert!(
        told.contains(&from.to_string()) && told.contains("401") && told.contains("token"),
        "{told}"
    );
    assert!(!told.contains("guessed"), "{told}");
    server.kill().and_then(|()| server.wait()).expect("it ends");
}
