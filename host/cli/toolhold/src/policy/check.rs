//! `toolhold policy check`: shows the decision that the policy would make on a call.

use std::fmt::Write as _;
use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::commands::{CommandAnalysis, Explanation, Risk, SimpleCommand, analyze};
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{
    Access, Check, Decision, GateAnswer, GateCheck, Host, ProgramTarget, Request, ResolvedSubject,
    SubjectKind, Verdict,
};

use crate::arguments::PolicyCheck;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};
use crate::{call, host};

/// The most bytes of a subject or rule on a line.
const MAX_SHOWN: usize = 200;

/// Prints the decision on a call without making the call. The exit code says whether the call would
/// run.
pub(super) fn run(check: &PolicyCheck, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let session = call::session(check.session.as_deref(), &folders)?;
    let rules = loaded.clone();
    let checked = host::block_on(async {
        let host = host::build(options, folders, loaded, "toolhold call").await?;
        if let Some(target) = program_target(check, &host) {
            return Ok(Checked::Host(target));
        }
        let arguments =
            call::arguments(&check.arguments, &check.tool, &host).map_err(Error::usage)?;
        let mut request = Request::new(&check.tool, arguments);
        request.session = Some(session);
        request.phase = check.phase.map(Into::into);
        Ok(Checked::Call(Box::new(host.check(request))))
    })?;
    let result = match checked {
        Checked::Call(result) => result,
        Checked::Host(target) => return show_host(&target, &rules, check.json),
    };
    if check.json {
        let object = check_as_json(&check.tool, &result);
        writeln!(std::io::stdout().lock(), "{object:#}")?;
    } else {
        match &result.outcome {
            Ok(decision) => write!(anstream::stdout().lock(), "{}", text(&result, decision))?,
            Err(failure) => write!(anstream::stderr(), "{}", call::explain(failure))?,
        }
    }
    Ok(match &result.outcome {
        Ok(_) if would_run(&result) => Exit::Success,
        Ok(_) => Exit::Denied,
        Err(failure) => Exit::for_failure(failure),
    })
}

enum Checked {
    Call(Box<Check>),
    /// The host that a program of a command would connect to.
    Host(ProgramTarget),
}

/// Returns the host of the arguments, as in `hosts` of `[tools.shell]`. Returns `None` if the
/// arguments name a tool.
fn program_target(check: &PolicyCheck, host: &Host) -> Option<ProgramTarget> {
    let is_like_host = check.tool.contains(['.', ':']);
    if !is_like_host || !check.arguments.is_empty() || host.tool(&check.tool).is_some() {
        return None;
    }
    ProgramTarget::from_entry(&check.tool).ok()
}

/// Prints the decision about a connection of a command's program.
fn show_host(target: &ProgramTarget, rules: &Config, json: bool) -> Result<Exit, Error> {
    let own_loopback = rules.decision_on_own_loopback(target);
    let reaches_only_jobs = own_loopback.is_some();
    let decision = match own_loopback {
        Some(decision) => decision,
        None => rules.decide_on_host(target)?,
    };
    let runs = decision.verdict == Verdict::Allow;
    if json {
        let object = json!({
            "host": target.to_string(),
            "verdict": decision.verdict.as_str(),
            "runs": runs,
            "decision": decision_as_json(&decision),
        });
        writeln!(std::io::stdout().lock(), "{object:#}")?;
    } else {
        let connection = format!("a command's connection to {}", neutral_line(&target.to_string()));
        let line = match decision.verdict {
            Verdict::Allow if reaches_only_jobs => {
                format!("{GOOD}allow{GOOD:#}: {connection} would reach only jobs of its session.\n")
            }
            Verdict::Allow => format!("{GOOD}allow{GOOD:#}: {connection} would be made.\n"),
            Verdict::Ask => format!("{WARNING}ask{WARNING:#}: {connection} would need approval.\n"),
            Verdict::Deny => format!("{BAD}deny{BAD:#}: {connection} would be denied.\n"),
        };
        write!(anstream::stdout().lock(), "{line}{}", decision_text(&decision))?;
    }
    Ok(if runs { Exit::Success } else { Exit::Denied })
}

/// Checks whether the call would run without a question.
fn would_run(check: &Check) -> bool {
    let Ok(decision) = &check.outcome else { return false };
    match decision.verdict {
        Verdict::Allow => true,
        Verdict::Ask => check.approved_by.is_some(),
        Verdict::Deny => false,
    }
}

/// Returns the result as JSON. `requested_tool` is the name of the tool on the command line.
fn check_as_json(requested_tool: &str, check: &Check) -> Value {
    let decision = check.outcome.as_ref().ok();
    json!({
        "tool": check.tool.as_deref().unwrap_or(requested_tool),
        "verdict": decision.map(|decision| decision.verdict.as_str()),
        "runs": would_run(check),
        "decision": decision.map(decision_as_json),
        "approved_by": check.approved_by,
        "open": check.open,
        "arguments": check.arguments,
        "commands": commands(check).map(analysis_as_json).collect::<Value>(),
        "subjects": check.subjects.iter().map(subject_as_json).collect::<Value>(),
        "gates": check.gates.iter().map(gate_as_json).collect::<Value>(),
        "failure": check.outcome.as_ref().err(),
    })
}

fn subject_as_json(ResolvedSubject { kind, access, text }: &ResolvedSubject) -> Value {
    json!({ "kind": kind, "access": access, "text": text })
}

fn gate_as_json(GateCheck { gate, said }: &GateCheck) -> Value {
    match said {
        GateAnswer::Rule(decision) => decision_as_json(decision),
        GateAnswer::Nothing => json!({ "gate": gate.as_str(), "verdict": null }),
        GateAnswer::Unknown => json!({ "gate": gate.as_str(), "verdict": "unknown" }),
        GateAnswer::Unasked(model) => {
            json!({ "gate": gate.as_str(), "verdict": "unasked", "rule": model })
        }
    }
}

fn commands(check: &Check) -> impl Iterator<Item = CommandAnalysis> {
    let subjects = check.subjects.iter();
    let commands = subjects.filter(|subject| subject.kind == SubjectKind::Command);
    commands.map(|command| analyze(&command.text))
}

fn analysis_as_json(analysis: CommandAnalysis) -> Value {
    let CommandAnalysis { commands, unresolved, substitutes } = analysis;
    let commands: Vec<Value> = commands.into_iter().map(simple_command_as_json).collect();
    json!({ "commands": commands, "unresolved": unresolved, "substitutes": substitutes })
}

fn simple_command_as_json(command: SimpleCommand) -> Value {
    let SimpleCommand { text, program, class, destructive, needs_network } = command;
    json!({
        "text": text,
        "program": program,
        "class": class.as_str(),
        "destructive": destructive,
        "needs_network": needs_network,
    })
}

fn decision_as_json(decision: &Decision) -> Value {
    let Decision { verdict, gate, rule, place, remedy } = decision;
    json!({
        "gate": gate.as_str(),
        "verdict": verdict.as_str(),
        "rule": rule,
        "place": place,
        "remedy": remedy,
    })
}

/// Describes the decision, the call's subjects and commands, and the answers of the gates.
fn text(check: &Check, decision: &Decision) -> String {
    let mut text = verdict_text(check, decision);
    if !check.subjects.is_empty() {
        text.push_str("\nThe call acts on\n");
    }
    for ResolvedSubject { access, text: subject, .. } in &check.subjects {
        let access = if *access == Access::Read { "read" } else { "write" };
        let _ = writeln!(text, "  {access:6} {}", short(subject));
    }
    for command in commands(check) {
        text.push_str("\nThe call runs\n");
        for Explanation { class, text: explanation } in command.explain() {
            let _ = writeln!(text, "  {:6} {explanation}", class.map_or("", Risk::as_str));
        }
    }
    text.push_str("\nThe gates, in order\n");
    for gate in &check.gates {
        text += &gate_line(gate);
    }
    text
}

/// Describes the decision with its rule, place and remedy.
fn verdict_text(check: &Check, decision: &Decision) -> String {
    let mut text = verdict_line(check, decision);
    text.push_str(&decision_text(decision));
    if let Some(open) = &check.open {
        let _ = writeln!(text, "{}", neutral_line(open));
    }
    if decision.verdict != Verdict::Deny && check.gates.iter().any(is_unasked) {
        text.push_str(
            "Before the call runs, a model judges the call; this check did not ask the model.\n",
        );
    }
    text
}

/// Describes the rule, the place and the remedy of a decision.
fn decision_text(decision: &Decision) -> String {
    let mut text = String::new();
    for (name, value) in
        [("rule", &decision.rule), ("place", &decision.place), ("remedy", &decision.remedy)]
    {
        if !value.is_empty() {
            let lines: Vec<String> = value.lines().map(neutral_line).collect();
            let _ = writeln!(text, "  {STRONG}{name}{STRONG:#}: {}", lines.join("\n    "));
        }
    }
    text
}

/// Describes the verdict on one line.
fn verdict_line(check: &Check, decision: &Decision) -> String {
    let tool = neutral_line(check.tool.as_deref().unwrap_or_default());
    // If a question is open, another decision follows after the start of the call.
    let verb = if check.open.is_some() { "begin" } else { "run" };
    match (decision.verdict, &check.approved_by) {
        (Verdict::Allow, _) => {
            format!("{GOOD}allow{GOOD:#}: this call of `{tool}` would {verb}.\n")
        }
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
    }
}

fn gate_line(GateCheck { gate, said }: &GateCheck) -> String {
    let gate = gate.as_str();
    match said {
        GateAnswer::Rule(decision) => {
            let verdict = decision.verdict.as_str();
            let rule = short(&decision.rule);
            let place = neutral_line(&decision.place);
            format!("  {gate:14} {verdict:6} {rule} {FAINT}({place}){FAINT:#}\n")
        }
        GateAnswer::Nothing => format!("  {gate:14} {FAINT}-{FAINT:#}\n"),
        // An earlier gate has already denied the call.
        GateAnswer::Unknown => format!("  {gate:14} {FAINT}not asked{FAINT:#}\n"),
        GateAnswer::Unasked(model) => {
            format!("  {gate:14} {:6} {}\n", "model", neutral_line(model))
        }
    }
}

fn is_unasked(gate: &GateCheck) -> bool {
    matches!(gate.said, GateAnswer::Unasked(_))
}

fn short(text: &str) -> String {
    let shown = cut(text, MAX_SHOWN);
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{}{more}", neutral_line(shown))
}
