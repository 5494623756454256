//! What commands are taken for: a table that people read, row by row.

use std::fmt::Write;

use berth_contract::{Access, Annotations, SubjectKind};
use serde_json::json;

use berth_policy::commands::analyze;
use berth_policy::{
    Action, Blocklist, DEFAULT_BLOCKED, Gate, Placed, Policy, ResolvedSubject, Trust, Verdict,
};

/// Rows of `decision | class | programs | command`, under headings that say what the commands are
/// in truth.
const TABLE: &str = include_str!("commands/table.txt");

/// Harmless commands that ask, by the number that there are. Each is a nuisance, and each more of
/// them a defect.
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

/// What the gates say of a command by themselves, in the default configuration, where nothing else
/// asks for it.
fn decision(command: &str) -> &'static str {
    let list =
        Blocklist::new(DEFAULT_BLOCKED.iter().map(|entry| ((*entry).to_owned(), "the default")));
    let policy = Policy { blocklist: list, strict_parse: Placed::default(), ..Policy::default() };
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
        subjects: &subjects,
        subjects_believed: true,
        arguments: &arguments,
        trust: Trust::Trusted,
        phase: None,
        caller: None,
    };
    let said = policy.explain(&action);
    let of = |gate| {
        said.iter()
            .find(|(known, _)| *known == gate)
            .and_then(|(_, said)| said.as_ref())
            .map(|said| said.verdict)
    };
    match (of(Gate::Blocklist), of(Gate::Risk)) {
        (Some(Verdict::Deny), _) | (_, Some(Verdict::Deny)) => "deny",
        (Some(Verdict::Ask), _) => "ask?",
        (_, Some(Verdict::Ask)) => "ask",
        _ => "allow",
    }
}

fn row(command: &str, written: &str) -> String {
    let looked = analyze(command);
    let mut programs: Vec<String> = Vec::new();
    for simple in &looked.commands {
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
    format!("{} | {} | {programs} | {written}", decision(command), looked.class().as_str())
}

#[test]
fn every_command_is_taken_for_what_the_table_says() {
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
            other => panic!("`{other}` is no kind of commands"),
        }
    }
    println!("{} commands, {} false alarms, {} misses", rows.len(), alarms.len(), misses.len());
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(misses.is_empty(), "{misses:#?}");
    assert!(rows.len() >= 300, "{}", rows.len());
    assert_eq!(alarms.len(), FALSE_ALARMS, "{alarms:#?}");
}
