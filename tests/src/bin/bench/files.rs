//! Reading a file, against `cat` as the process that an agent would otherwise start.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, in_turn, output_of, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 101;

const BYTES: usize = 1 << 20;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for the file to read: {error}"))?;
    let file = folder.path().join("text.txt");
    std::fs::write(&file, text())
        .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    let sandbox = Sandbox::with_files(&setting.repository, folder.path())?;
    let window = || sandbox.call_and_wait("read", json!({ "path": file })).map(drop);
    let whole = || read_whole(&sandbox, &file);
    Ok(vec![
        row("read, 2,000 lines of a 1 MiB file", Target::AtMost(1.0), &file, window)?,
        row("read, all of a 1 MiB file", Target::AtMost(4.0), &file, whole)?,
    ])
}

fn row(
    what: &str,
    target: Target,
    file: &Path,
    mut ours: impl FnMut() -> Result<(), String>,
) -> Result<Row, String> {
    let Compared { ours, rival, ratios } =
        in_turn(ROUNDS, || time(&mut ours), || time(|| output_of(Command::new("cat").arg(file))))?;
    let (ours, rival) = (show_time(ours), format!("cat {}", show_time(rival)));
    Ok(Row {
        name: "read",
        what: what.to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours,
        rival,
    })
}

/// A megabyte of lines of about fifty characters.
fn text() -> String {
    let mut text = String::with_capacity(BYTES + 64);
    let mut number = 0;
    while text.len() < BYTES {
        number += 1;
        writeln!(text, "{number:>6} a line of text as it might stand in a file")
            .expect("a string takes what is written to it");
    }
    text
}

/// Reads in as many calls as the tool needs.
fn read_whole(sandbox: &Sandbox, file: &Path) -> Result<(), String> {
    let mut offset = 1;
    loop {
        let shown = sandbox
            .structured("read", json!({ "path": file, "offset": offset, "limit": 1_000_000 }))?;
        let number =
            |key: &str| shown[key].as_u64().ok_or_else(|| format!("read says no `{key}`: {shown}"));
        let (end, total) = (number("end")?, number("total_lines")?);
        if end >= total {
            return Ok(());
        }
        if end < offset {
            return Err(format!("read got stuck at line {offset}"));
        }
        offset = end + 1;
    }
}
