//! `toolhold plugin test`: tests whether a component follows the contract, in any language.
//!
//! The component is loaded in a separate host with a temporary environment: one directory, no
//! reachable server and no program. Its tools are called with ordinary and hostile arguments, which
//! are made from their schemas. The host refuses arguments that violate a schema before they reach
//! a tool, and the test checks this too.
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
    /// The time limit of a call.
    pub time: Duration,
}

/// Tests a component without the user's configuration, folders and cache.
///
/// # Errors
///
/// Returns [`HostError`] if the file can't be read, or if this machine can't run the test. Faults
/// of the component are in the report.
pub async fn test(file: &Path, options: Options) -> Result<Report, HostError> {
    component::test(file, options).await
}
