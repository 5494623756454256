//! The models and databases that the program provides for the capabilities of plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolhold_contract::{EmbeddingModel, VectorDatabase};

/// The models and databases of the program. A grant without them does nothing.
#[derive(Clone, Debug, Default)]
pub struct CapabilityProviders {
    /// The models that make vectors of texts, by their tables of `[providers]`: where `embeddings`
    /// of a tool or a plugin names one. `toolhold-models` makes those of the configuration.
    pub embedding_models: BTreeMap<String, Arc<dyn EmbeddingModel>>,
    /// The database that says which vectors are near, for `search_code`, where `vector_backend` of
    /// `[index]` names one. `toolhold-models` makes that of the configuration. `None`: the index
    /// compares all vectors itself.
    pub vector_database: Option<Arc<dyn VectorDatabase>>,
}
