//! `toolhold doctor`: checks whether this machine runs and compiles components.

use toolhold_contract::text::counted;
use toolhold_engine::{Builtin, EngineExamination, RuntimeConfig, examine};
use toolhold_policy::OwnTable;
use toolhold_system::machine;

use crate::doctor::machine::Finding;
use crate::doctor::machine::finding::size;

/// Checks whether this machine runs and compiles components. `table` is the configuration table of
/// the limit of concurrent calls.
pub fn findings(config: RuntimeConfig, builtins: &[Builtin], table: &OwnTable) -> Vec<Finding> {
    let examined = match examine(config, builtins) {
        Ok(examined) => examined,
        Err(error) => {
            return vec![Finding::failure("engine", error.to_string(), address_space_fix(table))];
        }
    };
    let mut findings = vec![pool(&examined, table), teardown(&examined), processor(&examined)];
    findings.extend(precompiled(&examined));
    findings.push(compiling(&examined));
    findings.extend(code_cache(&examined));
    findings
}

/// Reports whether memory is reserved for calls.
fn pool(examined: &EngineExamination, table: &OwnTable) -> Finding {
    let name = "memory pool";
    if let Some(reason) = &examined.no_pool {
        return Finding::warning(
            name,
            format!("not available, so calls start slower: {reason}"),
            address_space_fix(table),
        );
    }
    let calls = counted(examined.places, "concurrent call");
    let reserved = match examined.reserved {
        Some(bytes) => format!(", {} of address space reserved", size(bytes)),
        None => String::new(),
    };
    Finding::ok(name, format!("for {calls}{reserved}"))
}

/// Returns the remedy for the most likely reason for a lack of address space.
fn address_space_fix(table: &OwnTable) -> String {
    let is_limited = machine::bounds().address_space.is_some();
    if is_limited {
        return "ulimit -v unlimited (for a service: LimitAS=infinity)".to_owned();
    }
    let overcommits = machine::overcommits();
    if overcommits == Some(false) {
        return "sysctl vm.overcommit_memory=0".to_owned();
    }
    format!("set a smaller `max_concurrent` in {table}")
}

/// Reports how the memory of a finished call is cleared.
fn teardown(examined: &EngineExamination) -> Finding {
    let found = if examined.finds_touched_memory {
        "fast: the kernel reports the memory that a call touched (PAGEMAP_SCAN)"
    } else {
        "slow: PAGEMAP_SCAN needs Linux 6.7"
    };
    Finding::ok("clearing up", found)
}

/// Reports whether the processor runs the precompiled code of built-in plugins.
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
        "use a processor with x86-64-v2; in a virtual machine, use such a processor model (`-cpu \
         host`)",
    )
}

/// Reports for each built-in plugin whether it was compiled ahead of time.
fn precompiled(examined: &EngineExamination) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (plugin, precompiled) in &examined.builtins {
        let name = format!("built-in `{plugin}`");
        findings.push(match precompiled {
            Ok(()) => Finding::ok(name, "compiled ahead of time"),
            Err(reason) => Finding::warning(
                name,
                format!("compiled at the first use: {reason}"),
                "run `cargo xtask plugins`, and build again",
            ),
        });
    }
    findings
}

/// Reports whether a component can be compiled on this machine.
fn compiling(examined: &EngineExamination) -> Finding {
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

/// Reports whether compiled code is stored in the cache. Returns `None` if storing wasn't tried.
fn code_cache(examined: &EngineExamination) -> Option<Finding> {
    let name = "compiled code";
    let finding = match examined.cached.as_ref()? {
        Ok(()) => Finding::ok(name, "stored in the cache and mapped from there"),
        Err(reason) => {
            let fix = "the cache needs your own folder with mode 700, on a local disk without \
                       noexec: fix the folder, or set TOOLHOLD_CACHE_DIR";
            Finding::warning(name, format!("compiled again in each run: {reason}"), fix)
        }
    };
    Some(finding)
}
