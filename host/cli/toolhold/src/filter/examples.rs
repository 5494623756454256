//! `toolhold filter test`: runs the examples in rules. An example is an output with its expected
//! result.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::json;
use toolhold_core::text::{counted, neutral};
use toolhold_core::{Content, Failure, FilterInput, FilterState, FilterVerdict, Host};

use crate::error::Error;
use crate::exit::Exit;
use crate::style::{BAD, FAINT, GOOD, WARNING};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    examples: Vec<Example>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Example {
    /// The exit code of the command.
    exit: i32,
    /// The output of the command.
    input: String,
    /// The expected filtered output, or `None` if any output is right.
    output: Option<String>,
    /// Strings that the filtered output must contain.
    contains: Vec<String>,
    /// Strings that the filtered output must not contain.
    lacks: Vec<String>,
}

#[derive(Default)]
struct Counts {
    examples: u64,
    /// A message for each example with another result.
    wrong: Vec<String>,
    /// The names of the filters without examples.
    without: Vec<String>,
}

pub(super) async fn run(host: &Host, names: &[String], as_json: bool) -> Result<Exit, Error> {
    let filters = host.filters();
    for name in names {
        if !filters.iter().any(|filter| filter.name == *name) {
            return Err(Error::Usage(format!(
                "there is no filter `{name}`; `toolhold filter list` shows all filters"
            )));
        }
    }
    let mut counts = Counts::default();
    for filter in &filters {
        if names.is_empty() || names.contains(&filter.name) {
            counts.add(host, filter).await;
        }
    }
    let problems = host.filter_rules().map(|rules| rules.problems).unwrap_or_default();
    let exit = if counts.wrong.is_empty() && problems.is_empty() {
        Exit::Success
    } else {
        Exit::ToolFailure
    };
    let Counts { examples, wrong, without } = counts;
    if as_json {
        let ok = exit == Exit::Success;
        let object = json!({ "ok": ok, "examples": examples, "wrong": wrong, "problems": problems, "without_examples": without });
        writeln!(io::stdout().lock(), "{object:#}")?;
        return Ok(exit);
    }
    let mut out = anstream::stdout().lock();
    for problem in &problems {
        writeln!(out, "{BAD}wrong{BAD:#}: {}", neutral(problem))?;
    }
    for wrong in &wrong {
        writeln!(out, "{BAD}wrong{BAD:#}: {}", neutral(wrong))?;
    }
    if !without.is_empty() {
        writeln!(
            out,
            "{WARNING}note{WARNING:#}: without examples: {}",
            neutral(&without.join(", "))
        )?;
    }
    match wrong.len() {
        0 => writeln!(
            out,
            "{GOOD}ok{GOOD:#}: {} {FAINT}with the expected output{FAINT:#}",
            counted(examples, "example")
        )?,
        count => writeln!(out, "{count} of {} with another output", counted(examples, "example"))?,
    }
    Ok(exit)
}

impl Counts {
    /// Runs and counts the examples of a filter, and adds a message for each failure.
    async fn add(&mut self, host: &Host, filter: &FilterState) {
        let name = &filter.name;
        let meta = match &filter.definition.meta {
            Some(meta) => serde_json::from_str::<Meta>(meta),
            None => Ok(Meta::default()),
        };
        let examples = match meta {
            Ok(meta) => meta.examples,
            Err(error) => {
                self.wrong.push(format!("{name}: the examples can't be read: {error}"));
                return;
            }
        };
        if examples.is_empty() {
            self.without.push(name.clone());
        }
        for (index, example) in examples.iter().enumerate() {
            self.examples += 1;
            if let Err(why) = check(host, name, example).await {
                let number = index + 1;
                self.wrong.push(format!("{name}, example {number}: {why}"));
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ExampleError {
    #[error("{}", .0.message)]
    Failed(Box<Failure>),
    #[error("the output is withheld: {0}")]
    Withheld(String),
    #[error("the output is\n{0}")]
    Different(String),
    #[error("`{text}` is missing in the output:\n{output}")]
    Missing { text: String, output: String },
    #[error("`{text}` is in the output:\n{output}")]
    Unwanted { text: String, output: String },
}

/// Runs an example, and compares the filtered output with the expectations.
async fn check(host: &Host, name: &str, example: &Example) -> Result<(), ExampleError> {
    let input = FilterInput {
        tool: "bash".to_owned(),
        exit_code: Some(example.exit),
        content: vec![Content::text(example.input.clone())],
        ..FilterInput::default()
    };
    let verdict = host.try_filter(name, input).await;
    let filtered = match verdict.map_err(|failure| ExampleError::Failed(failure.into()))? {
        FilterVerdict::Keep => example.input.clone(),
        FilterVerdict::Replace { content, .. } => {
            content.iter().filter_map(Content::as_text).collect()
        }
        FilterVerdict::Block(reason) => return Err(ExampleError::Withheld(reason)),
    };
    if let Some(expected) = &example.output
        && expected.trim_end() != filtered.trim_end()
    {
        return Err(ExampleError::Different(filtered));
    }
    if let Some(missing) = example.contains.iter().find(|text| !filtered.contains(text.as_str())) {
        return Err(ExampleError::Missing { text: missing.clone(), output: filtered });
    }
    match example.lacks.iter().find(|text| filtered.contains(text.as_str())) {
        Some(unwanted) => Err(ExampleError::Unwanted { text: unwanted.clone(), output: filtered }),
        None => Ok(()),
    }
}
