//! Checks commands of plugins against the rules, and gives advice about failed commands.

use std::sync::Arc;

use toolhold_contract::Denial;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_engine::capability::process::{CommandAdvisor, FailedCommand};
use toolhold_policy::Decision;

use super::advice::SandboxAdvisor;

/// Maximum length of a command line in a denial, in bytes. A longer line is cut.
const MAX_SHOWN_LINE: usize = 512;

/// Checks commands against the rules about commands, in addition to the grants.
pub trait CommandGate: Send + Sync {
    /// Returns the decision if a rule denies a command line or requires approval.
    fn check_command(&self, line: &str) -> Option<Decision>;
}

pub(super) struct PluginAdvisor {
    pub(super) gate: Arc<dyn CommandGate>,
    pub(super) sandbox: SandboxAdvisor,
}

impl CommandAdvisor for PluginAdvisor {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // Nobody can be asked during the call, so a command that needs approval is denied.
        let decision = self.gate.check_command(line)?;
        let shown_line = neutral_line(cut(line, MAX_SHOWN_LINE));
        Some(decision.denial(format!("run {shown_line}")))
    }

    fn advice(&self, failed: &FailedCommand<'_>) -> Vec<String> {
        self.sandbox.advise(failed)
    }
}
