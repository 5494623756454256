//! `toolhold:host/parts`: runs a part of the plugin on inputs.

use std::sync::Arc;
use std::time::Duration;

use toolhold_compiler::parts::{PartBounds, PartError, PartErrorKind, Parts};
use wasmtime::component::Linker;

use crate::Runtime;
use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::parts as wit;
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::convert::host_error;
use crate::guest::{CallState, HasState};

/// The state of this capability in a call.
pub(crate) struct PartsAccess {
    runtime: Arc<Runtime>,
    parts: Arc<Parts>,
    /// The remaining processor time of the call's parts.
    cpu_left: Duration,
    /// Most bytes of all answers of one function call.
    output: usize,
}

impl CallCapability for Option<PartsAccess> {
    type Grant = Duration;

    fn begin(grant: &Duration, facts: &CallFacts<'_>) -> Self {
        Some(PartsAccess {
            runtime: Arc::clone(facts.runtime),
            parts: Arc::clone(facts.parts),
            cpu_left: *grant,
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
        let Some(access) = &mut self.capabilities.parts else {
            // The instance has no call yet, or the plugin is only inspected.
            let denied = host_error("denied", "no modules are granted to this plugin");
            return Ok(vec![Err(denied); count]);
        };
        self.call.watch.may_block().await;
        let call = &self.call;
        let engine = match access.runtime.part_engine.get() {
            Ok(engine) => engine,
            Err(error) => {
                let unavailable = host_error("unavailable", error.to_string());
                return Ok(vec![Err(unavailable); count]);
            }
        };
        let bounds = PartBounds {
            deadline: call.watch.deadline(),
            cancel: call.watch.cancel.clone(),
            cpu: access.cpu_left,
            output: access.output,
        };
        let compiler = &access.runtime.compiler;
        let (results, cpu_used) = access.parts.run(engine, compiler, &part, inputs, bounds);
        access.cpu_left = access.cpu_left.saturating_sub(cpu_used);

        let table = &call.table.name;
        let mut answers = Vec::with_capacity(count);
        for result in results {
            answers.push(result.map_err(|error| convert_error(error, table)));
        }
        Ok(answers)
    }
}

/// Converts an error for the guest. An error about processor time names `table`, the configuration
/// table of the grant.
fn convert_error(error: PartError, table: &str) -> Error {
    let PartError { kind, message } = error;
    match kind {
        PartErrorKind::Invalid => host_error("invalid", message),
        PartErrorKind::Unavailable => host_error("unavailable", message),
        PartErrorKind::Limit => host_error("limit", message),
        PartErrorKind::Budget => {
            host_error("budget", format!("{message} (`parts_cpu_secs` in [{table}])"))
        }
        PartErrorKind::Failed => host_error("failed", message),
    }
}
