//! The model and the vector database of the configuration.

mod choose;
mod embeddings;
mod error;
mod findings;
mod found;
mod listeners;
mod local;
mod model;
mod pause;
mod qdrant;

use std::path::Path;

use toolhold_core::CapabilityProviders;
use toolhold_core::config::{Config, Folders};

pub use choose::{choose_model, thinking_level};
pub use error::{ChoiceError, ChosenModelError};
pub use findings::model_finding;
pub use found::{
    EnvironmentProvider, FoundProviders, add_found_providers, providers_from_environment,
};
pub use model::ChosenModel;
pub use toolhold_core::config::{KNOWN_PROVIDERS, KnownProvider};

use embeddings::embedding_models;
use qdrant::vector_database;

/// Returns the configured embedding models and the configured vector database for plugins.
/// `front_end` is recorded with each request.
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
