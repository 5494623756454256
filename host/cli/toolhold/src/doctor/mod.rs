//! `toolhold doctor`: prints findings about this machine and the configuration.

use std::io::{self, Write};

use serde_json::json;
use toolhold_core::config::{self, Folders};
use toolhold_core::doctor::{Examination, Finding, Report, State};
use toolhold_core::text::counted;
use toolhold_models::choice::model_finding;

use crate::arguments::DoctorArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::shown;
use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

pub(crate) fn run(arguments: &DoctorArguments, options: &Options) -> Result<Exit, Error> {
    let examination = Examination {
        inputs: options.inputs()?,
        builtins: toolhold_builtins::all().to_vec(),
        plugin_files: options.plugin.clone(),
        helper: None,
    };
    let mut report = host::block_on(async { Ok(examination.run().await) })?;
    // If the configuration can't be loaded, the report already contains the error.
    if let Ok(folders) = Folders::from_environment()
        && let Ok(loaded) = config::load(&folders, &options.inputs()?)
    {
        report.add("Agent", vec![model_finding(&loaded)]);
        report.add("Servers", toolhold_mcp_client::findings(&loaded, &folders));
        let directory = config::working_directory()?;
        let findings = toolhold_agent::review::findings(&loaded, &folders, &directory);
        report.add("Review", host::block_on(async { Ok(findings.await) })?);
    }
    if arguments.json {
        writeln!(io::stdout().lock(), "{:#}", object(&report))?;
    } else {
        print(&mut anstream::stdout().lock(), &report, shown::columns())?;
    }
    Ok(if report.count(State::Failure) == 0 { Exit::Success } else { Exit::Host })
}

fn object(report: &Report) -> serde_json::Value {
    let [good, warnings, failures] =
        [State::Ok, State::Warning, State::Failure].map(|state| report.count(state));
    json!({ "ok": failures == 0, "summary": { "ok": good, "warnings": warnings, "failures": failures }, "findings": report.findings })
}

/// The columns of a finding's line besides its name: the state, and the spaces.
const AROUND_NAME: usize = 13;

/// The most columns of the names. A longer name doesn't move the other columns.
const MAX_NAME: usize = 24;

/// Prints the findings in groups, and a summary. `columns` is the width of the terminal.
fn print(out: &mut impl Write, report: &Report, columns: Option<usize>) -> io::Result<()> {
    let mut width = 0;
    for finding in &report.findings {
        width = width.max(finding.name.chars().count());
    }
    width = width.min(MAX_NAME);
    let mut current_group = "";
    for finding in &report.findings {
        let group = finding.group;
        if group != current_group {
            let is_first_group = current_group.is_empty();
            let blank_line = if is_first_group { "" } else { "\n" };
            writeln!(out, "{blank_line}{STRONG}{group}{STRONG:#}")?;
            current_group = group;
        }
        print_finding(out, finding, width, columns)?;
    }
    writeln!(out, "\n{}", summary(report))
}

/// Prints a finding and how to fix it. Names take `width` columns.
fn print_finding(
    out: &mut impl Write,
    finding: &Finding,
    width: usize,
    columns: Option<usize>,
) -> io::Result<()> {
    let Finding { name, state, found, fix, .. } = finding;
    let (style, word) = match state {
        State::Ok => (GOOD, "ok"),
        State::Warning => (WARNING, "warning"),
        State::Failure => (BAD, "failure"),
    };
    let indent = AROUND_NAME + width.max(name.chars().count());
    let found = shown::wrap(found, indent, columns);
    writeln!(out, "  {style}{word:7}{style:#}  {name:width$}  {found}")?;
    if let Some(fix) = fix {
        let indent = AROUND_NAME + width;
        // The label takes part in the wrapping, and then gets its colour.
        let wrapped = shown::wrap(&format!("to fix it: {fix}"), indent, columns);
        let fix = wrapped.strip_prefix("to fix it:").unwrap_or(&wrapped);
        let margin = " ".repeat(indent);
        writeln!(out, "{margin}{FAINT}to fix it:{FAINT:#}{fix}")?;
    }
    Ok(())
}

fn summary(report: &Report) -> String {
    let [good, warnings, failures] =
        [State::Ok, State::Warning, State::Failure].map(|state| report.count(state));
    let end = if failures == 0 {
        "Toolhold works here."
    } else {
        "Toolhold does not work correctly here."
    };
    format!("{good} ok, {}, {}. {end}", counted(warnings, "warning"), counted(failures, "failure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(group: &'static str, name: &str, state: State) -> Finding {
        let fix = (state != State::Ok).then(|| "mend".to_owned());
        Finding { group, name: name.to_owned(), state, found: "found".to_owned(), fix }
    }

    #[test]
    fn findings_are_grouped_aligned_and_counted() {
        let findings = vec![
            finding("A", "one", State::Ok),
            finding("A", "longer", State::Warning),
            finding("B", "x", State::Failure),
        ];
        let mut out = Vec::new();
        print(&mut out, &Report { findings }, None).expect("a vector takes everything");
        let text = anstream::adapter::strip_str(&String::from_utf8_lossy(&out)).to_string();
        let expected = "\
A
  ok       one     found
  warning  longer  found
                   to fix it: mend

B
  failure  x       found
                   to fix it: mend

1 ok, 1 warning, 1 failure. Toolhold does not work correctly here.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn findings_fit_the_terminal_and_their_lines_stay_apart() {
        let mut long = finding("A", "x", State::Warning);
        long.found = format!("{}\n[tools]", "word ".repeat(12));
        let mut out = Vec::new();
        print(&mut out, &Report { findings: vec![long] }, Some(40)).expect("a vector");
        let text = anstream::adapter::strip_str(&String::from_utf8_lossy(&out)).to_string();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert!(lines.iter().all(|line| line.len() <= 40), "{text}");
        assert!(lines.contains(&"              [tools]"), "{text}");
    }

    #[test]
    fn failure_is_not_ok() {
        let object_of =
            |state| object(&Report { findings: vec![finding("A", "x", state)] })["ok"].clone();
        assert_eq!(object_of(State::Warning), json!(true));
        assert_eq!(object_of(State::Failure), json!(false));
    }
}
