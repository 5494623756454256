//! The problems of a configuration, each with its source and an excerpt.

use std::fmt;

use toolhold_contract::HostError;
use toolhold_contract::text::neutral_line;

use super::Source;

/// A problem of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The source of the problem.
    pub source: Source,
    /// The fault and the remedy.
    pub message: String,
    /// The beginning of the line with the problem, if the problem is in a file.
    pub excerpt: Option<String>,
}

impl Problem {
    /// Makes a problem without an excerpt.
    pub fn new(source: Source, message: impl Into<String>) -> Self {
        Self { source, message: message.into(), excerpt: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The file may come from an untrusted repository. Its text must not control the terminal.
        write!(f, "{}: {}", neutral_line(&self.source.to_string()), neutral_line(&self.message))?;
        if let (Some(excerpt), Source::File { line, .. }) = (&self.excerpt, &self.source) {
            write!(f, "\n  {line} | {}", neutral_line(excerpt))?;
        }
        Ok(())
    }
}

/// All problems of a configuration, in the order of the sources. The list isn't empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for HostError {
    fn from(problems: Problems) -> Self {
        Self::Config(problems.to_string())
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}
