//! `toolhold:host/parts` for guests: runs a part of the plugin on inputs.

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

/// The parts of a call's plugin.
pub(crate) struct PartsAccess {
    runtime: Arc<Runtime>,
    parts: Arc<Parts>,
    /// The processor time that remains for the call's parts.
    left: Duration,
    /// The number of bytes that remain for all answers of one function call.
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
            let denied = host_error("denied", "no parts are granted to this plugin");
            return Ok(vec![Err(denied); count]);
        }
        self.call.watch.may_block().await;
        let call = &self.call;
        let Some(access) = &mut self.capabilities.parts else { return Ok(Vec::new()) };
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
            cpu: access.left,
            output: access.output,
        };
        let compiler = &access.runtime.compiler;
        let (results, used) = access.parts.run(engine, compiler, &part, inputs, bounds);
        access.left = access.left.saturating_sub(used);
        let table = &call.table.name;
        Ok(results
            .into_iter()
            .map(|result| result.map_err(|error| convert_error(error, table)))
            .collect())
    }
}

/// Converts an error of a part for the guest. `table`: the configuration table of the grant, for
/// the remedy.
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
