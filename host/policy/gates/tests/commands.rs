//! The analysis of commands, compared with a readable table, row by row.

use std::fmt::Write;

use serde_json::json;
use toolhold_contract::{Access, Annotations, SubjectKind};

use toolhold_policy::commands::analyze;
use toolhold_policy::{
    Action, Autonomy, Blocklist, DEFAULT_BLOCKED, Gate, Placed, Policy, ResolvedSubject, Trust,
    Verdict,
};

/// Rows of `decision | class | programs | command`. A heading says what the commands below it
/// really are.
const TABLE: &str = include_str!("commands/table.txt");

/// Number of harmless commands that ask. It must not grow.
const FALSE_ALARMS: usize = 22;

struct Row<'t> {
    /// `harmless`, `changes` or `hostile`.
    truth: &'t str,
    row: &'t str,
    command: String,
}

fn rows() -> Vec<Row<'static>> {
    let mut truth = "";
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
        if let Some(heading) = line.strip_prefix("# ") {
            truth = heading.split(':').next().unwrap_or_default();
            continue;
        }
        let command = line.splitn(4, " | ").nth(3).unwrap_or_else(|| panic!("{line}"));
        rows.push(Row {
            truth,
            row: line,
            command: command.replace('⏎', "\n").replace('⇥', "\t").replace('␍', "\r"),
        });
    }
    rows
}

/// The decision of the blocklist and risk gates on a command if every risk asks.
fn decision(command: &str) -> &'static str {
    let list =
        Blocklist::new(DEFAULT_BLOCKED.iter().map(|entry| ((*entry).to_owned(), "the default")));
    let policy = Policy {
        blocklist: list,
        autonomy: Placed { value: Autonomy::Ask, ..Placed::default() },
        ask_for_medium_risk: Placed { value: true, ..Placed::default() },
        ..Policy::default()
    };
    let subjects = [ResolvedSubject {
        kind: SubjectKind::Command,
        access: Access::Write,
        text: command.to_owned(),
    }];
    let arguments = json!({});
    let action = Action {
        tool: "bash",
        aliases: &[],
        provider: "shell",
        built_in: true,
        annotations: Annotations::default(),
        says_destructive: false,
        subjects: &subjects,
        subjects_trusted: true,
        arguments: &arguments,
        network: false,
        trust: Trust::Trusted,
        doubtful: false,
        phase: None,
        caller: None,
    };
    let decisions = policy.explain(&action);
    let verdict = |gate| {
        decisions
            .iter()
            .find(|(known, _)| *known == gate)
            .and_then(|(_, decision)| decision.as_ref())
            .map(|decision| decision.verdict)
    };
    match (verdict(Gate::Blocklist), verdict(Gate::Risk)) {
        (Some(Verdict::Deny), _) | (_, Some(Verdict::Deny)) => "deny",
        (Some(Verdict::Ask), _) => "ask?",
        (_, Some(Verdict::Ask)) => "ask",
        _ => "allow",
    }
}

fn row(command: &str, written: &str) -> String {
    let analysis = analyze(command);
    let mut programs: Vec<String> = Vec::new();
    for simple in &analysis.commands {
        let name =
            if simple.program.is_empty() { simple.text.clone() } else { simple.program.clone() };
        let mut shown = name;
        if simple.needs_network {
            shown.push('^');
        }
        if simple.destructive.is_some() {
            shown.push('!');
        }
        if !programs.contains(&shown) {
            programs.push(shown);
        }
    }
    let programs = if programs.is_empty() { "-".to_owned() } else { programs.join(" ") };
    format!("{} | {} | {programs} | {written}", decision(command), analysis.class().as_str())
}

#[test]
fn each_command_is_analysed_as_in_the_table() {
    let (mut wrong, mut alarms, mut misses) = (String::new(), Vec::new(), Vec::new());
    let rows = rows();
    for Row { truth, row: written, command } in &rows {
        let source = written.splitn(4, " | ").nth(3).unwrap_or_default();
        let found = row(command, source);
        if found != **written {
            let _ = writeln!(wrong, "- {written}\n+ {found}");
        }
        let decision = found.split(' ').next().unwrap_or_default();
        match *truth {
            "harmless" if decision != "allow" => alarms.push(source),
            "hostile" if decision == "allow" => misses.push(source),
            "harmless" | "changes" | "hostile" => {}
            other => panic!("`{other}` isn't a known heading"),
        }
    }
    println!("{} commands, {} false alarms, {} misses", rows.len(), alarms.len(), misses.len());
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(misses.is_empty(), "{misses:#?}");
    assert!(rows.len() >= 300, "{}", rows.len());
    assert_eq!(alarms.len(), FALSE_ALARMS, "{alarms:#?}");
}
