//! The reasons why no model can be asked, and why a chosen model gave no list or no vectors, for
//! the person.

use std::time::Duration;

use tokio::task::JoinError;
use toolhold_core::HostError;

use crate::ModelError;
use crate::choice::rest::RestError;

/// The reason why no model can be asked.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// No provider of models is configured.
    #[error("no provider of models is configured")]
    NoProvider,
    /// The configuration is wrong, or a key can't be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The reason why a chosen model gave no list or no vectors.
#[derive(Debug, thiserror::Error)]
pub enum ChosenModelError {
    /// The provider didn't list its models in time.
    #[error("no whole list within {} s", .0.as_secs())]
    NoList(Duration),
    /// The model didn't make the vectors in time.
    #[error("no vectors within {} s", .0.as_secs())]
    NoVectors(Duration),
    /// The model or its provider failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The reason why a configured embedding model made no vectors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddingError {
    #[error(transparent)]
    Rest(#[from] RestError),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// Choosing the model panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error(transparent)]
    Model(#[from] ModelError),
}
