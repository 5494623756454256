//! Judges the answer of one call in `toolhold plugin test`.

use std::time::Duration;

use jsonschema::Validator;
use serde_json::Value;
use toolhold_core::{Answer, Category, Content, Denial, Failure, Output};

use crate::conformance::cases::Case;
use crate::conformance::report::{Finding, short};
use crate::conformance::world::SECRET;

/// The most bytes that a call may print. The host stores at most this number.
const MAX_PRINTED: u64 = 256 * 1024;

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

/// The rules for the answers of a tool.
pub(crate) struct Judge {
    /// The schema of structured answers.
    pub(crate) output: Option<Validator>,
    /// Whether a call may fail because a network or a program is missing.
    pub(crate) needs_network_or_programs: bool,
    /// The time limit of a call.
    pub(crate) time: Duration,
}

pub(crate) fn reached_tool(answer: &Answer) -> bool {
    answer.steps.iter().any(|step| step.name == "run")
}

/// Returns the denial of a file or folder in an answer.
pub(crate) fn file_denial(answer: &Answer) -> Option<Denial> {
    let mut denial = answer.report.entries().denial.clone();
    if denial.is_none()
        && let Err(failure) = &answer.outcome
    {
        denial = failure.denial.clone();
    }
    let denial = denial?;
    let is_about_files = matches!(denial.capability.as_str(), "files" | "search");
    if is_about_files { Some(denial) } else { None }
}

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

pub(crate) fn describe_arguments(case: &Case) -> String {
    format!("{} ({})", short(&case.arguments.to_string()), short(&case.what))
}

impl Judge {
    /// Returns a finding if the answer breaks a rule. `ordinary` says whether the arguments stay
    /// within the grants.
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

    /// Finds the first rule that the answer breaks. `ordinary` says whether the arguments stay
    /// within the grants. `took` is the time of the call.
    fn find_broken_rule(
        &self,
        ordinary: bool,
        answer: &Answer,
        took: Duration,
    ) -> Option<(Rule, Finding)> {
        if answer_text(answer).contains(SECRET) {
            let found = "the answer contains the text of a file outside of the granted directory";
            let fix = "report this bug: the tool escaped from the sandbox";
            return Some((Rule::Directory, Finding::new("only the use of grants", found, fix)));
        }

        if ordinary && let Some(denial) = file_denial(answer) {
            let found = format!("the tool tried to {}: {}", denial.action, denial.rule);
            let fix = "use only the paths in the arguments, and ask in the manifest for the access \
                 that the tool needs";
            return Some((Rule::Directory, Finding::new("the use of other files", found, fix)));
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
        let fix = "generate the answer and the schema from one type, or correct the schema";
        let Some(value) = &output.structured else {
            let finding = Finding::new(expected, "an answer without a structured value", fix);
            return Some((Rule::OutputSchema, finding));
        };
        let error = validator.iter_errors(value).next()?;
        // A masked error doesn't contain the wrong value.
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
                           `invalid_parameters`; catch all exceptions";
                (Rule::Answers, Finding::new(answers, found, fix))
            }
            (Category::PermanentFailure, Some("bad_answer")) => {
                let fix = "write valid JSON wherever the contract requires JSON";
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
                let fix = "bound the work, and set a time limit for each wait";
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
            ) if !self.needs_network_or_programs => {
                let expected = "a category for permanent failures, because this plugin asks for no \
                                network and no programs";
                let fix = "use `invalid_parameters` for wrong arguments and `permanent_failure` \
                           for other failures; with this category, callers repeat the call in vain";
                (Rule::Categories, Finding::new(expected, found, fix))
            }
            _ => return None,
        })
    }
}

fn answer_text(answer: &Answer) -> String {
    match &answer.outcome {
        Ok(output) => all_text(&output.content, output.structured.as_ref()),
        Err(failure) => {
            let content = all_text(&failure.content, failure.structured.as_ref());
            format!("{}\n{content}", failure.message)
        }
    }
}

fn all_text(content: &[Content], structured: Option<&Value>) -> String {
    let texts = content.iter().filter_map(Content::as_text);
    let structured = structured.map(Value::to_string);
    texts.chain(structured.as_deref()).collect::<Vec<_>>().join("\n")
}
