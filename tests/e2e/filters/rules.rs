//! The operator's own rules: reading, reloading after a change, and errors.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Host, Request};

use super::{passing, program, text};
use crate::support::{builtin, shared_cache, toolhold};

const RULE: &str = "[[rules]]\nname = \"mine\"\nmatch = { prefix = \"tool\" }\nstrategy = { type = \"strip_noise\", patterns = ['WHAT'] }\n";

/// A long-lived host with its configuration below `root` and `root/work` as its directory.
async fn host(root: &Path) -> Host {
    fs::create_dir_all(root.join("toolhold/config")).expect("it is made");
    let folders = Folders { cache: shared_cache(), ..Folders::inside(&root.join("toolhold")) };
    let settings = vec!["tools.autonomy=full".to_owned()];
    let loaded =
        config::load(&folders, &Inputs { settings, ..Inputs::default() }).expect("it is valid");
    let builtins = [builtin("shell"), builtin("filters")];
    let host = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(root.join("work"))
        .builtins(&builtins)
        .helper(toolhold());
    host.watch().build().await.expect("the plugins load")
}

async fn tool(host: &Host) -> Answer {
    host.call(Request::new("bash", json!({ "command": "./tool" }))).await
}

/// Waits until it is true.
async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), held)
        .await
        .unwrap_or_else(|_| panic!("{what}: it never did"));
}

fn root() -> TempDir {
    let root = TempDir::new().expect("a folder is made");
    fs::create_dir(root.path().join("work")).expect("it is made");
    let lines =
        |word: &str| (0..100).map(|number| format!("{word} {number}\n")).collect::<String>();
    program(&root.path().join("work"), "tool", &format!("{}{}", lines("aaa"), lines("bbb")), "", 0);
    root
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_read_again_when_they_change_and_broken_ones_change_nothing() {
    let root = root();
    let path = root.path().canonicalize().expect("it is there");
    let rules = path.join("toolhold/config/filters.toml");
    let host = host(&path).await;
    let answer = tool(&host).await;
    assert!(answer.outcome.is_ok() && answer.filtered.is_none(), "{answer:?}");

    fs::write(&rules, RULE.replace("WHAT", "^aaa")).expect("it is written");
    eventually("the rule counts", async || tool(&host).await.filtered.is_some()).await;
    let shown = text(&tool(&host).await);
    assert!(!shown.contains("aaa 7\n") && shown.contains("bbb 7\n"), "{shown}");

    // A half-written file changes nothing and is reported.
    fs::write(&rules, "[[rules").expect("it is written");
    eventually("the file is told of", async || {
        host.filter_rules().is_some_and(|state| !state.problems.is_empty())
    })
    .await;
    assert!(!text(&tool(&host).await).contains("aaa 7\n"));
    let state = host.filter_rules().expect("there are filters");
    assert!(state.path == rules && state.problems[0].contains("filters.toml"), "{state:?}");

    // The valid ones of several rules apply.
    let bad =
        "[[rules]]\nname = \"bad\"\nmatch = { regex = '(' }\nstrategy = { type = \"truncate\" }\n";
    fs::write(&rules, format!("{bad}{}", RULE.replace("WHAT", "^bbb"))).expect("it is written");
    eventually("the other rule counts", async || text(&tool(&host).await).contains("aaa 7\n"))
        .await;
    assert!(!text(&tool(&host).await).contains("bbb 7\n"));
    let state = host.filter_rules().expect("there are filters");
    assert!(state.problems.len() == 1 && state.problems[0].contains("bad"), "{state:?}");

    fs::remove_file(&rules).expect("it was there");
    eventually("no rule counts", async || tool(&host).await.filtered.is_none()).await;
    assert_eq!(host.filter_rules().expect("there are filters").problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_rule_is_switched_off_or_replaced_by_its_name() {
    let root = root();
    let path = root.path().canonicalize().expect("it is there");
    program(&path.join("work"), "cargo", &passing(200), "", 0);
    let rules = path.join("toolhold/config/filters.toml");
    fs::create_dir_all(path.join("toolhold/config")).expect("it is made");
    fs::write(&rules, "[[rules]]\nname = \"cargo-test\"\nenabled = false\n")
        .expect("it is written");
    let host = host(&path).await;
    let answer = host.call(Request::new("bash", json!({ "command": "./cargo test" }))).await;
    assert!(text(&answer).contains("holds_7 "), "{}", text(&answer));
    assert!(!host.filters().iter().any(|filter| filter.name == "cargo-test"));
}

#[tokio::test]
async fn rule_file_that_is_too_large_is_refused() {
    let root = root();
    let path = root.path().canonicalize().expect("it is there");
    fs::create_dir_all(path.join("toolhold/config")).expect("it is made");
    let large = format!("{}#{}\n", RULE.replace("WHAT", "^aaa"), "x".repeat(1 << 20));
    fs::write(path.join("toolhold/config/filters.toml"), large).expect("it is written");
    let host = host(&path).await;
    assert!(tool(&host).await.filtered.is_none());
    let problems = host.filter_rules().expect("there are filters").problems;
    assert!(problems.len() == 1 && problems[0].contains("1 MiB"), "{problems:?}");
    assert!(!host.filters().is_empty());
}

#[tokio::test]
async fn unreadable_and_costly_rule_files_are_refused_quickly() {
    let root = root();
    let path = root.path().canonicalize().expect("it is there");
    fs::create_dir_all(path.join("toolhold/config")).expect("it is made");
    let rules = path.join("toolhold/config/filters.toml");
    let made = std::process::Command::new("mkfifo").arg(&rules).status().expect("it is there");
    assert!(made.success());
    let problems = host(&path).await.filter_rules().expect("there are filters").problems;
    assert!(problems.len() == 1 && problems[0].contains("isn't a regular file"), "{problems:?}");

    fs::remove_file(&rules).expect("it was there");
    let heavy = |number: usize| {
        format!(
            "[[rules]]\nname = \"r{number}\"\nmatch = {{ regex = '\\w{{90}}{number}' }}\nstrategy = {{ type = \"dedup\" }}\n"
        )
    };
    fs::write(&rules, (0..256).map(heavy).collect::<String>()).expect("it is written");
    let host = host(&path).await;
    assert!(tool(&host).await.outcome.is_ok());
    assert!(host.filters().iter().any(|filter| filter.name == "cargo-test"));
}
