//! The protocol's official conformance suite for clients: its servers, at a URL, against the real
//! `berth`, which approves them and calls their tools (`tests/servers/conformance.py`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{built, fetched};

/// The scenarios that run, each with its revisions.
const RUNS: [(&str, &[&str]); 8] = [
    ("initialize", &["2025-11-25"]),
    ("tools_call", &["2025-11-25", "2026-07-28"]),
    ("sse-retry", &["2025-11-25"]),
    ("request-metadata", &["2026-07-28"]),
    ("http-standard-headers", &["2026-07-28"]),
    ("http-custom-headers", &["2026-07-28"]),
    ("http-invalid-tool-headers", &["2026-07-28"]),
    ("json-schema-ref-no-deref", &["2026-07-28"]),
];

const LOGIN: &str = "logins: the suite's authorization servers are at ports of this machine that nobody named, which Berth refuses";
const QUESTIONS: &str =
    "questions of a server to the user: `berth call` has no terminal here to ask at";
const SCHEMA: &str = "a schema as an argument: the suite wants a call that its own client makes up";
const SKILLS: &str = "skills: Berth takes none from servers";

/// Scenarios that don't run, or the beginning of their names with `*`, and why.
const NOT_RUN: [(&str, &str); 5] = [
    ("auth/*", LOGIN),
    ("elicitation-sep1034-client-defaults", QUESTIONS),
    ("sep-2322-client-request-state", QUESTIONS),
    ("json-schema-2020-12-preservation", SCHEMA),
    ("sep-2640-client-*", SKILLS),
];

#[test]
fn official_suite_for_clients_passes_for_all_declared_features() {
    let Some(fetched) = fetched("node") else { return };
    let fetched = fetched.canonicalize().expect("it is there");
    let node = fetched.join("node_modules/.bin/node");
    let suite = fetched.join("node_modules/conformance-2026/dist/index.js");
    let listed = Command::new(&node).arg(&suite).args(["list", "--client"]).output();
    let listed = String::from_utf8(listed.expect("it lists").stdout).expect("UTF-8");
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let names: BTreeSet<&str> = names.collect();
    let fits = |entry: &str, name: &str| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => entry == name,
    };
    for name in &names {
        let runs = RUNS.iter().filter(|(run, _)| run == name).count();
        let stands = NOT_RUN.iter().filter(|(entry, _)| fits(entry, name)).count();
        assert_eq!(runs + stands, 1, "{name} is in one of the lists");
    }
    for entry in RUNS.iter().map(|(name, _)| name).chain(NOT_RUN.iter().map(|(name, _)| name)) {
        assert!(names.iter().any(|name| fits(entry, name)), "{entry} is no scenario");
    }
    let root = tempfile::TempDir::new().expect("a temporary folder is made");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/conformance.py");
    let client = format!("/usr/bin/python3 {script} {}", built("berth").display());
    let start = |scenario: &str, revision: &str| -> Child {
        Command::new(&node)
            .arg(&suite)
            .args(["client", "--command", &client, "--scenario", scenario])
            .args(["--spec-version", revision, "--output-dir"])
            .arg(root.path().join(format!("{scenario}-{revision}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the suite starts")
    };
    let pairs =
        RUNS.iter().flat_map(|(name, revisions)| revisions.iter().map(move |r| (*name, *r)));
    let started: Vec<_> =
        pairs.map(|(name, revision)| (name, revision, start(name, revision))).collect();
    for (name, revision, child) in started {
        let output = child.wait_with_output().expect("it ends");
        let checks = checks(&root.path().join(format!("{name}-{revision}")));
        let with = |status: &str| checks.iter().filter(|check| check["status"] == status).count();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(with("SUCCESS") > 0 && with("FAILURE") + with("WARNING") == 0, "{name}: {told}");
    }
}

/// The checks of the only run of a folder.
fn checks(folder: &Path) -> Vec<Value> {
    let mut runs = fs::read_dir(folder).expect("it has results").flatten();
    let file = runs.next().expect("there is a run").path().join("checks.json");
    let text = fs::read_to_string(file).expect("it has checks");
    serde_json::from_str(&text).expect("they are JSON")
}
