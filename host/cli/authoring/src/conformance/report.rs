//! The report of `toolhold plugin test`.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::{Value, json};
use toolhold_core::text::{counted, cut, neutral_line};

/// The most bytes of a text in a finding.
const MAX_TEXT: usize = 400;

/// The most findings of a check in the report. The others are only counted.
const MAX_FINDINGS: usize = 5;

/// The report of a test.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The tested file.
    pub file: String,
    /// The plugin's name and version, if its manifest is readable.
    pub plugin: Option<String>,
    /// The seed of the test.
    pub seed: u64,
    /// The number of calls.
    pub calls: usize,
    /// The checks, in their order.
    pub checks: Vec<CheckResult>,
}

/// One check and its result.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The name of the check, which is the same for every component.
    pub name: &'static str,
    /// The checked tool, or `None` if the whole component is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The result.
    pub status: Status,
    /// The subject of the check, or the reason why the check was not tried.
    pub about: String,
    /// The faults of a failed check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The component follows the rule.
    Passed,
    /// The component breaks the rule.
    Failed,
    /// The check could not run.
    NotTried,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The expected result.
    pub expected: String,
    /// The actual result.
    pub found: String,
    /// The way to fix the fault.
    pub fix: String,
    /// The arguments of the call as JSON, cut if they are long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

impl Finding {
    pub(crate) fn new(
        expected: impl Into<String>,
        found: impl AsRef<str>,
        fix: impl Into<String>,
    ) -> Self {
        let found = short(found.as_ref());
        Self { expected: expected.into(), found, fix: fix.into(), arguments: None }
    }
}

/// Returns a text on one line, cut and without control characters.
pub(crate) fn short(text: &str) -> String {
    let start = cut(text, MAX_TEXT);
    let ellipsis = if start.len() < text.len() { "…" } else { "" };
    neutral_line(start) + ellipsis
}

impl CheckResult {
    /// Makes the result of a check, which passes if there are no findings. Keeps at most
    /// [`MAX_FINDINGS`] findings.
    pub(crate) fn from_findings(
        name: &'static str,
        about: impl Into<String>,
        mut findings: Vec<Finding>,
    ) -> Self {
        let mut about = about.into();
        if findings.len() > MAX_FINDINGS {
            about = format!("{about} (the first {MAX_FINDINGS} of {})", findings.len());
            findings.truncate(MAX_FINDINGS);
        }
        let status = if findings.is_empty() { Status::Passed } else { Status::Failed };
        Self { name, tool: None, status, about, findings }
    }

    pub(crate) fn not_tried(name: &'static str, reason: impl Into<String>) -> Self {
        let status = Status::NotTried;
        Self { name, tool: None, status, about: reason.into(), findings: Vec::new() }
    }

    pub(crate) fn for_tool(mut self, tool: &str) -> Self {
        self.tool = Some(short(tool));
        self
    }
}

impl Report {
    /// Returns the number of checks with a status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// Returns the report as a JSON object. The field `ok` is true if no check failed.
    pub fn to_json(&self) -> Value {
        let mut report = json!({ "ok": self.is_passed() });
        if let Some(fields) = report.as_object_mut()
            && let Ok(Value::Object(own_fields)) = serde_json::to_value(self)
        {
            fields.extend(own_fields);
        }
        report
    }

    /// Returns `true` if no check failed.
    pub fn is_passed(&self) -> bool {
        self.count(Status::Failed) == 0
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plugin = self.plugin.as_deref().unwrap_or("no plugin");
        writeln!(f, "{} ({plugin})", short(&self.file))?;
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let calls = counted(self.calls as u64, "call");
        write!(
            f,
            "{} passed, {} failed, {} not tried; {calls}, seed {}",
            self.count(Status::Passed),
            self.count(Status::Failed),
            self.count(Status::NotTried),
            self.seed
        )
    }
}

impl Display for CheckResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let status = match self.status {
            Status::Passed => "passed",
            Status::Failed => "FAILED",
            Status::NotTried => "not tried",
        };
        let tool = match &self.tool {
            Some(tool) => format!(" {tool}"),
            None => String::new(),
        };
        write!(f, "{status:<10}{}{tool}: {}", self.name, self.about)?;
        for Finding { expected, found, fix, arguments } in &self.findings {
            write!(f, "\n    expected  {expected}\n    found     {found}")?;
            if let Some(arguments) = arguments {
                write!(f, "\n    with      {arguments}")?;
            }
            write!(f, "\n    fix       {fix}")?;
        }
        Ok(())
    }
}
