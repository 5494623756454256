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

const NOTHING: &str = "Nothing is recorded yet.";

/// The hexadecimal digits of a SHA-256 hash.
const HASH_DIGITS: usize = 64;

/// Runs a subcommand. Only `export` needs a valid configuration.
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

/// Checks that no record was changed or removed. If there is a `head`, the record with this hash
/// must also be in the log.
fn verify(trail: &Trail, head: Option<&str>, as_json: bool) -> Result<Exit, Error> {
    let head = head.map(|head| head.trim().to_ascii_lowercase());
    if let Some(head) = &head {
        check_hash(head)?;
    }
    let verification = trail.verify(head.as_deref())?;
    let exit = if verification.holds() { Exit::Success } else { Exit::Host };
    if as_json {
        let mut object = json!(verification);
        object["ok"] = json!(verification.holds());
        // The verification already reports an invalid head file, so this error is ignored.
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

fn check_hash(head: &str) -> Result<(), Error> {
    let is_hexadecimal = head.bytes().all(|byte| byte.is_ascii_hexdigit());
    if head.len() != HASH_DIGITS || !is_hexadecimal {
        return Err(Error::Usage(format!(
            "--head {head}: a hash has 64 hexadecimal digits; `toolhold audit head` prints one"
        )));
    }
    Ok(())
}

/// Writes whether the log is intact. `has_head` says whether the command line names a record.
fn write_summary(
    out: &mut impl Write,
    trail: &Trail,
    verification: &Verification,
    has_head: bool,
) -> io::Result<()> {
    let Verification { records, files, .. } = verification;
    let intact = counted(*records, "record");
    if !verification.holds() {
        return writeln!(out, "{BAD}The log was changed.{BAD:#} {intact} of the log are intact.");
    }
    if *records == 0 {
        return writeln!(out, "{NOTHING}");
    }
    let files = counted(*files, "file");
    writeln!(
        out,
        "{GOOD}ok{GOOD:#}: {intact} in {files}: no record was changed, and no record is missing."
    )?;
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
        // Scripts use stdout as the hash, so messages go to stderr.
        None => writeln!(io::stderr().lock(), "{NOTHING}")?,
    }
    Ok(Exit::Success)
}

fn head_object(head: Option<ChainHead>) -> Value {
    head.map_or(Value::Null, |head| json!({ "seq": head.seq, "hash": head.hash }))
}

/// Prints the last records and, with `follow`, new records until the process ends.
fn tail(trail: Trail, lines: usize, follow: bool, as_json: bool) -> Result<Exit, Error> {
    print_lines(&trail.last(lines)?, as_json)?;
    // `head` fails if the end of the log was cut off, so the records are printed first.
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
        // If stderr is closed, the exit code still reports the failure.
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

/// Makes the sender for an export to a collector. The configuration is only loaded here, because no
/// other export needs it.
fn connect(
    endpoint: &str,
    options: &Options,
    folders: &Folders,
) -> Result<Box<dyn Transport>, HostError> {
    let loaded = load(folders, &options.inputs()?)?;
    Ok(Box::new(Collector::new(&loaded, folders, endpoint)?))
}

/// Prints the records of the call with this ID.
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

const COLUMNS: usize = 8;

const HEADS: [&str; COLUMNS] =
    ["TOOL", "CALLS", "FAILED", "REFUSED", "ASKED", "REQUESTS", "P50", "P99"];

fn stats(trail: &Trail, as_json: bool) -> Result<Exit, Error> {
    // If the end of the log was cut off, the statistics would be wrong. `head` fails for such a
    // log.
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
    let rows: Vec<[String; COLUMNS]> = stats.iter().map(cells).collect();
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

/// Returns a row with the name on the left and right-aligned numbers.
fn table_line([name, numbers @ ..]: &[String; COLUMNS], widths: [usize; COLUMNS]) -> String {
    let [name_width, number_widths @ ..] = widths;
    let mut line = format!("{name:name_width$}");
    for (number, width) in numbers.iter().zip(number_widths) {
        line += &format!("  {number:>width$}");
    }
    line
}

/// Returns the row of a tool. All calls of unknown tools have one row.
fn cells(stats: &ToolStats) -> [String; COLUMNS] {
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
