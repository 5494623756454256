//! Passes the commands that plugins start to the rules about commands, and failed ones to the
//! advice about the sandbox.

use std::sync::Arc;

use toolhold_contract::Denial;
use toolhold_engine::capability::process::{CommandAdvisor, FailedCommand};
use toolhold_policy::Decision;

use super::advice::SandboxAdvisor;

/// Checks commands against the rules about commands, which apply besides the grants.
pub trait CommandGate: Send + Sync {
    /// Returns the decision against a command line that a plugin starts. Returns `None` if no rule
    /// is against it.
    fn check_command(&self, line: &str) -> Option<Decision>;
}

/// Combines the gate for commands and the advisor that knows the sandbox.
pub(super) struct PluginAdvisor {
    pub(super) gate: Arc<dyn CommandGate>,
    pub(super) sandbox: SandboxAdvisor,
}

impl CommandAdvisor for PluginAdvisor {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // A decision to ask is a refusal here, since there is no approval in the middle of a call.
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
