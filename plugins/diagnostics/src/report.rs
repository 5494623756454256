//! Writes the answer of `diagnostics`: the findings of all checkers, and what became of each
//! checker.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use toolhold_sdk::{Content, add_notice};

use crate::checker::Checker;
use crate::finding::{Collector, Finding, Severity, one_line};
use crate::project::{self, Other};

/// A checker that was tried.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) checker: Checker,
    command: String,
    pub(crate) state: State,
    pub(crate) detail: Option<String>,
    /// The remedy.
    pub(crate) hint: Option<&'static str>,
    /// The findings, each with whether it is new.
    pub(crate) findings: Vec<(Finding, bool)>,
    left_out: usize,
}

/// How a checker ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) state: State,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<&'static str>,
}

impl Ended {
    pub(crate) const fn new(state: State, detail: Option<String>) -> Self {
        Self { state, detail, hint: None }
    }
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
        commands: &[Vec<String>],
        collector: Collector,
        ended: Ended,
    ) -> Self {
        let left_out = collector.left_out;
        let findings = collector.findings.into_iter().map(|finding| (finding, true)).collect();
        let commands: Vec<String> = commands
            .iter()
            .map(|words| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
            .collect();
        let Ended { state, detail, hint } = ended;
        Self { checker, command: commands.join("; "), state, detail, hint, findings, left_out }
    }

    /// Whether it says something of the project.
    pub(crate) fn has_checked(&self) -> bool {
        match self.state {
            State::Ran => true,
            // The unchecked files may have any number of errors.
            _ => !self.findings.is_empty(),
        }
    }
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("'{}'", word.replace('\'', r"'\''")) } else { word.to_owned() }
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
    /// Projects in folders below that no checker has checked: the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked: Vec<Other>,
}

/// What became of a checker.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckerAnswer {
    /// Its name.
    name: &'static str,
    /// The command, or several with `; ` between them.
    command: String,
    /// `ran`, or why it says not everything.
    state: State,
    /// More about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Whether it says something of the project.
    #[serde(skip)]
    has_checked: bool,
}

/// The answer, for models and for programs. `gone`: with `only_new`, how many are gone. `others`:
/// the projects below that aren't checked, and whether there are more.
pub(crate) fn answer(
    ran: Vec<Ran>,
    most: usize,
    gone: Option<usize>,
    others: (Vec<Other>, bool),
) -> (Content, Answer) {
    let mut findings = Vec::new();
    let mut left_out = 0;
    let mut checkers = Vec::new();
    for ran in ran {
        left_out += ran.left_out;
        let has_checked = ran.has_checked();
        let shown = ran.findings.into_iter().filter(|(_, is_new)| *is_new || gone.is_none());
        findings.extend(shown.map(|(finding, _)| finding));
        let Ran { checker, command, state, detail, hint, .. } = Ran { findings: Vec::new(), ..ran };
        let detail = match (detail, hint) {
            (Some(detail), Some(hint)) => Some(ended_sentence(&detail) + " " + hint),
            (detail, _) => detail,
        };
        let name = checker.name();
        checkers.push(CheckerAnswer { name, command, state, detail, has_checked });
    }
    findings.sort_by(|one, other| order(one).cmp(&order(other)));
    let errors = count(&findings, Severity::Error);
    let warnings = count(&findings, Severity::Warning);
    let total = findings.len() + left_out;
    findings.truncate(most);
    let named = project::named(&others);
    let answer = Answer {
        diagnostics: findings,
        total,
        errors,
        warnings,
        gone,
        checkers,
        unchecked: others.0,
    };
    let says_something = !answer.diagnostics.is_empty()
        || !answer.unchecked.is_empty()
        || answer.checkers.iter().any(quotes);
    let mut text = text(&answer);
    if !named.is_empty() {
        let notice = "There are other projects below, which weren't checked";
        add_notice(&mut text, &format!("{notice}: {named}. To check one, set `path` to it."));
    }
    (if says_something { Content::untrusted(text) } else { Content::text(text) }, answer)
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

/// Whether the answer quotes the output of a checker. The project's sources and names, and programs
/// that they configure, decide on this output.
fn quotes(checker: &CheckerAnswer) -> bool {
    match checker.state {
        State::Ran => checker.detail.is_some(),
        state => matches!(state, State::Failed | State::Refused),
    }
}

/// The key by which findings are sorted.
fn order(finding: &Finding) -> impl Ord + '_ {
    let Finding { severity, path, line, column, .. } = finding;
    // A finding without a file concerns all files.
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
    let Answer { diagnostics, total, errors, warnings, gone, checkers, .. } = answer;
    let mut text = String::new();
    diagnostics.iter().for_each(|finding| add_line(&mut text, finding));
    let checked: Vec<&str> =
        checkers.iter().filter(|checker| checker.has_checked).map(|checker| checker.name).collect();
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
            State::Ran if detail.is_none() => continue,
            State::Ran => "checked only a part",
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

/// A sentence with its end.
pub(crate) fn ended_sentence(text: &str) -> String {
    let is_ended = text.ends_with(['.', '!', '?', '…']);
    if is_ended { text.to_owned() } else { format!("{text}.") }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn are(count: usize) -> String {
    if count == 1 { "1 diagnostic is".to_owned() } else { format!("{count} diagnostics are") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checker_that_found_nothing_before_its_end_has_not_checked() {
        let finding = Finding {
            path: None,
            line: None,
            column: None,
            severity: Severity::Warning,
            code: None,
            message: "unused".to_owned(),
            checker: "cargo",
            suggestion: None,
        };
        let ran = |checker, state, findings: Vec<Finding>| {
            let findings = findings.into_iter().map(|finding| (finding, true)).collect();
            let (command, detail, hint) = (String::new(), None, None);
            Ran { checker, command, state, detail, hint, findings, left_out: 0 }
        };
        let all = vec![
            ran(Checker::Cargo, State::Ran, vec![finding.clone()]),
            ran(Checker::Tsc, State::Timeout, vec![finding]),
            ran(Checker::Ruff, State::Timeout, Vec::new()),
        ];
        let text = answer(all, 50, None, (Vec::new(), false))
            .0
            .as_text()
            .expect("it is a text")
            .to_owned();
        assert!(text.contains("0 errors, 2 warnings (cargo, tsc).\n"), "{text}");
        assert!(text.contains("[ruff didn't finish]"), "{text}");
    }
}
