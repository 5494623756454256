//! Plugins that take long to load: nobody waits for one that they don't need.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::{Host, Request};

use crate::mcp::client::{Client, LEGACY, text};
use crate::support::{Cli, Component, Living, plugin, run, said, state, version};

const TRUST: &str = "plugin_folder.reload=trust";

/// Lists its tools until the host stops it.
const ENDLESS: &str = "(loop $again (br $again))";

fn slow() -> Vec<u8> {
    Component { on_list: ENDLESS, ..version("slow", "1.0.0", "never") }.encode()
}

async fn reads(host: &Host, path: &str) -> String {
    let answer = host.call(Request::new("read", json!({ "path": path }))).await;
    answer.outcome.expect("it is read").joined_text()
}

/// The compiled components below a folder.
fn code_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let code = |path: PathBuf| {
        if path.is_dir() {
            code_below(&path)
        } else {
            usize::from(path.extension() == Some("cwasm".as_ref()))
        }
    };
    entries.map(code).sum()
}

#[test]
fn slow_plugin_delays_neither_built_in_tools_nor_other_plugins() {
    run(async {
        let living = Living::new();
        fs::write(living.work().join("notes.txt"), "here").expect("a file is written");
        living.put("slow", &slow());
        // It comes after the slow one.
        living.put("word", &version("word", "1.0.0", "one").encode());
        let host = living.starting(&[TRUST]).await;
        assert!(reads(&host, "notes.txt").await.contains("here"));
        assert_eq!(said(&host, "word").await.as_deref(), Ok("one"));
        assert_eq!(host.loading(), ["slow"]);
        assert_eq!(state(&host, "slow").word(), "loading");
        // A call of its tool waits, and learns how it ended.
        let refused = said(&host, "slow").await.expect_err("it never lists its tools");
        assert!(
            refused.contains("The plugin `slow` is not loaded: the plugin does not list"),
            "{refused}"
        );
        host.ready().await;
        assert!(host.loading().is_empty());
        assert_eq!(state(&host, "slow").word(), "failed");
        // The order of tools doesn't depend on who was quicker.
        let names: Vec<String> = host.plugins().into_iter().map(|plugin| plugin.name).collect();
        assert_eq!(names, ["file", "slow", "word"]);
    });
}

#[test]
fn call_of_an_unknown_tool_waits_for_no_plugin() {
    run(async {
        let living = Living::new();
        living.put("slow", &slow());
        let host = living.starting(&[TRUST]).await;
        for unknown in ["nothing", "other__say", "slow", "slo__say"] {
            assert!(host.call(Request::new(unknown, json!({}))).await.outcome.is_err());
        }
        assert_eq!(host.loading(), ["slow"]);
        let cancelled = Request::new("slow__say", json!({}));
        cancelled.cancel.cancel();
        assert!(host.call(cancelled).await.outcome.is_err());
        assert_eq!(host.loading(), ["slow"]);
    });
}

#[test]
fn host_for_one_call_fails_others_with_the_reason() {
    run(async {
        let living = Living::new();
        fs::write(living.work().join("notes.txt"), "here").expect("a file is written");
        living.put("slow", &slow());
        let host = living.only_for("read", &[TRUST]).await;
        assert!(reads(&host, "notes.txt").await.contains("here"));
        let refused = said(&host, "slow").await.expect_err("it isn't loaded");
        assert!(refused.contains("`slow` is not loaded: this program loaded only"), "{refused}");
    });
}

#[test]
fn filters_that_answers_go_through_are_there_from_the_first_call() {
    run(async {
        let living = Living::new();
        fs::write(living.work().join("safe-block"), "here").expect("a file is written");
        living.put("slow", &slow());
        let path = format!("plugins.hostile-filter.path={:?}", plugin("hostile-filter"));
        let settings = [
            TRUST,
            &path,
            "plugins.hostile-filter.reload=trust",
            "tools.filters.chain=[\"hostile-filter\"]",
        ];
        let host = living.starting(&settings).await;
        let filters: Vec<String> = host.filters().into_iter().map(|filter| filter.plugin).collect();
        assert!(!filters.is_empty() && filters.iter().all(|plugin| plugin == "hostile-filter"));
        assert_eq!(host.loading(), ["slow"]);
    });
}

#[test]
fn clients_are_served_at_once_and_learn_of_tools_that_follow() {
    let cli = Cli::new();
    cli.configure("plugin_folder.reload = \"trust\"\n[tools]\nautonomy = \"full\"\n");
    let plugins = cli.root.path().join("data/plugins");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&plugins).expect("a folder is made");
    fs::write(plugins.join("slow.wasm"), slow()).expect("a plugin is written");
    let word = version("word", "1.0.0", "one").encode();
    fs::write(plugins.join("word.wasm"), word).expect("a plugin is written");
    let mut client = Client::new(&cli, &[], LEGACY, false);
    let read = client.call("read", json!({ "path": "notes.txt" }));
    assert!(text(&read).contains("second"), "{read}");
    // The list has it already, or it comes with a notice.
    let mut tools = client.request("tools/list", json!({}))["tools"].to_string();
    if !tools.contains("\"word__say\"") {
        client.notification("notifications/tools/list_changed");
        tools = client.request("tools/list", json!({}))["tools"].to_string();
    }
    assert!(tools.contains("\"word__say\"") && !tools.contains("slow__say"), "{tools}");
    assert_eq!(text(&client.call("word__say", json!({}))), "one");
    let slow = client.ask("tools/call", json!({ "name": "slow__say", "arguments": {} }));
    let refused = client.answer(slow);
    assert!(refused.to_string().contains("does not list its tools"), "{refused}");
    assert_eq!(client.leave(), 0);
}

#[test]
fn single_call_loads_only_the_plugin_that_it_needs() {
    let mut living = Living::new();
    // A cache of its own shows what was compiled.
    living.folders = Folders { cache: living.root().join("cache"), ..living.folders.clone() };
    fs::create_dir_all(&living.folders.config).expect("a folder is made");
    let config = "plugin_folder.reload = \"trust\"\n[tools]\nautonomy = \"full\"\n";
    fs::write(living.folders.config.join("toolhold.toml"), config).expect("a file is written");
    fs::write(living.work().join("notes.txt"), "here").expect("a file is written");
    living.put("other", &version("other", "1.0.0", "two").encode());
    living.put("word", &version("word", "1.0.0", "one").encode());
    let compiled = || code_below(&living.folders.cache);
    let output = |line: &[&str]| {
        let ended = living.toolhold(line);
        String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned()
    };
    assert!(output(&["call", "read", "path=notes.txt"]).contains("here"));
    let built_in = compiled();
    assert!(output(&["call", "word__say"]).contains("one"));
    assert_eq!(compiled(), built_in + 1, "one was needed");
    // An unknown name needs all names that exist.
    let unknown = output(&["call", "wrd__say"]);
    assert!(unknown.contains("word__say"), "{unknown}");
    assert_eq!(compiled(), built_in + 2);
}
