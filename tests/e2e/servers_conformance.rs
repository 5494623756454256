//! The protocol's official conformance suite for clients: its servers, at a URL, against the real
//! `toolhold`, which approves them, logs in, calls their tools and answers their questions
//! (`tests/servers/conformance.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{built, fetched};

/// The revisions that Toolhold speaks. Each scenario runs in all of them that it has.
const REVISIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

/// Scenarios that have to end before a tool is called, with what Toolhold says.
const REFUSED: [(&str, &str); 7] = [
    ("auth/iss-normalized", "issuer mismatch"),
    ("auth/iss-supported-missing", "missing required issuer"),
    ("auth/iss-unexpected", "issuer mismatch"),
    ("auth/iss-wrong-issuer", "issuer mismatch"),
    ("auth/metadata-issuer-mismatch", "issuer mismatch"),
    ("auth/resource-mismatch", "resource mismatch"),
    ("auth/scope-retry-limit", "which your login already has"),
];

const GUESSED: &str =
    "for 2025-03-26 alone: they want endpoints to be guessed, which Toolhold refuses";
const NOBODY: &str = "logins without a person: `toolhold mcp login` is a person's";
const OTHER_TOKENS: &str = "an extension: tokens in exchange for those of another identity";
const BOUND: &str = "an extension: tokens that are bound to a key";
const SKILLS: &str = "an extension: Toolhold takes no skills from servers";

/// Scenarios that don't run, and why.
const NOT_RUN: [(&str, &str); 12] = [
    ("auth/2025-03-26-oauth-endpoint-fallback", GUESSED),
    ("auth/2025-03-26-oauth-metadata-backcompat", GUESSED),
    ("auth/client-credentials-basic", NOBODY),
    ("auth/client-credentials-jwt", NOBODY),
    ("auth/dpop", BOUND),
    ("auth/dpop-nonce", BOUND),
    ("auth/enterprise-managed-authorization", OTHER_TOKENS),
    ("auth/wif-jwt-bearer", OTHER_TOKENS),
    ("sep-2640-client-no-prefetch", SKILLS),
    ("sep-2640-client-verify-digest", SKILLS),
    ("sep-2640-client-verify-frontmatter", SKILLS),
    ("sep-2640-client-verify-size", SKILLS),
];

#[test]
fn official_suite_for_clients_passes_for_all_declared_features() {
    let Some(fetched) = fetched("node") else { return };
    let fetched = fetched.canonicalize().expect("it is there");
    let node = fetched.join("node_modules/.bin/node");
    let suite = fetched.join("node_modules/conformance-2026/dist/index.js");
    let listed = Command::new(&node).arg(&suite).args(["list", "--client"]).output();
    let listed = String::from_utf8(listed.expect("it lists").stdout).expect("UTF-8");
    let scenarios = scenarios(&listed);
    let stays_out = |name: &str| scenarios[name].is_empty();
    let out: BTreeSet<&str> = scenarios.keys().copied().filter(|name| stays_out(name)).collect();
    let named: BTreeSet<&str> = NOT_RUN.iter().map(|(name, _)| *name).collect();
    assert_eq!(out, named, "the scenarios that don't run have a reason each");

    let root = tempfile::TempDir::new().expect("a temporary folder is made");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/conformance.py");
    let (toolhold, locks) = (built("toolhold").display().to_string(), root.path().display());
    let client = format!("/usr/bin/python3 {script} {toolhold} {locks}");
    let start = |revision: &str| -> Child {
        let mut command = Command::new(&node);
        // Those that wait for their turn take their time.
        command.arg(&suite).args(["client", "--suite", "all", "--timeout", "120000"]);
        command.args(["--spec-version", revision, "--command", &client, "--output-dir"]);
        command.arg(root.path().join(revision));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the suite starts")
    };
    for mut child in REVISIONS.map(start) {
        // It fails if a check does. Which one stands in its files.
        child.wait().expect("it ends");
    }
    for (name, revisions) in &scenarios {
        for revision in revisions {
            assert_passed(name, revision, &results(&root.path().join(revision), name));
        }
    }
}

/// The suite's scenarios, with their revisions among those of Toolhold.
fn scenarios(listed: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = listed.lines().filter_map(|line| {
        let (name, revisions) = line.trim().strip_prefix("- ")?.split_once(" [")?;
        let revisions = revisions.strip_suffix(']')?.split(',');
        Some((name, revisions.filter(|it| REVISIONS.contains(it)).collect()))
    });
    lines.collect()
}

/// The folder with the results of a scenario: its name and the time.
fn results(folder: &Path, name: &str) -> PathBuf {
    let (below, name) = name.rsplit_once('/').unwrap_or(("", name));
    let found = fs::read_dir(folder.join(below)).into_iter().flatten().flatten().find(|entry| {
        let entry = entry.file_name();
        let time = entry.to_str().and_then(|entry| entry.strip_prefix(name)?.strip_prefix('-'));
        time.is_some_and(|time| time.starts_with("20"))
    });
    found.unwrap_or_else(|| panic!("{name} ran for {}", folder.display())).path()
}

fn assert_passed(name: &str, revision: &str, folder: &Path) {
    let text = |file: &str| fs::read_to_string(folder.join(file)).expect("it is a result");
    let checks: Vec<Value> = serde_json::from_str(&text("checks.json")).expect("they are JSON");
    let with = |status: &str| -> Vec<&Value> {
        checks.iter().filter(|check| check["status"] == status).collect()
    };
    let bad = [with("FAILURE"), with("WARNING")].concat();
    let told = text("stderr.txt");
    assert!(!with("SUCCESS").is_empty() && bad.is_empty(), "{name}, {revision}: {bad:#?}\n{told}");
    let has_called = text("stdout.txt").ends_with("called\n");
    match REFUSED.iter().find(|(refused, _)| *refused == name) {
        Some((_, reason)) => {
            assert!(!has_called && told.contains(reason), "{name}, {revision}: {told}");
        }
        None => assert!(has_called, "{name}, {revision}: {told}"),
    }
}
