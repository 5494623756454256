//! `toolhold plugin test`: what keeps to the contract passes, and each check can fail.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::{Cli, Component, Ended, Offer, manifest, plugin};

/// Tests a component, and returns the report.
#[track_caller]
fn tested(cli: &Cli, file: &str, exit: i32) -> Value {
    cli.run(&["plugin", "test", file, "--time", "2", "--json"]).ends(exit).json()
}

/// The checks with a status, each with its tool.
fn checks(report: &Value, status: &str) -> BTreeSet<(String, String)> {
    let checks = report["checks"].as_array().expect("there are checks").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = checks.filter(|check| check["status"] == status);
    checks.map(|check| (text(&check["name"]), text(&check["tool"]))).collect()
}

/// The names of the checks that fail, all of the component and not of a tool.
#[track_caller]
fn fails(component: &Component, expected: &[&str]) {
    let cli = Cli::new();
    fs::write(cli.work().join("made.wasm"), component.encode()).expect("a file is written");
    let report = tested(&cli, "made.wasm", 1);
    let failed: Vec<String> = checks(&report, "failed").into_iter().map(|(name, _)| name).collect();
    assert_eq!(failed, expected, "{report:#}");
}

#[test]
fn built_in_plugins_pass() {
    let cli = Cli::new();
    for name in ["file", "shell", "web", "filters", "memory", "scheduler"] {
        let file = plugin(name).display().to_string();
        let report = cli.run(&["plugin", "test", &file, "--json"]).ends(0).json();
        assert_eq!(report["ok"], true);
        let passed = checks(&report, "passed");
        assert!(passed.contains(&("loads".to_owned(), String::new())), "{report:#}");
        if name != "filters" {
            assert!(report["calls"].as_u64() > Some(30), "{report:#}");
        }
    }
}

#[test]
fn folder_is_built_only_if_a_source_is_newer() {
    let cli = Cli::new();
    cli.run(&["plugin", "new", "mine", "--lang", "python"]).ends(0);
    let file = cli.work().join("mine/mine.wasm");
    let component = Component {
        manifests: vec![manifest("mine")],
        ..Component::offering(vec![Offer::named("tool")])
    };
    fs::write(&file, component.encode()).expect("a file is written");
    let written_at = |name: &str, at: SystemTime| {
        let file = File::options().write(true).open(cli.work().join("mine").join(name));
        file.and_then(|file| file.set_modified(at)).expect("the time is set");
    };
    let now = SystemTime::now();
    let later = |secs: u64| now + Duration::from_secs(secs);
    let test = || {
        let mut command = cli.command(&["plugin", "test", "mine", "--json", "--time", "2"]);
        Ended::from_output(command.env("PATH", "/nowhere").output().expect("toolhold starts"))
    };

    written_at("mine.wasm", later(60));
    let report = test();
    assert!(report.json()["checks"].is_array(), "{}", report.stderr);
    assert!(report.stderr.contains("is newer than its sources"), "{}", report.stderr);
    assert_eq!(fs::read(&file).expect("it is there"), component.encode());

    written_at("plugin.py", later(120));
    let built = test().ends(2);
    assert!(built.stdout.contains("componentize-py is missing"), "{}", built.stdout);
}

/// Each of its tools breaks one rule, and only that check of that tool fails.
#[test]
fn each_rule_that_a_tool_breaks_is_found() {
    let cli = Cli::new();
    let report = tested(&cli, &plugin("unsound").display().to_string(), 1);
    let expected = [
        ("after failures", "leaves_a_lock"),
        ("answers", "silent"),
        ("answers", "traps"),
        ("calls", "undescribed"),
        ("categories", "says_later"),
        ("definition", "undescribed"),
        ("directory", "wanders"),
        ("output schema", "other_answer"),
        ("size", "hoards"),
        ("size", "prints"),
        ("time", "hangs"),
    ];
    let expected = expected.map(|(check, tool)| (check.to_owned(), format!("unsound__{tool}")));
    assert_eq!(checks(&report, "failed"), BTreeSet::from(expected), "{report:#}");

    let traps = report["checks"]
        .as_array()
        .expect("there are checks")
        .iter()
        .find(|check| check["name"] == "answers" && check["tool"] == "unsound__traps");
    let finding = &traps.expect("it was checked")["findings"][0];
    // With the panic's own words, which stand on standard error.
    let found = finding["found"].as_str().unwrap_or_default();
    assert!(found.contains("crash") && found.contains("the text is empty"), "{finding}");
    assert!(finding["arguments"].as_str().is_some_and(|given| given.starts_with(r#"{"text":""}"#)));
    assert!(finding["fix"].as_str().is_some_and(|fix| fix.contains("invalid_parameters")));
}

#[test]
fn component_that_does_not_load_fails() {
    let cli = Cli::new();
    fs::write(cli.work().join("text.wasm"), "text").expect("a file is written");
    let report = tested(&cli, "text.wasm", 1);
    assert_eq!(checks(&report, "failed"), BTreeSet::from([("loads".to_owned(), String::new())]));
    for (offer, reason) in [
        (Offer { name: "No Name".to_owned(), ..Offer::named("a") }, "the name has to be"),
        (Offer { input_schema: "{".to_owned(), ..Offer::named("a") }, "is not JSON"),
        (Offer { input_schema: "{}".to_owned(), ..Offer::named("a") }, "schema of an object"),
        (Offer { description: "d".repeat(5000), ..Offer::named("a") }, "the limit is 4096"),
    ] {
        let made = Component::offering(vec![offer]);
        fs::write(cli.work().join("made.wasm"), made.encode()).expect("a file is written");
        let shown = cli.run(&["plugin", "test", "made.wasm"]).ends(1);
        assert!(shown.stdout.contains("FAILED    loads"), "{}", shown.stdout);
        assert!(shown.stdout.contains(reason), "{}", shown.stdout);
    }
}

#[test]
fn manifest_that_asks_for_something_else_than_is_imported_is_found() {
    let mut asks: Value = serde_json::from_slice(&manifest("handmade")).expect("it is JSON");
    asks["capabilities"] = serde_json::json!([{ "name": "search", "reason": "to search" }]);
    let component = Component {
        manifests: vec![asks.to_string().into_bytes()],
        ..Component::offering(Vec::new())
    };
    fails(&component, &["manifest"]);
}

/// Its argument is a path, and it asks for no files: no call of it ever runs.
#[test]
fn tool_without_access_to_its_own_paths_is_found() {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string","description":"A file."}},"required":["path"]}"#;
    let offer = Offer {
        input_schema: schema.to_owned(),
        subject_pointer: Some("/path".to_owned()),
        ..Offer::named("reads")
    };
    fails(&Component::offering(vec![offer]), &["ordinary calls"]);
}

#[test]
fn report_is_the_same_for_the_same_seed() {
    let cli = Cli::new();
    let file = plugin("bench").display().to_string();
    let shown = |seed| {
        let line = ["plugin", "test", &file, "--seed", seed];
        let shown = cli.run(&line).ends(0).stdout;
        // The time that a call took to end is another one each time.
        shown.lines().filter(|line| !line.contains("cancelling")).collect::<Vec<_>>().join("\n")
    };
    let first = shown("7");
    assert!(first.ends_with("seed 7"), "{first}");
    assert_eq!(first, shown("7"));
}
