//! The strategies that a rule can name, their parameters, and how they run on an output.

mod annotated;
mod dedup;
mod frames;
mod git_diff;
mod git_status;
mod group;
mod json_report;
mod list_similar;
mod noise;
mod tests_run;
mod truncate;

use std::borrow::Cow;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use crate::guard::{self, Level};
use crate::text;

/// The greatest number of characters of a regular expression.
pub const MAX_REGEX: usize = 512;
/// The greatest size of a compiled expression in bytes. A short expression can become a large
/// automaton.
const MAX_PROGRAM: usize = 1024 * 1024;
/// The smallest number of saved bytes for which an output is rewritten.
const LEAST_SAVED: usize = 16;
/// The number of lines up to which the output of a failed command stays whole if no step knows its
/// form.
const SHORT: usize = 80;

/// A strategy with its parameters, as a rule names it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Strategy {
    /// Leaves out lines that match.
    StripNoise(noise::StripNoise),
    /// Leaves out the middle of long outputs and lines.
    Truncate(truncate::Truncate),
    /// Leaves out lines that don't match.
    KeepMatching(noise::KeepMatching),
    /// Leaves out notes and lines that match, moves the summary to the start, and leaves out the
    /// middle if the rest is still long.
    StripAnnotated(annotated::StripAnnotated),
    /// Leaves out tests that passed.
    TestSummary(tests_run::TestSummary),
    /// Shows each message of a compiler or linter once, with all its places.
    GroupByRule(group::GroupByRule),
    /// Shows the state of a repository in few lines.
    GitStatus(git_status::GitStatus),
    /// Gives each file of a long diff its share of lines.
    GitDiff(git_diff::GitDiff),
    /// Folds stack frames of dependencies and runtimes.
    FoldFrames(frames::FoldFrames),
    /// Shows what failed in a report in JSON.
    JsonReport(json_report::JsonReport),
    /// Leaves out lines that differ from others only in times, addresses and numbers, and says how.
    Dedup(dedup::Dedup),
    /// Lists what differs in lines that follow each other and are alike otherwise.
    ListSimilar(list_similar::ListSimilar),
}

impl Strategy {
    /// The name in a rule.
    pub fn name(&self) -> &'static str {
        match self {
            Self::StripNoise(_) => "strip_noise",
            Self::Truncate(_) => "truncate",
            Self::KeepMatching(_) => "keep_matching",
            Self::StripAnnotated(_) => "strip_annotated",
            Self::TestSummary(_) => "test_summary",
            Self::GroupByRule(_) => "group_by_rule",
            Self::GitStatus(_) => "git_status",
            Self::GitDiff(_) => "git_diff",
            Self::FoldFrames(_) => "fold_frames",
            Self::JsonReport(_) => "json_report",
            Self::Dedup(_) => "dedup",
            Self::ListSimilar(_) => "list_similar",
        }
    }
}

/// A step of a rule, as the rule has it.
#[derive(Debug, Deserialize)]
pub struct StepForm {
    /// The commands that ask for what the strategy leaves out: `pytest -s`.
    #[serde(default)]
    unless: Vec<String>,
    /// The only commands for which the step is used. Where it is empty: all.
    #[serde(default)]
    when: Vec<String>,
    /// The strategy.
    #[serde(flatten)]
    pub strategy: Strategy,
}

/// A strategy that is ready to run.
pub struct Step {
    strategy: Box<dyn Run>,
    unless: Option<Patterns>,
    when: Option<Patterns>,
    /// Whether it treats warnings as errors, which no pattern can leave out.
    keeps_warnings: bool,
}

impl Step {
    /// Checks the parameters, and compiles the expressions.
    ///
    /// # Errors
    ///
    /// If a parameter isn't valid. The message is for the operator.
    pub fn new(form: &StepForm) -> Result<Self, String> {
        let name = form.strategy.name();
        let unless = commands("unless", &form.unless).map_err(|what| format!("{name}: {what}"))?;
        let when = commands("when", &form.when).map_err(|what| format!("{name}: {what}"))?;
        let step: Result<Box<dyn Run>, String> = match &form.strategy {
            Strategy::StripNoise(it) => it.step(),
            Strategy::Truncate(it) => it.step(),
            Strategy::KeepMatching(it) => it.step(),
            Strategy::StripAnnotated(it) => it.step(),
            Strategy::TestSummary(it) => it.step(),
            Strategy::GroupByRule(it) => it.step(),
            Strategy::GitStatus(it) => it.step(),
            Strategy::GitDiff(it) => it.step(),
            Strategy::FoldFrames(it) => it.step(),
            Strategy::JsonReport(it) => it.step(),
            Strategy::Dedup(it) => it.step(),
            Strategy::ListSimilar(it) => it.step(),
        };
        step.map(|strategy| Self { strategy, unless, when, keeps_warnings: false })
            .map_err(|what| format!("{name}: {what}"))
    }

    /// Whether the step is used for the output of a command.
    pub fn is_for(&self, command: &str) -> bool {
        self.unless.as_ref().is_none_or(|unless| !unless.fit(command))
            && self.when.as_ref().is_none_or(|when| when.fit(command))
    }

    /// The same for a rule that others may have written: it can't leave out warnings.
    pub fn keeping_warnings(self) -> Self {
        Self { keeps_warnings: true, ..self }
    }
}

fn commands(parameter: &str, list: &[String]) -> Result<Option<Patterns>, String> {
    (!list.is_empty()).then(|| Patterns::new(parameter, list)).transpose()
}

/// A strategy that can run.
trait Run {
    fn run(&self, part: &Part<'_>) -> Outcome;
}

/// One text of an output, as a strategy gets it.
struct Part<'a> {
    lines: &'a [&'a str],
    /// The importance of each line.
    levels: Vec<Level>,
    /// Whether the command failed.
    failed: bool,
    keeps_warnings: bool,
}

impl<'a> Part<'a> {
    fn new(lines: &'a [&'a str], failed: bool) -> Self {
        Self { lines, levels: guard::levels(lines, failed), failed, keeps_warnings: false }
    }

    /// Whether a line reports an error or belongs to one. Such a line must not be left out as
    /// noise.
    fn is_error(&self, at: usize) -> bool {
        self.levels[at] >= Level::ErrorContext || self.keeps_warnings && self.is_notable(at)
    }

    /// Whether a line reports an error or a warning, or belongs to one. Such a line must not be
    /// left out to shorten the output.
    fn is_notable(&self, at: usize) -> bool {
        self.levels[at] > Level::Nothing
    }

    /// Keeps the first `head` lines, the last `tail` lines, and notable lines.
    fn ends(&self, head: usize, tail: usize) -> Vec<bool> {
        let many = self.lines.len();
        (0..many).map(|at| at < head || at + tail >= many || self.is_notable(at)).collect()
    }
}

/// The result of a strategy.
enum Outcome {
    /// The strategy changes nothing.
    Unchanged,
    /// The strategy doesn't know the form of the output.
    Unknown,
    /// The lines with a true stay. They include those that the guard keeps.
    Lines(Vec<bool>, Confidence),
    /// The text is replaced.
    Text(String, Confidence),
}

/// The steps of a built-in rule.
///
/// # Errors
///
/// If a step isn't valid. The unit tests check that all are.
pub fn from_json(json: &str) -> Result<Vec<Step>, String> {
    let forms: Vec<StepForm> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    forms.iter().map(Step::new).collect()
}

/// Runs a text through steps. `None` if too little would be saved.
pub fn run<'s>(
    steps: impl IntoIterator<Item = &'s Step>,
    text: &str,
    failed: bool,
) -> Option<(String, Confidence)> {
    let mut current = Cow::Borrowed(text);
    let mut worst = None;
    let mut unknown = false;
    for step in steps {
        let lines = text::lines(&current);
        let part = Part { keeps_warnings: step.keeps_warnings, ..Part::new(&lines, failed) };
        let (next, confidence) = match step.strategy.run(&part) {
            Outcome::Unchanged => continue,
            Outcome::Unknown => {
                unknown = true;
                continue;
            }
            Outcome::Lines(keep, confidence) => (text::assemble(&lines, &keep), confidence),
            Outcome::Text(next, confidence) => (next, confidence),
        };
        if next.len() < current.len() {
            worst = worst.max(Some(confidence));
            current = Cow::Owned(next);
        }
    }
    // If a step knew the form, its result stays.
    if unknown && failed && worst.is_none() {
        let lines = text::lines(&current);
        if lines.len() > SHORT {
            let keep = Part::new(&lines, failed).ends(20, 40);
            current = Cow::Owned(text::assemble(&lines, &keep));
            worst = Some(Confidence::Fallback);
        }
    }
    let mut shorter = match current {
        Cow::Borrowed(_) => return None,
        Cow::Owned(shorter) => shorter,
    };
    if let Some(merged) = text::merge_marks(&shorter) {
        shorter = merged;
    }
    if !text.ends_with('\n') && shorter.ends_with('\n') {
        shorter.pop();
    }
    (shorter.len() + LEAST_SAVED <= text.len())
        .then_some((shorter, worst.unwrap_or(Confidence::Full)))
}

/// Compiles the regular expression of a rule.
///
/// # Errors
///
/// If it can't be used. The message is for the operator.
pub fn compile(expression: &str) -> Result<Regex, String> {
    check_length(expression)?;
    RegexBuilder::new(expression)
        .size_limit(MAX_PROGRAM)
        .build()
        .map_err(|error| describe_error(expression, &error))
}

fn check_length(expression: &str) -> Result<(), String> {
    match expression.chars().count() {
        0 => Err("the expression is empty, so it would match everything: remove it".to_owned()),
        many if many > MAX_REGEX => {
            Err(format!("the expression is {many} characters; the limit is {MAX_REGEX}: split it"))
        }
        _ => Ok(()),
    }
}

fn describe_error(expression: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            format!(
                "the expression {expression:?} is larger than 1 MiB when compiled: lower its repetitions"
            )
        }
        // The last line has the reason. The lines before it show the place.
        _ => {
            let what = error.to_string();
            let what = what
                .lines()
                .next_back()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            format!("the expression {expression:?} doesn't compile: {what}")
        }
    }
}

/// A list of expressions. A line matches if one of them does.
struct Patterns(RegexSet);

impl Patterns {
    fn new(parameter: &str, expressions: &[String]) -> Result<Self, String> {
        for expression in expressions {
            check_length(expression).map_err(|what| format!("`{parameter}`: {what}"))?;
        }
        match RegexSetBuilder::new(expressions).size_limit(MAX_PROGRAM).build() {
            Ok(set) => Ok(Self(set)),
            // Each one is compiled alone to find the wrong one.
            Err(error) => {
                let own = expressions.iter().find_map(|expression| compile(expression).err());
                let what = own.unwrap_or_else(|| {
                    format!("the {} expressions together: {error}", expressions.len())
                });
                Err(format!("`{parameter}`: {what}"))
            }
        }
    }

    fn fit(&self, line: &str) -> bool {
        self.0.is_match(line)
    }
}

/// Refuses an empty list.
fn not_empty(parameter: &str, list: &[String]) -> Result<(), String> {
    if list.is_empty() {
        Err(format!("`{parameter}` is empty: add at least one expression"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod testing {
    //! Helpers for the unit tests of the strategies.

    use super::*;

    /// The steps that a TOML text describes.
    pub(super) fn steps(toml: &str) -> Result<Vec<Step>, String> {
        #[derive(Deserialize)]
        struct Form {
            step: Vec<StepForm>,
        }
        let form: Form = toml::from_str(&format!("step = [{toml}]"))
            .map_err(|error| error.message().to_owned())?;
        form.step.iter().map(Step::new).collect()
    }

    /// Checks the result of steps for a text. An empty `expect` means that the text stays.
    #[track_caller]
    pub(super) fn check(
        toml: &str,
        failed: bool,
        text: &str,
        expect: &str,
        confidence: Confidence,
    ) {
        let outcome = run(&steps(toml).unwrap(), text, failed);
        match outcome {
            None => assert_eq!("", expect, "it stays"),
            Some((shorter, sure)) => assert_eq!((shorter.as_str(), sure), (expect, confidence)),
        }
    }
}

#[cfg(test)]
mod tests;
