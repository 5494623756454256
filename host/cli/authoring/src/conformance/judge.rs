//! Judges the answer of one call in `toolhold plugin test`. Checks the time, category, output
//! schema and size, and whether the call changed anything outside its directory.

use std::time::Duration;

use jsonschema::Validator;
use serde_json::Value;
use toolhold_core::{Answer, Category, Content, Denial, Failure, Output};

use crate::conformance::cases::Case;
use crate::conformance::report::{Finding, short};
use crate::conformance::world::SECRET;

/// The most bytes that a call may print. The host stores no more than this.
const MAX_PRINTED: u64 = 256 * 1024;

/// The rules for each call, with their names in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Answers,
    Time,
    Categories,
    OutputSchema,
    Size,
    Directory,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::Answers,
        Self::Time,
        Self::Categories,
        Self::OutputSchema,
        Self::Size,
        Self::Directory,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Time => "time",
            Self::Categories => "categories",
            Self::OutputSchema => "output schema",
            Self::Size => "size",
            Self::Directory => "directory",
        }
    }
}

/// The rules by which a tool's answers are judged.
pub(crate) struct Judge {
    /// The schema of structured answers.
    pub(crate) output: Option<Validator>,
    /// Whether failures of another machine are possible.
    pub(crate) reaches_others: bool,
    /// The time limit of a call.
    pub(crate) time: Duration,
}

/// Checks whether the host ran the tool, and not only looked at the call.
pub(crate) fn reached(answer: &Answer) -> bool {
    answer.steps.iter().any(|step| step.name == "run")
}

/// Returns the denial of a path in a call, if a path was denied.
pub(crate) fn file_denial(answer: &Answer) -> Option<Denial> {
    let reported = answer.report.entries().denial.clone();
    let denial = reported.or_else(|| answer.outcome.as_ref().err()?.denial.clone())?;
    let is_of_path = matches!(denial.capability.as_str(), "files" | "search");
    if is_of_path { Some(denial) } else { None }
}

/// Describes an outcome. The same outcome always has the same description.
pub(crate) fn describe_outcome(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(_) => "an answer".to_owned(),
        Err(failure) => describe_failure(failure),
    }
}

fn describe_failure(failure: &Failure) -> String {
    let code = failure.code.as_deref().map(|code| format!("/{}", short(code))).unwrap_or_default();
    format!("{}{code}: {}", failure.category.as_str(), failure.message)
}

/// Describes the arguments of a case, for a finding.
pub(crate) fn describe_arguments(case: &Case) -> String {
    format!("{} ({})", short(&case.arguments.to_string()), short(&case.what))
}

impl Judge {
    /// Returns a finding if the answer of a call that reached the tool breaks a rule. `ordinary`:
    /// the arguments name nothing outside of the call's grants.
    pub(crate) fn judge(
        &self,
        case: &Case,
        ordinary: bool,
        answer: &Answer,
        took: Duration,
    ) -> Option<(Rule, Finding)> {
        let (rule, mut finding) = self.find_broken_rule(ordinary, answer, took)?;
        finding.arguments = Some(describe_arguments(case));
        Some((rule, finding))
    }

    fn find_broken_rule(
        &self,
        ordinary: bool,
        answer: &Answer,
        took: Duration,
    ) -> Option<(Rule, Finding)> {
        let text = match &answer.outcome {
            Ok(output) => all_text(&output.content, output.structured.as_ref()),
            Err(failure) => {
                let content = all_text(&failure.content, failure.structured.as_ref());
                format!("{}\n{content}", failure.message)
            }
        };
        if text.contains(SECRET) {
            let found = "the answer has the text of a file outside of the granted directory";
            let fix = "report it: the host let the tool out of its sandbox";
            return Some((Rule::Directory, Finding::new("only what is granted", found, fix)));
        }
        if ordinary && let Some(denial) = file_denial(answer) {
            let found = format!("it tried to {}: {}", denial.action, denial.rule);
            let fix = "use only the paths in the arguments, and ask in the manifest for the access \
                 that the tool needs";
            return Some((Rule::Directory, Finding::new("nothing else is used", found, fix)));
        }
        let printed = answer.report.entries().printed;
        if printed > MAX_PRINTED {
            let expected = format!("at most {MAX_PRINTED} bytes on stdout and stderr");
            let fix = "print less, because the host drops the rest; write messages for the \
                 operator to the log, and results into the answer";
            return Some((Rule::Size, Finding::new(expected, format!("{printed} bytes"), fix)));
        }
        match &answer.outcome {
            Ok(output) => self.judge_output(output),
            Err(failure) => self.judge_failure(failure, took),
        }
    }

    fn judge_output(&self, output: &Output) -> Option<(Rule, Finding)> {
        let validator = self.output.as_ref()?;
        let expected = "a structured answer that fits the tool's own output schema";
        let fix = "make both from one type, or correct the schema";
        let Some(value) = &output.structured else {
            let finding = Finding::new(expected, "an answer without a structured value", fix);
            return Some((Rule::OutputSchema, finding));
        };
        let error = validator.iter_errors(value).next()?;
        let found = format!("at `{}`: {}", error.instance_path(), error.masked());
        Some((Rule::OutputSchema, Finding::new(expected, found, fix)))
    }

    fn judge_failure(&self, failure: &Failure, took: Duration) -> Option<(Rule, Finding)> {
        let found = describe_failure(failure);
        let answers = "an answer, or a failure with a category and a message";
        let ends = format!("an end within {} s", self.time.as_secs());
        let code = failure.code.as_deref();
        Some(match (failure.category, code) {
            (Category::PermanentFailure, Some("crash")) => {
                let content = all_text(&failure.content, None);
                let found = format!("{found} {content}");
                let fix = "check the value, and return a failure of the category \
                           `invalid_parameters`; catch what the code throws";
                (Rule::Answers, Finding::new(answers, found, fix))
            }
            (Category::PermanentFailure, Some("bad_answer")) => {
                let fix = "write valid JSON wherever the contract wants it";
                (Rule::Answers, Finding::new(answers, found, fix))
            }
            (Category::PermanentFailure, Some("memory_limit")) => {
                let fix = "use less memory, or refuse calls that need more";
                (Rule::Size, Finding::new("less memory than the limit", found, fix))
            }
            (Category::PermanentFailure, Some("result_limit")) => {
                let fix = "shorten the answer, and say how to get the rest";
                (Rule::Size, Finding::new("an answer within the limit", found, fix))
            }
            (Category::PermanentFailure, Some("cpu_budget")) => {
                let fix = "bound the work that arguments can cause";
                (Rule::Time, Finding::new(ends, found, fix))
            }
            (Category::Timeout, _) if took >= self.time => {
                let fix = "bound the work, and wait for nothing without a limit";
                (Rule::Time, Finding::new(ends, found, fix))
            }
            _ if failure.message.trim().is_empty() => {
                let fix = "name the wrong value and the fault in the message";
                (Rule::Answers, Finding::new(answers, found, fix))
            }
            (
                Category::RateLimited
                | Category::ServerError
                | Category::NetworkError
                | Category::Timeout,
                _,
            ) if !self.reaches_others => {
                let expected = "a category for failures that repeat: this plugin asks for no \
                     network and no programs";
                let fix = "use `invalid_parameters` for arguments that are wrong, \
                           `permanent_failure` for the rest: a caller repeats this one in vain";
                (Rule::Categories, Finding::new(expected, found, fix))
            }
            _ => return None,
        })
    }
}

/// Returns all text of an answer.
fn all_text(content: &[Content], structured: Option<&Value>) -> String {
    let texts = content.iter().filter_map(Content::as_text);
    let structured = structured.map(Value::to_string);
    texts.chain(structured.as_deref()).collect::<Vec<_>>().join("\n")
}
