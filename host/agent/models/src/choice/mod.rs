//! The model and the database of vectors that the configuration means, ready to be asked.

mod choose;
mod embeddings;
mod error;
mod local;
mod model;
mod qdrant;
mod rest;

pub use choose::{choose_model, thinking_level};
pub use embeddings::embedding_models;
pub use error::{ChoiceError, ChosenModelError};
pub use local::{LocalServer, find_local_servers};
pub use model::ChosenModel;
pub use qdrant::vector_database;
