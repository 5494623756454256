//! How often the tool that a task needs is chosen, among those of published servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolhold_agent::selection::{SelectionRules, ToolIndex, select, tokens_of};
use toolhold_contract::Definition;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/catalogues");

#[derive(Deserialize)]
struct Recorded {
    server: String,
    tools: Vec<RecordedTool>,
}

#[derive(Deserialize)]
struct RecordedTool {
    name: String,
    description: String,
    schema: Value,
}

#[derive(Deserialize)]
struct Tasks {
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    half: String,
    task: String,
    any_of: Vec<String>,
}

/// The name that the host gives a tool of a server.
fn fitted(server: &str, tool: &str) -> String {
    let fit = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_' | '-') => c,
        _ => '_',
    };
    format!("{server}__{}", tool.chars().map(fit).collect::<String>())
}

fn catalogue() -> Vec<Definition> {
    let mut files: Vec<_> =
        fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let recorded = files.iter().filter(|path| !path.ends_with("tasks.json")).map(|path| {
        let recorded: Recorded = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        recorded
    });
    recorded
        .flat_map(|Recorded { server, tools }| {
            tools.into_iter().map(move |tool| {
                Definition::new(fitted(&server, &tool.name), tool.description, tool.schema)
            })
        })
        .collect()
}

fn tasks() -> Vec<Task> {
    let text = fs::read(Path::new(FOLDER).join("tasks.json")).unwrap();
    serde_json::from_slice::<Tasks>(&text).unwrap().tasks
}

/// In how many of 100 tasks of a half the tool is chosen.
fn recall(index: &ToolIndex, half: &str, rules: &SelectionRules) -> f64 {
    let (mut all, mut found) = (0, 0);
    for task in tasks().iter().filter(|task| task.half == half) {
        let selection = select(index, &task.task, None, rules);
        assert!(selection.tokens <= rules.max_tokens);
        let needed = needed(task);
        let is_found = selection.included.iter().any(|tool| needed.contains(&tool.name));
        all += 1;
        found += usize::from(is_found);
    }
    100.0 * f64::from(found as u32) / f64::from(all)
}

fn rules(top_k: usize, max_tokens: u64) -> SelectionRules {
    SelectionRules { top_k, min_description_words: 3, always_on: Vec::new(), max_tokens }
}

/// In how many of 100 tasks of a half the tool is chosen if the first of an order are, up to a part
/// of all tokens.
fn recall_in_order(
    tools: &[Definition],
    half: &str,
    most: u64,
    order: impl Fn(&str) -> Vec<usize>,
) -> f64 {
    let tokens: Vec<u64> = tools.iter().map(tokens_of).collect();
    let (mut all, mut found) = (0_u32, 0_u32);
    for task in tasks().iter().filter(|task| task.half == half) {
        let mut left = most;
        let chosen: Vec<&str> = order(&task.task)
            .into_iter()
            .filter(|at| {
                let has_room = tokens[*at] <= left;
                left -= if has_room { tokens[*at] } else { 0 };
                has_room
            })
            .map(|at| tools[at].name.as_str())
            .collect();
        all += 1;
        found += u32::from(needed(task).iter().any(|name| chosen.contains(&&**name)));
    }
    100.0 * f64::from(found) / f64::from(all)
}

/// The names of the tools of which a task needs one.
fn needed(task: &Task) -> Vec<String> {
    let name = |it: &String| it.split_once('/').map(|(server, tool)| fitted(server, tool));
    task.any_of.iter().filter_map(name).collect()
}

#[test]
fn halves_are_those_of_the_hash() {
    let mut halves: BTreeMap<String, usize> = BTreeMap::new();
    for Task { half, task, .. } in tasks() {
        let is_even = Sha256::digest(task.as_bytes())[0] % 2 == 0;
        assert_eq!(half, if is_even { "tuning" } else { "held_out" }, "{task}");
        *halves.entry(half).or_default() += 1;
    }
    assert!(halves.values().sum::<usize>() >= 200 && catalogue().len() >= 300, "{halves:?}");
}

/// The figures in docs/decisions/agent.md are those of this test, with `--nocapture`.
#[test]
fn needed_tool_is_offered_at_a_quarter_of_the_tokens() {
    let tools = catalogue();
    let index = ToolIndex::new(&tools);
    let all = index.tokens();
    eprintln!("{} tools, {all} tokens", tools.len());
    for (top_k, part) in [(5, 4), (10, 4), (20, 4), (30, 4), (0, 20), (0, 10), (0, 4)] {
        let recall =
            ["tuning", "held_out"].map(|half| recall(&index, half, &rules(top_k, all / part)));
        eprintln!("top_k {top_k}, at most 1/{part}: {recall:.1?}");
        if (top_k, part) == (0, 4) {
            assert!(recall[1] >= 95.0, "held out: {recall:?}");
        }
    }
    let named = tools.iter().map(|tool| Definition::new(&tool.name, "", Value::Null));
    let named = ToolIndex::new(&named.collect::<Vec<_>>());
    let by_name = |task: &str| named.ranked(task, None);
    let by_chance = |task: &str| {
        let mut order: Vec<usize> = (0..tools.len()).collect();
        order.sort_by_key(|at| Sha256::digest(format!("{task}{at}")));
        order
    };
    for half in ["tuning", "held_out"] {
        let names = recall_in_order(&tools, half, all / 4, by_name);
        let chance = recall_in_order(&tools, half, all / 4, by_chance);
        eprintln!("{half}, at most 1/4: by names alone {names:.1}, by chance {chance:.1}");
        assert!(chance < names && names < 95.0);
    }
}
