//! The model and the database of vectors that the configuration means, ready to be asked.

mod choose;
mod embeddings;
mod error;
mod found;
mod listeners;
mod local;
mod model;
mod qdrant;
mod rest;

use std::path::Path;

use toolhold_core::CapabilityProviders;
use toolhold_core::config::{Config, Folders};

pub use choose::{choose_model, thinking_level};
pub use error::{ChoiceError, ChosenModelError};
pub use found::{FoundProvider, add_found_providers};
pub use model::ChosenModel;
pub use toolhold_core::config::{KNOWN_PROVIDERS, KnownProvider};

use embeddings::embedding_models;
use qdrant::vector_database;

/// Returns the providers for the capabilities of plugins: the configured models and the configured
/// database. The request records name `front_end`.
pub fn capability_providers(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> CapabilityProviders {
    CapabilityProviders {
        embedding_models: embedding_models(config, folders, directory, front_end),
        vector_database: vector_database(config, folders, directory, front_end),
    }
}
