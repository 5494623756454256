//! The output of a job that runs, against reading a file that a build writes: as a tool's call, and
//! as a process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{Compared, in_turn, median, output_of, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 51;

/// Calls in a round.
const CALLS: usize = 5;

/// Lines of the build so far, and the bytes of them that are read.
const LINES: usize = 2000;
const BYTES: usize = 20_000;

/// How long the job may take until it has written them.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let temporary = || {
        tempfile::tempdir_in(&setting.scratch)
            .map_err(|error| format!("no folder to work in: {error}"))
    };
    let (home, work) = (temporary()?, temporary()?);
    let line =
        |number| format!("   Compiling crate-{number:04} v0.1.0 (/work/crates/{number:04})\n");
    let log: String = (0..LINES).map(line).collect();
    std::fs::write(work.path().join("log"), &log)
        .map_err(|error| format!("no file to read: {error}"))?;
    let settings = ["tools.autonomy=full", "tools.result_cache.enabled=false"];
    let sandbox = Sandbox::with_builtins(&setting.repository, home.path(), work.path(), &settings)?;
    // It goes on as a build does.
    let command = json!({ "command": "cat log; sleep 3600", "background": true });
    let id = sandbox.structured("bash", command)?["job"].clone();
    let output = json!({ "id": id, "offset": 0, "limit": BYTES });
    let end = Instant::now() + PATIENCE;
    while sandbox.structured("job_output", output.clone())?["total"] != log.len() {
        if Instant::now() > end {
            return Err("the job didn't write its output".to_owned());
        }
    }
    // As many whole lines as fit.
    let lines = BYTES / line(0).len();
    let file = json!({ "path": "log", "limit": lines });
    let head = || head_of(&work.path().join("log"), BYTES);
    let of = |tool: &str, arguments: &Value| {
        let times: Result<Vec<Duration>, String> =
            (0..CALLS).map(|_| time(|| sandbox.call_and_wait(tool, arguments.clone()))).collect();
        times.map(median)
    };
    let ours = || of("job_output", &output);
    let call = in_turn(ROUNDS, ours, || of("read", &file))?;
    let process = in_turn(ROUNDS, ours, || time(head))?;
    let what = "job_output, 20 kB of a job that runs, p50";
    let rows = vec![
        row(format!("{what}, against read of a file"), Target::AtMost(1.0), &call, "read"),
        row(format!("{what}, against a process"), Target::AtMost(1.0), &process, "head -c"),
    ];
    sandbox.call_and_wait("job_stop", json!({ "id": id }))?;
    Ok(rows)
}

fn head_of(file: &Path, bytes: usize) -> Result<Vec<u8>, String> {
    output_of(Command::new("head").args(["-c", &bytes.to_string()]).arg(file))
}

fn row(what: String, target: Target, compared: &Compared, rival: &str) -> Row {
    Row {
        name: "jobs",
        what,
        samples: compared.ratios.clone(),
        unit: Unit::Ratio,
        target,
        ours: show_time(compared.ours),
        rival: format!("{rival} {}", show_time(compared.rival)),
    }
}
