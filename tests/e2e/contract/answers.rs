//! Answers that come after what was emitted.

use serde_json::{Value, json};
use tempfile::TempDir;

use toolhold_core::{Answer, Audience, Category, Host, Request};

use super::{host, served};
use crate::support::{Cli, failure, loot, plugin, run};

async fn scene() -> (TempDir, Host) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let mut settings = served("probe", &plugin("probe"));
    settings.push("tools.limits.result_mib=1".to_owned());
    let host = host(folder.path(), &[], &settings).await;
    (folder, host)
}

async fn long(host: &Host, arguments: Value) -> Answer {
    let request = Request::new("probe__long", arguments);
    host.call(Request { audience: Audience::Person, ..request }).await
}

#[test]
fn emitted_parts_come_first_if_the_tool_says_so() {
    run(async {
        let (_folder, host) = scene().await;
        let arguments = json!({ "parts": 3, "bytes": 2, "after_emitted": true });
        assert_eq!(loot(&long(&host, arguments).await), "0xx\n\n1xx\n\n2xx\n\n3 emitted");
        let arguments = json!({ "parts": 3, "bytes": 2 });
        assert_eq!(loot(&long(&host, arguments).await), "3 emitted");
    });
}

#[test]
fn emitted_parts_and_content_share_one_limit() {
    run(async {
        let (_folder, host) = scene().await;
        // The guest tries to emit 2 MiB, and is told when to stop. What it says then has room.
        let arguments = json!({ "parts": 2000, "bytes": 1024, "after_emitted": true });
        let answer = long(&host, arguments).await;
        let output = answer.outcome.as_ref().expect("it is within the limit");
        let size: usize = output.content.iter().map(toolhold_core::Content::len).sum();
        assert!((800 << 10..1 << 20).contains(&size), "{size}");
        assert!(
            output
                .content
                .last()
                .and_then(|part| part.as_text())
                .is_some_and(|text| text.ends_with("emitted"))
        );

        // The same if small parts fill the limit to its end.
        let arguments = json!({ "parts": 20_000, "bytes": 1, "after_emitted": true });
        let answer = long(&host, arguments).await;
        assert!(loot(&answer).ends_with(" emitted"));

        let arguments =
            json!({ "parts": 600, "bytes": 1024, "behind": 600 << 10, "after_emitted": true });
        let answer = long(&host, arguments).await;
        failure(&answer, Category::PermanentFailure, Some("result_limit"));
        // Without the emitted parts, the content alone counts.
        let arguments = json!({ "parts": 600, "bytes": 1024, "behind": 600 << 10 });
        assert!(long(&host, arguments).await.outcome.is_ok());
    });
}

#[test]
fn answer_after_emitted_parts_is_printed_once() {
    let cli = Cli::new();
    let own = format!("[plugins.probe]\npath = {:?}\nreload = \"trust\"\n", plugin("probe"));
    std::fs::write(cli.root.path().join("config/toolhold.toml"), own).expect("it is written");
    let line = ["call", "probe__long", "parts=2", "bytes=5", "after_emitted=true"];
    let ended = cli.run(&line);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("0xxxxx").count(), 1, "{}", ended.stdout);
}
