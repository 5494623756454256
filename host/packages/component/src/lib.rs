//! Reads a component without running it: its file, its manifest, its schemas, and the interfaces
//! that it imports and exports. All of these are untrusted. This crate limits and neutralises their
//! texts.
//!
//! This crate compiles no component, and doesn't depend on the engine.

mod capability;
mod example;
pub mod file;
mod imports;
mod manifest;
pub mod schema;
mod settings;
mod shape;
mod versions;

pub use capability::{Capability, CapabilityFacts, Unasked};
pub use example::object_forms;
pub use imports::refusal;
pub use manifest::{
    ComponentError, Interfaces, Manifest, ManifestError, Part, PartListError, Request,
    RequestedLimits, is_name,
};
pub use schema::{SchemaCost, SchemaError};
pub use settings::PluginConfig;
pub use shape::{ShapeError, check_shape};
pub use versions::{CONTRACT_VERSION, version_refusal};
