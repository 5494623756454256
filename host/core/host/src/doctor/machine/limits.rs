//! `toolhold doctor`: checks whether the limits of this process (files, processes, stack, memory)
//! are high enough.

use toolhold_catalogue::plugins::{most_memory, runtime_config};
use toolhold_config::Config;
use toolhold_contract::text::counted;
use toolhold_system::machine;

use crate::doctor::machine::Finding;
use crate::doctor::machine::finding::size;

/// The number of descriptors below which a search omits files. Below `FEW_FILES`, parallel calls
/// may omit files, too.
const FEWEST_FILES: u64 = 64;
const FEW_FILES: u64 = 1024;

/// Threads that a busy host takes.
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

fn files(bound: Option<u64>) -> Finding {
    let name = "open files";
    let fix = "ulimit -n 4096 (for a service: LimitNOFILE=4096)";
    match bound {
        Some(few) if few < FEWEST_FILES => {
            Finding::failure(name, format!("{few}: too few, so searches leave files out"), fix)
        }
        Some(few) if few < FEW_FILES => Finding::warning(
            name,
            format!("{few}: may be too few for concurrent calls and searches"),
            fix,
        ),
        bound => Finding::ok(name, describe(bound)),
    }
}

fn processes(bound: Option<u64>) -> Finding {
    let name = "processes";
    match bound {
        Some(few) if few < FEW_PROCESSES => {
            let fix = "ulimit -u 4096 (for a service: LimitNPROC=4096)";
            Finding::warning(
                name,
                format!("{few}, including threads: may be too few for concurrent calls"),
                fix,
            )
        }
        bound => Finding::ok(name, describe(bound)),
    }
}

fn stack(bound: Option<u64>) -> Finding {
    let name = "stack";
    match bound {
        Some(small) if small < 1 << 20 => Finding::warning(name, size(small), "ulimit -s 8192"),
        bound => Finding::ok(name, bound.map_or_else(|| "unlimited".to_owned(), size)),
    }
}

/// Checks whether there is enough memory for all calls at their limit.
fn memory(loaded: &Config) -> Finding {
    let name = "memory";
    let Some((available, source)) = machine::memory() else {
        return Finding::ok(name, "unknown: /proc is not mounted");
    };
    let calls = runtime_config(loaded, None, None).places() as u64;
    let each = most_memory(loaded) as u64;
    let most = calls.saturating_mul(each);
    let shown = format!(
        "{} ({source}); {} may take {} each",
        size(available),
        counted(calls, "concurrent call"),
        size(each)
    );
    if most <= available {
        return Finding::ok(name, shown);
    }
    let fit = (available / each.max(1)).max(1);
    let fix = format!(
        "`max_concurrent = {fit}` in {}, or a smaller `memory_mib` in {}",
        loaded.own_table("tools"),
        loaded.own_table("tools.limits")
    );
    Finding::warning(name, format!("{shown}, {} together", size(most)), fix)
}
