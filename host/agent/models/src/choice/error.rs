//! The errors of choosing and using a configured model.

use std::time::Duration;

use tokio::task::JoinError;
use toolhold_core::HostError;

use crate::ModelError;
use crate::choice::pause::PauseError;

/// The error of choosing a model.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// No provider of models is configured.
    #[error("no model provider is configured")]
    NoProvider,
    /// The configuration is invalid, or a key can't be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The error of a chosen model.
#[derive(Debug, thiserror::Error)]
pub enum ChosenModelError {
    /// The provider didn't list its models in time.
    #[error("the provider didn't send its list within {} s", .0.as_secs())]
    NoList(Duration),
    /// The model didn't make the vectors in time.
    #[error("the model made no vectors within {} s", .0.as_secs())]
    NoVectors(Duration),
    /// The model or its provider failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The error of a configured embedding model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddingError {
    #[error(transparent)]
    Paused(#[from] PauseError),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// Choosing the model panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error(transparent)]
    Model(#[from] ModelError),
}
