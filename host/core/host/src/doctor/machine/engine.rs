//! `toolhold doctor`: checks whether this machine runs and compiles components.

use toolhold_contract::text::counted;
use toolhold_engine::{Builtin, EngineExamination, RuntimeConfig, examine};
use toolhold_policy::OwnTable;
use toolhold_system::machine;

use crate::doctor::machine::Finding;
use crate::doctor::machine::finding::size;

/// Checks whether this machine runs and compiles components. `table` is the table of concurrent
/// calls.
pub fn findings(config: RuntimeConfig, builtins: &[Builtin], table: &OwnTable) -> Vec<Finding> {
    let examined = match examine(config, builtins) {
        Ok(examined) => examined,
        Err(error) => {
            return vec![Finding::failure("engine", error.to_string(), address_space_fix(table))];
        }
    };
    let mut findings = vec![pool(&examined, table), teardown(&examined), processor(&examined)];
    findings.extend(ahead(&examined));
    findings.push(helper(&examined));
    findings.extend(check_cache(&examined));
    findings
}

fn pool(examined: &EngineExamination, table: &OwnTable) -> Finding {
    let name = "memory pool";
    let calls = examined.places;
    match &examined.no_pool {
        Some(reason) => Finding::warning(
            name,
            format!("not available, so calls start slower: {reason}"),
            address_space_fix(table),
        ),
        None => {
            let reserved = match examined.reserved {
                Some(bytes) => format!(", {} of address space reserved", size(bytes)),
                None => String::new(),
            };
            Finding::ok(name, format!("for {}{reserved}", counted(calls, "concurrent call")))
        }
    }
}

/// Returns the remedy for the most likely reason why the engine gets no address space.
fn address_space_fix(table: &OwnTable) -> String {
    match (machine::bounds().address_space, machine::overcommits()) {
        (Some(_), _) => "ulimit -v unlimited (for a service: LimitAS=infinity)".to_owned(),
        (None, Some(false)) => "sysctl vm.overcommit_memory=0".to_owned(),
        _ => format!("a smaller `max_concurrent` in {table}"),
    }
}

fn teardown(examined: &EngineExamination) -> Finding {
    let found = if examined.finds_touched_memory {
        "fast: the kernel reports the memory that a call touched (PAGEMAP_SCAN)"
    } else {
        "slow: PAGEMAP_SCAN needs Linux 6.7"
    };
    Finding::ok("clearing up", found)
}

fn processor(examined: &EngineExamination) -> Finding {
    let name = "processor";
    if examined.missing_features.is_empty() {
        return Finding::ok(name, format!("{}; runs the precompiled code", std::env::consts::ARCH));
    }
    let found = format!(
        "the processor lacks {}, so built-in plugins have to be compiled",
        examined.missing_features.join(", ")
    );
    Finding::warning(
        name,
        found,
        "a processor with x86-64-v2; in a virtual machine, such a model (`-cpu host`)",
    )
}

fn ahead(examined: &EngineExamination) -> impl Iterator<Item = Finding> {
    examined.builtins.iter().map(|(plugin, ahead)| {
        let name = format!("built-in `{plugin}`");
        match ahead {
            Ok(()) => Finding::ok(name, "compiled ahead"),
            Err(reason) => Finding::warning(
                name,
                format!("compiled at the first use: {reason}"),
                "run `cargo xtask plugins`, and build again",
            ),
        }
    })
}

fn helper(examined: &EngineExamination) -> Finding {
    let name = "compiling";
    match &examined.compiled {
        Ok(time) => Finding::ok(
            name,
            format!("a component in a confined process, in {} ms", time.as_millis()),
        ),
        Err(reason) => {
            let fix = "see the checks of the kernel and the limits above";
            Finding::failure(
                name,
                format!("plugins that are not built in can't be compiled: {reason}"),
                fix,
            )
        }
    }
}

fn check_cache(examined: &EngineExamination) -> Option<Finding> {
    let name = "compiled code";
    Some(match examined.cached.as_ref()? {
        Ok(()) => Finding::ok(name, "stored in the cache and mapped from there"),
        Err(reason) => {
            let fix = "the cache needs a folder of your own, mode 700, on a local disk without noexec: fix it, or set TOOLHOLD_CACHE_DIR";
            Finding::warning(name, format!("compiled again in each run: {reason}"), fix)
        }
    })
}
