//! The models of the configuration that make vectors for tools and plugins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_core::config::{Folders, Loaded};
use berth_core::{BoxFuture, CancellationToken, EmbeddingModel};
use berth_models::{ModelError, ModelErrorKind};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::choose::choose_model;
use crate::model::ChosenModel;

/// How long a request takes at least that counts as waited for in vain. One that fails at once
/// costs nothing, so the next one is sent, and succeeds as soon as the server is there again.
const SLOW: Duration = Duration::from_secs(1);

/// How long a model isn't asked after such a request.
const REST: Duration = Duration::from_secs(60);

/// The models that `embeddings` of tools and plugins names, by their tables of `[providers]`. None
/// is asked before its first texts, and its key is read then. `front_end` stands in the records of
/// the requests.
pub fn embedding_models(
    config: &Loaded,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> BTreeMap<String, Arc<dyn EmbeddingModel>> {
    let named = config.embedding_providers().into_iter();
    // Another name would be taken for a model of the agent's provider.
    let known = named.filter(|name| config.config.providers.contains_key(*name));
    let model = |name: &str| {
        let choice = Choice {
            config: config.clone(),
            folders: folders.clone(),
            directory: directory.to_owned(),
            front_end: front_end.to_owned(),
            name: name.to_owned(),
        };
        let model: Arc<dyn EmbeddingModel> =
            Arc::new(NamedModel { choice, model: Arc::default(), rest: Mutex::default() });
        (name.to_owned(), model)
    };
    known.map(model).collect()
}

/// The model of one table, chosen when it is first asked.
#[derive(Debug)]
struct NamedModel {
    choice: Choice,
    /// In an [`Arc`], since the choice goes on if the first request is over before.
    model: Arc<OnceCell<ChosenModel>>,
    rest: Mutex<Rest>,
}

/// When a model may be asked again that let its callers wait in vain.
#[derive(Debug, Default)]
struct Rest(Option<(Instant, String)>);

impl Rest {
    /// Whether it may be asked at this time.
    ///
    /// # Errors
    ///
    /// It failed before, and how, and when it is asked again.
    fn check(&self, now: Instant) -> Result<(), String> {
        let Some((until, why)) = &self.0 else { return Ok(()) };
        match until.saturating_duration_since(now).as_secs_f64().ceil() {
            0.0 => Ok(()),
            left => Err(format!("it failed before, and is asked again in {left} s: {why}")),
        }
    }

    /// Takes note of a request that failed.
    fn take_failure(&mut self, began: Instant, now: Instant, why: &str) {
        if now.saturating_duration_since(began) >= SLOW {
            self.0 = Some((now + REST, why.to_owned()));
        }
    }
}

/// A request that is under way. Its caller drops it if it takes too long.
struct Request<'m> {
    rest: &'m Mutex<Rest>,
    began: Instant,
    /// Why there is no answer. `None`: there is one, if only that the texts are wrong.
    unanswered: Option<String>,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(why) = &self.unanswered {
            let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
            rest.take_failure(self.began, Instant::now(), why);
        }
    }
}

/// What a model is chosen by.
#[derive(Clone, Debug)]
struct Choice {
    config: Loaded,
    folders: Folders,
    directory: PathBuf,
    front_end: String,
    name: String,
}

impl Choice {
    async fn choose(&self) -> Result<ChosenModel, String> {
        let Self { config, folders, directory, front_end, name } = self;
        let chosen = choose_model(config, folders, directory, front_end, Some(name)).await;
        chosen.map_err(|error| error.to_string())
    }
}

impl EmbeddingModel for NamedModel {
    fn name(&self) -> String {
        format!("[providers.{}]", self.choice.name)
    }

    fn id(&self) -> String {
        let provider = self.choice.config.config.providers.get(&self.choice.name);
        let Some(provider) = provider else { return String::new() };
        let (_, place) = provider.place(&self.choice.name).unwrap_or_default();
        let numbers = provider.dimensions.get();
        let digest = Sha256::digest(format!("{place}\n{}\n{numbers}", provider.model));
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>> {
        Box::pin(async move {
            self.rest.lock().unwrap_or_else(PoisonError::into_inner).check(Instant::now())?;
            let (model, choice) = (Arc::clone(&self.model), self.choice.clone());
            // A program that prints the key may take longer than a request.
            let chosen =
                tokio::spawn(
                    async move { model.get_or_try_init(|| choice.choose()).await.cloned() },
                );
            let ChosenModel { client, provider, model } =
                chosen.await.map_err(|error| error.to_string())??;
            let unanswered = Some("it didn't answer in time".to_owned());
            let mut request = Request { rest: &self.rest, began: Instant::now(), unanswered };
            let made = client.embed(&provider, &model, &texts, &CancellationToken::new()).await;
            let is_gone = |error: &&ModelError| {
                matches!(error.kind, ModelErrorKind::Unreachable | ModelErrorKind::Time)
            };
            request.unanswered = made.as_ref().err().filter(is_gone).map(ToString::to_string);
            made.map_err(|error| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_that_lets_its_callers_wait_rests() {
        let now = Instant::now();
        let mut rest = Rest::default();
        assert_eq!(rest.check(now), Ok(()));
        rest.take_failure(now, now + SLOW / 2, "refused");
        assert_eq!(rest.check(now + SLOW), Ok(()), "a quick failure costs nothing");
        let failed = now + SLOW;
        rest.take_failure(now, failed, "no answer");
        let why = rest.check(failed + REST / 2).unwrap_err();
        assert_eq!(why, "it failed before, and is asked again in 30 s: no answer");
        assert!(rest.check(failed + REST - Duration::from_millis(1)).is_err());
        assert_eq!(rest.check(failed + REST), Ok(()));
        // What was asked then and fails too, rests anew.
        rest.take_failure(failed + REST, failed + REST + SLOW, "again");
        assert!(rest.check(failed + REST + SLOW * 2).is_err());
    }
}
