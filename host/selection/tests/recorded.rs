//! How often the tool that a task needs is chosen, among those of published servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use berth_contract::Definition;
use berth_selection::{SelectionRules, ToolIndex, select};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/catalogues");

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
        let needed: Vec<String> = task
            .any_of
            .iter()
            .map(|it| it.split_once('/').map(|(server, tool)| fitted(server, tool)).unwrap())
            .collect();
        let is_found = selection.included.iter().any(|tool| needed.contains(&tool.name));
        all += 1;
        found += usize::from(is_found);
    }
    100.0 * f64::from(found as u32) / f64::from(all)
}

fn rules(top_k: usize, max_tokens: u64) -> SelectionRules {
    SelectionRules { top_k, min_description_words: 3, always_on: Vec::new(), max_tokens }
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

/// The figures in docs/decisions/selection.md are those of this test, with `--nocapture`.
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
}
