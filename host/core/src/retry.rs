//! Trying a call again, where that is declared to be safe and likely to help.

use berth_contract::{CancellationToken, Outcome};

use crate::facts::Facts;

/// How often and how long calls are tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry;

/// Whether a call is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Yes,
    No,
}

impl Retry {
    /// Decides whether a call that came to `outcome` is tried again, and waits for as long as that takes.
    pub(crate) async fn wait(&self, _facts: &Facts, _outcome: &Outcome, _cancel: &CancellationToken) -> Again {
        Again::No
    }
}
