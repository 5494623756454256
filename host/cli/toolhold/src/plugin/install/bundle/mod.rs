//! Creates bundles of plugins, and installs whole bundles in one step.

mod contents;
mod create;
mod files;
mod plan;

use std::fmt::Display;
use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::text::neutral_line;
use toolhold_registry::bundle::BundleError;

pub(crate) use contents::{BundleContents, BundledPlugin};
pub(crate) use create::create_bundle;
pub(crate) use plan::{BundlePlan, PlannedChange, PlannedPlugin};

/// The names of files in bundles.
const LOCK: &str = "toolhold.lock";
const FILTERS: &str = "filters.toml";
const CEILING: &str = "ceiling.toml";

fn component_name(plugin: &str) -> String {
    format!("plugins/{plugin}.wasm")
}

/// Converts an error of the bundle at `path`.
fn bundle_failed(path: &Path, error: BundleError) -> HostError {
    match error {
        BundleError::File { path, error } => HostError::io(neutral_line(&path))(error),
        other => HostError::Load {
            plugin: neutral_line(&path.display().to_string()),
            reason: other.to_string(),
        },
    }
}

fn refused(path: &Path, reason: impl Display) -> HostError {
    bundle_failed(path, BundleError::Refused(reason.to_string()))
}
