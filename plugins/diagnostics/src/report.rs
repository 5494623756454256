//! The answer: the diagnostics of all checkers, and what became of each checker.

use std::fmt::Write;

use berth_sdk::{Content, add_notice};
use schemars::JsonSchema;
use serde::Serialize;

use crate::checker::Checker;
use crate::finding::{Collector, Finding, Severity, one_line};

/// A checker that was tried.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) checker: Checker,
    command: String,
    pub(crate) state: State,
    pub(crate) detail: Option<String>,
    /// The findings, each with whether it is new.
    pub(crate) findings: Vec<(Finding, bool)>,
    left_out: usize,
}

/// What became of a checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It has checked everything.
    Ran,
    /// It wrote too much and was stopped.
    Cut,
    /// It took too long and was stopped.
    Timeout,
    /// It isn't installed.
    Missing,
    /// A rule or a person refused it.
    Refused,
    /// It failed, so it says nothing of the project.
    Failed,
}

impl Ran {
    pub(crate) fn new(
        checker: Checker,
        command: &[String],
        collector: Collector,
        state: State,
        detail: Option<String>,
    ) -> Self {
        let left_out = collector.left_out;
        let findings = collector.findings.into_iter().map(|finding| (finding, true)).collect();
        Self { checker, command: command.join(" "), state, detail, findings, left_out }
    }

    /// Whether it says something of the project.
    pub(crate) fn has_checked(&self) -> bool {
        match self.state {
            State::Ran => true,
            // What it didn't come to may have any number of errors.
            State::Cut | State::Timeout => !self.findings.is_empty(),
            State::Missing | State::Refused | State::Failed => false,
        }
    }
}

/// The answer for programs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The diagnostics: errors first, then by file and line.
    diagnostics: Vec<Finding>,
    /// How many there are, with those that are left out here.
    total: usize,
    /// How many of them are errors.
    errors: usize,
    /// How many of them are warnings.
    warnings: usize,
    /// How many of the last call in this folder are gone. Only with `only_new`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<usize>,
    /// What became of each checker.
    checkers: Vec<CheckerAnswer>,
}

/// What became of a checker.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckerAnswer {
    /// Its name.
    name: &'static str,
    /// The command.
    command: String,
    /// `ran`, or why it says not everything.
    state: State,
    /// More about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The answer, for models and for programs. `gone`: with `only_new`, how many are gone.
pub(crate) fn answer(ran: Vec<Ran>, most: usize, gone: Option<usize>) -> (Content, Answer) {
    let (mut findings, mut left_out, mut checkers) = (Vec::new(), 0, Vec::new());
    for ran in ran {
        left_out += ran.left_out;
        let shown = ran.findings.into_iter().filter(|(_, is_new)| *is_new || gone.is_none());
        findings.extend(shown.map(|(finding, _)| finding));
        let Ran { checker, command, state, detail, .. } = Ran { findings: Vec::new(), ..ran };
        checkers.push(CheckerAnswer { name: checker.name(), command, state, detail });
    }
    findings.sort_by(|one, other| order(one).cmp(&order(other)));
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let total = findings.len() + left_out;
    findings.truncate(most);
    let answer = Answer { diagnostics: findings, total, errors, warnings, gone, checkers };
    // The project's sources, and programs that they configure, write what a checker says.
    let says_something = !answer.diagnostics.is_empty()
        || answer.checkers.iter().any(|checker| checker.state == State::Failed);
    let text = text(&answer);
    (if says_something { Content::untrusted(text) } else { Content::text(text) }, answer)
}

/// What findings are sorted by.
fn order(finding: &Finding) -> impl Ord + '_ {
    let Finding { severity, path, line, column, .. } = finding;
    // What belongs to no file concerns all.
    (*severity, path.as_deref(), *line, *column, &*finding.message)
}

/// Adds `FILE:LINE:COLUMN: LEVEL: MESSAGE [CODE]`, and a line with the suggestion.
pub(crate) fn add_line(text: &mut String, finding: &Finding) {
    let Finding { path, line, column, severity, code, message, suggestion, .. } = finding;
    if let Some(path) = path {
        text.push_str(path);
        for number in [line, column].into_iter().map_while(|number| *number) {
            let _ = write!(text, ":{number}");
        }
        text.push_str(": ");
    }
    let _ = write!(text, "{}: {message}", severity.as_str());
    if let Some(code) = code {
        let _ = write!(text, " [{code}]");
    }
    text.push('\n');
    if let Some(suggestion) = suggestion {
        let _ = writeln!(text, "    {suggestion}");
    }
}

fn text(answer: &Answer) -> String {
    let Answer { diagnostics, total, errors, warnings, gone, checkers } = answer;
    let mut text = String::new();
    diagnostics.iter().for_each(|finding| add_line(&mut text, finding));
    let checked: Vec<&str> = checkers
        .iter()
        .filter(|checker| match checker.state {
            State::Ran => true,
            State::Cut | State::Timeout => *total > 0,
            State::Missing | State::Refused | State::Failed => false,
        })
        .map(|checker| checker.name)
        .collect();
    let new = if gone.is_some() { "new " } else { "" };
    if !checked.is_empty() {
        let by = checked.join(", ");
        if *total == 0 {
            let _ = writeln!(text, "No {new}diagnostics ({by}).");
        } else {
            let counts = [counted(*errors, "error"), counted(*warnings, "warning")].join(", ");
            let new = if gone.is_some() { ", new since the last call" } else { "" };
            let _ = writeln!(text, "{counts}{new} ({by}).");
        }
    }
    if *total > diagnostics.len() {
        let notice = format!(
            "{} of {total} diagnostics are shown. To see more, fix these first, or set a higher `max`.",
            diagnostics.len()
        );
        add_notice(&mut text, &notice);
    }
    if let Some(gone @ 1..) = gone {
        add_notice(&mut text, &format!("{} gone since the last call.", are(*gone)));
    }
    for CheckerAnswer { name, state, detail, .. } in checkers {
        let what = match state {
            State::Ran => continue,
            State::Cut | State::Timeout => "didn't finish",
            State::Missing => "isn't installed",
            State::Refused => "was not run",
            State::Failed => "failed",
        };
        let detail = detail.as_deref().map(|detail| format!(": {}", one_line(detail, 2_000)));
        add_notice(&mut text, &format!("{name} {what}{}", detail.unwrap_or_default()));
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn are(count: usize) -> String {
    if count == 1 { "1 diagnostic is".to_owned() } else { format!("{count} diagnostics are") }
}
