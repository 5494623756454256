//! `toolhold:host/parts` for guests: runs a part of the plugin on inputs.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::parts::{PartBounds, PartError, PartErrorKind, Parts};
use wasmtime::component::Linker;

use crate::Runtime;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::parts as wit;
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::{CallState, HasState};

/// The parts of a call's plugin.
pub(crate) struct PartsAccess {
    runtime: Arc<Runtime>,
    parts: Arc<Parts>,
    /// Processor time that the call's parts may still use.
    left: Duration,
    /// Bytes of all answers of one function call.
    output: usize,
}

impl CallCapability for Option<PartsAccess> {
    type Grant = Duration;

    fn begin(grant: &Duration, facts: &CallFacts<'_>) -> Self {
        Some(PartsAccess {
            runtime: Arc::clone(facts.runtime),
            parts: Arc::clone(facts.parts),
            left: *grant,
            output: facts.grants.limits.host_allocation,
        })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl wit::Host for &mut CallState {
    async fn run(
        &mut self,
        part: String,
        inputs: Vec<Vec<u8>>,
    ) -> wasmtime::Result<Vec<Result<Vec<u8>, Error>>> {
        let count = inputs.len();
        if self.capabilities.parts.is_none() {
            // The instance has no call yet, or the plugin was only loaded to be inspected.
            let denied = error("denied", "no parts are granted to this plugin".to_owned());
            return Ok(vec![Err(denied); count]);
        }
        self.call.watch.may_block().await;
        let call = &self.call;
        let Some(access) = &mut self.capabilities.parts else { return Ok(Vec::new()) };
        let engine = match access.runtime.part_engine.get() {
            Ok(engine) => engine,
            Err(failed) => {
                return Ok(vec![Err(error("unavailable", failed.to_string())); count]);
            }
        };
        let bounds = PartBounds {
            deadline: call.watch.deadline(),
            cancel: call.watch.cancel.clone(),
            cpu: access.left,
            output: access.output,
        };
        let compiler = &access.runtime.compiler;
        let (results, used) = access.parts.run(engine, compiler, &part, inputs, bounds);
        access.left = access.left.saturating_sub(used);
        let table = &call.table.name;
        Ok(results
            .into_iter()
            .map(|result| result.map_err(|error| failure(error, table)))
            .collect())
    }
}

fn failure(failed: PartError, table: &str) -> Error {
    let PartError { kind, message } = failed;
    match kind {
        PartErrorKind::Invalid => error("invalid", message),
        PartErrorKind::Unavailable => error("unavailable", message),
        PartErrorKind::Limit => error("limit", message),
        PartErrorKind::Budget => {
            error("budget", format!("{message} (`parts_cpu_secs` in [{table}])"))
        }
        PartErrorKind::Failed => error("failed", message),
    }
}

fn error(code: &str, message: String) -> Error {
    Error { code: code.to_owned(), message, meta: None }
}
