//! The protocol's official conformance suite, against the server of `toolhold serve --http` with
//! the tools that the suite expects (`src/bin/conformance`).
//!
//! Every check of a feature that Toolhold declares passes. Undeclared features are listed below and
//! fail: a failing check that isn't listed, or a listed one that passes, fails the test.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::third_party_clients::node;
use crate::support::{Ended, built, fetched, version};

/// The suites, each with its revisions and the suite's names for them.
const RUNS: [(&str, &[&str]); 5] = [
    ("conformance-before-2026", &["--suite", "all", "--spec-version", "2025-11-25"]),
    ("conformance-2026", &["--suite", "all", "--spec-version", "2025-03-26"]),
    ("conformance-2026", &["--suite", "all", "--spec-version", "2025-06-18"]),
    ("conformance-2026", &["--suite", "all", "--spec-version", "2025-11-25"]),
    // Everything that the revision requires, and its extensions.
    ("conformance-2026", &["--requirements", "2026-07-28"]),
];

const SAMPLING: &str =
    "sampling: Toolhold asks the client's model for nothing, and the protocol is giving it up";
const ROOTS: &str = "roots: what is in reach is said by the operator, not by the client";
const LOGGING: &str = "logging: logs go to the operator, and the protocol is giving it up";
const SUBSCRIPTIONS: &str =
    "subscriptions to resources: none changes without a call of the client's own";
const FORMS: &str =
    "forms of a tool's own: a person is asked for one thing, whether a call may be made";
const TICKET: &str = "an answer counts only with the sealed ticket of its question";
const SKILLS: &str = "skills: not offered";
const NEEDED: &str =
    "capabilities that a tool needs of its client: no tool of Toolhold's needs one";
const BEFORE: &str = "questions in a task: a call is asked about before it runs, which ends its request, and it is no task yet";
const STREAM: &str = "streams that are closed before the answer: Toolhold closes none, so there is nothing to resume";

/// Undeclared features: a scenario, or one check of it after a `/`, and the feature.
const NOT_DECLARED: &[(&str, &str)] = &[
    ("elicitation-sep1034-defaults", FORMS),
    ("elicitation-sep1330-enums", FORMS),
    ("input-required-result-basic-elicitation", FORMS),
    ("input-required-result-basic-list-roots", ROOTS),
    ("input-required-result-basic-sampling", SAMPLING),
    ("input-required-result-capability-check", SAMPLING),
    ("input-required-result-ignore-extra-params", TICKET),
    ("input-required-result-multi-round", FORMS),
    ("input-required-result-multiple-input-requests", FORMS),
    ("input-required-result-non-tool-request", FORMS),
    ("logging-set-level", LOGGING),
    ("resources-subscribe", SUBSCRIPTIONS),
    ("resources-unsubscribe", SUBSCRIPTIONS),
    ("sep-2640-skills-directory", SKILLS),
    ("sep-2640-skills-enumeration", SKILLS),
    ("sep-2640-skills-manifest", SKILLS),
    ("server-sse-polling/server-sse-disconnect-resume", STREAM),
    ("server-stateless/sep-2575-missing-capability-http-400", NEEDED),
    ("server-stateless/sep-2575-server-rejects-undeclared-capability", NEEDED),
    ("tasks-mrtr-composition", FORMS),
    ("tasks-mrtr-input", BEFORE),
    ("tasks-required-task-error", NEEDED),
    ("tools-call-sampling", SAMPLING),
    ("tools-call-with-logging", LOGGING),
];

#[test]
fn official_suite_passes_for_all_declared_features() {
    let Some(fetched) = fetched("node") else { return };
    let node = node(&fetched);
    let root = tempfile::TempDir::new().expect("a temporary folder is made");
    let server = Serving::new(root.path());
    let suite = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(&node);
        command
            .arg(fetched.join(format!("node_modules/{name}/dist/index.js")))
            .args(arguments)
            .current_dir(root.path());
        Ended::from_output(
            command
                .env_clear()
                .env("NO_COLOR", "1")
                .stdin(Stdio::null())
                .output()
                .expect("the suite starts"),
        )
    };
    let (mut known, mut run, mut passed, mut failed) =
        (BTreeSet::new(), BTreeSet::new(), 0, BTreeSet::new());
    for (number, (name, revision)) in RUNS.iter().enumerate() {
        let listed = suite(name, &["list", "--server"]).ends(0).stdout;
        known.extend(
            listed
                .lines()
                .filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next())
                .map(str::to_owned),
        );
        let results = root.path().join(format!("results-{number}"));
        let place = results.to_str().expect("is UTF-8");
        // Its own verdict is ignored: every check is read.
        let ended = suite(
            name,
            &[&["server", "--url", &server.url, "--output-dir", place], *revision].concat(),
        );
        let scenarios = fs::read_dir(&results)
            .unwrap_or_else(|_| panic!("it has results: {}{}", ended.stdout, ended.stderr));
        for folder in scenarios.map(|entry| entry.expect("it can be read").path()) {
            let (scenario, checks) = (scenario(&folder), checks(&folder));
            for check in checks {
                match check["status"].as_str() {
                    Some("SUCCESS") => passed += 1,
                    Some("FAILURE" | "WARNING") => drop(failed.insert((
                        scenario.clone(),
                        check["id"].as_str().unwrap_or_default().to_owned(),
                        format!(
                            "{}: {}",
                            revision.last().expect("it has one"),
                            check["errorMessage"].as_str().unwrap_or_default()
                        ),
                    ))),
                    _ => {}
                }
            }
            run.insert(scenario);
        }
    }
    assert!(passed > 200, "the suite looks at something: {passed}");
    let stands = |scenario: &str, check: &str| {
        let entry =
            |entry: &str| entry == scenario || entry.split_once('/') == Some((scenario, check));
        NOT_DECLARED.iter().position(|(name, _)| entry(name))
    };
    let unexpected: Vec<_> =
        failed.iter().filter(|(scenario, check, _)| stands(scenario, check).is_none()).collect();
    assert!(unexpected.is_empty(), "these fail, and stand nowhere: {unexpected:#?}");
    let used: BTreeSet<usize> =
        failed.iter().filter_map(|(scenario, check, _)| stands(scenario, check)).collect();
    let not_run = |name: &str| !run.contains(name) && known.contains(name);
    let stale: Vec<_> = NOT_DECLARED
        .iter()
        .enumerate()
        .filter(|(at, (name, _))| !used.contains(at) && !not_run(name))
        .map(|(_, entry)| entry.0)
        .collect();
    assert!(stale.is_empty(), "these stand there as not declared, and pass: {stale:#?}");
    let missed: Vec<_> =
        known.iter().filter(|name| !run.contains(*name) && stands(name, "").is_none()).collect();
    assert!(missed.is_empty(), "these were not run, and stand nowhere: {missed:#?}");
}

/// The name of a scenario, from the folder of its results: `server-NAME-TIME`.
fn scenario(folder: &Path) -> String {
    let name = folder.file_name().and_then(|name| name.to_str()).expect("is UTF-8");
    let name = name.strip_prefix("server-").unwrap_or(name);
    let time = "-2026-11-22T02-00-13-670Z".len();
    name[..name.len().saturating_sub(time)].to_owned()
}

fn checks(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("checks.json")).expect("it has checks");
    serde_json::from_str(&text).expect("they are JSON")
}

/// The server with the tools of the suite.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn new(root: &Path) -> Self {
        let plugin = root.join("word.wasm");
        fs::write(&plugin, version("word", "1.0.0", "one").encode()).expect("a plugin is written");
        let mut command = Command::new(built("conformance"));
        command.arg(root.join("toolhold")).arg(&plugin).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("it has an output"))
            .read_line(&mut url)
            .expect("it says where it is");
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
