//! The record of every call.

use berth_contract::{Failure, Outcome};

use crate::facts::Facts;

/// Writes the record. Each function returns when what it wrote is with the system.
#[derive(Debug, Default)]
pub(crate) struct Audit;

impl Audit {
    /// Records what is about to be done.
    ///
    /// # Errors
    ///
    /// It can't be recorded, and so must not be done.
    pub(crate) async fn intent(&self, _facts: &Facts) -> Result<(), Failure> {
        Ok(())
    }

    /// Records what a call came to, before anybody hears of it.
    ///
    /// # Errors
    ///
    /// It can't be recorded, and so nobody may hear of it.
    pub(crate) async fn outcome(&self, _facts: &Facts, _outcome: &Outcome) -> Result<(), Failure> {
        Ok(())
    }
}
