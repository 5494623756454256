//! `berth filter`, and what `berth call` says about omitted output.

use std::fs;

use serde_json::{Value, json};

use super::{passing, program};
use crate::support::Cli;

const BAD: &str = "[[rules]]\nname = \"bad\"\nmatch = { prefix = \"x\" }\nstrategy = { type = \"truncate\", max_lines = 0 }\n";

const WITH_EXAMPLE: &str = r#"
[[rules]]
name = "mine"
match = { prefix = "x" }
strategy = { type = "strip_noise", patterns = ['^noise'] }
[[rules.examples]]
input = """
noise that says nothing, number 1
noise that says nothing, number 2
noise that says nothing, number 3
the end
"""
contains = ["WHAT"]
"#;

fn rules(cli: &Cli, text: &str) {
    fs::write(cli.root.path().join("config/filters.toml"), text).expect("it is written");
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn filter_list_shows_problems() {
    let cli = Cli::new();
    rules(&cli, BAD);
    let listed = cli.run(&["filter", "list"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(
        listed.stdout.contains("cargo-test") && listed.stdout.contains("test_summary"),
        "{}",
        listed.stdout
    );
    assert!(listed.stdout.contains("config/filters.toml"), "{}", listed.stdout);
    assert!(
        listed.stderr.contains("bad") && listed.stderr.contains("max_lines"),
        "{}",
        listed.stderr
    );
    let listed = json_of(&cli.run(&["filter", "list", "--json"]).stdout);
    assert_eq!(listed["rules"]["problems"].as_array().map(Vec::len), Some(1), "{listed}");
    let first = &listed["filters"][0];
    assert!(
        first["name"].is_string() && first["matchers"].is_array() && first["counts"]["runs"] == 0,
        "{first}"
    );
}

#[test]
fn filter_is_tried_on_a_file_by_its_name_or_by_a_command() {
    let cli = Cli::new();
    fs::write(cli.work().join("out.txt"), passing(200)).expect("it is written");
    for line in [
        &["filter", "try", "cargo-test", "out.txt"][..],
        &["filter", "try", "--command", "cd x && cargo +nightly test", "out.txt"],
    ] {
        let tried = cli.run(line);
        assert_eq!(tried.code, 0, "{}", tried.stderr);
        assert!(
            tried.stdout.contains("200 passed") && !tried.stdout.contains("holds_7 "),
            "{}",
            tried.stdout
        );
        assert!(
            tried.stderr.contains("% filtered by cargo-test; about ")
                && tried.stderr.contains("confidence: full"),
            "{}",
            tried.stderr
        );
    }
    let tried = json_of(&cli.run(&["filter", "try", "cargo-test", "out.txt", "--json"]).stdout);
    assert_eq!(
        (&tried["filters"], &tried["confidence"]),
        (&json!(["cargo-test"]), &json!("full")),
        "{tried}"
    );
    let kept = cli.run(&["filter", "try", "--command", "unheard-of", "out.txt"]);
    assert_eq!((kept.code, kept.stdout), (0, passing(200)));
    assert!(kept.stderr.contains("no filter fits `unheard-of`"), "{}", kept.stderr);
    for (line, says) in [
        (&["filter", "try", "cargo-tst", "out.txt"][..], "berth filter list"),
        (&["filter", "try", "cargo-test", "nowhere.txt"], "nowhere.txt"),
        (&["filter", "try", "cargo-test"], "FILE"),
    ] {
        let wrong = cli.run(line);
        assert!(wrong.code == 2 && wrong.stderr.contains(says), "{line:?}: {}", wrong.stderr);
    }
}

#[test]
fn examples_of_all_rules_pass() {
    let cli = Cli::new();
    let tested = json_of(&cli.run(&["filter", "test", "--json"]).stdout);
    assert_eq!(tested["ok"], true, "{tested:#}");
    assert!(tested["examples"].as_u64() >= Some(40), "{tested:#}");
    assert_eq!(tested["without_examples"], json!([]), "every built-in rule has one");
}

#[test]
fn filter_test_reports_a_wrong_example() {
    let cli = Cli::new();
    rules(&cli, &WITH_EXAMPLE.replace("WHAT", "the end"));
    let tested = cli.run(&["filter", "test", "mine"]);
    assert!(
        tested.code == 0 && tested.stdout.contains("1 examples"),
        "{}{}",
        tested.stdout,
        tested.stderr
    );
    rules(&cli, &WITH_EXAMPLE.replace("WHAT", "number 2"));
    let tested = cli.run(&["filter", "test", "mine"]);
    assert!(
        tested.code == 1 && tested.stdout.contains("mine, example 1: `number 2` is missing"),
        "{}",
        tested.stdout
    );
    rules(&cli, BAD);
    let tested = cli.run(&["filter", "test", "cargo-test"]);
    assert!(tested.code == 1 && tested.stdout.contains("bad"), "{}", tested.stdout);
}

#[test]
fn filtered_answer_and_stats_report_what_was_left_out() {
    let cli = Cli::new();
    program(&cli.work(), "cargo", &passing(200), "", 0);
    assert!(cli.run(&["filter", "stats"]).stdout.contains("No answer was filtered yet."));
    let call =
        ["--set", "tools.autonomy=full", "call", "--for-model", "bash", "command=./cargo test"];
    let called = cli.run(&call);
    assert_eq!(called.code, 0, "{}", called.stderr);
    assert!(
        called.stderr.contains("[shell] 205 lines -> ") && called.stderr.contains("% filtered"),
        "{}",
        called.stderr
    );
    let called = json_of(&cli.run(&[&call[..], &["--json"]].concat()).stdout);
    assert_eq!(called["filtered"]["filters"], json!(["cargo-test"]), "{called}");
    // A person gets everything, without a notice.
    let called = cli.run(&["--set", "tools.autonomy=full", "call", "bash", "command=./cargo test"]);
    assert!(
        called.stdout.contains("holds_7 ") && !called.stderr.contains("filtered"),
        "{}",
        called.stderr
    );

    let stats = json_of(&cli.run(&["filter", "stats", "--json"]).stdout);
    assert_eq!(
        (&stats[0]["filters"], &stats[0]["answers"], &stats[0]["full"]),
        (&json!("cargo-test"), &json!(2), &json!(2)),
        "{stats}"
    );
    assert_eq!(stats[0]["lines"][0], 410);
    let stats = cli.run(&["filter", "stats"]);
    assert!(
        stats.stdout.contains("cargo-test") && stats.stdout.contains("2/0/0"),
        "{}",
        stats.stdout
    );
}
