//! The reviewer that asks the model of `[tools.adversarial_policy]` about a call.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::JoinError;
use toolhold_core::config::{Config, Folders};
use toolhold_core::{BoxFuture, CallReviewer, CancellationToken, ReviewVerdict, ReviewedCall};
use toolhold_models::ThinkingLevel;
use toolhold_models::choice::{ChoiceError, ChosenModel, choose_model, thinking_level};

use crate::review::answer::{verdict, without_answer};
use crate::review::turn::review_turn;

/// The most tokens of an answer, including thinking.
const MAX_OUTPUT: u32 = 4096;

/// Reviews calls with the model of `provider` in `[tools.adversarial_policy]`. The first review
/// reads the API key.
pub struct ModelReviewer {
    choice: Choice,
    /// The model, after it was chosen. Choosing goes on if the first review ends early.
    model: Arc<OnceCell<ChosenModel>>,
    thinking: ThinkingLevel,
    max_output: u32,
}

#[derive(Clone)]
struct Choice {
    config: Config,
    folders: Folders,
    directory: PathBuf,
    front_end: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewerError {
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(transparent)]
    Task(#[from] JoinError),
}

impl Choice {
    /// Chooses the reviewing model. The time limit of a review applies to its requests.
    async fn choose(&self) -> Result<ChosenModel, ChoiceError> {
        let Self { config, folders, directory, front_end } = self;
        let settings = &config.values.tools.adversarial_policy;
        let provider = Some(settings.provider.as_str());
        let chosen = choose_model(config, folders, directory, front_end, provider).await?;
        let time = Duration::from_millis(settings.timeout_ms.get());
        Ok(chosen.for_short_answers(time))
    }
}

impl ModelReviewer {
    /// Makes the reviewer of the configuration. Returns `None` if reviews are off or their provider
    /// isn't configured. `front_end` is recorded with each request.
    pub fn from_config(
        config: &Config,
        folders: &Folders,
        directory: &Path,
        front_end: &str,
    ) -> Option<Self> {
        let review = &config.values.tools.adversarial_policy;
        if !review.enabled {
            return None;
        }
        // Look up the provider here, because `choose_model` takes an unknown name for a model of
        // the agent's provider.
        let provider = config.values.providers.get(&review.provider)?;
        let provider_max = u32::try_from(provider.max_output_tokens.get()).unwrap_or(u32::MAX);
        Some(Self {
            thinking: thinking_level(provider.thinking),
            max_output: MAX_OUTPUT.min(provider_max),
            choice: Choice {
                config: config.clone(),
                folders: folders.clone(),
                directory: directory.to_owned(),
                front_end: front_end.to_owned(),
            },
            model: Arc::default(),
        })
    }

    /// Returns the model. The first call of this function chooses the model.
    pub(crate) async fn chosen(&self) -> Result<ChosenModel, ReviewerError> {
        if let Some(model) = self.model.get() {
            return Ok(model.clone());
        }
        let model = Arc::clone(&self.model);
        let choice = self.choice.clone();
        // The program that prints the key may run longer than a review. So the choice runs in a
        // task of its own, and a later review finds the key.
        let choosing =
            tokio::spawn(async move { model.get_or_try_init(|| choice.choose()).await.cloned() });
        let chosen = choosing.await?;
        Ok(chosen?)
    }
}

impl CallReviewer for ModelReviewer {
    fn review<'a>(&'a self, call: &'a ReviewedCall<'a>) -> BoxFuture<'a, ReviewVerdict> {
        Box::pin(async move {
            let model = match self.chosen().await {
                Ok(model) => model,
                Err(error) => return ReviewVerdict::Failed(error.to_string()),
            };
            let thinking = self.thinking.clone();
            let turn = match review_turn(call, model.model(), thinking, self.max_output) {
                Ok(turn) => turn,
                Err(why) => return ReviewVerdict::Deny(why.to_owned()),
            };
            // No token is needed, because the host drops this future when the call is cancelled.
            let never = CancellationToken::new();
            match model.ask(&turn, &mut |_| {}, &never).await {
                Ok(answer) => verdict(&answer),
                Err(error) => without_answer(&error),
            }
        })
    }
}
