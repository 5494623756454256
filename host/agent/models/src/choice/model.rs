//! A chosen model of the configuration: asks it, lists its provider's models, and has it make
//! vectors.

use std::time::Duration;

use toolhold_core::CancellationToken;

use crate::choice::error::ChosenModelError;
use crate::{
    AnswerTimes, ListedModel, ModelAnswer, ModelClient, ModelEndpoint, ModelError, ModelEvent,
    ModelRetries, Turn, WireCaps,
};

/// How long a provider has for the list of its models.
const LIST: Duration = Duration::from_secs(30);

/// Bytes of a short answer. Some formats repeat the request in its last event.
const SHORT: usize = 256 << 10;

/// A provider and its model, ready to be asked.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub(crate) client: ModelClient,
    pub(crate) provider: ModelEndpoint,
    pub(crate) model: String,
}

impl ChosenModel {
    /// Asks the model, and gives the parts of its answer as they come.
    ///
    /// # Errors
    ///
    /// There is no whole answer.
    pub async fn ask(
        &self,
        turn: &Turn,
        on_event: &mut (dyn FnMut(ModelEvent) + Send),
        cancel: &CancellationToken,
    ) -> Result<ModelAnswer, ModelError> {
        self.client.ask(&self.provider, turn, on_event, cancel).await
    }

    /// The same for short answers, which have to be whole within `time`. Nothing of the provider's
    /// table makes the time shorter.
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

    /// The address of the provider, with its key and its options.
    pub fn endpoint(&self) -> &ModelEndpoint {
        &self.provider
    }

    /// The provider's name.
    pub fn provider(&self) -> &str {
        self.provider.name()
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The provider and the model, as `PROVIDER/MODEL`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.provider(), self.model)
    }

    /// The models that the provider has.
    ///
    /// # Errors
    ///
    /// The provider can't be asked.
    pub async fn list(&self) -> Result<Vec<ListedModel>, ChosenModelError> {
        let never = CancellationToken::new();
        let listed = tokio::time::timeout(LIST, self.client.list(&self.provider, &never)).await;
        Ok(listed.map_err(|_| ChosenModelError::NoList(LIST))??)
    }

    /// The vector of each text, if it is a model that makes vectors.
    ///
    /// # Errors
    ///
    /// There isn't a vector for each text.
    pub async fn embed(
        &self,
        texts: &[String],
        time: Duration,
    ) -> Result<Vec<Vec<f32>>, ChosenModelError> {
        let never = CancellationToken::new();
        let asked = self.client.embed(&self.provider, &self.model, texts, &never);
        let asked = tokio::time::timeout(time, asked).await;
        Ok(asked.map_err(|_| ChosenModelError::NoVectors(time))??)
    }

    /// Tokens that it reads at once. `None`: its provider doesn't say.
    pub async fn context_window(&self) -> Option<u64> {
        let never = CancellationToken::new();
        let asked = self.client.context_window(&self.provider, &self.model, &never);
        tokio::time::timeout(Duration::from_secs(5), asked).await.ok()?.ok()?
    }
}
