//! What the configuration says of single commands that plugins start.

use std::sync::Arc;

use berth_contract::Denial;
use berth_policy::Decision;
use berth_runtime::FailedCommand;

use super::advice::SandboxAdvisor;

/// Knows which commands may not run, whatever is granted.
pub trait CommandGate: Send + Sync {
    /// What the rules have against a command line that a plugin starts, sure or not.
    fn check_command(&self, line: &str) -> Option<Decision>;
}

/// Asks whoever decides on calls, and whoever knows what the sandbox holds.
pub(super) struct PluginAdvisor {
    pub(super) gate: Arc<dyn CommandGate>,
    pub(super) sandbox: SandboxAdvisor,
}

impl berth_runtime::CommandAdvisor for PluginAdvisor {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // What asks where a person could be asked is refused here: nobody is, in the middle of a
        // call.
        let decision = self.gate.check_command(line)?;
        Some(decision.denial(format!(
            "run {}",
            berth_contract::text::neutral_line(berth_contract::text::cut(line, 512))
        )))
    }

    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String> {
        self.sandbox.about(failed)
    }
}
