//! The models that `embeddings` of tools and plugins names in the configuration.

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
use crate::choice::rest::Rest;
use crate::{ModelError, ModelErrorKind};

/// Returns the models that `embeddings` names for tools and plugins, by their tables of
/// `[providers]`. A model's key is read at its first request. The request records name `front_end`.
pub(super) fn embedding_models(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> BTreeMap<String, Arc<dyn EmbeddingModel>> {
    let mut models: BTreeMap<String, Arc<dyn EmbeddingModel>> = BTreeMap::new();
    for name in config.embedding_providers() {
        // Another name would be taken for a model of the agent's provider.
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
        let model = NamedModel { choice, model: Arc::default(), rest: Rest::default() };
        models.insert(name.to_owned(), Arc::new(model));
    }
    models
}

/// The model of one table. The model is chosen at the first request.
#[derive(Debug)]
struct NamedModel {
    choice: Choice,
    /// The model, once it is chosen. An [`Arc`], because choosing continues if the first request
    /// ends earlier.
    model: Arc<OnceCell<ChosenModel>>,
    rest: Rest,
}

/// The data that is needed to choose a model.
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
    /// Requests the vector of each text.
    async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        self.rest.check()?;
        let model = Arc::clone(&self.model);
        let choice = self.choice.clone();
        // A program that prints the key may run longer than a request.
        let chosen =
            tokio::spawn(async move { model.get_or_try_init(|| choice.choose()).await.cloned() });
        let ChosenModel { client, provider, model } = chosen.await??;

        let request = self.rest.begin();
        let vectors = client.embed(&provider, &model, texts, &CancellationToken::new()).await;
        let unanswered = match &vectors {
            Err(error) if is_unanswered(error) => Some(error.to_string()),
            _ => None,
        };
        request.end(unanswered);
        Ok(vectors?)
    }
}

/// Checks whether the provider gave no answer at all.
fn is_unanswered(error: &ModelError) -> bool {
    matches!(error.kind, ModelErrorKind::Unreachable | ModelErrorKind::Time)
}

impl EmbeddingModel for NamedModel {
    fn name(&self) -> String {
        format!("[providers.{}]", self.choice.name)
    }

    fn id(&self) -> String {
        let provider = self.choice.config.values.providers.get(&self.choice.name);
        let Some(provider) = provider else { return String::new() };
        let (_, place) = provider.place(&self.choice.name).unwrap_or_default();
        let numbers = provider.dimensions.get();
        let digest = Sha256::digest(format!("{place}\n{}\n{numbers}", provider.model));
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, String>> {
        Box::pin(async move { self.vectors(&texts).await.map_err(|error| error.to_string()) })
    }
}
