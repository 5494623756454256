//! `toolhold policy check`: what would happen to a call.

use std::fmt::Write as _;
use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::commands::{CommandAnalysis, Explanation, Risk, SimpleCommand, analyze};
use toolhold_core::config::Folders;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{
    Access, Check, Decision, GateAnswer, GateCheck, Request, ResolvedSubject, SubjectKind, Verdict,
};

use crate::arguments::PolicyCheck;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};
use crate::{call, host};

/// Bytes of a subject or a rule in a line of the list.
const MAX_SHOWN: usize = 200;

/// Runs the command.
pub(super) fn run(check: &PolicyCheck, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let session = call::session(check.session.as_deref(), &folders)?;
    let found = host::block_on(async {
        let host = host::build(options, folders, loaded, "toolhold call").await?;
        let arguments =
            call::arguments(&check.arguments, &check.tool, &host).map_err(Error::usage)?;
        let session = Some(session);
        let phase = check.phase.map(Into::into);
        Ok(host.check(Request { session, phase, ..Request::new(&check.tool, arguments) }))
    })?;
    match (check.json, &found.outcome) {
        (true, _) => writeln!(std::io::stdout().lock(), "{:#}", object(&check.tool, &found))?,
        (false, Ok(decision)) => write!(anstream::stdout().lock(), "{}", text(&found, decision))?,
        (false, Err(failure)) => write!(anstream::stderr(), "{}", call::explain(failure))?,
    }
    Ok(match &found.outcome {
        Ok(_) if runs(&found) => Exit::Success,
        Ok(_) => Exit::Denied,
        Err(failure) => Exit::for_failure(failure),
    })
}

/// Whether the call would run without approval.
fn runs(found: &Check) -> bool {
    let verdict = found.outcome.as_ref().map(|decision| decision.verdict);
    verdict == Ok(Verdict::Allow) || (verdict == Ok(Verdict::Ask) && found.approved_by.is_some())
}

fn object(asked: &str, found: &Check) -> Value {
    json!({
        "tool": found.tool.as_deref().unwrap_or(asked),
        "verdict": found.outcome.as_ref().ok().map(|decision| decision.verdict.as_str()),
        "runs": runs(found),
        "decision": found.outcome.as_ref().ok().map(rule),
        "approved_by": found.approved_by,
        "open": found.open,
        "arguments": found.arguments,
        "commands": commands(found).map(analysis_json).collect::<Value>(),
        "subjects": found.subjects.iter().map(subject).collect::<Value>(),
        "gates": found.gates.iter().map(gate).collect::<Value>(),
        "failure": found.outcome.as_ref().err(),
    })
}

fn subject(ResolvedSubject { kind, access, text }: &ResolvedSubject) -> Value {
    json!({ "kind": kind, "access": access, "text": text })
}

fn gate(GateCheck { gate, said }: &GateCheck) -> Value {
    match said {
        GateAnswer::Rule(decision) => rule(decision),
        GateAnswer::Nothing => json!({ "gate": gate.as_str(), "verdict": null }),
        GateAnswer::Unknown => json!({ "gate": gate.as_str(), "verdict": "unknown" }),
        GateAnswer::Unasked(model) => {
            json!({ "gate": gate.as_str(), "verdict": "unasked", "rule": model })
        }
    }
}

/// The commands that it acts on, with their analysis.
fn commands(found: &Check) -> impl Iterator<Item = CommandAnalysis> {
    found
        .subjects
        .iter()
        .filter(|subject| subject.kind == SubjectKind::Command)
        .map(|subject| analyze(&subject.text))
}

fn analysis_json(CommandAnalysis { commands, unresolved, substitutes }: CommandAnalysis) -> Value {
    let commands: Vec<Value> = commands.into_iter().map(simple_command).collect();
    json!({ "commands": commands, "unresolved": unresolved, "substitutes": substitutes })
}

fn simple_command(command: SimpleCommand) -> Value {
    let SimpleCommand { text, program, class, destructive, needs_network } = command;
    json!({
        "text": text,
        "program": program,
        "class": class.as_str(),
        "destructive": destructive,
        "needs_network": needs_network,
    })
}

fn rule(Decision { verdict, gate, rule, place, remedy }: &Decision) -> Value {
    json!({ "gate": gate.as_str(), "verdict": verdict.as_str(), "rule": rule, "place": place, "remedy": remedy })
}

fn text(found: &Check, decision: &Decision) -> String {
    let tool = neutral_line(found.tool.as_deref().unwrap_or_default());
    let run = if found.open.is_some() { "begin" } else { "run" };
    let mut text = match (decision.verdict, &found.approved_by) {
        (Verdict::Allow, _) => format!("{GOOD}allow{GOOD:#}: this call of `{tool}` would {run}.\n"),
        (Verdict::Ask, None) => {
            format!("{WARNING}ask{WARNING:#}: this call of `{tool}` would need approval.\n")
        }
        (Verdict::Ask, Some(by)) => {
            format!(
                "{GOOD}allow{GOOD:#}: this call of `{tool}` would run, because it was approved for \
                 the session ({}).\n",
                neutral_line(by)
            )
        }
        (Verdict::Deny, _) => {
            format!("{BAD}deny{BAD:#}: this call of `{tool}` would be denied.\n")
        }
    };
    for (name, value) in
        [("rule", &decision.rule), ("place", &decision.place), ("remedy", &decision.remedy)]
    {
        if !value.is_empty() {
            let lines: Vec<String> = value.lines().map(neutral_line).collect();
            let _ = writeln!(text, "  {STRONG}{name}{STRONG:#}: {}", lines.join("\n    "));
        }
    }
    text.extend(found.open.iter().map(|open| format!("{}\n", neutral_line(open))));
    if decision.verdict != Verdict::Deny && found.gates.iter().any(is_unasked) {
        text.push_str("Before that, a model judges the call; the model was not asked now.\n");
    }
    if !found.subjects.is_empty() {
        text.push_str("\nThe call acts on\n");
    }
    for ResolvedSubject { access, text: subject, .. } in &found.subjects {
        let access = if *access == Access::Read { "read" } else { "write" };
        let _ = writeln!(text, "  {access:6} {}", short(subject));
    }
    for command in commands(found) {
        text.push_str("\nThe call runs\n");
        for Explanation { class, text: told } in command.explain() {
            let _ = writeln!(text, "  {:6} {told}", class.map_or("", Risk::as_str));
        }
    }
    text.push_str("\nThe gates, in order\n");
    for GateCheck { gate, said } in &found.gates {
        let gate = gate.as_str();
        let _ = match said {
            GateAnswer::Rule(decision) => {
                let rule = short(&decision.rule);
                let place = neutral_line(&decision.place);
                writeln!(
                    text,
                    "  {gate:14} {:6} {rule} {FAINT}({place}){FAINT:#}",
                    decision.verdict.as_str()
                )
            }
            GateAnswer::Nothing => writeln!(text, "  {gate:14} {FAINT}-{FAINT:#}"),
            GateAnswer::Unknown => writeln!(text, "  {gate:14} {FAINT}not asked{FAINT:#}"),
            GateAnswer::Unasked(model) => {
                writeln!(text, "  {gate:14} {:6} {}", "model", neutral_line(model))
            }
        };
    }
    text
}

fn is_unasked(gate: &GateCheck) -> bool {
    matches!(gate.said, GateAnswer::Unasked(_))
}

fn short(text: &str) -> String {
    let short = cut(text, MAX_SHOWN);
    format!("{}{}", neutral_line(short), if short.len() < text.len() { "…" } else { "" })
}
