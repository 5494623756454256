//! `toolhold plugin test`: tests whether a component of any language follows the contract.
//!
//! The component runs in a host of its own with a temporary directory, and without a network or
//! programs. Its tools are called with ordinary and hostile arguments from their schemas.
//!
//! The same component and the same seed lead to the same calls in the same order.

mod calls;
mod cases;
mod component;
mod definitions;
mod judge;
mod report;
mod values;
mod world;

use std::path::Path;
use std::time::Duration;

use toolhold_core::HostError;

pub use report::{CheckResult, Finding, Report, Status};

/// The options of a test.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed for random combinations of arguments.
    pub seed: u64,
    /// The time limit of a call.
    pub time: Duration,
}

/// Tests a component, without the user's configuration, folders and cache.
///
/// # Errors
///
/// Returns [`HostError`] if the file can't be read or this machine can't run the test. Faults of
/// the component are in the report.
pub async fn test(file: &Path, options: Options) -> Result<Report, HostError> {
    component::test(file, options).await
}
