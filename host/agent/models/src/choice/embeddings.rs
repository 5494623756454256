//! The embedding models that the configuration of tools and plugins names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use toolhold_core::config::{Config, Folders};
use toolhold_core::{BoxFuture, CancellationToken, EmbeddingModel};

use crate::choice::choose::choose_model;
use crate::choice::error::{ChoiceError, EmbeddingError};
use crate::choice::model::ChosenModel;
use crate::choice::pause::ServerPause;
use crate::{ModelError, ModelErrorKind};

/// Returns the configured embedding models, by their names in `[providers]`. The first request to a
/// model reads its key. `front_end` is recorded with each request.
pub(super) fn embedding_models(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> BTreeMap<String, Arc<dyn EmbeddingModel>> {
    let mut models: BTreeMap<String, Arc<dyn EmbeddingModel>> = BTreeMap::new();
    for name in config.embedding_providers() {
        // Skip an unknown name, because `choose_model` would take it for a model of the agent's
        // provider.
        if !config.values.providers.contains_key(name) {
            continue;
        }
        let choice = Choice {
            config: config.clone(),
            folders: folders.clone(),
            directory: directory.to_owned(),
            front_end: front_end.to_owned(),
            name: name.to_owned(),
        };
        let model = NamedModel { choice, model: Arc::default(), pause: ServerPause::default() };
        models.insert(name.to_owned(), Arc::new(model));
    }
    models
}

/// The bytes of the digest in a model's ID. Eight bytes are enough to tell models apart.
const ID_BYTES: usize = 8;

/// A configured model, which is chosen at the first request.
#[derive(Debug)]
struct NamedModel {
    choice: Choice,
    /// Choosing goes on in the background if the first request ends early.
    model: Arc<OnceCell<ChosenModel>>,
    pause: ServerPause,
}

#[derive(Clone, Debug)]
struct Choice {
    config: Config,
    folders: Folders,
    directory: PathBuf,
    front_end: String,
    name: String,
}

impl Choice {
    async fn choose(&self) -> Result<ChosenModel, ChoiceError> {
        let Self { config, folders, directory, front_end, name } = self;
        choose_model(config, folders, directory, front_end, Some(name)).await
    }
}

impl NamedModel {
    async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        // A circuit breaker: after a slow failure, requests fail at once for a while.
        self.pause.check()?;
        let model = Arc::clone(&self.model);
        let choice = self.choice.clone();
        // The program that prints the key may run longer than this request. The choice has a task
        // of its own, so that a later request finds the key.
        let choosing =
            tokio::spawn(async move { model.get_or_try_init(|| choice.choose()).await.cloned() });
        let chosen = choosing.await?;
        let ChosenModel { client, provider, model } = chosen?;

        let request = self.pause.begin();
        let vectors = client.embed(&provider, &model, texts, &CancellationToken::new()).await;
        let unanswered = match &vectors {
            Err(error) if is_unanswered(error) => Some(error.to_string()),
            _ => None,
        };
        request.end(unanswered);
        Ok(vectors?)
    }
}

fn is_unanswered(error: &ModelError) -> bool {
    matches!(error.kind, ModelErrorKind::Unreachable | ModelErrorKind::Time)
}

impl EmbeddingModel for NamedModel {
    fn name(&self) -> String {
        format!("[providers.{}]", self.choice.name)
    }

    /// Returns a digest of the server, the model and the length of its vectors. Only vectors of
    /// models with the same ID can be compared.
    fn id(&self) -> String {
        let provider = self.choice.config.values.providers.get(&self.choice.name);
        let Some(provider) = provider else { return String::new() };
        let (_, base_url) = provider.place(&self.choice.name).unwrap_or_default();
        let dimensions = provider.dimensions.get();
        let digest = Sha256::digest(format!("{base_url}\n{}\n{dimensions}", provider.model));
        digest[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>> {
        Box::pin(async move { self.vectors(&texts).await.map_err(|error| error.to_string()) })
    }
}
