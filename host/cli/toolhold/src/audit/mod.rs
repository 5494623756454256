//! `toolhold audit`: `tail`, `show`, `stats`, `verify`, `head` and `export`.

mod record;

use std::io::{self, Write};

use serde_json::{Value, json};
use toolhold_core::HostError;
use toolhold_core::audit::{ChainHead, Finding, ToolStats, Trail, Verification};
use toolhold_core::config::{Folders, load};
use toolhold_core::text::{counted, neutral_line};
use toolhold_export::{AuditCommand, Collector, ExportArguments, ExportError, Transport};

use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::shown;
use crate::style::{BAD, FAINT, GOOD, WARNING, warn};

/// Message if nothing was ever recorded.
const NOTHING: &str = "Nothing is recorded yet.";

/// Runs the command. Most subcommands don't read the configuration, so they also work if it is
/// invalid.
pub(crate) fn run(command: &AuditCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    match command {
        AuditCommand::Verify { head, json } => {
            verify(&Trail::open(&folders)?, head.as_deref(), *json)
        }
        AuditCommand::Head { json } => head(&Trail::open(&folders)?, *json),
        AuditCommand::Tail { lines, follow, json } => {
            tail(Trail::open(&folders)?, *lines, *follow, *json)
        }
        AuditCommand::Show { id, json } => show(&Trail::open(&folders)?, id, *json),
        AuditCommand::Stats { json } => stats(&Trail::open(&folders)?, *json),
        AuditCommand::Export(arguments) => export(arguments, options, &folders),
    }
}

fn verify(trail: &Trail, head: Option<&str>, as_json: bool) -> Result<Exit, Error> {
    let head = head.map(|head| head.trim().to_ascii_lowercase());
    if let Some(head) = &head {
        let is_hexadecimal = head.bytes().all(|byte| byte.is_ascii_hexdigit());
        if head.len() != 64 || !is_hexadecimal {
            return Err(Error::Usage(format!(
                "--head {head}: a hash has 64 hexadecimal digits; `toolhold audit head` prints one"
            )));
        }
    }

    let verification = trail.verify(head.as_deref())?;
    let exit = if verification.holds() { Exit::Success } else { Exit::Host };
    if as_json {
        let mut object = json!(verification);
        object["ok"] = json!(verification.holds());
        // The problems name an invalid file already.
        object["head"] = head_object(trail.head().ok().flatten());
        writeln!(io::stdout().lock(), "{object:#}")?;
        return Ok(exit);
    }
    let mut out = anstream::stdout().lock();
    for torn in &verification.torn {
        writeln!(out, "{WARNING}note{WARNING:#}: {}", describe_finding(torn))?;
    }
    for problem in &verification.problems {
        writeln!(out, "{BAD}wrong{BAD:#}: {}", describe_finding(problem))?;
    }
    if verification.more_problems > 0 {
        writeln!(out, "{BAD}wrong{BAD:#}: {} more", verification.more_problems)?;
    }
    write_summary(&mut out, trail, &verification, head.is_some())?;
    Ok(exit)
}

fn write_summary(
    out: &mut impl Write,
    trail: &Trail,
    verification: &Verification,
    has_head: bool,
) -> io::Result<()> {
    let Verification { records, files, .. } = verification;
    let intact = counted(*records, "record");
    if !verification.holds() {
        return writeln!(out, "{BAD}The log was changed.{BAD:#} {intact} of it are intact.");
    }
    if *records == 0 {
        return writeln!(out, "{NOTHING}");
    }
    let files = counted(*files, "file");
    writeln!(out, "{GOOD}ok{GOOD:#}: {intact} in {files}: none was changed, and none is missing.")?;
    if !has_head && let Ok(Some(head)) = trail.head() {
        writeln!(
            out,
            "{FAINT}The hash of the last record. Store it elsewhere, to prove later that the log \
             up to here is unchanged:{FAINT:#}\n{}",
            head.hash
        )?;
    }
    Ok(())
}

fn describe_finding(Finding { file, line, found }: &Finding) -> String {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    neutral_line(&format!("{file}{line}: {found}"))
}

fn head(trail: &Trail, as_json: bool) -> Result<Exit, Error> {
    let head = trail.head()?;
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", head_object(head))?;
        return Ok(Exit::Success);
    }
    match head {
        Some(head) => writeln!(io::stdout().lock(), "{}", head.hash)?,
        // A script would take a message on stdout for a hash.
        None => writeln!(io::stderr().lock(), "{NOTHING}")?,
    }
    Ok(Exit::Success)
}

fn head_object(head: Option<ChainHead>) -> Value {
    head.map_or(Value::Null, |head| json!({ "seq": head.seq, "hash": head.hash }))
}

fn tail(trail: Trail, lines: usize, follow: bool, as_json: bool) -> Result<Exit, Error> {
    print_lines(&trail.last(lines)?, as_json)?;
    // Records without a head belong to a truncated log. They are printed anyway.
    if trail.head()?.is_none() {
        writeln!(io::stderr().lock(), "{NOTHING}")?;
        return Ok(Exit::Success);
    }
    if follow {
        let mut follow = trail.follow()?;
        loop {
            print_lines(&follow.wait()?, as_json)?;
        }
    }
    Ok(Exit::Success)
}

fn print_lines(records: &[Value], as_json: bool) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for record in records {
        if as_json { writeln!(out, "{record}")? } else { record::line(&mut out, record)? }
    }
    out.flush()
}

fn export(
    arguments: &ExportArguments,
    options: &Options,
    folders: &Folders,
) -> Result<Exit, Error> {
    let result = toolhold_export::export(
        arguments,
        folders,
        |endpoint| connect(endpoint, options, folders),
        // If nobody reads stderr, the exit code still tells a failure.
        |text| drop(warn(text)),
    );
    match result {
        Ok(counts) if counts.broken + counts.refused > 0 => Ok(Exit::Host),
        Ok(_) => Ok(Exit::Success),
        Err(ExportError::Usage(message)) => Err(Error::Usage(message)),
        Err(ExportError::Host(error)) => Err(Error::Host(error)),
        Err(ExportError::Write(error)) => Err(Error::Write(error)),
    }
}

fn connect(
    endpoint: &str,
    options: &Options,
    folders: &Folders,
) -> Result<Box<dyn Transport>, HostError> {
    let loaded = load(folders, &options.inputs()?)?;
    Ok(Box::new(Collector::new(&loaded, folders, endpoint)?))
}

fn show(trail: &Trail, id: &str, as_json: bool) -> Result<Exit, Error> {
    let records = trail.of_call(id)?;
    if records.is_empty() {
        return Err(Error::Usage(format!(
            "the log has no call with the id {id}; `toolhold audit tail` lists the last calls"
        )));
    }
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!(records))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        record::write_fields(&mut out, record)?;
    }
    Ok(Exit::Success)
}

const HEADS: [&str; 8] = ["TOOL", "CALLS", "FAILED", "REFUSED", "ASKED", "REQUESTS", "P50", "P99"];

fn stats(trail: &Trail, as_json: bool) -> Result<Exit, Error> {
    trail.head()?;
    let stats = trail.stats()?;
    if as_json {
        writeln!(io::stdout().lock(), "{:#}", json!(stats))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    if stats.is_empty() {
        writeln!(out, "{NOTHING}")?;
        return Ok(Exit::Success);
    }
    let rows: Vec<[String; 8]> = stats.iter().map(cells).collect();
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    writeln!(out, "{FAINT}{}{FAINT:#}", table_line(&HEADS.map(str::to_owned), widths))?;
    for row in &rows {
        writeln!(out, "{}", table_line(row, widths))?;
    }
    Ok(Exit::Success)
}

/// Aligns the name in the first cell to the left, and the numbers to the right.
fn table_line([name, numbers @ ..]: &[String; 8], widths: [usize; 8]) -> String {
    let [name_width, number_widths @ ..] = widths;
    let mut line = format!("{name:name_width$}");
    for (number, width) in numbers.iter().zip(number_widths) {
        line += &format!("  {number:>width$}");
    }
    line
}

fn cells(stats: &ToolStats) -> [String; 8] {
    let tool =
        if stats.tool.is_empty() { "(no such tool)".to_owned() } else { neutral_line(&stats.tool) };
    let ToolStats { calls, failures, denials, asks, requests, .. } = stats;
    let [calls, failures, denials, asks, requests] =
        [calls, failures, denials, asks, requests].map(u64::to_string);
    [
        tool,
        calls,
        failures,
        denials,
        asks,
        requests,
        shown::time(stats.p50()),
        shown::time(stats.p99()),
    ]
}
