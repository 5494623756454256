//! Calls between marks, for tests that count the cost of a call: an outside tracer counts system
//! calls, this process page faults.

use std::fs;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use toolhold_core::config::Folders;

use crate::sandbox::{ECHO, Sandbox};

/// Calls that fill caches, and calls that count: so many that under a tracer too, some follow each
/// other as soon as calls do without one.
const WARM_UP: usize = 20;
const CALLS: usize = 300;

/// Makes the calls of a case, each between two writes to `/dev/null`, `begin` and `end`, and prints
/// the page faults of each as JSON.
pub(crate) fn calls(repository: &Path, case: &str, cache: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder to call in: {error}"))?;
    let work = folder.path().join("work");
    make_files(&work)
        .map_err(|error| format!("can't make files in {}: {error}", work.display()))?;
    // No other thread prepares instances meanwhile, and no answer is reused.
    let own = ["tools.keep_ready=0", "tools.result_cache.enabled=false"];
    let unrecorded = [own[0], own[1], "audit.enabled=false"];
    let (settings, tool, arguments): (&[&str], &str, Value) = match case {
        "echo" => (&own, ECHO, json!({ "text": "hello" })),
        "echo without a record" => (&unrecorded, ECHO, json!({ "text": "hello" })),
        "read" => (&own, "read", json!({ "path": "0.txt" })),
        "grep" => (&own, "grep", json!({ "pattern": "needle" })),
        other => return Err(format!("`{other}` is no case")),
    };
    let folders =
        Folders { cache: cache.to_owned(), ..Folders::inside(&folder.path().join("home")) };
    let sandbox = Sandbox::with_echo_in(repository, folders, &work, settings)?;
    let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY, Mode::empty())
        .map_err(|error| format!("/dev/null: {error}"))?;
    let mark = |word: &[u8]| {
        rustix::io::write(&nowhere, word).map_err(|error| format!("/dev/null: {error}"))
    };
    let mut faults = Vec::with_capacity(CALLS);
    for number in 0..WARM_UP + CALLS {
        let before = page_faults()?;
        mark(b"begin")?;
        sandbox.call_and_wait(tool, arguments.clone())?;
        mark(b"end")?;
        if number >= WARM_UP {
            faults.push(page_faults()? - before);
        }
    }
    println!("{}", json!({ "page_faults": faults }));
    Ok(())
}

fn make_files(folder: &Path) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    (0..5).try_for_each(|number| {
        fs::write(folder.join(format!("{number}.txt")), "a line\nthe needle\n")
    })
}

/// Page faults so far of the threads that run calls, without those that waited for a disk. The
/// engine's own threads work in parallel: their work for one call may count for the next or not at
/// all.
fn page_faults() -> Result<u64, String> {
    let failed = |error| format!("/proc/self/task: {error}");
    let mut faults = 0;
    for thread in fs::read_dir("/proc/self/task").map_err(failed)? {
        // A thread may have ended.
        let Ok(stat) = fs::read_to_string(thread.map_err(failed)?.path().join("stat")) else {
            continue;
        };
        let (name, fields) =
            stat.rsplit_once(')').ok_or_else(|| format!("/proc/self/task says {stat}"))?;
        if !name.ends_with("(toolhold-housekeep") && !name.ends_with("(toolhold-ticker") {
            let count =
                fields.split_ascii_whitespace().nth(7).and_then(|field| field.parse::<u64>().ok());
            faults += count.ok_or_else(|| format!("/proc/self/task says {stat}"))?;
        }
    }
    Ok(faults)
}
