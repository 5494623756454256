//! `toolhold:host/index`: what a plugin searches in, and what it can't do with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use toolhold_core::{Category, Host, Request};

use super::{host, served};
use crate::support::{Cli, failure, loot, plugin, run};

const NAME: &str = "hostile-index";

async fn scene(folder: &Path, settings: &[&str]) -> Host {
    let mut all = served(NAME, &plugin(NAME));
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    host(folder, &[], &all).await
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

/// The folder of all indexes.
fn indexes(folder: &Path) -> std::path::PathBuf {
    folder.join("toolhold/data/indexes")
}

async fn call(host: &Host, tool: &str, arguments: Value) -> String {
    loot(&host.call(Request::new(format!("{NAME}__{tool}"), arguments)).await)
}

async fn find(host: &Host, text: &str) -> String {
    call(host, "find", json!({ "key": "", "text": text })).await
}

#[test]
fn document_outlives_call_and_host() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-index.index_mib=1"]).await;
        assert_eq!(find(&host, "fox").await, "");
        call(&host, "put", json!({ "key": "a", "text": "a quick fox" })).await;
        // It is cacheable, but nobody could tell whether the index has changed since.
        assert_eq!(find(&host, "fox").await, "a");
        drop(host);
        let host = scene(folder.path(), &["plugins.hostile-index.index_mib=1"]).await;
        assert_eq!(find(&host, "fox").await, "a");
        for syntax in ["\"", "fox\" OR \"", "text:", "NEAR(", "*", "'; DROP TABLE documents; --"] {
            find(&host, syntax).await;
        }
        assert_eq!(find(&host, "fox").await, "a");
    });
}

#[test]
fn plugin_without_an_index_is_refused_and_makes_no_file() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[]).await;
        let answer = host.call(Request::new(format!("{NAME}__find"), json!({ "key": "a" }))).await;
        let failure = answer.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failure.message, failure.suggestion);
        assert!(
            said.contains("toolhold:host/index@0.1.0") && said.contains("index_mib = 16"),
            "{said}"
        );
        assert!(!indexes(folder.path()).exists());
    });
}

#[test]
fn read_only_tool_writes_nothing() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-index.index_mib=1"]).await;
        call(&host, "put", json!({ "key": "a", "text": "mine" })).await;
        for tool in ["sneak", "sneak_delete"] {
            let arguments = json!({ "key": "a", "text": "theirs" });
            let sneaked = host.call(Request::new(format!("{NAME}__{tool}"), arguments)).await;
            let denied = failure(&sneaked, Category::PolicyBlocked, None);
            assert!(
                denied.message.contains("read-only tools can't write to the index"),
                "{denied:?}"
            );
            assert_eq!(find(&host, "mine").await, "a");
            assert_eq!(find(&host, "theirs").await, "");
        }
    });
}

#[test]
fn damaged_index_stays_as_it_is_and_tells_the_plugin_no_path() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-index.index_mib=1"]).await;
        fs::create_dir_all(indexes(folder.path())).expect("a folder is made");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(indexes(folder.path()), mode).expect("it is private");
        let file = indexes(folder.path()).join(format!("{NAME}.db"));
        fs::write(&file, "junk ".repeat(1000)).expect("a file is written");
        let answer = host.call(Request::new(format!("{NAME}__find"), json!({ "key": "a" }))).await;
        let failed = failure(&answer, Category::PermanentFailure, Some("index-unavailable"));
        assert!(failed.message.contains("see the host's log"), "{failed:?}");
        assert!(!format!("{failed:?}").contains(".db"), "{failed:?}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "junk ".repeat(1000));
    });
}

#[test]
fn flood_ends_at_the_quota() {
    run(async {
        for (bytes, documents, limit) in
            [(90_000, 100, "bytes; the limit is 1048576"), (9, 7000, "the limit is 6250")]
        {
            let folder = folder();
            let host = scene(folder.path(), &["plugins.hostile-index.index_mib=1"]).await;
            let arguments = json!({ "bytes": bytes, "documents": documents });
            let told = call(&host, "flood", arguments).await;
            let told: Value = serde_json::from_str(&told).expect("it is JSON");
            assert_eq!(told["code"], "limit", "{told}");
            let message = told["message"].as_str().expect("a text");
            assert!(message.contains(limit) && message.contains("`index_mib`"), "{told}");
            assert_eq!(told["written"], told["listed"], "{told}");
            let size: u64 = fs::read_dir(indexes(folder.path()))
                .expect("it is there")
                .map(|entry| entry.expect("it is read").metadata().expect("it is there").len())
                .sum();
            assert!(size < 16 << 20, "{size}");
        }
    });
}

#[test]
fn project_can_t_grant_an_index() {
    let cli = Cli::new();
    let path = plugin(NAME);
    let own = format!("[plugins.{NAME}]\npath = {path:?}\nreload = \"trust\"\nindex_mib = 1\n");
    cli.configure(&own);
    let theirs = format!("[plugins.{NAME}]\nindex_mib = 9\n");
    fs::write(cli.work().join("toolhold.toml"), theirs).expect("a file is written");
    let shown = cli.run(&["config", "show", "--json"]).ends(0).json();
    let ignored = &shown["project"]["ignored"][0]["key"];
    assert_eq!(ignored, "plugins.hostile-index.index_mib", "{shown}");
}
