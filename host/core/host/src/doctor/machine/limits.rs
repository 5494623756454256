//! `toolhold doctor`: checks whether the limits of this process are high enough.

use toolhold_catalogue::plugins::{most_memory, runtime_config};
use toolhold_config::Config;
use toolhold_contract::text::counted;
use toolhold_system::machine;

use crate::doctor::machine::Finding;
use crate::doctor::machine::finding::size;

/// Below `FEWEST_FILES` descriptors, a search omits files. Below `FEW_FILES`, parallel calls may
/// omit files.
const FEWEST_FILES: u64 = 64;
const FEW_FILES: u64 = 1024;

/// Number of threads of a busy host.
const FEW_PROCESSES: u64 = 256;

/// Checks the limits of this process.
pub fn findings(loaded: &Config) -> Vec<Finding> {
    let bounds = machine::bounds();
    vec![files(bounds.open_files), processes(bounds.processes), stack(bounds.stack), memory(loaded)]
}

fn describe(bound: Option<u64>) -> String {
    match bound {
        Some(bound) => bound.to_string(),
        None => "unlimited".to_owned(),
    }
}

/// Checks the limit of open files. `None` means no limit.
fn files(bound: Option<u64>) -> Finding {
    let name = "open files";
    let fix = "ulimit -n 4096 (for a service: LimitNOFILE=4096)";
    match bound {
        Some(files) if files < FEWEST_FILES => {
            Finding::failure(name, format!("{files}: too few, so searches leave out files"), fix)
        }
        Some(files) if files < FEW_FILES => Finding::warning(
            name,
            format!("{files}: may be too few for concurrent calls and searches"),
            fix,
        ),
        Some(_) | None => Finding::ok(name, describe(bound)),
    }
}

/// Checks the limit of processes. `None` means no limit.
fn processes(bound: Option<u64>) -> Finding {
    let name = "processes";
    match bound {
        Some(processes) if processes < FEW_PROCESSES => {
            let fix = "ulimit -u 4096 (for a service: LimitNPROC=4096)";
            Finding::warning(
                name,
                format!("{processes}, including threads: may be too few for concurrent calls"),
                fix,
            )
        }
        Some(_) | None => Finding::ok(name, describe(bound)),
    }
}

fn stack(bound: Option<u64>) -> Finding {
    let name = "stack";
    match bound {
        Some(small) if small < 1 << 20 => Finding::warning(name, size(small), "ulimit -s 8192"),
        bound => Finding::ok(name, bound.map_or_else(|| "unlimited".to_owned(), size)),
    }
}

/// Checks whether the memory is sufficient for all concurrent calls.
fn memory(loaded: &Config) -> Finding {
    let name = "memory";
    let Some((available, source)) = machine::memory() else {
        return Finding::ok(name, "unknown: /proc is not mounted");
    };
    let folders = None;
    let helper = None;
    let max_calls = runtime_config(loaded, folders, helper).places() as u64;
    let bytes_of_call = most_memory(loaded) as u64;
    let bytes_of_all = max_calls.saturating_mul(bytes_of_call);
    let shown = format!(
        "{} ({source}); {} may take {} each",
        size(available),
        counted(max_calls, "concurrent call"),
        size(bytes_of_call)
    );
    if bytes_of_all <= available {
        return Finding::ok(name, shown);
    }
    // `max(1)` prevents a division by 0, and a proposal of 0 calls.
    let fitting_calls = (available / bytes_of_call.max(1)).max(1);
    let fix = format!(
        "`max_concurrent = {fitting_calls}` in {}, or a smaller `memory_mib` in {}",
        loaded.own_table("tools"),
        loaded.own_table("tools.limits")
    );
    Finding::warning(name, format!("{shown}, {} together", size(bytes_of_all)), fix)
}
