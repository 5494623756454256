//! The model that the configuration chose.

use std::time::Duration;

use toolhold_core::CancellationToken;

use crate::choice::error::ChosenModelError;
use crate::{
    AnswerTimes, ListedModel, ModelAnswer, ModelClient, ModelEndpoint, ModelError, ModelEvent,
    ModelRetries, Turn, WireCaps,
};

const LIST_TIME: Duration = Duration::from_secs(30);

const CONTEXT_TIME: Duration = Duration::from_secs(5);

/// The most bytes of a short answer. Its last event may repeat the request.
const SHORT_ANSWER_BYTES: usize = 256 << 10;

/// A provider with its model.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub(crate) client: ModelClient,
    pub(crate) provider: ModelEndpoint,
    pub(crate) model: String,
}

impl ChosenModel {
    /// Asks the model, and passes events to `on_event` as they arrive.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is incomplete.
    pub async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        self.client.ask(&self.provider, turn, on_event, cancel).await
    }

    /// Sets the limits for short answers. Each attempt must be complete within `time`, even if the
    /// provider's settings allow more.
    #[must_use]
    pub fn for_short_answers(mut self, time: Duration) -> Self {
        self.client.times = AnswerTimes { first: time, idle: time, total: time };
        // More repetitions could end in a timeout instead of the server's error.
        self.client.retries = ModelRetries { count: 1, base: time / 10, longest: time / 4 };
        // A short answer is far below these limits.
        self.client.caps = WireCaps {
            event: SHORT_ANSWER_BYTES,
            arguments: SHORT_ANSWER_BYTES,
            answer: SHORT_ANSWER_BYTES,
            stream: 4 * SHORT_ANSWER_BYTES as u64,
            blocks: 64,
            calls: 4,
        };
        self
    }

    /// Returns the address of the provider, with its key and its options.
    pub fn endpoint(&self) -> &ModelEndpoint {
        &self.provider
    }

    /// Returns the provider's name.
    pub fn provider(&self) -> &str {
        self.provider.name()
    }

    /// Returns the model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the provider and the model, as `PROVIDER/MODEL`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.provider(), self.model)
    }

    /// Lists the models of the provider.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider gives no list in 30 seconds.
    pub async fn list(&self) -> Result<Vec<ListedModel>, ChosenModelError> {
        let never = CancellationToken::new();
        match tokio::time::timeout(LIST_TIME, self.client.list(&self.provider, &never)).await {
            Ok(listed) => Ok(listed?),
            Err(_) => Err(ChosenModelError::NoList(LIST_TIME)),
        }
    }

    /// Returns the vector of each text, in the order of the texts.
    ///
    /// # Errors
    ///
    /// Fails if the model doesn't make all vectors within `time`.
    pub async fn embed(
        &self,
        texts: &[String],
        time: Duration,
    ) -> Result<Vec<Vec<f32>>, ChosenModelError> {
        let never = CancellationToken::new();
        let embedding = self.client.embed(&self.provider, &self.model, texts, &never);
        match tokio::time::timeout(time, embedding).await {
            Ok(vectors) => Ok(vectors?),
            Err(_) => Err(ChosenModelError::NoVectors(time)),
        }
    }

    /// Returns the size of the model's context in tokens. Returns `None` if the provider doesn't
    /// report the size in 5 seconds.
    pub async fn context_window(&self) -> Option<u64> {
        let never = CancellationToken::new();
        let asking = self.client.context_window(&self.provider, &self.model, &never);
        match tokio::time::timeout(CONTEXT_TIME, asking).await {
            Ok(Ok(tokens)) => tokens,
            _ => None,
        }
    }
}
