//! Tests whether a component keeps to the contract, in any language: `toolhold plugin test`.
//!
//! The component is loaded in a host of its own, in a world that is thrown away: one temporary
//! directory, no host that answers, no program. Its tools are called with arguments that are made
//! from their schemas, the ordinary ones and the hostile ones. Arguments that violate a schema
//! never reach a tool, since the host refuses them first. The test checks that too.
//!
//! The same component and the same seed make the same calls in the same order.

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
    /// The seed that decides which arguments are combined.
    pub seed: u64,
    /// The time that a call may take.
    pub time: Duration,
}

/// Tests a component. Nothing of the user's configuration, folders and cache is used.
///
/// # Errors
///
/// [`HostError`]: the file can't be read, or this machine can't run the test. The report has the
/// faults of the component.
pub async fn test(file: &Path, options: Options) -> Result<Report, HostError> {
    component::test(file, options).await
}
