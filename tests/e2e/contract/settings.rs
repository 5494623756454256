//! `[plugins.NAME.config]`, as plugins read it.

use serde_json::{Value, json};
use tempfile::TempDir;

use toolhold_core::{Host, Request};

use super::{host, host_with, served};
use crate::support::{Cli, loot, plugin, run};

async fn scene(settings: &[&str]) -> (TempDir, Host) {
    let folder = TempDir::new().expect("a temporary folder is made");
    let mut all = served("probe", &plugin("probe"));
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    let host = host(folder.path(), &[], &all).await;
    (folder, host)
}

async fn read(host: &Host, key: Option<&str>) -> Value {
    let arguments = key.map_or_else(|| json!({}), |key| json!({ "key": key }));
    let answer = host.call(Request::new("probe__settings", arguments)).await;
    serde_json::from_str(&loot(&answer)).expect("it is JSON")
}

#[test]
fn plugin_reads_its_table_with_defaults() {
    run(async {
        let (_folder, host) = scene(&[]).await;
        assert_eq!(read(&host, None).await, json!({ "retries": 3 }));
        assert_eq!(read(&host, Some("server")).await, Value::Null);
        let (_folder, host) = scene(&[
            "plugins.probe.config.server=\"a\"",
            "plugins.probe.config.retries=0",
            "plugins.probe.config.limits.rows=7",
        ])
        .await;
        let all = json!({ "server": "a", "retries": 0, "limits": { "rows": 7 } });
        assert_eq!(read(&host, None).await, all);
        assert_eq!(read(&host, Some("limits")).await, json!({ "rows": 7 }));
        assert_eq!(read(&host, Some("missing")).await, Value::Null);
    });
}

#[test]
fn component_offers_the_same_whenever_it_is_asked() {
    run(async {
        let mut offered = Vec::new();
        for _ in 0..2 {
            let folder = TempDir::new().expect("a temporary folder is made");
            let cache = folder.path().join("cache");
            let settings = served("probe", &plugin("probe"));
            let host = host_with(folder.path(), cache, &[], &settings).await;
            // A call waits for the plugin.
            read(&host, None).await;
            let tools = host.tools();
            let moment = tools.iter().find(|tool| tool.name == "probe__moment");
            offered.push(moment.expect("it is offered").input_schema.clone());
        }
        assert_eq!(offered[0], offered[1]);
        assert!(offered[0].to_string().contains("SystemTime"), "{}", offered[0]);
    });
}

#[test]
fn wrong_table_names_key_place_and_what_is_expected() {
    run(async {
        for (setting, parts) in [
            ("plugins.probe.config.retries=\"many\"", ["retries", "of type integer"]),
            ("plugins.probe.config.retries=-1", ["retries", "minimum"]),
            ("plugins.probe.config.limits.rows=true", ["limits/rows", "of type integer"]),
            ("plugins.probe.config.sever=\"a\"", ["there is no key `sever`", "`server`"]),
        ] {
            let (_folder, host) = scene(&[setting]).await;
            let answer = host.call(Request::new("probe__settings", json!({}))).await;
            let failure = answer.outcome.expect_err("it doesn't load");
            let said = format!("{} {:?}", failure.message, failure.suggestion);
            for part in
                parts.iter().chain(&["[plugins.probe.config]", "toolhold plugin inspect probe"])
            {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert!(said.contains("--set plugins.probe.config"), "its place: {said}");
        }
    });
}

#[test]
fn settings_that_are_too_much_stop_the_plugin_and_nothing_else() {
    run(async {
        let bomb = format!("plugins.probe.config.server=\"{}\"", "x".repeat(64 * 1024));
        let (_folder, host) = scene(&[&bomb]).await;
        let answer = host.call(Request::new("probe__settings", json!({}))).await;
        let failure = answer.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failure.message, failure.suggestion);
        assert!(said.contains("the limit is 65536") && said.len() < 4096, "{said}");
    });
}

#[test]
fn working_directory_sets_nothing_and_inspect_shows_the_keys() {
    let cli = Cli::new();
    let path = plugin("probe");
    let own = format!(
        "[plugins.probe]\npath = {path:?}\nreload = \"trust\"\n[plugins.probe.config]\nserver = \"mine\"\n"
    );
    std::fs::write(cli.root.path().join("config/toolhold.toml"), own).expect("it is written");
    let theirs = "[plugins.probe.config]\nserver = \"theirs\"\nretries = 9\n";
    std::fs::write(cli.work().join("toolhold.toml"), theirs).expect("it is written");
    let ended = cli.run(&["call", "probe__settings"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("\"server\":\"mine\""), "{}", ended.stdout);
    assert!(ended.stdout.contains("\"retries\":3"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("theirs"), "{}", ended.stdout);

    let shown = cli.run(&["plugin", "inspect", "probe"]);
    for part in ["[plugins.probe.config]", "server", "The server that is asked.", "retries", "3"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
}

#[test]
fn schema_for_editors_has_that_of_each_plugin() {
    let cli = Cli::new();
    let schema = |line: &[&str]| {
        let ended = cli.run(&[line, &["config", "schema"]].concat()).ends(0);
        (ended.json(), ended.stderr)
    };
    let (alone, _) = schema(&[]);
    cli.configure(&format!(
        "[plugins.probe]\npath = {:?}\n[plugins.absent]\npath = \"absent.wasm\"\n",
        plugin("probe")
    ));
    let (whole, told) = schema(&[]);
    assert!(told.contains("schema of the plugin `absent` is left out"), "{told}");
    let valid = |config: Value| {
        let written = json!({ "plugins": { "probe": { "config": config } } });
        jsonschema::is_valid(&whole, &written)
    };
    assert!(valid(json!({ "retries": 1 })) && !valid(json!({ "retries": "many" })));
    // It helps to write a configuration that isn't valid yet.
    let (known, told) = schema(&["--set", "tools.cal=60"]);
    assert!(known == alone && told.contains("`toolhold config check` shows the errors"), "{told}");
}
