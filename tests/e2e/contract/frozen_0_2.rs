//! Plugins that were built for contract 0.2, once: they go on working.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use berth_core::{Answer, Audience, Content, Host, Request, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{host, served};
use crate::support::server::{Server, answer};
use crate::support::{builtin, loot, refused, run};

/// A component that was built for 0.2.
fn component(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("components/0.2/{name}.wasm"))
}

/// A folder, and a host with the plugins. `{folder}` in a setting is the folder.
async fn scene(more: &[String]) -> (TempDir, PathBuf, Host) {
    let root = TempDir::new().expect("a temporary folder is made");
    let folder = root.path().canonicalize().expect("it is there");
    fs::write(folder.join("text.txt"), "one two\nthree\n").expect("a file is written");
    // The part lies beside its plugin.
    let (everything, parts) = (folder.join("everything.wasm"), folder.join("everything.parts"));
    fs::create_dir(&parts).expect("a folder is made");
    fs::copy(component("everything"), &everything).expect("a file is copied");
    fs::copy(component("part"), parts.join("attack.wasm")).expect("a file is copied");
    let mut settings = served("everything", &everything);
    settings.extend(served("survey", &component("survey")));
    settings.extend(
        [
            "plugins.everything.allowed_paths=[\"{folder}\"]",
            "plugins.everything.programs=[\"cat\", \"false\"]",
            "plugins.everything.store_mib=1",
            "plugins.everything.index_mib=1",
            "plugins.everything.schedule_tasks=2",
            "plugins.everything.services=1",
            "plugins.everything.parts_cpu_secs=10",
            "plugins.everything.config.colour=\"red\"",
            "plugins.survey.allowed_paths=[\"{folder}\"]",
            "plugins.survey.programs=[\"cat\"]",
            "tools.scheduler.enabled=true",
            "tools.filters.chain=[\"survey\"]",
            "tools.call=60",
        ]
        .map(str::to_owned),
    );
    if !more.iter().any(|setting| setting.starts_with("plugins.survey.hosts")) {
        settings.push("plugins.survey.hosts=[\"https://example.com\"]".to_owned());
    }
    settings.extend(more.iter().cloned());
    let host = host(&folder, &[builtin("file"), builtin("scheduler")], &settings).await;
    (root, folder, host)
}

async fn call(host: &Host, tool: &str, arguments: Value) -> Answer {
    // A person reads it, so no filter changes it.
    let session = Some(Session::new("one"));
    let request = Request::new(tool, arguments);
    host.call(Request { session, audience: Audience::Person, ..request }).await
}

async fn structured(host: &Host, tool: &str, arguments: Value) -> Value {
    let answer = call(host, tool, arguments).await;
    answer.outcome.expect("it answers").structured.unwrap_or_default()
}

#[test]
fn plugin_with_every_import_answers() {
    run(async {
        let (_root, folder, host) = scene(&[]).await;
        let said = call(&host, "everything__talk", json!({ "words": ["a", "b"] })).await;
        let parts = said.outcome.expect("it answers").content;
        assert_eq!(parts, ["a", "b", "end"].map(Content::text));
        let setting = call(&host, "everything__setting", json!({ "key": "colour" })).await;
        assert_eq!(loot(&setting), "red");
        for count in ["x", "xx"] {
            assert_eq!(loot(&call(&host, "everything__keep", json!({})).await), count);
        }
        let ran = json!({ "program": ["cat"], "input": "given" });
        assert_eq!(loot(&call(&host, "everything__start", ran).await), "given");
        let made = folder.join("made");
        let other = json!({ "program": ["touch", made] });
        let answer = call(&host, "everything__start", other).await;
        refused(&answer, "`programs` has no match");
        assert!(!made.exists(), "nothing was started");
    });
}

#[test]
fn plugin_with_every_import_searches_makes_tasks_and_runs_parts_and_services() {
    run(async {
        let (_root, _, host) = scene(&[]).await;
        let found = structured(&host, "everything__try_index", json!({})).await;
        let expected = json!({
            "words": ["a/2", "a/1"], "tagged": ["a/1"], "near": ["a/1"], "whole": true,
            "missing": true, "no_key": "invalid", "other_length": "ok", "quota": "limit",
            "left": ["c", "b", "a/2", "a/1"], "deleted": true, "then": ["c", "a/2", "a/1"],
        });
        assert_eq!(found, expected);
        let own = json!({ "own": "everything__setting" });
        let tasks = structured(&host, "everything__try_schedule", own).await;
        // A machine's zone may have no name.
        let machine = jiff::tz::TimeZone::try_system().ok();
        let zone = machine.as_ref().and_then(|zone| zone.iana_name());
        let expected = json!({
            "other": "denied", "invalid": "invalid", "quota": "limit",
            "tasks": [
                ["again", "every", "3600", "Europe/Berlin", "skip", {}, true],
                ["tidy", "cron", "0 4 * * *", zone, "once", { "key": "colour" }, true],
            ],
            "removed": [true, false],
        });
        assert_eq!(tasks, expected);
        let parts = structured(&host, "everything__try_parts", json!({})).await;
        assert_eq!(parts, json!(["a", "failed", "b"]));
        let services = structured(&host, "everything__try_service", json!({})).await;
        let said = json!([[true, 4, "one "], [false, 4, "two "]]);
        assert_eq!(services, json!({ "said": said, "stopped": [true, false] }));
    });
}

#[test]
fn plugin_with_search_processes_and_attachments_answers() {
    run(async {
        let (_root, folder, host) = scene(&[]).await;
        let look = json!({ "path": folder.join("text.txt"), "query": "^t" });
        assert_eq!(loot(&call(&host, "survey__look", look).await), "2:three\nComplete");
        let ran = json!({ "words": ["cat"], "child": true });
        assert_eq!(loot(&call(&host, "survey__run", ran).await), "given\nSome(0) Exited");
        let request = Request {
            attachments: vec![Content::text("12345")],
            ..Request::new("survey__take", json!({ "content": { "$attachment": 0 } }))
        };
        let output = host.call(request).await.outcome.expect("it takes it");
        assert_eq!(output.content[0], Content::text("5 bytes"));
    });
}

#[test]
fn plugin_with_secrets_gets_its_answer_and_no_secret() {
    run(async {
        let server = Server::plain(|asked, wire| {
            let key = asked.header("x-key").unwrap_or_default().to_owned();
            answer(wire, "200 OK", &[], format!("key {}", key.len()).as_bytes())
        });
        let place = format!("127.0.0.1:{}", server.port());
        let secret = TempDir::new().expect("a temporary folder is made");
        let file = secret.path().join("key");
        fs::write(&file, "k-4711").expect("a file is written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is private");
        let (_root, _, host) = scene(&[
            format!("plugins.survey.hosts=[\"http://{place}\"]"),
            "plugins.survey.allowed_private_hosts=[\"127.0.0.1\"]".to_owned(),
            format!(
                "plugins.survey.secrets.key={{file={file:?}, hosts=[\"{place}\"], header=\"X-Key\"}}"
            ),
        ])
        .await;
        let asked = json!({ "url": format!("http://{place}/") });
        assert_eq!(loot(&call(&host, "survey__ask", asked).await), "key 6, key true");
        let other = call(&host, "survey__ask", json!({ "url": "http://127.0.0.2/" })).await;
        assert!(other.outcome.is_err(), "{other:?}");
        assert_eq!(server.asked().len(), 1);
    });
}

#[test]
fn filters_apply_in_their_order() {
    run(async {
        let (_root, folder, host) = scene(&[]).await;
        let text = ("the same line ".repeat(9) + "\n").repeat(100);
        for (file, filter) in [("text.txt", "short"), ("other.txt", "rest")] {
            fs::write(folder.join(file), &text).expect("it is written");
            let arguments = json!({ "path": folder.join(file), "pattern": "^t" });
            let found = loot(&host.call(Request::new("survey__look", arguments)).await);
            assert!(found.contains(&format!("{filter}: ")), "{found}");
            assert!(!found.contains("the same line"), "{found}");
        }
    });
}
