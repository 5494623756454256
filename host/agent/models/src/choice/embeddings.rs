//! The models that `embeddings` of tools and plugins names in the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use toolhold_core::config::{Config, Folders};
use toolhold_core::{BoxFuture, CancellationToken, EmbeddingModel};

use crate::ModelErrorKind;
use crate::choice::choose::choose_model;
use crate::choice::error::{ChoiceError, EmbeddingError};
use crate::choice::model::ChosenModel;
use crate::choice::rest::Rest;

/// The models that `embeddings` of tools and plugins names, by their tables of `[providers]`. No
/// model is asked before its first texts, and its key is read then. The records of the requests
/// name `front_end`.
pub(super) fn embedding_models(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
) -> BTreeMap<String, Arc<dyn EmbeddingModel>> {
    let named = config.embedding_providers().into_iter();
    // Another name would be taken for a model of the agent's provider.
    let known = named.filter(|name| config.values.providers.contains_key(*name));
    known
        .map(|name| {
            let choice = Choice {
                config: config.clone(),
                folders: folders.clone(),
                directory: directory.to_owned(),
                front_end: front_end.to_owned(),
                name: name.to_owned(),
            };
            let model: Arc<dyn EmbeddingModel> =
                Arc::new(NamedModel { choice, model: Arc::default(), rest: Rest::default() });
            (name.to_owned(), model)
        })
        .collect()
}

/// The model of one table, chosen when it is first asked.
#[derive(Debug)]
struct NamedModel {
    choice: Choice,
    /// An [`Arc`], because the choice goes on if the first request ends before it.
    model: Arc<OnceCell<ChosenModel>>,
    rest: Rest,
}

/// The data by which a model is chosen.
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
    /// The vector of each text.
    async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        self.rest.check()?;
        let model = Arc::clone(&self.model);
        let choice = self.choice.clone();
        // A program that prints the key may take longer than a request.
        let chosen =
            tokio::spawn(async move { model.get_or_try_init(|| choice.choose()).await.cloned() });
        let ChosenModel { client, provider, model } = chosen.await??;
        let request = self.rest.begin();
        let made = client.embed(&provider, &model, texts, &CancellationToken::new()).await;
        let unanswered = made.as_ref().err().filter(|error| {
            matches!(error.kind, ModelErrorKind::Unreachable | ModelErrorKind::Time)
        });
        request.end(unanswered.map(ToString::to_string));
        Ok(made?)
    }
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
