//! What the configuration says of single commands that plugins start.

use std::sync::Arc;

use berth_contract::Denial;
use berth_runtime::Failed;

use crate::governor::Governor;
use berth_config::{Advisor, Ended};

/// Asks whoever decides on calls, and whoever knows what the sandbox holds.
pub(super) struct Counsel {
    pub(super) governor: Arc<Governor>,
    pub(super) advisor: Advisor,
}

impl berth_runtime::Counsel for Counsel {
    fn blocked(&self, line: &str) -> Option<Denial> {
        // What asks where a person could be asked is refused here: nobody is, in the middle of a call.
        let decision = self.governor.blocklisted(line)?;
        Some(decision.denial(format!("run {}", berth_contract::text::neutral_line(berth_contract::text::cut(line, 512)))))
    }

    fn advice(&self, failed: &Failed<'_>) -> Vec<String> {
        let Failed { code, stdout, stderr, network, path_rules } = *failed;
        self.advisor.about(&Ended { code, stdout, stderr, network, path_rules })
    }
}
