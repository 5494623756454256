//! Which model of the configuration is meant, ready to be asked.

mod choose;
mod embeddings;
mod error;
mod local;
mod model;

pub use choose::{choose_model, thinking_level};
pub use embeddings::embedding_models;
pub use error::ChoiceError;
pub use local::{LocalServer, find_local_servers};
pub use model::ChosenModel;
