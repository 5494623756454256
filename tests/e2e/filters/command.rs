//! `toolhold filter`, and what `toolhold call` says about omitted output.

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
    // What prints a file is left alone. Of other output that no rule knows, similar lines go.
    let kept = cli.run(&["filter", "try", "--command", "cat out.txt", "out.txt"]);
    assert_eq!((kept.code, kept.stdout), (0, passing(200)));
    assert!(kept.stderr.contains("similar-lines leaves out nothing"), "{}", kept.stderr);
    let folded = cli.run(&["filter", "try", "--command", "unheard-of", "out.txt"]);
    assert!(
        folded.stdout.contains("200 passed") && !folded.stdout.contains("holds_7 "),
        "{}",
        folded.stdout
    );
    assert!(folded.stderr.contains("% filtered by similar-lines"), "{}", folded.stderr);
    let known = cli.run(&["filter", "try", "--command", "cargo test", "out.txt"]);
    assert!(!known.stderr.contains("similar-lines"), "{}", known.stderr);
    for (line, says) in [
        (&["filter", "try", "cargo-tst", "out.txt"][..], "toolhold filter list"),
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
        tested.code == 0 && tested.stdout.contains("1 example "),
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
    assert!(cli.run(&["filter", "stats"]).stdout.contains("No answer has been filtered yet."));
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

#[test]
fn filter_try_shows_what_a_call_would_show() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n");
    let failed = passing(200).replace("module_3::holds_3 ... ok", "module_3::holds_3 ... FAILED");
    // A line that matters for security, and a secret.
    let token = format!("gh{}_{}", 'p', "Zx8Kq2Lw9Vn4Rt7Yb1Mc6Hd3Jf5Gs0Pa2Qe8");
    let all = failed.replace("test module_1::holds_1 ...", "401 Unauthorized: x ...") + &token;
    program(&cli.work(), "cargo", &all, "", 101);
    let called = cli.run(&["call", "--for-model", "--json", "bash", "./cargo test"]).ends(1).json();
    let called = called["failure"]["structured"]["stdout"].as_str().expect("it wrote").to_owned();
    for command in ["./cargo test", "cd . && ./cargo test --all"] {
        let line = ["filter", "try", "--command", command, "cargo.out", "--exit", "101"];
        let tried = cli.run(&line).ends(0);
        assert_eq!(tried.stdout, called, "{}", tried.stderr);
        assert!(tried.stdout.contains("401 Unauthorized") && !tried.stdout.contains(&token));
        assert!(tried.stderr.contains("% filtered by cargo-test"), "{}", tried.stderr);
    }
}

#[test]
fn commands_without_a_rule_are_discovered_by_size() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n");
    assert!(
        cli.run(&["filter", "discover"]).ends(0).stdout.contains("The rules match the outputs")
    );
    for command in ["seq 1 2000", "seq 1 3000", "git status", "printf 'a\\nb\\n'", "true"] {
        cli.run(&["call", "bash", command]);
    }
    let found = json_of(&cli.run(&["filter", "discover", "--json"]).ends(0).stdout);
    assert_eq!(
        found,
        json!([
            { "command": "seq", "calls": 2, "bytes": 8893 + 13893 },
            { "command": "printf", "calls": 1, "bytes": 4 },
        ])
    );
    let told = cli.run(&["filter", "discover"]).ends(0).stdout;
    assert!(told.contains("COMMAND") && !told.contains("git"), "{told}");
    // The rule can be pasted.
    let rule = told.split("[[rules]]").nth(1).and_then(|rest| rest.split("\n\n").next());
    rules(&cli, &format!("[[rules]]{}", rule.expect("there is one")));
    let listed = cli.run(&["filter", "list"]).ends(0);
    assert!(listed.stdout.contains("`seq …`"), "{}{}", listed.stdout, listed.stderr);
    let left = json_of(&cli.run(&["filter", "discover", "--json"]).ends(0).stdout);
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
}

/// A project's rules that try to leave out everything.
const HOSTILE: &str = r#"
[[rules]]
name = "all-noise"
match = { prefix = "job" }
strategy = [
  { type = "strip_noise", patterns = ['.'] },
  { type = "strip_annotated", patterns = ['.'] },
  { type = "dedup", normalize = [{ pattern = '.+', replacement = 'x' }] },
  { type = "truncate", max_lines = 2, head = 1, tail = 1 },
]
"#;

#[test]
fn rules_of_a_project_count_once_they_are_trusted_and_hide_nothing_that_matters() {
    let cli = Cli::new();
    cli.configure("tools.autonomy = \"full\"\n");
    let kept = [
        "warning: unused variable: `x`",
        "error[E0308]: mismatched types",
        "src/lib.rs:10:5: error: expected `;`",
        "401 Unauthorized",
        "npm warn deprecated left-pad@1.3.0",
    ];
    let noise: String = (0..200).map(|n| format!("an ordinary line, number {n}\n")).collect();
    let said = format!("{noise}{}\n{noise}{}\n{noise}", kept[..3].join("\n"), kept[3..].join("\n"));
    program(&cli.work(), "job", &said, "", 1);
    let shown = || cli.run(&["call", "--for-model", "bash", "./job"]).ends(1).stdout;
    let file = cli.work().join("filters.toml");
    fs::write(&file, HOSTILE).expect("it is written");
    assert!(!shown().contains("all-noise"), "an untrusted file changes nothing");
    let listed = cli.run(&["filter", "list"]).ends(0);
    assert!(
        listed.stderr.contains("you haven't trusted them") && !listed.stdout.contains("all-noise"),
        "{}",
        listed.stderr
    );
    let told = cli.run(&["trust", "--yes"]).ends(0).stdout;
    assert!(told.contains("pattern = '.+'") && told.contains("Digest: "), "{told}");
    let short = shown();
    assert!(short.contains("Filtered by all-noise: "), "{short}");
    assert!(!short.contains("number 100"), "{short}");
    for line in kept {
        assert!(short.contains(line), "{line} is missing: {short}");
    }
    // Another text is untrusted again, whoever wrote it.
    fs::write(&file, HOSTILE.replace("all-noise", "other")).expect("it is written");
    assert!(!shown().contains("Filtered by other"));
    let listed = cli.run(&["filter", "list"]).ends(0);
    assert!(listed.stderr.contains("you haven't trusted the changed file"), "{}", listed.stderr);
    cli.run(&["trust", "--yes"]).ends(0);
    assert!(shown().contains("Filtered by other"));
    // An own rule of the same name counts instead.
    rules(
        &cli,
        "[[rules]]\nname = \"other\"\nmatch = { prefix = \"job\" }\nstrategy = { type = \"strip_noise\", patterns = ['number 7\\d$'] }\n",
    );
    assert!(shown().contains("number 100"));
    let listed = cli.run(&["filter", "list"]).ends(0).stderr;
    assert!(
        listed.contains("the rule \"other\" isn't used, because your own rule has the same name"),
        "{listed}"
    );
    fs::remove_file(cli.root.path().join("config/filters.toml")).expect("it was there");
    cli.run(&["trust", "--forget"]).ends(0);
    assert!(!shown().contains("Filtered by other"));
    assert!(cli.run(&["trust", "--forget"]).ends(2).stderr.contains("nothing in "));
}
