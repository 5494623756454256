//! What is recorded of a call.

use berth_contract::{Access, Category, Content, Failure, Outcome, Requested, SubjectKind};
use berth_policy::egress::Target;
use berth_policy::{ActedOn, Decision, Gate, Verdict};

use super::chain::Key;
use super::line::Line;
use crate::approvals::Question;
use crate::facts::Facts;

/// Bytes of a name, of a rule or a place, of a text that tells something, and of a subject.
const NAME: usize = 128;
const RULE: usize = 512;
const TEXT: usize = 512;
const SUBJECT: usize = 256;

/// Bytes of a URL.
const URL: usize = 2048;

/// Subjects that are listed. The arguments have all of them.
const SUBJECTS: usize = 8;

/// What is about to be done.
pub(super) fn intent(key: &Key, facts: &Facts, front_end: &str) -> Vec<u8> {
    let mut line = Line::new("intent", key);
    call(&mut line, facts, front_end);
    line.into_bytes()
}

/// What a person said.
pub(super) fn approval(key: &Key, facts: &Facts, front_end: &str, by: &str, answer: &str, scope: Option<&str>) -> Vec<u8> {
    let mut line = Line::new("approval", key);
    call(&mut line, facts, front_end);
    answered(&mut line, by, answer, scope);
    line.into_bytes()
}

/// What a person said to a question that was left for them.
pub(super) fn said(key: &Key, question: &Question, front_end: &str, by: &str, answer: &str, scope: Option<&str>) -> Vec<u8> {
    let mut line = Line::new("approval", key);
    // Behind the kind, where the records of a call are looked for.
    line.plain("call", &question.id.0, NAME);
    answered(&mut line, by, answer, scope);
    line.plain("tool", &question.tool, NAME);
    line.plain("provider", &question.provider, NAME);
    line.arguments("arguments", &question.arguments);
    subjects(&mut line, &question.subjects);
    let Decision { verdict, gate, rule, place, .. } = &question.decision;
    decision(&mut line, *verdict, *gate, rule, place);
    line.text("session", &question.session, NAME);
    if let Some(caller) = &question.caller {
        line.text("caller_id", caller, NAME);
    }
    line.plain("front_end", front_end, NAME);
    line.into_bytes()
}

/// What came of it.
pub(super) fn outcome(key: &Key, facts: &Facts, front_end: &str, outcome: &Outcome) -> Vec<u8> {
    let mut line = Line::new("outcome", key);
    call(&mut line, facts, front_end);
    let failure = outcome.as_ref().err();
    line.word("result", result(failure));
    if let Some(failure) = failure {
        line.word("error_category", failure.category.as_str());
        line.optional("error_code", failure.code.as_deref(), NAME);
        line.text("error", &failure.message, TEXT);
    }
    // What is refused before it comes to the gates is refused by the grants.
    let by_grants = failure.and_then(|failure| failure.denial.as_ref()).filter(|_| facts.decision.is_none());
    if let Some(denial) = by_grants {
        decision(&mut line, Verdict::Deny, Gate::Grants, &denial.rule, &denial.place);
    }
    let parts = match outcome {
        Ok(output) => &output.content,
        Err(failure) => &failure.content,
    };
    line.number("bytes", parts.iter().map(Content::len).sum::<usize>() as u64);
    line.time("duration_ms", facts.since.elapsed());
    if !facts.waited.is_zero() {
        line.time("waited_ms", facts.waited);
    }
    if facts.attempts > 1 {
        line.number("attempts", facts.attempts.into());
    }
    line.flag("cached", facts.cached);
    line.flag("truncated", facts.truncated);
    if let Some(filtered) = &facts.filtered {
        line.plain("filtered_by", &filtered.filters.join(","), RULE);
        line.word("filter_confidence", filtered.confidence.as_str());
        let [lines, shown_lines] = filtered.lines;
        let [whole, shown] = filtered.bytes;
        let counts = [("whole_lines", lines), ("shown_lines", shown_lines), ("whole_bytes", whole), ("shown_bytes", shown)];
        counts.into_iter().for_each(|(key, count)| line.number(key, count));
    }
    line.words("injection_flagged", &facts.injections);
    told(&mut line, facts);
    line.into_bytes()
}

/// The requests that a call has made or was refused, one record each; those beside them are counted in one more.
pub(super) fn requests(key: &Key, facts: &Facts, front_end: &str, requests: &[Requested], more: u64) -> Vec<Vec<u8>> {
    let begin = || {
        let mut line = Line::new("egress", key);
        line.word("call", &facts.id.0);
        tool(&mut line, facts);
        line
    };
    let end = |mut line: Line<'_>| {
        line.text("session", facts.session.name(), NAME);
        if let Some(caller) = &facts.caller {
            line.text("caller_id", caller, NAME);
        }
        line.plain("front_end", front_end, NAME);
        line.into_bytes()
    };
    let one = |request: &Requested| {
        let mut line = begin();
        line.moment("began", request.began);
        line.plain("method", &request.method, NAME);
        // What secrets may stand in was taken out where it was sent; what else has their form is, here.
        line.text("url", &request.url, URL);
        if let Ok(target) = Target::of(&request.url) {
            line.plain("host", &target.host.to_string(), RULE);
        }
        if request.hop > 0 {
            line.number("hop", request.hop.into());
        }
        if let Some(address) = request.address {
            line.plain("address", &address.to_string(), NAME);
        }
        if let Some(status) = request.status {
            line.number("status", status.into());
        }
        line.word(
            "result",
            if request.refused {
                "blocked"
            } else if request.failed.is_some() {
                "error"
            } else {
                "success"
            },
        );
        if let Some(reason) = &request.failed {
            line.text("reason", reason, TEXT);
        }
        if !request.secrets.is_empty() {
            line.plain("secrets", &request.secrets.join(", "), RULE);
        }
        line.number("response_bytes", request.received);
        line.time("duration_ms", request.time);
        end(line)
    };
    let counted = (more > 0).then(|| {
        let mut line = begin();
        line.number("more_requests", more);
        end(line)
    });
    requests.iter().map(one).chain(counted).collect()
}

/// What a record of any kind says of a call.
fn call(line: &mut Line<'_>, facts: &Facts, front_end: &str) {
    line.word("call", &facts.id.0);
    tool(line, facts);
    if let Some(source) = claim_source(facts) {
        line.word("claim_source", source);
    }
    line.arguments("arguments", &facts.arguments);
    subjects(line, &facts.subjects);
    if !facts.attachments.is_empty() {
        line.number("attachments", facts.attachments.len() as u64);
    }
    if let Some(Decision { verdict, gate, rule, place, .. }) = &facts.decision {
        decision(line, *verdict, *gate, rule, place);
    }
    if let Some(approval) = &facts.approval {
        line.plain("approved_by", &approval.by, NAME);
        line.word("approval_scope", approval.scope.as_str());
    }
    line.text("session", facts.session.name(), NAME);
    if let Some(caller) = &facts.caller {
        line.text("caller_id", caller, NAME);
    }
    line.optional("phase", facts.phase.map(berth_policy::Phase::as_str), NAME);
    line.word("trust", facts.trust.as_str());
    line.plain("front_end", front_end, NAME);
}

/// The tool, and what offers it.
fn tool(line: &mut Line<'_>, facts: &Facts) {
    match &facts.tool {
        Some(tool) => {
            line.plain("tool", &tool.definition.name, NAME);
            match &tool.plugin {
                Some(plugin) => {
                    line.plain("plugin", &plugin.info().manifest.name, NAME);
                    line.word("digest", &plugin.info().digest);
                }
                None => line.plain("provider", tool.provider.name(), NAME),
            }
        }
        // No tool has this name.
        None => line.text("asked", &facts.asked, NAME),
    }
}

fn answered(line: &mut Line<'_>, by: &str, answer: &str, scope: Option<&str>) {
    line.word("answer", answer);
    line.plain("approved_by", by, NAME);
    line.optional("approval_scope", scope, NAME);
}

fn subjects(line: &mut Line<'_>, subjects: &[ActedOn]) {
    let told = subjects.iter().take(SUBJECTS).map(|subject| (kind(subject.kind), access(subject.access), subject.text.as_str()));
    line.list("subjects", ["kind", "access", "text"], told, SUBJECT);
}

fn decision(line: &mut Line<'_>, verdict: Verdict, gate: Gate, rule: &str, place: &str) {
    line.word("verdict", verdict.as_str());
    line.word("gate", gate.as_str());
    // What a rule is about may be a secret.
    line.text("rule", rule, RULE);
    line.plain("place", place, RULE);
}

/// What the provider told beside the outcome.
fn told(line: &mut Line<'_>, facts: &Facts) {
    let told = facts.report.told();
    let runs_commands = facts.subjects.iter().any(|subject| subject.kind == SubjectKind::Command);
    match told.exit_code {
        Some(code) => line.code("exit_code", code),
        // A command always has one: this one ended by no code of its own, or never ran.
        None if runs_commands => line.code("exit_code", -1),
        None => {}
    }
    // Those of the gates stand in the decision.
    if let Some(denial) = &told.denial {
        line.number("denials", told.denials);
        line.text("denied", &denial.action, TEXT);
        line.text("denied_by", &denial.rule, RULE);
        line.plain("denied_at", &denial.place, RULE);
    }
}

fn result(failure: Option<&Failure>) -> &'static str {
    let Some(failure) = failure else { return "success" };
    match failure.category {
        Category::PolicyBlocked | Category::ConfirmationRequired => "blocked",
        // A bound of the operator's, not the other side's.
        Category::RateLimited if failure.denial.is_some() => "blocked",
        Category::Timeout => "timeout",
        Category::Cancelled => "cancelled",
        _ => "error",
    }
}

/// What the answer's claims come from, by what the tool acts on.
fn claim_source(facts: &Facts) -> Option<&'static str> {
    let tool = facts.tool.as_ref()?;
    let has = |is: fn(SubjectKind) -> bool| tool.definition.subjects.iter().any(|subject| is(subject.kind));
    if has(|kind| kind == SubjectKind::Command) {
        Some("shell")
    } else if has(|kind| kind == SubjectKind::Url) {
        Some("web_scrape")
    } else if has(SubjectKind::is_path) {
        Some("file_system")
    } else {
        None
    }
}

fn kind(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Path => "path",
        SubjectKind::Name => "name",
        SubjectKind::Url => "url",
        SubjectKind::Command => "command",
        SubjectKind::Text => "text",
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}
