//! What travels beside arguments and answers.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use toolhold_core::{Category, Host, Request};

use super::{host, served};
use crate::mcp::client::{Client, LEGACY, MODERN, text};
use crate::support::{Cli, failure, loot, plugin, run};

async fn scene() -> (TempDir, Host) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let host = host(folder.path(), &[], &served("probe", &plugin("probe"))).await;
    (folder, host)
}

fn request(meta: &Value, arguments: Value) -> Request {
    let meta: Map<String, Value> = meta.as_object().cloned().expect("it is an object");
    Request { meta: Some(meta), ..Request::new("probe__meta", arguments) }
}

#[test]
fn meta_of_a_call_reaches_the_tool() {
    run(async {
        let (_folder, host) = scene().await;
        let meta = json!({ "example.com/trace": { "id": [1, "a"] } });
        for meta in [&meta, &json!({ "example.com/trace": 2 }), &meta] {
            let answer = host.call(request(meta, json!({}))).await;
            assert_eq!(serde_json::from_str(&loot(&answer)).ok().as_ref(), Some(meta));
        }
        let spoofed = json!({ "toolhold:alone": true, "b": 1 });
        assert_eq!(loot(&host.call(request(&spoofed, json!({}))).await), r#"{"b":1}"#);
        assert_eq!(loot(&host.call(Request::new("probe__meta", json!({}))).await), "null");

        let much = json!({ "a": "x".repeat(64 * 1024) });
        let answer = host.call(request(&much, json!({}))).await;
        let failed = failure(&answer, Category::InvalidParameters, None);
        assert!(failed.message.contains("the limit is 65536"), "{}", failed.message);
    });
}

#[test]
fn meta_of_an_answer_reaches_the_caller() {
    run(async {
        let (_folder, host) = scene().await;
        let answers = |answer: Value, fail: bool| {
            host.call(Request::new("probe__meta", json!({ "answer": answer, "fail": fail })))
        };
        let meta = json!({ "example.com/rows": 5, "toolhold:untrusted": false, "a\u{1b}[2J": "b\u{1b}",
            "example.com/token": "ghp_k3JqT8vXw2LmZr9BnYd5Hs7Gf1Ec4Pa6Uo0i" });
        let output = answers(meta.clone(), false).await.outcome.expect("it answers");
        let got = output.meta.expect("it has meta");
        assert_eq!(got["example.com/rows"], 5);
        assert_ne!(got.get("toolhold:untrusted"), Some(&json!(false)), "that key is the host's");
        assert!(!got.to_string().contains("\\u001b"), "{got}");
        assert!(!got.to_string().contains("k3JqT8"), "it is redacted as the answer is: {got}");
        let failed = answers(meta, true).await.outcome.expect_err("it fails");
        assert_eq!(failed.meta.expect("it has meta")["example.com/rows"], 5);

        for (answer, code, says) in [
            (json!([1]), "bad_answer", "isn't a JSON object"),
            (json!({ "a": "x".repeat(64 * 1024) }), "result_limit", "the limit is 65536"),
        ] {
            let answer = answers(answer, false).await;
            let failed = failure(&answer, Category::PermanentFailure, Some(code));
            assert!(failed.message.contains(says), "{}", failed.message);
        }
    });
}

#[test]
fn clients_send_and_get_meta_without_the_protocols_keys() {
    let cli = Cli::new();
    let own = format!("[plugins.probe]\npath = {:?}\nreload = \"trust\"\n", plugin("probe"));
    std::fs::write(cli.root.path().join("config/toolhold.toml"), own).expect("it is written");
    for version in [LEGACY, MODERN] {
        let mut client = Client::new(&cli, &[], version, false);
        let answer = json!({
            "example.com/rows": 5,
            "io.modelcontextprotocol/related-task": { "taskId": "x" },
            "toolhold": "mine",
            "progressToken": 1,
        });
        let result = client.request(
            "tools/call",
            json!({
                "name": "probe__meta",
                "arguments": { "answer": answer },
                "_meta": { "progressToken": 7, "example.com/trace": "a", "io.modelcontextprotocol/x": 1 },
            }),
        );
        assert_eq!(result["isError"], false, "{result}");
        assert!(text(&result).contains(r#"{"example.com/trace":"a"}"#), "{version}: {result}");
        let meta = &result["_meta"];
        assert_eq!(meta["example.com/rows"], 5, "{result}");
        assert!(meta["toolhold"]["call"].is_string(), "Toolhold's own key is its own: {result}");
        assert!(meta.get("progressToken").is_none(), "{result}");
        assert_eq!(meta.get("io.modelcontextprotocol/related-task"), None, "{result}");
        assert_eq!(client.leave(), 0);
    }
}
