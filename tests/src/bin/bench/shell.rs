//! The cost of a command in its sandbox, against the same command without one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, in_turn, median};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 9;
const CALLS: usize = 15;

/// The shortest time that an agent thinks: the processes of the last command are gone then, and the
/// next helper waits.
const REST: Duration = Duration::from_millis(30);

/// The variants: settings, the pause before each command, their meaning, and the target of the
/// ratio.
const ROWS: [(&str, Duration, &[&str], Target); 5] = [
    (
        "in the sandbox, after a rest of 30 ms",
        REST,
        &["tools.shell.sandbox=strict", "tools.shell.network=deny"],
        Target::AtMost(3.0),
    ),
    (
        "in the sandbox, one after the other without a rest",
        Duration::ZERO,
        &["tools.shell.sandbox=strict", "tools.shell.network=deny"],
        Target::Lower,
    ),
    (
        "in the sandbox but for the network, which has no helper wait",
        REST,
        &["tools.shell.sandbox=strict", "tools.shell.network=allow"],
        Target::Lower,
    ),
    (
        "without the sandbox",
        REST,
        &["tools.shell.sandbox=off", "tools.shell.network=allow"],
        Target::Lower,
    ),
    (
        "in the sandbox, after 2,000 files were looked at for a glob",
        REST,
        &[
            "tools.shell.sandbox=strict",
            "tools.shell.network=deny",
            "tools.file.deny_read=[\"**/.env\"]",
        ],
        Target::Lower,
    ),
];

/// Commands with and without the saving of what they change, and the target of the ratio.
const SAVED: [(&str, &str, Target); 2] = [
    ("that changes nothing", "true", Target::AtMost(1.1)),
    ("that writes 100 files", "for n in {1..100}; do echo x > $n.txt; done", Target::Lower),
];

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = setting.scratch.join("shell");
    let work = home.join("work");
    make_files(&work, 2000)?;
    let mut rows: Vec<Row> = ROWS
        .iter()
        .map(|(what, rest, settings, target)| {
            let all = [&["tools.autonomy=full", "audit.keep=1"], *settings].concat();
            let sandbox = Sandbox::with_builtins(&setting.repository, &home, &work, &all)?;
            let compared = in_turn(ROUNDS, || calls(&sandbox, "true", *rest), || directly(*rest))?;
            Ok(row(format!("bash, `true`, {what}, p50"), *target, compared, "bash -c true"))
        })
        .collect::<Result<_, String>>()?;
    rows.extend(saving(setting)?);
    Ok(rows)
}

/// The cost of saving what a command changes, in a large tree.
fn saving(setting: &Setting) -> Result<Vec<Row>, String> {
    let home = setting.scratch.join("saving");
    let work = home.join("work");
    make_files(&work, 20_000)?;
    let sandbox = |name: &str, enabled: bool| {
        let saves = format!("tools.undo.enabled={enabled}");
        let settings = ["tools.autonomy=full", "audit.keep=1", &saves];
        Sandbox::with_builtins(&setting.repository, &home.join(name), &work, &settings)
    };
    let (saves, plain) = (sandbox("saves", true)?, sandbox("plain", false)?);
    let compare = |(what, command, target): &(&str, &str, Target)| {
        let compared =
            in_turn(ROUNDS, || calls(&saves, command, REST), || calls(&plain, command, REST))?;
        let what = format!("bash, a command {what} among 20,000, with undo, p50");
        Ok(row(what, *target, compared, "without undo"))
    };
    SAVED.iter().map(compare).collect()
}

fn row(what: String, target: Target, compared: Compared, rival_name: &str) -> Row {
    let Compared { ours, rival, ratios } = compared;
    let added = ours.saturating_sub(rival);
    Row {
        name: "shell",
        what,
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours: format!("{}, of which {} are added", show_time(ours), show_time(added)),
        rival: format!("{rival_name} {}", show_time(rival)),
    }
}

fn make_files(folder: &Path, count: usize) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("can't create {}: {error}", folder.display()))?;
    for number in 0..count {
        std::fs::write(folder.join(format!("{number}.txt")), "")
            .map_err(|error| format!("can't write to {}: {error}", folder.display()))?;
    }
    Ok(())
}

fn calls(sandbox: &Sandbox, command: &str, rest: Duration) -> Result<Duration, String> {
    sandbox.runtime().block_on(async {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            std::thread::sleep(rest);
            let start = Instant::now();
            sandbox.call("bash", json!({ "command": command })).await?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    })
}

/// Like an agent, it reads the output, which is empty.
fn directly(rest: Duration) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        std::thread::sleep(rest);
        let start = Instant::now();
        let ended = Command::new("bash")
            .args(["-c", "true"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("bash: {error}"))?;
        times.push(start.elapsed());
        if !ended.status.success() {
            return Err("bash -c true failed".to_owned());
        }
    }
    Ok(median(times))
}
