//! The cost of loaded plugins for a process: the time to start, memory while idle, and the time of
//! a call. Each figure comes from a fresh process.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{output_of, resident};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit};

pub(crate) fn memory(setting: &Setting) -> Result<Vec<Row>, String> {
    let built_in = figures(setting, 0)?;
    Ok(vec![Row {
        name: "memory",
        what: "resident memory, built-in plugins loaded, idle".to_owned(),
        samples: number(&built_in, "idle_mib").into_iter().collect(),
        unit: Unit::Mebibytes,
        target: Target::AtMost(25.0),
        ours: String::new(),
        rival: String::new(),
    }])
}

pub(crate) fn plugins(setting: &Setting) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for copies in [1, 10, 100] {
        // The first process compiles what earlier runs haven't.
        figures(setting, copies)?;
        let figures = figures(setting, copies)?;
        let memory =
            |key| number(&figures, key).map_or("?".to_owned(), |mib| format!("{mib:.1} MiB"));
        let start = number(&figures, "start_ms").map_or("?".to_owned(), |ms| format!("{ms:.0} ms"));
        rows.push(Row {
            name: "plugins",
            what: format!("echo with {copies} more plugins loaded, p50"),
            samples: number(&figures, "p50_us").into_iter().collect(),
            unit: Unit::Microseconds,
            target: Target::Lower,
            ours: format!(
                "{} idle, {} after the calls; starts in {start}",
                memory("idle_mib"),
                memory("used_mib")
            ),
            rival: String::new(),
        });
    }
    Ok(rows)
}

/// The work of a process that [`figures`] starts: it loads the plugins, measures itself, and prints
/// JSON.
pub(crate) fn child(repository: &Path, copies: usize) -> Result<(), String> {
    let scratch = repository.join("target/bench");
    let begin = Instant::now();
    let sandbox = Sandbox::with_copies(repository, &scratch, copies)?;
    let start = begin.elapsed().as_secs_f64() * 1e3;
    let idle = resident("/proc/self/status")?;
    let p50 = if copies == 0 { None } else { Some(sandbox.p50(500)?.as_secs_f64() * 1e6) };
    println!(
        "{}",
        json!({ "start_ms": start, "idle_mib": idle, "used_mib": resident("/proc/self/status")?, "p50_us": p50 })
    );
    Ok(())
}

fn figures(setting: &Setting, copies: usize) -> Result<Value, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("this program can't find itself: {error}"))?;
    let mut command = Command::new(program);
    command.arg("--repository").arg(&setting.repository).args(["--loaded", &copies.to_string()]);
    let printed = output_of(&mut command)?;
    serde_json::from_slice(&printed)
        .map_err(|error| format!("the process with {copies} plugins printed no figures: {error}"))
}

fn number(figures: &Value, key: &str) -> Option<f64> {
    figures[key].as_f64()
}
