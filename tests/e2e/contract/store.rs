//! `toolhold:host/store`: what a plugin keeps, and what it can't do with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use toolhold_core::{Category, Host, Request};

use super::{host, served};
use crate::support::{Cli, failure, loot, plugin, run};

const NAME: &str = "hostile-store";

async fn scene(folder: &Path, settings: &[&str]) -> Host {
    let mut all = served(NAME, &plugin(NAME));
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    host(folder, &[], &all).await
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

/// The folder of all stores.
fn stores(folder: &Path) -> std::path::PathBuf {
    folder.join("toolhold/data/stores")
}

async fn call(host: &Host, tool: &str, arguments: Value) -> String {
    loot(&host.call(Request::new(format!("{NAME}__{tool}"), arguments)).await)
}

#[test]
fn value_outlives_call_and_host() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-store.store_mib=1"]).await;
        assert_eq!(call(&host, "get", json!({ "key": "a" })).await, "nothing");
        call(&host, "put", json!({ "key": "a", "value": "one" })).await;
        // It is cacheable, but nobody could tell whether the store has changed since.
        assert_eq!(call(&host, "get", json!({ "key": "a" })).await, "one");
        call(&host, "put", json!({ "key": "a", "value": "two" })).await;
        assert_eq!(call(&host, "get", json!({ "key": "a" })).await, "two");
        drop(host);
        let host = scene(folder.path(), &["plugins.hostile-store.store_mib=1"]).await;
        assert_eq!(call(&host, "get", json!({ "key": "a" })).await, "two");
    });
}

#[test]
fn plugin_without_a_store_is_refused_and_makes_no_file() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &[]).await;
        let answer = host.call(Request::new(format!("{NAME}__get"), json!({ "key": "a" }))).await;
        let failure = answer.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failure.message, failure.suggestion);
        assert!(
            said.contains("toolhold:host/store@0.1.0") && said.contains("store_mib = 16"),
            "{said}"
        );
        assert!(!stores(folder.path()).exists());
    });
}

#[test]
fn read_only_tool_writes_nothing() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-store.store_mib=1"]).await;
        call(&host, "put", json!({ "key": "a", "value": "mine" })).await;
        let sneaked = host
            .call(Request::new(format!("{NAME}__sneak"), json!({ "key": "a", "value": "theirs" })))
            .await;
        let denied = failure(&sneaked, Category::PolicyBlocked, None);
        assert!(denied.message.contains("read-only tools can't write to the store"), "{denied:?}");
        assert_eq!(call(&host, "get", json!({ "key": "a" })).await, "mine");
    });
}

#[test]
fn damaged_store_stays_as_it_is_and_tells_the_plugin_no_path() {
    run(async {
        let folder = folder();
        let host = scene(folder.path(), &["plugins.hostile-store.store_mib=1"]).await;
        fs::create_dir_all(stores(folder.path())).expect("a folder is made");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(stores(folder.path()), mode).expect("it is private");
        let file = stores(folder.path()).join(format!("{NAME}.db"));
        fs::write(&file, "junk ".repeat(1000)).expect("a file is written");
        let answer = host.call(Request::new(format!("{NAME}__get"), json!({ "key": "a" }))).await;
        let failed = failure(&answer, Category::PermanentFailure, Some("store-unavailable"));
        assert!(failed.message.contains("see the host's log"), "{failed:?}");
        assert!(!format!("{failed:?}").contains(".db"), "{failed:?}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "junk ".repeat(1000));
    });
}

#[test]
fn flood_of_bytes_and_of_keys_ends_at_the_quota() {
    run(async {
        for (arguments, name) in [
            (json!({ "bytes": 100_000, "keys": 5, "writes": 1000 }), "bytes; the limit is 1048576"),
            (json!({ "bytes": 0, "keys": 7, "writes": 1000 }), "keys; the limit is 4096"),
        ] {
            let folder = folder();
            let host = scene(folder.path(), &["plugins.hostile-store.store_mib=1"]).await;
            let text = call(&host, "flood", arguments).await;
            let told: Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let message = told["message"].as_str().unwrap_or_default();
            assert!(told["code"] == "limit" && message.contains(name), "{told}");
            assert!(message.contains("`store_mib`"), "{told}");
            assert_eq!(told["keys"], told["written"], "what was refused isn't there in part");
            let size: u64 = fs::read_dir(stores(folder.path()))
                .expect("it is there")
                .map(|entry| entry.and_then(|entry| entry.metadata()).expect("it has a size").len())
                .sum();
            assert!(size < 16 << 20, "{size} bytes on disk");
        }
    });
}

#[test]
fn store_is_out_of_reach_for_tools_and_for_an_untrusted_configuration() {
    let cli = Cli::new();
    let path = plugin(NAME);
    let own = format!("[plugins.{NAME}]\npath = {path:?}\nreload = \"trust\"\nstore_mib = 1\n");
    fs::write(cli.root.path().join("config/toolhold.toml"), own).expect("it is written");
    cli.run(&["call", "--yes", "hostile-store__put", "key=a", "value=kept"]).ends(0);
    let file = cli.root.path().join("data/stores").join(format!("{NAME}.db"));
    assert!(file.exists(), "{}", file.display());
    let allow = format!("--allow={}", cli.root.path().display());
    let read = cli.run(&[&allow, "call", "read", &format!("path={}", file.display())]);
    assert_ne!(read.code, 0, "{}", read.stdout);
    let cat = format!("command=cat {} | wc -c", file.display());
    let read = cli.run(&[&allow, "--set", "tools.autonomy=full", "call", "bash", &cat]);
    assert!(
        !read.stdout.lines().any(|line| line.trim().parse().is_ok_and(|count: u64| count > 0)),
        "{}",
        read.stdout
    );

    // A file in the working directory can make it smaller, and not larger.
    let theirs = format!("[plugins.{NAME}]\nstore_mib = 9\n");
    fs::write(cli.work().join("toolhold.toml"), theirs).expect("it is written");
    let shown = cli.run(&["config", "show", "--json"]).ends(0).json();
    let ignored = &shown["project"]["ignored"][0]["key"];
    assert_eq!(ignored, "plugins.hostile-store.store_mib", "{shown}");
}
