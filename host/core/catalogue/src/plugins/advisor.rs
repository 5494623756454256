//! Checks the commands that plugins start against the rules about commands, and passes failed
//! commands to the sandbox advice.

use std::sync::Arc;

use toolhold_contract::Denial;
use toolhold_engine::capability::process::{CommandAdvisor, FailedCommand};
use toolhold_policy::Decision;

use super::advice::SandboxAdvisor;

/// Checks commands against the rules about commands, which apply in addition to the grants.
pub trait CommandGate: Send + Sync {
    /// Returns the decision that denies a command line of a plugin or requires approval. Returns
    /// `None` if the rules allow it.
    fn check_command(&self, line: &str) -> Option<Decision>;
}

/// Combines the gate for commands and the advisor that knows the sandbox.
pub(super) struct PluginAdvisor {
    pub(super) gate: Arc<dyn CommandGate>,
    pub(super) sandbox: SandboxAdvisor,
}

impl CommandAdvisor for PluginAdvisor {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // A decision to ask denies the command here, because approval isn't possible in the middle
        // of a call.
        let decision = self.gate.check_command(line)?;
        Some(decision.denial(format!(
            "run {}",
            toolhold_contract::text::neutral_line(toolhold_contract::text::cut(line, 512))
        )))
    }

    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String> {
        self.sandbox.advise(failed)
    }
}
