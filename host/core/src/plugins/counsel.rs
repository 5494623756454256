//! What the configuration says of single commands that plugins start.

use std::sync::Arc;

use berth_contract::Denial;
use berth_runtime::Failed;

use crate::governor::Governor;

/// Asks whoever decides on calls.
pub(super) struct Counsel {
    pub(super) governor: Arc<Governor>,
}

impl berth_runtime::Counsel for Counsel {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // What asks where a person could be asked is refused here: nobody is, in the middle of a call.
        let decision = self.governor.blocklisted(line)?;
        Some(decision.denial(format!("run {}", berth_contract::text::neutral_line(berth_contract::text::cut(line, 512)))))
    }

    fn advice(&self, _failed: &Failed<'_>) -> Vec<String> {
        Vec::new()
    }
}
