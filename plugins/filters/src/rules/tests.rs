//! Tests of rules: errors name their line, and the built-in rules pass their examples.

use std::fmt::Write as _;

use super::*;

/// A rule with the fields in `body`.
fn rule(body: &str) -> String {
    format!("\n[[rules]]\nname = \"mine\"\n{body}\n")
}

const MATCH: &str = "match = { prefix = \"mine\" }\n";
const STRATEGY: &str = "strategy = { type = \"dedup\" }\n";

#[track_caller]
fn check_problem(text: &str, problem: &str) {
    let read = read(text);
    assert!(read.rules.is_empty(), "{text}");
    assert_eq!(read.problems.len(), 1, "{:?}", read.problems);
    assert!(read.problems[0].contains(problem), "{:?} lacks {problem:?}", read.problems);
}

#[test]
fn rule_errors_name_their_line() {
    check_problem(&rule(STRATEGY), "line 2: rule \"mine\": `match` is missing");
    check_problem(&rule(MATCH), "`strategy` is missing");
    check_problem(&rule(&format!("{MATCH}{STRATEGY}colour = 1")), "unknown field `colour`");
    check_problem(
        &rule(&format!("match = {{ prefix = \"a\", exact = \"b\" }}\n{STRATEGY}")),
        "more than one of",
    );
    check_problem(&rule(&format!("match = {{}}\n{STRATEGY}")), "`match` is empty");
    check_problem(
        &rule(&format!("match = {{ regex = \"(\" }}\n{STRATEGY}")),
        "doesn't compile: unclosed group",
    );
    check_problem(
        &rule(&format!("match = {{ regex = \"{}\" }}\n{STRATEGY}", "a".repeat(513))),
        "the limit is 512",
    );
    check_problem(
        &rule(&format!("match = {{ regex = '\\w{{999}}' }}\n{STRATEGY}")),
        "larger than 1 MiB",
    );
    check_problem(
        &rule(&format!("{MATCH}strategy = {{ type = \"shout\" }}")),
        "unknown variant `shout`",
    );
    check_problem(&rule(&format!("{MATCH}strategy = []")), "empty list");
    check_problem(&rule(&format!("{MATCH}on_failure = []")), "`on_failure` is an empty list");
    check_problem(&rule(&format!("{MATCH}on_exit = {{}}")), "`on_exit` is empty: add a code");
    check_problem(
        &rule(&format!("{MATCH}on_exit = 3")),
        "line 5: rule \"mine\": invalid type: integer `3`, expected a map",
    );
    for (code, problem) in [
        ("x", "`on_exit` has the code \"x\": use numbers from 0 to 255"),
        ("256", "use numbers from 0 to 255"),
        ("-1", "use numbers from 0 to 255"),
        ("\"1,\"", "use numbers from 0 to 255"),
        ("\"1-3\"", "use numbers from 0 to 255"),
        ("\"1, 2,1\"", "has the code 1 twice"),
    ] {
        let body = format!("{MATCH}on_exit = {{ {code} = {{ type = \"dedup\" }} }}");
        check_problem(&rule(&body), problem);
    }
    check_problem(
        &rule(&format!("{MATCH}on_exit = {{ 2 = {{ type = \"strip_noise\", patterns = [] }} }}")),
        "`on_exit.2`: strip_noise: `patterns` is empty",
    );
    check_problem(
        &rule(&format!("{MATCH}{STRATEGY}on_error = {{ type = \"dedup\" }}")),
        "unknown field `on_error`",
    );
    check_problem(
        &rule(&format!("{MATCH}strategy = {{ type = \"strip_noise\", patterns = [] }}")),
        "`patterns` is empty",
    );
    check_problem(
        &rule(&format!(
            "{MATCH}strategy = {{ type = \"truncate\", max_lines = 10, head = 8, tail = 8 }}"
        )),
        "more than `max_lines` 10",
    );
    check_problem(
        &rule(&format!("match = {{ prefix = \"./bin/seed\" }}\n{STRATEGY}")),
        "write \"seed\"",
    );
    check_problem(&rule("enabled = false"), "no built-in rule has this name");
    check_problem(
        &rule(&format!("{MATCH}strategy = {{ type = \"truncate\", max_lins = 10 }}")),
        "unknown field `max_lins`",
    );
    check_problem(&rule(&format!("{MATCH}{STRATEGY}tool = \"\"")), "`tool` is empty");
    check_problem(
        &rule(&format!("{MATCH}{STRATEGY}examples = [{{ input = \"\" }}]")),
        "an example needs",
    );
    check_problem(
        &rule(&format!("{MATCH}{STRATEGY}")).replace("\"mine\"\nm", "\"No Name\"\nm"),
        "use 1 to 64",
    );
    check_problem("rules = 3", "line 1: `rules` isn't a list");
    check_problem("[[rule]]\nname = \"a\"", "the key `rule` is unknown");
    check_problem("[[rules]\n", "none of the file's rules is used");
    check_problem(&format!("#{}", "x".repeat(MAX_TEXT)), "1 MiB or more");
}

#[test]
fn valid_rules_are_used_despite_invalid_ones() {
    let text =
        format!("{}{}", rule(MATCH), rule(&format!("{MATCH}{STRATEGY}")).replace("mine", "other"));
    let read = read(&text);
    assert_eq!((read.rules.len(), read.problems.len()), (1, 1));
    assert_eq!(read.rules[0].name, "other");
    assert_eq!(read.rules[0].meta, r#"{"strategy":"dedup","built_in":false}"#);
}

#[test]
fn duplicate_names_and_rules_beyond_256_are_refused() {
    let own = rule(&format!("{MATCH}{STRATEGY}"));
    let twice = read(&format!("{own}{own}"));
    assert_eq!((twice.rules.len(), twice.problems.len()), (1, 1));
    assert!(
        twice.problems[0].starts_with("line 8: rule \"mine\": an earlier rule has the same name"),
        "{:?}",
        twice.problems
    );
    let mut many = String::new();
    (0..300).for_each(|number| {
        write!(many, "{}", own.replace("mine", &format!("mine-{number}"))).unwrap();
    });
    let many = read(&many);
    assert_eq!((many.rules.len(), many.problems.len()), (MAX_RULES, 1));
}

#[test]
fn rule_may_have_several_steps_and_examples() {
    let body = format!(
        "{MATCH}strategy = [{{ type = \"dedup\" }}, {{ type = \"truncate\", max_lines = 50 }}]\n[[rules.examples]]\nexit = 1\ninput = \"a\"\noutput = \"b\"\n"
    );
    let read = read(&rule(&body));
    assert_eq!(read.problems, <[String; 0]>::default());
    let meta: serde_json::Value = serde_json::from_str(&read.rules[0].meta).unwrap();
    assert_eq!(meta["strategy"], "dedup+truncate");
    assert_eq!(meta["examples"], serde_json::json!([{ "exit": 1, "input": "a", "output": "b" }]));
}

#[test]
fn rule_lists_its_branches() {
    let body = format!(
        "{MATCH}{STRATEGY}on_success = {{ type = \"dedup\" }}\non_exit = {{ \"2, 3\" = [{{ type = \"dedup\" }}, {{ type = \"fold_frames\" }}] }}\n"
    );
    let read = read(&rule(&body));
    assert_eq!(read.problems, <[String; 0]>::default());
    let meta: serde_json::Value = serde_json::from_str(&read.rules[0].meta).unwrap();
    assert_eq!(meta["strategy"], "dedup; on_success: dedup; on_exit 2, 3: dedup+fold_frames");
}

#[test]
fn built_in_rules_are_valid() {
    assert!(BUILT_IN.len() >= 25);
    for rule in BUILT_IN {
        crate::strategy::from_json(rule.steps)
            .unwrap_or_else(|what| panic!("{}: {what}", rule.name));
        if let StaticPattern::Regex(expression) = rule.subject {
            crate::strategy::compile(expression)
                .unwrap_or_else(|what| panic!("{}: {what}", rule.name));
        }
    }
}

#[test]
fn built_in_rules_pass_their_examples() {
    let mut many = 0;
    for rule in BUILT_IN {
        let steps = crate::strategy::from_json(rule.steps).unwrap();
        let meta: serde_json::Value = serde_json::from_str(rule.meta).unwrap();
        let examples =
            meta["examples"].as_array().unwrap_or_else(|| panic!("{} has no example", rule.name));
        for example in examples {
            let input = example["input"].as_str().unwrap();
            let failed = example["exit"].as_i64().is_some_and(|exit| exit != 0);
            let output = crate::strategy::run(&steps, input, failed)
                .map_or_else(|| input.to_owned(), |(output, _)| output);
            if let Some(expect) = example["output"].as_str() {
                assert_eq!(output, expect, "{}", rule.name);
            }
            let texts = |key: &str| {
                example[key]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|text| text.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            };
            texts("contains").iter().for_each(|text| {
                assert!(output.contains(text), "{}: {text:?} is not in:\n{output}", rule.name);
            });
            texts("lacks").iter().for_each(|text| {
                assert!(!output.contains(text), "{}: {text:?} is in:\n{output}", rule.name);
            });
            many += 1;
        }
    }
    assert!(many >= BUILT_IN.len());
}
