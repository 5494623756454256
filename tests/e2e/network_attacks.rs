//! Attacks on the network: hosts that weren't granted, too many requests, and requests left behind.
//! The tests of `toolhold-net` cover attacks by servers.

use serde_json::{Value, json};
use toolhold_core::{Answer, Category};

use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{Scene, attacks, failure, loot, plugin, refused, said_by};

async fn scene(servers: &[&Server], settings: &[&str]) -> Scene {
    let path = format!("plugins.hostile-http.path={:?}", plugin("hostile-http"));
    let opened: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    let opened = format!("plugins.hostile-http.allowed_private_hosts={opened:?}");
    // A granted host that can't be reached from here, so that the plugin loads without a granted
    // server.
    let hosts = r#"plugins.hostile-http.hosts=["granted.example.com"]"#;
    let mut all =
        vec![path.as_str(), "plugins.hostile-http.reload=trust", &opened, hosts, "tools.call=10"];
    all.extend(settings);
    Scene::with(&all, |_| {}).await
}

async fn attack(scene: &Scene, tool: &str, arguments: Value) -> Answer {
    let answer = scene.call(&format!("hostile-http__{tool}"), arguments).await;
    scene.assert_safe(&answer);
    answer
}

fn ok(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    answer(wire, "200 OK", &[], b"hello")
}

/// More than there is room for, if it were kept.
fn endless(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    loop {
        wire.write_all(&[b'x'; 65536])?;
    }
}

/// Answers when no caller waits any more.
fn never(_: &Asked, wire: &mut dyn Wire) -> std::io::Result<()> {
    wire.read_exact(&mut [0])
}

/// The plugin's text without the fence: its tool reaches the world.
#[track_caller]
pub(crate) fn said(answer: &Answer) -> String {
    let text = loot(answer);
    let inside = text
        .strip_prefix("<external-data ")
        .and_then(|text| text.split_once('\n')?.1.rsplit_once("\n</external-data "));
    inside.unwrap_or_else(|| panic!("it is fenced: {text}")).0.to_owned()
}

#[track_caller]
fn report(answer: &Answer) -> Value {
    serde_json::from_str(&said(answer)).expect("it is JSON")
}

attacks! {
    async fn send() {
        let (server, other) = (Server::plain(ok), Server::plain(ok));
        let scene = scene(&[&server], &[]).await;
        let got = report(&attack(&scene, "send", json!({ "url": format!("http://{}/a?b=c", server.address) })).await);
        assert_eq!((&got["status"], &got["body"], &got["end"]), (&json!(200), &json!("hello"), &Value::Null));

        let port = other.port();
        for url in [
            format!("http://127.0.0.1:{port}/"),
            format!("http://localhost:{port}/"),
            format!("http://0x7f.1:{port}/"),
            format!("http://2130706433:{port}/"),
            format!("http://[::ffff:127.0.0.1]:{port}/"),
            format!("http://[::1]:{port}/"),
            format!("http://0:{port}/"),
            format!("http://127.0.0.1.:{port}/"),
            format!("http://granted.example.com@127.0.0.1:{port}/"),
            format!("http://granted.example.com:80@127.0.0.1:{port}/"),
            format!("http://127.0.0.1:{port}\\@granted.example.com/"),
            format!("https://127.0.0.1:{port}/"),
            format!("ftp://127.0.0.1:{port}/"),
            format!("file://127.0.0.1:{port}/etc/passwd"),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "https://evil.example.com/".to_owned(),
            "https://granted.example.com.evil.example.com/".to_owned(),
            "http://granted.example.com/".to_owned(),
            "https://granted.example.com:444/".to_owned(),
            String::new(),
        ] {
            let answer = attack(&scene, "send", json!({ "url": url })).await;
            assert!(answer.outcome.is_err(), "{url}: {answer:?}");
        }
        // Whatever else is named, the request goes to the URL's host.
        let address = server.address.to_string();
        for name in ["host", "connection", "transfer-encoding", "upgrade", "proxy-connection", "keep-alive"] {
            let arguments = json!({ "url": format!("http://{address}/"), "headers": [[name, format!("127.0.0.1:{port}")]] });
            attack(&scene, "send", arguments).await;
        }
        for path in ["/\r\nhost: x", "/ HTTP/1.1\r\n\r\nGET /smuggled", "//[::1]/", "@evil", "/\u{0}"] {
            let answer = attack(&scene, "send", json!({ "url": format!("http://{address}{path}") })).await;
            drop(answer);
        }
        for method in ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nx: y\r\n\r\nGET", ""] {
            let answer = attack(&scene, "send", json!({ "url": format!("http://{address}/"), "method": method })).await;
            assert!(answer.outcome.is_err(), "{method}: {answer:?}");
        }
        assert_eq!(other.connections(), 0);
        assert!(server.asked().iter().all(|asked| asked.header("host") == Some(&*address)), "{:?}", server.asked());
        assert!(server.asked().iter().all(|asked| !asked.head.contains("smuggled") || asked.head.lines().count() > 1));
        refused(&attack(&scene, "send", json!({ "url": "https://evil.example.com/" })).await, "hosts");
    }

    async fn lie_about_reading() {
        let server = Server::plain(ok);
        let scene = scene(&[&server], &[]).await;
        let url = format!("http://{}/", server.address);
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let answer = attack(&scene, "lie_about_reading", json!({ "url": url, "method": method, "body": "x" })).await;
            refused(&answer, "only reads");
        }
        assert_eq!(server.connections(), 0);
        loot(&attack(&scene, "lie_about_reading", json!({ "url": url })).await);
    }

    async fn follow() {
        let inner = Server::plain(ok);
        let to = format!("http://{}/inner", inner.address);
        let outer = Server::plain(move |asked, wire| {
            let next = if asked.path() == "/inner" { to.clone() } else { format!("http://{}{}x", asked.header("host").unwrap_or_default(), asked.path()) };
            answer(wire, "302 Found", &[("location", &next)], b"")
        });
        let scene = scene(&[&outer], &[]).await;
        let address = outer.address;
        let hops = report(&attack(&scene, "follow", json!({ "url": format!("http://{address}/"), "count": 10 })).await);
        let hops = hops.as_array().expect("it is a list");
        assert_eq!((hops.len(), outer.asked().len()), (5, 4), "{hops:?}");
        assert!(hops[4]["error"].as_str().is_some_and(|error| error.contains("LoopDetected")), "{hops:?}");
        let hops = attack(&scene, "follow", json!({ "url": format!("http://{address}/inner"), "count": 10 })).await;
        assert!(said(&hops).contains("HttpRequestDenied") || said(&hops).contains("DestinationIpProhibited"), "{hops:?}");
        assert_eq!(inner.connections(), 0);
    }

    async fn hoard() {
        let server = Server::plain(ok);
        let scene = scene(&[&server], &["plugins.hostile-http.limits.requests=5"]).await;
        let hoard = |count: usize| json!({ "url": format!("http://{}/", server.address), "count": count });
        let got = report(&attack(&scene, "hoard", hoard(10)).await);
        assert_eq!((&got["answered"], server.asked().len()), (&json!(5), 5), "{got}");
        assert!(got["errors"].as_array().is_some_and(|errors| errors.len() == 5), "{got}");
        // Handles run out earlier: each request needs some.
        failure(&attack(&scene, "hoard", hoard(1000)).await, Category::PermanentFailure, Some("crash"));
        assert!(server.asked().len() <= 10);
        scene.assert_serves().await;
    }

    async fn keep_unread() {
        let server = Server::plain(endless);
        let scene = scene(&[&server], &["plugins.hostile-http.limits.concurrent_requests=4", "plugins.hostile-http.limits.request_secs=2"]).await;
        let url = format!("http://{}/", server.address);
        assert_eq!(said(&attack(&scene, "keep_unread", json!({ "url": url, "count": 4 })).await), "4 are kept");
        // Kept connections keep their slots; the next request doesn't wait for ever.
        let answer = attack(&scene, "keep_unread", json!({ "url": url, "count": 5 })).await;
        assert!(said_by(failure(&answer, Category::PermanentFailure, None)).contains("ConnectionLimitReached"), "{answer:?}");
        loot(&attack(&scene, "keep_unread", json!({ "url": url, "count": 4 })).await);
        scene.assert_serves().await;
    }

    async fn leave_open() {
        let server = Server::plain(endless);
        let scene = scene(&[&server], &["plugins.hostile-http.limits.concurrent_requests=1"]).await;
        let url = format!("http://{}/", server.address);
        for _ in 0..5 {
            assert_eq!(said(&attack(&scene, "leave_open", json!({ "url": url })).await), "it is open");
        }
        // The rest of a call is removed with it: the next one got its slot, and its connection is
        // cut.
        assert_eq!(server.asked().len(), 5);
    }

    async fn crash_beside() {
        let server = Server::plain(|asked, wire| if asked.path() == "/now" { ok(asked, wire) } else { never(asked, wire) });
        let scene = scene(&[&server], &["plugins.hostile-http.limits.concurrent_requests=1"]).await;
        let url = format!("http://{}/", server.address);
        for _ in 0..5 {
            failure(&attack(&scene, "crash_beside", json!({ "url": url })).await, Category::PermanentFailure, Some("crash"));
            // The single slot is free again: the request was removed with its call.
            loot(&attack(&scene, "send", json!({ "url": format!("{url}now") })).await);
        }
        scene.assert_serves().await;
    }

    async fn write_much() {
        let server = Server::plain(ok);
        let scene = scene(&[&server], &[]).await;
        let url = format!("http://{}/", server.address);
        let got = report(&attack(&scene, "write_much", json!({ "url": url, "method": "POST", "bytes": 65536 })).await);
        assert_eq!(server.asked()[0].body.len(), 65536, "{got}");
        let got = report(&attack(&scene, "write_much", json!({ "url": url, "method": "POST", "bytes": 100 << 20 })).await);
        assert!(got["written"].as_u64().is_some_and(|bytes| bytes < 64 << 20), "{got}");
        assert_eq!(server.asked().len(), 1);
    }

    async fn send_many_headers() {
        let server = Server::plain(ok);
        let scene = scene(&[&server], &[]).await;
        let url = format!("http://{}/", server.address);
        loot(&attack(&scene, "send_many_headers", json!({ "url": url, "count": 50, "bytes": 100 })).await);
        for (count, bytes) in [(50, 5000), (10_000, 1), (1, 1_000_000)] {
            let answer = attack(&scene, "send_many_headers", json!({ "url": url, "count": count, "bytes": bytes })).await;
            assert!(answer.outcome.is_err(), "{count} of {bytes}: {answer:?}");
        }
        assert_eq!(server.asked().len(), 1);
    }

    async fn search_memory() {
        // The server's text is in the guest's memory, so the search finds it.
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"a-needle-to-be-found"));
        let scene = scene(&[&server], &[]).await;
        let needle = |text: &str| text.bytes().map(|byte| byte.wrapping_add(1)).collect::<Vec<u8>>();
        let needles = json!([needle("a-needle-to-be-found"), needle("a-needle-that-is-nowhere")]);
        let got = report(&attack(&scene, "search_memory", json!({ "url": format!("http://{}/", server.address), "needles": needles })).await);
        assert!(got["found"][0].is_u64() && got["found"][1].is_null(), "{got}");
    }

    async fn ask_for_secrets() {
        let server = Server::plain(ok);
        let secret = r#"plugins.hostile-http.secrets.mine={env="HOME", hosts=["granted.example.com"]}"#;
        let scene = scene(&[&server], &[secret]).await;
        let names = json!(["mine", "theirs", "", "HOME", "token"]);
        assert_eq!(said(&attack(&scene, "ask_for_secrets", json!({ "names": names })).await), "mine");
    }
}

#[test]
fn every_attack_on_requests_has_a_test() {
    crate::support::run(async {
        let server = Server::plain(ok);
        let scene = scene(&[&server], &[]).await;
        let tools = scene.host.tools();
        let attacks: Vec<&str> =
            tools.iter().filter_map(|tool| tool.name.strip_prefix("hostile-http__")).collect();
        assert!(
            attacks.iter().all(|attack| TESTED.contains(attack)) && attacks.len() == TESTED.len(),
            "{attacks:?}"
        );
    });
}

#[test]
fn http_plugin_without_hosts_does_not_load() {
    crate::support::run(async {
        let path = format!("plugins.hostile-http.path={:?}", plugin("hostile-http"));
        let scene = Scene::with(&[&path, "plugins.hostile-http.reload=trust"], |_| {}).await;
        assert!(scene.host.tools().iter().all(|tool| !tool.name.starts_with("hostile-http")));
    });
}
