//! `toolhold doctor`: checks the audit log.

use toolhold_config::{Ceiling, Config, Folders, Source};
use toolhold_contract::text::{counted, shell_word};

use super::Finding;
use crate::audit::Trail;
use crate::doctor::machine::size;

pub(super) fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    vec![recording(loaded), log(folders)]
}

fn recording(loaded: &Config) -> Finding {
    let name = "calls are recorded";
    if !loaded.values.audit.enabled {
        let found = format!("no: `enabled` is false ({})", loaded.place("audit.enabled"));
        let fix = format!("`enabled = true` in {}", loaded.own_table("audit"));
        return Finding::warning(name, found, fix);
    }
    // An administrator who sets a ceiling also expects a record of each call.
    let is_required = loaded.ceilings.iter().any(requires_recording);
    if let Some(ceiling) = loaded.ceilings.first()
        && !is_required
    {
        let path = ceiling.path.display();
        let found = format!("yes, but {path} lets users set `audit.enabled` to false");
        return Finding::warning(name, found, format!("`enabled = true` in [audit] of {path}"));
    }
    let durable = loaded.values.audit.durable;
    Finding::ok(name, if durable { "yes, each flushed to disk" } else { "yes" })
}

/// Checks whether a ceiling prevents its users from disabling the audit log.
fn requires_recording(ceiling: &Ceiling) -> bool {
    let contents = &ceiling.contents;
    contents.values.audit.enabled && contents.source("audit.enabled") != Source::Default
}

fn log(folders: &Folders) -> Finding {
    let name = "audit log";
    let trail = match Trail::open(folders) {
        Ok(trail) => trail,
        Err(error) => {
            return Finding::failure(
                name,
                error.to_string(),
                "fix the error, or move the folder away to start a new log",
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
    // Ignore an invalid head here, because `verify_newest` reports it.
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
