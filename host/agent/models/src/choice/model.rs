//! A model that the configuration chose. Asks the model, lists the models of its provider, and
//! makes vectors.

use std::time::Duration;

use toolhold_core::CancellationToken;

use crate::choice::error::ChosenModelError;
use crate::{
    AnswerTimes, ListedModel, ModelAnswer, ModelClient, ModelEndpoint, ModelError, ModelEvent,
    ModelRetries, Turn, WireCaps,
};

/// The time limit for the list of a provider's models.
const LIST: Duration = Duration::from_secs(30);

/// Most bytes of a short answer. Some formats repeat the request in the last event.
const SHORT: usize = 256 << 10;

/// A provider with its model.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub(crate) client: ModelClient,
    pub(crate) provider: ModelEndpoint,
    pub(crate) model: String,
}

impl ChosenModel {
    /// Asks the model, and passes the parts of its answer to `on_event` as they arrive.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no complete answer.
    pub async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        self.client.ask(&self.provider, turn, on_event, cancel).await
    }

    /// Sets the limits for short answers, which must be complete within `time`. The provider's
    /// table can't shorten this time.
    #[must_use]
    pub fn for_short_answers(mut self, time: Duration) -> Self {
        self.client.times = AnswerTimes { first: time, idle: time, total: time };
        // Later attempts would only run out of time, and hide the fault.
        self.client.retries = ModelRetries { count: 1, base: time / 10, longest: time / 4 };
        self.client.caps = WireCaps {
            event: SHORT,
            arguments: SHORT,
            answer: SHORT,
            stream: 4 * SHORT as u64,
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
    /// The provider can't be asked.
    pub async fn list(&self) -> Result<Vec<ListedModel>, ChosenModelError> {
        let never = CancellationToken::new();
        match tokio::time::timeout(LIST, self.client.list(&self.provider, &never)).await {
            Ok(listed) => Ok(listed?),
            Err(_) => Err(ChosenModelError::NoList(LIST)),
        }
    }

    /// Returns the vector of each text, if the model makes vectors.
    ///
    /// # Errors
    ///
    /// Returns an error if a text has no vector.
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

    /// Returns the size of the model's context in tokens, or `None` if the provider doesn't report
    /// it.
    pub async fn context_window(&self) -> Option<u64> {
        let never = CancellationToken::new();
        let asking = self.client.context_window(&self.provider, &self.model, &never);
        match tokio::time::timeout(Duration::from_secs(5), asking).await {
            Ok(Ok(tokens)) => tokens,
            _ => None,
        }
    }
}
