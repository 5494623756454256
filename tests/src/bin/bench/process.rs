//! `toolhold call` as its own process, against the start of the interpreter in which tools are
//! written otherwise.

use std::path::Path;
use std::process::Command;

use crate::Setting;
use crate::measure::{Compared, find_program, in_turn, output_of, time};
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 21;

const NO_RIVAL: &str = "node is not installed: apt-get install nodejs";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    // Built together with this program.
    let toolhold = std::env::current_exe()
        .map_err(|error| format!("this program can't find itself: {error}"))?
        .with_file_name("toolhold");
    let folder = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder for the file to read: {error}"))?;
    std::fs::write(folder.path().join("hello.txt"), "hello\n")
        .map_err(|error| format!("can't write the file to read: {error}"))?;
    let call = |home: &Path| {
        let mut command = Command::new(&toolhold);
        // Its own environment: no configuration, and the caches of this home folder.
        command
            .args(["call", "read", "path=hello.txt"])
            .current_dir(folder.path())
            .env_clear()
            .env("HOME", home);
        let answer = output_of(&mut command)?;
        if String::from_utf8_lossy(&answer).contains("hello") {
            Ok(())
        } else {
            Err("toolhold call read answered something else".to_owned())
        }
    };
    let home = |name: &str| -> Result<_, String> {
        tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(&setting.scratch)
            .map_err(|error| format!("no folder for a home: {error}"))
    };

    let warm = home("warm")?;
    let first = || {
        let home = home("first")?;
        time(|| call(home.path()))
    };
    Ok(vec![
        row("toolhold call read, as a process", Target::AtMost(1.0 / 6.0), || {
            time(|| call(warm.path()))
        })?,
        row("toolhold call read, the first on a machine", Target::AtMost(0.5), first)?,
    ])
}

fn row(
    what: &str,
    target: Target,
    ours: impl FnMut() -> Result<std::time::Duration, String>,
) -> Result<Row, String> {
    if find_program("node").is_none() {
        return Ok(Row::not_measured("process", what, Unit::Ratio, target, NO_RIVAL.to_owned()));
    }
    let Compared { ours, rival, ratios } =
        in_turn(ROUNDS, ours, || time(|| output_of(Command::new("node").args(["-e", "0"]))))?;
    let (ours, rival) = (show_time(ours), format!("node -e 0 {}", show_time(rival)));
    Ok(Row {
        name: "process",
        what: what.to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours,
        rival,
    })
}
