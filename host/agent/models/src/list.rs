//! Lists the models of a provider, and how many tokens each can read.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use toolhold_contract::CancellationToken;
use toolhold_net::requests::{Request, Response};

use crate::body::object;
use crate::driver::{ModelClient, cancelled};
use crate::endpoint::ModelEndpoint;
use crate::failure::{ModelError, ModelErrorKind};
use crate::guard::KeyGuards;
use crate::raw::Fields;
use crate::wire_types::WireFormat;

/// The most bytes of a list of models. The longest lists have a few hundred models, with a page of
/// text for each.
const MAX_LIST: usize = 16 << 20;

/// Most models of a list.
const MAX_MODELS: usize = 10_000;

/// Most bytes of a model's name.
const MAX_NAME: usize = 256;

/// A model that a provider has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The model's name in requests.
    pub name: String,
    /// The size of the model's context in tokens, if the server reports it.
    pub context: Option<u64>,
    /// The most tokens of an answer, if the server reports it.
    pub max_output: Option<u64>,
}

impl ModelClient {
    /// Lists the models of a provider, in the provider's order. A failed request isn't repeated.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider doesn't give a list.
    pub async fn list(
        &self,
        provider: &ModelEndpoint,
        cancel: &CancellationToken,
    ) -> Result<Vec<ListedModel>, ModelError> {
        match cancel.run_until_cancelled(self.request_list(provider)).await {
            Some(result) => result.map_err(|error| provider.hide_keys_in(error)),
            None => Err(cancelled(provider)),
        }
    }

    /// Returns the size of a model's context in tokens. A number that is set for the provider takes
    /// precedence over the server's number. Returns `None` if there is no number.
    ///
    /// # Errors
    ///
    /// Returns an error if the server doesn't answer.
    pub async fn context_window(
        &self,
        provider: &ModelEndpoint,
        model: &str,
        cancel: &CancellationToken,
    ) -> Result<Option<u64>, ModelError> {
        match cancel.run_until_cancelled(self.find_window(provider, model)).await {
            Some(result) => result.map_err(|error| provider.hide_keys_in(error)),
            None => Err(cancelled(provider)),
        }
    }

    async fn find_window(
        &self,
        provider: &ModelEndpoint,
        model: &str,
    ) -> Result<Option<u64>, ModelError> {
        if let Some(configured) = provider.options().context {
            return Ok(Some(configured));
        }
        if provider.format() == WireFormat::Ollama {
            return self.ollama_window(provider, model).await;
        }
        let models = self.request_list(provider).await?;
        let listed = models.iter().find(|listed| listed.name == model);
        Ok(listed.and_then(|listed| listed.context))
    }

    async fn request_list(&self, provider: &ModelEndpoint) -> Result<Vec<ListedModel>, ModelError> {
        let (path, headers, list) = match provider.format() {
            WireFormat::Messages => {
                ("/models?limit=1000", vec![("anthropic-version", "2023-06-01")], "data")
            }
            WireFormat::Chat | WireFormat::Responses => ("/models", Vec::new(), "data"),
            WireFormat::Ollama => ("/api/tags", Vec::new(), "models"),
        };
        let request = provider.request(Method::GET, path, headers)?;
        let body = self.read(provider, request, "").await?;
        let items = match Fields::parse(&body) {
            Some(fields) if fields.raw(list).is_some() => fields.items(list),
            Some(fields) if fields.raw("models").is_some() => fields.items("models"),
            Some(_) => return Err(unreadable(provider, &format!("it has no `{list}`"))),
            // Some servers answer with the list alone.
            None => serde_json::from_str(&body)
                .map_err(|_| unreadable(provider, "it isn't a list in JSON"))?,
        };
        if items.len() > MAX_MODELS {
            let message = format!("it has more than {MAX_MODELS} models, the limit");
            return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
        }
        Ok(items.into_iter().filter_map(|item| listed_model(item.get())).collect())
    }

    /// Returns the size of the context in Ollama: the context of the running model, or else the
    /// context for which the model was made.
    async fn ollama_window(
        &self,
        provider: &ModelEndpoint,
        model: &str,
    ) -> Result<Option<u64>, ModelError> {
        let request = provider.request(Method::GET, "/api/ps", Vec::new())?;
        if let Ok(running) = self.read(provider, request, model).await
            && let Some(context) = running_context(&running, model)
        {
            return Ok(Some(context));
        }

        let body = object(|body| body.field("model", model));
        let request = provider
            .request(Method::POST, "/api/show", Vec::new())?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let description = self.read(provider, request, model).await?;
        let fields = Fields::parse(&description).unwrap_or_default();
        let info = fields.object("model_info").unwrap_or_default();
        // The name of the field begins with the model's architecture.
        let name = info.iter().map(|(key, _)| key).find(|key| key.ends_with(".context_length"));
        Ok(name.and_then(|name| info.number(name)))
    }

    /// Reads the whole body of an answer that isn't streamed.
    pub(crate) async fn read(
        &self,
        provider: &ModelEndpoint,
        request: Request,
        model: &str,
    ) -> Result<String, ModelError> {
        let mut response: Response = self.send(provider, request, model).await?;
        let mut bytes = Vec::new();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => return Err(ModelError::from_door(provider.name(), &error)),
            };
            if bytes.len() + chunk.len() > MAX_LIST {
                let message = format!("its answer has more than {} MiB, the limit", MAX_LIST >> 20);
                return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
            }
            bytes.extend_from_slice(&chunk);
        }

        let guard = KeyGuards::new(provider.keys());
        let body = guard.hidden(&String::from_utf8_lossy(&bytes));
        if guard.is_in_text(&body) {
            let message = "its answer contains the key, and isn't used";
            return Err(ModelError::new(ModelErrorKind::Malformed, provider.name(), message));
        }
        Ok(body)
    }
}

/// Returns the context of a model in Ollama's list of running models.
fn running_context(list: &str, model: &str) -> Option<u64> {
    for item in Fields::parse(list)?.items("models") {
        let Some(running) = Fields::parse(item.get()) else { continue };
        let names = [running.text("name"), running.text("model")];
        if names.iter().flatten().any(|name| name == model) {
            return running.number("context_length");
        }
    }
    None
}

fn unreadable(provider: &ModelEndpoint, why: &str) -> ModelError {
    let message = format!(
        "its list of models can't be read: {why}. Check the base URL {}",
        provider.base_url()
    );
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

/// Reads a model of a list, by the field names of all known servers. Returns `None` if the name of
/// the model can't be used.
fn listed_model(item: &str) -> Option<ListedModel> {
    let fields = Fields::parse(item)?;
    let name = fields.some_text("id").or_else(|| fields.some_text("name"))?;
    if name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return None;
    }
    let meta = fields.object("meta").unwrap_or_default();
    let top = fields.object("top_provider").unwrap_or_default();
    let context = [
        // The context of a running server takes precedence over the context for which the model was
        // made.
        meta.number("n_ctx"),
        fields.number("loaded_context_length"),
        fields.number("max_model_len"),
        fields.number("max_input_tokens"),
        fields.number("context_window"),
        top.number("context_length"),
        fields.number("context_length"),
        fields.number("max_context_length"),
        meta.number("n_ctx_train"),
    ];
    let max_output = [
        fields.number("max_tokens"),
        fields.number("max_output_tokens"),
        fields.number("max_completion_tokens"),
        top.number("max_completion_tokens"),
    ];
    Some(ListedModel {
        name: name.into_owned(),
        context: first_positive(&context),
        max_output: first_positive(&max_output),
    })
}

fn first_positive(numbers: &[Option<u64>]) -> Option<u64> {
    numbers.iter().flatten().copied().find(|number| *number > 0)
}
