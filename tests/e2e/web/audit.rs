//! Each request is in the record of its call, whatever its result.

use std::fs;

use serde_json::{Value, json};
use toolhold_core::Request;
use toolhold_core::audit::Trail;
use toolhold_core::config::Folders;

use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Cli, Scene, loot, plugin, run, soon};

async fn scene(servers: &[&Server], settings: &[&str]) -> Scene {
    let path = format!("plugins.hostile-http.path={:?}", plugin("hostile-http"));
    let opened: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    let opened = format!("plugins.hostile-http.allowed_private_hosts={opened:?}");
    let mut all =
        vec![path.as_str(), "plugins.hostile-http.reload=trust", &opened, "tools.call=20"];
    all.extend(settings);
    Scene::with(&all, |root| fs::write(root.join("token"), "zq-7731-Wert").expect("it is written"))
        .await
}

fn trail(scene: &Scene) -> Trail {
    Trail::open(&Folders::inside(&scene.root().join("toolhold"))).expect("it is readable")
}

/// The records of a call; the log must be valid.
#[track_caller]
fn records(scene: &Scene, id: &str) -> Vec<Value> {
    let trail = trail(scene);
    assert!(trail.verify(None).expect("it is readable").holds());
    trail.of_call(id).expect("it is readable")
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["kind"].as_str()).collect()
}

fn ok(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[], b"hello")
}

#[test]
fn each_hop_and_each_refusal_is_recorded_before_the_outcome() {
    run(async {
        let closed = Server::plain(ok);
        let away = format!("http://{}/inner", closed.address);
        let server = Server::plain(move |asked, wire| match asked.path() {
            "/first" => {
                let next = format!(
                    "http://{}/second?token=hunter2hunter2&page=2",
                    asked.header("host").unwrap_or_default()
                );
                answer(wire, "302 Found", &[("location", &next)], b"moved")
            }
            path if path.starts_with("/second") => {
                answer(wire, "307 Temporary Redirect", &[("location", &away)], b"")
            }
            _ => answer(wire, "200 OK", &[], b"hello"),
        });
        let secret = r#"plugins.hostile-http.secrets.mine={file="{root}/token", hosts=["ADDRESS"], paths=["/first"]}"#;
        let secret = &*secret.replace("ADDRESS", &server.address.to_string());
        let scene = scene(&[&server], &[secret]).await;
        let base = format!("http://{}", server.address);
        let call = scene
            .call("hostile-http__follow", json!({ "url": format!("{base}/first"), "count": 3 }))
            .await;
        let found = records(&scene, &call.id.to_string());
        assert_eq!(
            kinds(&found),
            ["intent", "egress", "egress", "egress", "outcome"],
            "{found:#?}"
        );
        let (first, second, refused) = (&found[1], &found[2], &found[3]);
        for (key, expected) in [
            ("url", json!(format!("{base}/first"))),
            ("method", json!("GET")),
            ("host", json!("127.0.0.1")),
            ("address", json!("127.0.0.1")),
            ("status", json!(302)),
            ("result", json!("success")),
            ("secrets", json!("mine")),
            ("tool", json!("hostile-http__follow")),
            ("plugin", json!("hostile-http")),
            ("call", json!(call.id.to_string())),
        ] {
            assert_eq!(first[key], expected, "{key} of {first}");
        }
        assert!(
            first["began"].is_string()
                && first["duration_ms"].is_number()
                && first["session"].is_string(),
            "{first}"
        );
        assert!(first.get("hop").is_none() && first.get("reason").is_none(), "{first}");
        assert_eq!(
            (&second["status"], &second["hop"], second.get("secrets")),
            (&json!(307), &json!(1), None),
            "{second}"
        );
        let url = second["url"].as_str().expect("it is a text");
        assert!(url.contains("page=2") && !url.contains("hunter2"), "{url}");
        assert_eq!(
            (&refused["result"], &refused["hop"]),
            (&json!("blocked"), &json!(2)),
            "{refused}"
        );
        assert_eq!(refused["url"], json!(format!("http://{}/inner", closed.address)));
        assert!(
            refused["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("private addresses are blocked")),
            "{refused}"
        );
        assert!(refused.get("status").is_none() && refused.get("address").is_none(), "{refused}");
        assert_eq!(closed.connections(), 0);

        // An invalid URL is recorded as far as possible.
        let call = scene
            .call(
                "hostile-http__send",
                json!({ "url": "https://granted@evil.example.com/\u{1b}[2J" }),
            )
            .await;
        let found = records(&scene, &call.id.to_string());
        assert!(found.iter().all(|record| !record.to_string().contains('\u{1b}')), "{found:#?}");
        let answered = scene.call("hostile-http__send", json!({ "url": format!("{base}/") })).await;
        loot(&answered);
        let found = records(&scene, &answered.id.to_string());
        assert_eq!(
            (&found[1]["status"], &found[1]["response_bytes"]),
            (&json!(200), &json!(5)),
            "{found:#?}"
        );
    });
}

#[test]
fn requests_beyond_the_recorded_number_are_counted() {
    run(async {
        let server = Server::plain(ok);
        let limits =
            ["plugins.hostile-http.limits.requests=3", "plugins.hostile-http.limits.handles=4096"];
        let scene =
            scene(&[&server], &[limits[0], limits[1], "plugins.hostile-http.limits.cpu_secs=60"])
                .await;
        let call = scene
            .call(
                "hostile-http__hoard",
                json!({ "url": format!("http://{}/", server.address), "count": 1100 }),
            )
            .await;
        loot(&call);
        let found = records(&scene, &call.id.to_string());
        let requests: Vec<&Value> =
            found.iter().filter(|record| record["kind"] == "egress").collect();
        assert_eq!((requests.len(), found.len()), (1025, 1027));
        assert_eq!(requests[1024]["more_requests"], 76, "{}", requests[1024]);
        assert_eq!(requests[..1024].iter().filter(|record| record["status"] == 200).count(), 3);
        // Requests end in any order.
        let refused = requests[..1024].iter().filter(|record| record["reason"].is_string());
        assert_eq!(refused.count(), 1021);
        let stats = trail(&scene).stats().expect("it is readable");
        assert_eq!(stats.iter().map(|tool| tool.requests).sum::<u64>(), 1100, "{stats:?}");
    });
}

#[test]
fn requests_of_a_dropped_call_are_recorded() {
    run(async {
        // Never answers.
        let server = Server::plain(|_, wire| wire.read_exact(&mut [0]));
        let scene = scene(&[&server], &[]).await;
        let host = std::sync::Arc::clone(&scene.host);
        let request = Request::new(
            "hostile-http__send",
            json!({ "url": format!("http://{}/slow", server.address) }),
        );
        let call = tokio::spawn(async move { host.call(request).await });
        soon("the server is asked", || !server.asked().is_empty()).await;
        call.abort();
        let last = || trail(&scene).last(1).expect("it is readable").pop().unwrap_or_default();
        soon("the call is over", || last()["kind"] == "outcome").await;
        let outcome = last();
        assert_eq!(outcome["error_code"], "dropped", "{outcome}");
        let found = records(&scene, outcome["call"].as_str().expect("it has an id"));
        assert_eq!(kinds(&found), ["intent", "egress", "outcome"], "{found:#?}");
        assert_eq!(
            (&found[1]["url"], found[1].get("status")),
            (&json!(format!("http://{}/slow", server.address)), None)
        );
        scene.assert_serves().await;
    });
}

#[test]
fn audit_commands_show_requests() {
    let closed = Server::plain(ok);
    let away = format!("http://{}/inner", closed.address);
    let server = Server::plain(move |asked, wire| match asked.path() {
        "/away" => answer(wire, "302 Found", &[("location", &away)], b""),
        _ => answer(wire, "200 OK", &[("content-type", "text/plain")], b"hello"),
    });
    let cli = Cli::new();
    cli.configure(&format!("[tools.web]\nallowed_private_hosts = [\"{}\"]\n", server.address));
    let called = |path: &str| {
        cli.run(&["call", "--json", "fetch", &format!("url=http://{}{path}", server.address)])
    };
    called("/page").ends(0);
    let refused = called("/away");
    let id = refused.json()["id"].as_str().expect("it has one").to_owned();
    assert_eq!(closed.connections(), 0);

    let tail = cli.run(&["audit", "tail"]).ends(0).stdout;
    let (page, inner) = (
        format!("  200  GET http://{}/page  ", server.address),
        format!("  blocked  GET http://{}/inner (", closed.address),
    );
    assert!(tail.contains(&page) && tail.contains(&inner), "{tail}");
    let shown = cli.run(&["audit", "show", &id]).ends(0).stdout;
    assert!(
        shown.contains("kind             egress\n") && shown.contains("hop              1\n"),
        "{shown}"
    );
    assert!(shown.contains("private addresses are blocked"), "{shown}");
    let shown = cli.run(&["audit", "show", &id, "--json"]).ends(0).json();
    assert_eq!(
        kinds(shown.as_array().expect("it is a list")),
        ["egress", "egress", "outcome"],
        "{shown}"
    );
    let stats = cli.run(&["audit", "stats", "--json"]).ends(0).json();
    assert_eq!(
        (&stats[0]["tool"], &stats[0]["calls"], &stats[0]["requests"]),
        (&json!("fetch"), &json!(2), &json!(3)),
        "{stats}"
    );
    let table = cli.run(&["audit", "stats"]).ends(0).stdout;
    assert!(table.lines().next().is_some_and(|heads| heads.contains("REQUESTS")), "{table}");
    assert!(cli.run(&["audit", "verify"]).ends(0).stdout.starts_with("ok: "));
}
