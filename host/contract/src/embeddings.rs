//! The interface of a model that makes vectors of texts.

use std::fmt;

use crate::BoxFuture;

/// A model that makes vectors of texts.
pub trait EmbeddingModel: fmt::Debug + Send + Sync + 'static {
    /// Its name in the configuration, for people.
    fn name(&self) -> String;

    /// Distinguishes the model's vectors from those of other models, without asking the model.
    fn id(&self) -> String;

    /// The vector of each text, in the same order. The texts go where the operator said, as they
    /// are. The caller bounds the time, and drops the future when it is over.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>>;
}
