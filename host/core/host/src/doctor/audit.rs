//! `toolhold doctor`: checks whether calls are recorded, whether the log can be written, and
//! whether its newest file is unchanged.

use toolhold_config::{Config, Folders};
use toolhold_contract::text::{counted, shell_word};

use super::Finding;
use crate::audit::Trail;
use crate::doctor::machine::size;

/// Checks whether the audit log is enabled, whether it can be written, and whether its newest file
/// is unchanged.
pub(super) fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let recording = if loaded.values.audit.enabled {
        Finding::ok(
            "calls are recorded",
            if loaded.values.audit.durable { "yes, each flushed to disk" } else { "yes" },
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
                "fix this, or move the folder away to start a new log",
            );
        }
    };
    let path = trail.path().display().to_string();
    if let Err(error) = trail.check_writable() {
        let fix = format!(
            "make {path} private (`chmod -R go-rwx {}`), on a writable file system",
            shell_word(&path)
        );
        return Finding::failure(name, format!("the log isn't writable: {error}"), fix);
    }
    // An invalid file is among the problems.
    let head = trail.head().ok().flatten();
    match trail.verify_newest() {
        Err(error) => Finding::failure(name, error.to_string(), "check the disk of the log"),
        Ok(found) if found.holds() && head.is_none() => {
            Finding::ok(name, format!("{path}: the log is empty"))
        }
        Ok(found) if found.holds() => {
            let records = head.map_or(0, |head| head.seq);
            Finding::ok(
                name,
                format!(
                    "{path}: {}, {}; the newest file is unchanged",
                    counted(records, "record"),
                    size(trail.bytes())
                ),
            )
        }
        Ok(found) => {
            let first = match found.problems.first() {
                Some(problem) => format!("{}: {}", problem.file, problem.found),
                None => String::new(),
            };
            Finding::failure(
                name,
                format!("{path} was changed or is damaged. {first}"),
                "`toolhold audit verify` lists the problems; move the folder away to start a new log",
            )
        }
    }
}
