//! Plugins that were built for contract 0.1, once: they go on working, under the same rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_core::{Audience, Category, Content, Events, Host, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{host, served};
use crate::support::{Recorder, builtin, failure, keep_log, log_of, loot, refused, run};

/// A component that was built for 0.1.
fn component(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("components/0.1/{name}.wasm"))
}

/// A granted folder beside a secret, and a host with the three plugins.
async fn scene(more: &[&str]) -> (TempDir, PathBuf, Host) {
    keep_log();
    let root = TempDir::new().expect("a temporary folder is made");
    let folder = root.path().canonicalize().expect("it is there").join("granted");
    fs::create_dir(&folder).expect("a folder is made");
    fs::write(folder.join("text.txt"), "one two\nthree\n").expect("a file is written");
    fs::write(root.path().join("secret.txt"), "the secret").expect("a file is written");
    let mut settings = served("bench", &component("bench"));
    settings.extend(served("word-count", &component("word_count")));
    settings.extend(served("survey", &component("survey")));
    settings.extend(
        [
            "plugins.word-count.allowed_paths=[\"{folder}\"]",
            "plugins.survey.allowed_paths=[\"{folder}\"]",
            "plugins.survey.programs=[\"cat\"]",
            "tools.call=20",
        ]
        .map(str::to_owned),
    );
    settings.extend(more.iter().map(|setting| (*setting).to_owned()));
    let host = host(&folder, &[builtin("file"), builtin("filters")], &settings).await;
    (root, folder, host)
}

/// A call whose answer a person reads.
fn person(tool: &str, arguments: Value) -> Request {
    Request { audience: Audience::Person, ..Request::new(tool, arguments) }
}

#[test]
fn tools_are_listed_with_what_their_keys_meant() {
    run(async {
        let (_root, _, host) = scene(&[]).await;
        let tools = host.tools();
        let find = |name: &str| {
            let tool = tools.iter().find(|tool| tool.name == name);
            tool.unwrap_or_else(|| panic!("{name} is missing"))
        };
        assert!(find("bench__echo").annotations.read_only);
        assert_eq!(find("word-count__word_count").subjects.len(), 1);
        let look = find("survey__look");
        assert_eq!(look.bare_argument(), Some("pattern"));
        let aliases: Vec<_> = look.argument_aliases().collect();
        assert_eq!(aliases, [("regex", "pattern"), ("query", "pattern")]);
        assert!(host.tool("peek").is_none(), "a third-party tool takes no other name");
        let tell = find("survey__tell");
        assert_eq!(tell.requested_seconds(&json!({ "timeout": 2 })), Some(2.0));
        assert!(tell.annotations.destructive && tell.annotations.open_world);
        assert!(find("survey__take").takes_attachments() && !tell.takes_attachments());
        assert!(tools.iter().all(|tool| tool.meta.is_none()), "the keys became fields");
    });
}

#[test]
fn calls_are_answered_in_an_instance_of_their_own_or_a_ready_one() {
    run(async {
        let (_root, folder, host) = scene(&[]).await;
        for number in 0..20 {
            let text = format!("hello {number}");
            let answer = host.call(Request::new("bench__echo", json!({ "text": text }))).await;
            assert_eq!(loot(&answer), text);
        }
        let path = folder.join("text.txt");
        let counted =
            host.call(Request::new("word-count__word_count", json!({ "path": path }))).await;
        let output = counted.outcome.expect("it counts");
        assert_eq!(output.structured, Some(json!({ "lines": 2, "words": 3, "bytes": 14 })));
    });
}

#[test]
fn what_is_not_granted_is_denied() {
    run(async {
        let (root, folder, host) = scene(&[]).await;
        let secret = root.path().canonicalize().expect("it is there").join("secret.txt");
        let link = folder.join("link");
        std::os::unix::fs::symlink(&secret, &link).expect("a link is made");
        for path in [secret.clone(), link] {
            for tool in ["word-count__word_count", "survey__look"] {
                let mut arguments = json!({ "path": path });
                if tool == "survey__look" {
                    arguments["pattern"] = json!("secret");
                }
                let answer = host.call(Request::new(tool, arguments)).await;
                assert!(!format!("{:?}", answer.outcome).contains("the secret"), "{answer:?}");
                assert!(answer.outcome.is_err(), "{answer:?}");
            }
        }
        let made = folder.join("made");
        for child in [false, true] {
            let arguments = json!({ "words": ["touch", made], "child": child });
            let answer = host.call(Request::new("survey__run", arguments)).await;
            refused(&answer, "`programs` has no match");
            assert!(!made.exists(), "nothing was started");
        }
        let ran = json!({ "words": ["cat"], "child": false });
        let said = loot(&host.call(person("survey__run", ran)).await);
        assert_eq!(said, "given\nSome(0) Exited");
        let ran = json!({ "words": ["cat"], "child": true });
        let said = loot(&host.call(person("survey__run", ran)).await);
        assert_eq!(said, "given\nSome(0) Exited");
    });
}

#[test]
fn search_aliases_and_single_text_work() {
    run(async {
        let (_root, folder, host) = scene(&[]).await;
        let arguments = json!({ "path": folder.join("text.txt"), "query": "^t" });
        let found = loot(&host.call(Request::new("survey__look", arguments)).await);
        assert_eq!(found, "2:three\nComplete");
        // The text becomes the pattern, so the path is what is missing.
        let answer = host.call(Request::new("survey__look", json!("^t"))).await;
        let failed = failure(&answer, Category::InvalidParameters, None);
        assert!(failed.message.contains("\"path\" is missing"), "{}", failed.message);
        let wrong = json!({ "path": folder.join("text.txt"), "pattern": "(" });
        let answer = host.call(Request::new("survey__look", wrong)).await;
        failure(&answer, Category::InvalidParameters, Some("invalid-pattern"));
    });
}

#[test]
fn log_progress_emitted_parts_and_failures_arrive() {
    run(async {
        let (_root, _, host) = scene(&[]).await;
        let recorder = Arc::new(Recorder::default());
        let request = |arguments| Request {
            events: Arc::clone(&recorder) as Arc<dyn Events>,
            ..person("survey__tell", arguments)
        };
        let answer = host.call(request(json!({ "text": "so", "timeout": 3 }))).await;
        let said = loot(&answer);
        assert!(said.starts_with("so, kept true, id true, "), "{said}");
        let seconds = said.trim_end_matches(" s").rsplit(' ').next().and_then(|s| s.parse().ok());
        assert!(seconds.is_some_and(|seconds: u64| seconds <= 3), "`timeout` counts: {said}");
        assert!(log_of(&answer.id).iter().any(|line| line.contains("log: so")));
        let progress = recorder.progress.lock().expect("it is there").clone();
        assert_eq!(progress[0].message, "progress: so");
        let parts = recorder.parts.lock().expect("it is there").clone();
        assert_eq!((parts.len(), parts[0].as_text()), (1, Some("emitted: so")));
        assert!(parts[0].is_untrusted(), "nobody trusts that plugin: {parts:?}");

        let answer = host.call(request(json!({ "text": "no", "fail": true }))).await;
        let failed = failure(&answer, Category::ServerError, Some("told"));
        assert_eq!(failed.suggestion.as_deref(), Some("tell it again"));
        assert_eq!(failed.joined_text(), "emitted: no");
    });
}

#[test]
fn attachments_travel_both_ways() {
    run(async {
        let (_root, _, host) = scene(&[]).await;
        let request = Request {
            attachments: vec![Content::text("12345")],
            ..Request::new("survey__take", json!({ "content": { "$attachment": 0 } }))
        };
        let output = host.call(request).await.outcome.expect("it takes it");
        assert_eq!(output.content[0], Content::text("5 bytes"));
        assert_eq!(output.content[1].media_type.as_deref(), Some("application/x-taken"));
    });
}

#[test]
fn filters_apply_in_their_order() {
    run(async {
        let (_root, folder, host) = scene(&["tools.filters.chain=[\"survey\"]"]).await;
        let text = ("the same line ".repeat(9) + "\n").repeat(100);
        // The second filter is a fallback, for what the first doesn't match.
        for (file, filter) in [("text.txt", "short"), ("other.txt", "rest")] {
            fs::write(folder.join(file), &text).expect("it is written");
            let arguments = json!({ "path": folder.join(file), "pattern": "^t" });
            let found = loot(&host.call(Request::new("survey__look", arguments)).await);
            assert!(found.contains(&format!("{filter} None: ")), "{found}");
            assert!(!found.contains("the same line"), "{found}");
        }
    });
}
