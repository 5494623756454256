//! `toolhold doctor`: whether calls are recorded, the log can be written, and its newest part is
//! intact.

use toolhold_config::{Config, Folders};
use toolhold_contract::text::{counted, shell_word};

use super::Finding;
use crate::audit::Trail;
use crate::doctor::machine::size;

/// The record of calls: whether it is on, whether it can be written, and whether its newest part is
/// unchanged.
pub(super) fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let recording = if loaded.values.audit.enabled {
        Finding::ok(
            "calls are recorded",
            if loaded.values.audit.durable { "yes, and on the disk at once" } else { "yes" },
        )
    } else {
        let found = format!("no: `enabled` is false ({})", loaded.place("audit.enabled"));
        let fix = format!("`enabled = true` in {}", loaded.own_table("audit"));
        Finding::warning("calls are recorded", found, fix)
    };
    vec![recording, log(folders)]
}

fn log(folders: &Folders) -> Finding {
    let name = "audit log";
    let trail = match Trail::open(folders) {
        Ok(trail) => trail,
        Err(error) => {
            return Finding::failure(
                name,
                error.to_string(),
                "fix that, or move the folder away to begin a new log",
            );
        }
    };
    let path = trail.path().display().to_string();
    if let Err(error) = trail.check_writable() {
        let fix = format!(
            "make {path} and what is in it yours alone (`chmod -R go-rwx {}`), on a file system that can be written to",
            shell_word(&path)
        );
        return Finding::failure(name, format!("calls can't be recorded: {error}"), fix);
    }
    // An invalid file is among the problems.
    let head = trail.head().ok().flatten();
    match trail.verify_newest() {
        Err(error) => Finding::failure(name, error.to_string(), "check its disk"),
        Ok(found) if found.holds() && head.is_none() => {
            Finding::ok(name, format!("{path}: nothing is recorded yet"))
        }
        Ok(found) if found.holds() => {
            let records = head.map_or(0, |head| head.seq);
            Finding::ok(
                name,
                format!(
                    "{path}: {}, {}; the newest file holds",
                    counted(records, "record"),
                    size(trail.bytes())
                ),
            )
        }
        Ok(found) => {
            let first = found
                .problems
                .first()
                .map_or_else(String::new, |problem| format!("{}: {}", problem.file, problem.found));
            Finding::failure(
                name,
                format!("{path} is not what was written. {first}"),
                "`toolhold audit verify` names the places; move the folder elsewhere to begin a new log",
            )
        }
    }
}
