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

/// The most tokens of an answer, thinking included.
const MAX_OUTPUT: u32 = 4096;

/// Judges calls by the model of `provider` in `[tools.adversarial_policy]`. The key is read at the
/// first review.
pub struct ModelReviewer {
    choice: Choice,
    /// The model, once it is chosen. An [`Arc`], because choosing continues if the first review
    /// ends earlier.
    model: Arc<OnceCell<ChosenModel>>,
    thinking: ThinkingLevel,
    max_output: u32,
}

/// The data that is needed to choose the model.
#[derive(Clone)]
struct Choice {
    config: Config,
    folders: Folders,
    directory: PathBuf,
    front_end: String,
}

/// The obstacle to choosing the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewerError {
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(transparent)]
    Task(#[from] JoinError),
}

impl Choice {
    async fn choose(&self) -> Result<ChosenModel, ChoiceError> {
        let Self { config, folders, directory, front_end } = self;
        let settings = &config.values.tools.adversarial_policy;
        let chosen =
            choose_model(config, folders, directory, front_end, Some(&settings.provider)).await;
        let time = Duration::from_millis(settings.timeout_ms.get());
        chosen.map(|chosen| chosen.for_short_answers(time))
    }
}

impl ModelReviewer {
    /// Makes the reviewer of the configuration. Returns `None` if reviews aren't enabled, or if
    /// their provider isn't configured. The records of the requests name `front_end`.
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
        // Another name would be taken for a model of the agent's provider.
        let provider = config.values.providers.get(&review.provider)?;
        let most = u32::try_from(provider.max_output_tokens.get()).unwrap_or(u32::MAX);
        Some(Self {
            thinking: thinking_level(provider.thinking),
            max_output: MAX_OUTPUT.min(most),
            choice: Choice {
                config: config.clone(),
                folders: folders.clone(),
                directory: directory.to_owned(),
                front_end: front_end.to_owned(),
            },
            model: Arc::default(),
        })
    }

    /// Returns the model. It is chosen only once.
    ///
    /// # Errors
    ///
    /// Returns an error if the model can't be chosen, or if its key can't be read.
    pub(crate) async fn chosen(&self) -> Result<ChosenModel, ReviewerError> {
        if let Some(model) = self.model.get() {
            return Ok(model.clone());
        }
        let model = Arc::clone(&self.model);
        let choice = self.choice.clone();
        // A program that prints the key may run longer than a review.
        let chosen =
            tokio::spawn(async move { model.get_or_try_init(|| choice.choose()).await.cloned() });
        Ok(chosen.await??)
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
            // The host drops this when the call is cancelled.
            let never = CancellationToken::new();
            match model.ask(&turn, &mut |_| {}, &never).await {
                Ok(answer) => verdict(&answer),
                Err(error) => without_answer(&error),
            }
        })
    }
}
