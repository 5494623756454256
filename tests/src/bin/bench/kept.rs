//! Reused answers, against the same calls on a host without a cache.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{Compared, in_turn, median, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 51;

/// Calls in a round.
const CALLS: usize = 5;

/// The searched tree: as large as a medium project, and small enough for the cache to store all its
/// entries.
const FOLDERS: usize = 100;
const FILES: usize = 20;

/// After this number of calls without a cached answer, none is stored.
const PATIENCE: usize = 200;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir_in(&setting.scratch)
        .map_err(|error| format!("no folder to read in: {error}"))?;
    make_tree(folder.path())
        .map_err(|error| format!("can't make a tree in {}: {error}", folder.path().display()))?;
    let keeping = Sandbox::with_kept_answers(&setting.repository, folder.path())?;
    let running = Sandbox::with_files(&setting.repository, folder.path())?;
    let tree = format!("{} files", FOLDERS * FILES);
    [
        ("read, 20 lines".to_owned(), "read", json!({ "path": "0/0.txt" })),
        ("read, 2,000 lines".to_owned(), "read", json!({ "path": "long.txt" })),
        (format!("grep, {tree}"), "grep", json!({ "pattern": "needle", "path": "." })),
        (
            format!("grep, regex that reads all, {tree}"),
            "grep",
            json!({ "pattern": r"\w+ed{7}le\s+\w+", "path": "." }),
        ),
        ("list_directory, 102 entries".to_owned(), "list_directory", json!({ "path": "." })),
        (
            format!("find_path, all of {tree}"),
            "find_path",
            json!({ "pattern": "**/*.txt", "limit": 10_000 }),
        ),
        (
            format!("find_path, one of {tree}"),
            "find_path",
            json!({ "pattern": "**/7.txt", "limit": 10_000 }),
        ),
    ]
    .into_iter()
    .map(|(what, tool, arguments)| row(&keeping, &running, &what, tool, &arguments))
    .collect()
}

fn row(
    keeping: &Sandbox,
    running: &Sandbox,
    what: &str,
    tool: &str,
    arguments: &Value,
) -> Result<Row, String> {
    let mut is_kept = false;
    for _ in 0..PATIENCE {
        is_kept = keeping.is_kept(tool, arguments)?;
        if is_kept {
            break;
        }
    }
    let of = |sandbox: &Sandbox| {
        let times: Result<Vec<Duration>, String> =
            (0..CALLS).map(|_| time(|| sandbox.call_and_wait(tool, arguments.clone()))).collect();
        times.map(median)
    };
    let Compared { ours, rival, ratios } = in_turn(ROUNDS, || of(keeping), || of(running))?;
    // An answer that isn't stored may cost no more than without a cache.
    let (name, target) = if is_kept {
        ("kept answer", Target::AtMost(0.6))
    } else {
        ("not kept, since it is not worth it", Target::AtMost(1.2))
    };
    Ok(Row {
        name: "kept",
        what: format!("{what}: {name}"),
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours: show_time(ours),
        rival: format!("run anew {}", show_time(rival)),
    })
}

fn make_tree(root: &Path) -> std::io::Result<()> {
    let mut text = String::new();
    for number in 0..2000 {
        // Writing to a string never fails.
        let _ = writeln!(text, "{number:>6} a line of text as it might stand in a file");
        if number == 19 {
            for folder in 0..FOLDERS {
                let folder = root.join(folder.to_string());
                std::fs::create_dir(&folder)?;
                (0..FILES).try_for_each(|file| {
                    std::fs::write(folder.join(format!("{file}.txt")), &text)
                })?;
            }
        }
    }
    std::fs::write(root.join("one.txt"), "the needle that is looked for\n")?;
    std::fs::write(root.join("long.txt"), text)
}
