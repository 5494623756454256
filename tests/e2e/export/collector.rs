//! Exports to a collector: what arrives, and collectors that are slow, refuse, lie or are gone.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::otlp::{attribute, decoded, decoded_file, items};
use super::{Scene, until};
use crate::support::server::{Asked, Server, Wire, answer};

pub(super) const LOGS: [&str; 3] = ["resourceLogs", "scopeLogs", "logRecords"];

fn ok(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    answer(wire, "200 OK", &[], b"")
}

fn endpoint(server: &Server) -> String {
    format!("http://{}", server.address)
}

fn export(endpoint: &str) -> [&str; 4] {
    ["--format", "otlp", "--endpoint", endpoint]
}

/// The numbers of the records in requests, in their order.
fn numbers(requests: &[Asked]) -> Option<Vec<u64>> {
    let logs = decoded(requests)?;
    let logs = logs.iter().flat_map(|request| items(request, LOGS));
    Some(logs.filter_map(|log| attribute(&log, "toolhold.seq")?.parse().ok()).collect())
}

#[test]
fn collector_gets_each_record_with_its_proof() {
    let scene = Scene::new();
    scene.calls(40);
    let server = Server::plain(ok);
    scene.export(&export(&endpoint(&server))).ends(0);
    let requests = server.asked();
    assert!(requests.iter().all(|request| request.head.starts_with("POST /v1/logs ")));
    let Some(read) = decoded(&requests) else { return };
    let logs: Vec<_> = read.iter().flat_map(|request| items(request, LOGS)).collect();
    assert_eq!(logs.len() as u64, scene.records());
    let (first, call) = (&logs[0], logs.last().expect("there is one"));
    assert_eq!(attribute(first, "toolhold.previous_hash"), Some("0".repeat(64)));
    for pair in logs.windows(2) {
        assert_eq!(
            attribute(&pair[1], "toolhold.previous_hash"),
            attribute(&pair[0], "toolhold.hash")
        );
        assert_eq!(attribute(&pair[1], "toolhold.chain").as_deref(), Some("intact"));
    }
    assert_eq!(attribute(call, "gen_ai.tool.name").as_deref(), Some("act"));
    assert_eq!(attribute(call, "toolhold.result").as_deref(), Some("success"));
    assert_eq!(
        (&call["severityText"], &call["eventName"]),
        (&"INFO".into(), &"toolhold.outcome".into())
    );
    let line = call["body"]["stringValue"].as_str().expect("the body is the line");
    let fields: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
    assert_eq!(attribute(call, "enduser.id").as_deref(), fields["user"].as_str());
    assert!(fields["user"].is_string(), "{line}");
    let log = std::fs::read_to_string(scene.audit("audit.jsonl")).expect("it is readable");
    assert!(log.lines().any(|recorded| recorded == line), "{line}");
    let resource = &read[0]["resourceLogs"][0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("toolhold"));

    // A file has the same.
    scene.export(&["--format", "otlp", "--to", "logs.jsonl"]).ends(0);
    let file = decoded_file(&scene.file("logs.jsonl")).expect("there is the client");
    let in_file: Vec<_> = file.iter().flat_map(|request| items(request, LOGS)).collect();
    let bodies = |logs: &[serde_json::Value]| -> Vec<String> {
        logs.iter().map(|log| log["body"].to_string()).collect()
    };
    assert_eq!(bodies(&in_file), bodies(&logs));
}

#[test]
fn collector_that_is_busy_and_takes_little_gets_everything() {
    let scene = Scene::new();
    scene.calls(20);
    let asked = AtomicUsize::new(0);
    let server = Server::plain(move |request, wire| {
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => answer(wire, "503 Service Unavailable", &[("retry-after", "0")], b"<html>"),
            _ if request.body.len() > 100_000 => answer(wire, "413 Too Large", &[], b""),
            // An answer that isn't one of OTLP.
            _ => answer(wire, "200 OK", &[], b"\xff\xffgarbage\0"),
        }
    });
    scene.export(&export(&endpoint(&server))).ends(0);
    let taken: Vec<Asked> =
        server.asked().into_iter().skip(1).filter(|asked| asked.body.len() <= 100_000).collect();
    assert!(taken.len() > 2, "{} requests", taken.len());
    let Some(numbers) = numbers(&taken) else { return };
    assert!(numbers.iter().copied().eq(1..=scene.records()), "{numbers:?}");
}

#[test]
fn collector_that_refuses_keeps_the_position() {
    let scene = Scene::new();
    scene.calls(2);
    let elsewhere = Server::plain(ok);
    let place = endpoint(&elsewhere);
    let broken = AtomicUsize::new(0);
    let server = Server::plain(move |_, wire| match broken.fetch_add(1, Ordering::SeqCst) {
        0 => answer(wire, "400 Bad Request", &[], b"no"),
        1 => answer(wire, "307 Temporary Redirect", &[("location", &place)], b""),
        // 3 records are refused, with a message that steers a terminal.
        2 => answer(wire, "200 OK", &[], b"\x0a\x0b\x08\x03\x12\x07a\n\x1b[2Jb"),
        _ => answer(wire, "200 OK", &[], b""),
    });
    let endpoint = endpoint(&server);
    let refused = scene.export(&export(&endpoint)).ends(4);
    assert!(refused.stderr.contains("answered 400"), "{}", refused.stderr);
    let redirected = scene.export(&export(&endpoint)).ends(4);
    assert!(redirected.stderr.contains("307") || redirected.stderr.contains("redirect"));
    assert_eq!(elsewhere.connections(), 0, "records go to the named collector alone");
    let partly = scene.export(&export(&endpoint)).ends(4);
    assert!(partly.stderr.contains("refused 3 of"), "{}", partly.stderr);
    assert!(!partly.stderr.contains('\u{1b}'), "{}", partly.stderr);
    scene.calls(1);
    scene.export(&export(&endpoint)).ends(0);
    let requests = server.asked();
    let Some(first) = numbers(&requests[..1]) else { return };
    assert_eq!(numbers(&requests[2..3]), Some(first.clone()), "nothing was taken before");
    let last = numbers(&requests[3..]).expect("there is the client");
    assert_eq!(last.first(), first.last().map(|last| last + 1).as_ref());
    assert_eq!(last.last(), Some(&scene.records()));
}

#[test]
fn killed_exporter_and_hanging_collector_lose_nothing() {
    let scene = Scene::new();
    scene.calls(5);
    let hanging = AtomicUsize::new(0);
    let server = Server::plain(move |_, wire| match hanging.fetch_add(1, Ordering::SeqCst) {
        // It has read the records and never answers.
        0 => wire.read_exact(&mut [0]),
        1 => Err(io::Error::other("the connection is closed")),
        _ => answer(wire, "200 OK", &[], b""),
    });
    let endpoint = endpoint(&server);
    let running = scene.follow(&export(&endpoint));
    until("it is asked", || server.asked().len() == 1);
    let begun = Instant::now();
    scene.calls(5);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(running);
    let running = scene.follow(&export(&endpoint));
    until("it is asked again", || server.asked().len() >= 3);
    scene.calls(5);
    let records = scene.records();
    let Some(_) = numbers(&[]) else { return };
    until("everything arrives", || {
        numbers(&server.asked()[2..]).is_some_and(|numbers| numbers.last() == Some(&records))
    });
    drop(running);
    let numbers = numbers(&server.asked()[2..]).expect("there is the client");
    assert!(numbers.iter().copied().eq(1..=records), "{numbers:?}");
}

#[test]
fn plain_http_goes_to_this_machine_alone() {
    let scene = Scene::new();
    scene.calls(1);
    let refused = scene.export(&export("http://collector.example.com:4318")).ends(4);
    assert!(refused.stderr.contains("https"), "{}", refused.stderr);
    let refused = scene.export(&export("http://127.0.0.1:1/?token=secret")).ends(4);
    assert!(refused.stderr.contains("[telemetry.secrets]"), "{}", refused.stderr);
}

#[test]
fn secret_of_telemetry_goes_to_its_server_alone() {
    let its = Server::plain(ok);
    let other = Server::plain(ok);
    let table = format!("endpoint = \"{}\"", endpoint(&its));
    for (table, server, is_sent) in
        [(&*table, &its, true), (&table, &other, false), ("", &other, true)]
    {
        let scene = Scene::new();
        scene.calls(1);
        let config = scene.root.path().join("config");
        std::fs::create_dir_all(&config).expect("a folder is made");
        std::fs::write(config.join("token"), "the-collectors-token\n").expect("it is written");
        let text = format!("[telemetry]\n{table}\n[telemetry.secrets.key]\nfile = \"token\"\n");
        std::fs::write(config.join("toolhold.toml"), text).expect("it is written");
        scene.export(&export(&endpoint(server))).ends(0);
        let asked = server.asked();
        let sent = asked.last().expect("it is asked").header("authorization");
        assert_eq!(sent, is_sent.then_some("Bearer the-collectors-token"), "{table}");
    }
}
