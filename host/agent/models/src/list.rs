//! Lists the models of a provider and the sizes of their contexts.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde_json::value::RawValue;
use toolhold_contract::CancellationToken;
use toolhold_net::requests::{Request, Response};

use crate::body::object;
use crate::driver::{ModelClient, cancelled};
use crate::endpoint::ModelEndpoint;
use crate::failure::{ModelError, ModelErrorKind};
use crate::guard::KeyGuards;
use crate::raw::Fields;
use crate::wire_types::WireFormat;

/// The most bytes of a list. The longest known lists have a few hundred models with a page of text
/// each.
const MAX_LIST: usize = 16 << 20;

const MAX_MODELS: usize = 10_000;

/// The most bytes of a model's name. Models with longer names are left out.
const MAX_NAME: usize = 256;

/// A listed model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The model's name in requests.
    pub name: String,
    /// The size of the context in tokens, if the server reports it.
    pub context: Option<u64>,
    /// The most tokens of an answer, if the server reports them.
    pub max_output: Option<u64>,
}

impl ModelClient {
    /// Lists the models of a provider, in the provider's order. A failed request isn't repeated.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider gives no list.
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

    /// Returns the size of a model's context in tokens: the configured size, or else the size that
    /// the server reports. Returns `None` if no size is known.
    ///
    /// # Errors
    ///
    /// Fails if the server doesn't answer.
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

    /// Requests the list of models. Models with an invalid name are left out.
    async fn request_list(&self, provider: &ModelEndpoint) -> Result<Vec<ListedModel>, ModelError> {
        let (path, headers, list_field) = match provider.format() {
            WireFormat::Messages => {
                ("/models?limit=1000", vec![("anthropic-version", "2023-06-01")], "data")
            }
            WireFormat::Chat | WireFormat::Responses => ("/models", Vec::new(), "data"),
            WireFormat::Ollama => ("/api/tags", Vec::new(), "models"),
        };
        let request = provider.request(Method::GET, path, headers)?;
        let no_model = "";
        let body = self.read(provider, request, no_model).await?;
        let items = listed_items(provider, list_field, &body)?;
        if items.len() > MAX_MODELS {
            let message = format!("the provider lists more than {MAX_MODELS} models, the limit");
            return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
        }
        let mut models = Vec::new();
        for item in items {
            models.extend(listed_model(item.get()));
        }
        Ok(models)
    }

    /// Returns the context size of the running model in Ollama, or else the largest size for which
    /// the model was trained.
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
        for (name, _) in info.iter() {
            // The field's name starts with the architecture, as in `llama.context_length`.
            if name.ends_with(".context_length") {
                return Ok(info.number(name));
            }
        }
        Ok(None)
    }

    /// Sends a request, and reads the whole body. Keys in the body are hidden. Fails if the body
    /// exceeds [`MAX_LIST`], or if it contains a key with escapes.
    pub(crate) async fn read(
        &self,
        provider: &ModelEndpoint,
        request: Request,
        model: &str,
    ) -> Result<String, ModelError> {
        let response = self.send(provider, request, model).await?;
        let bytes = read_body(provider, response).await?;
        let guard = KeyGuards::new(provider.keys());
        let body = guard.hidden(&String::from_utf8_lossy(&bytes));
        if guard.is_in_text(&body) {
            let message = "the provider's answer contains the key, so the answer isn't used";
            return Err(ModelError::new(ModelErrorKind::Malformed, provider.name(), message));
        }
        Ok(body)
    }
}

/// Fails if the body exceeds [`MAX_LIST`].
async fn read_body(
    provider: &ModelEndpoint,
    mut response: Response,
) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(bytes),
            Err(error) => return Err(ModelError::from_outbound_error(provider.name(), &error)),
        };
        if bytes.len() + chunk.len() > MAX_LIST {
            let message =
                format!("the provider's answer has more than {} MiB, the limit", MAX_LIST >> 20);
            return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Returns the items of the list in `body`. `list_field` is the usual name of the list.
fn listed_items<'b>(
    provider: &ModelEndpoint,
    list_field: &str,
    body: &'b str,
) -> Result<Vec<&'b RawValue>, ModelError> {
    let Some(fields) = Fields::parse(body) else {
        // Some servers answer with a list instead of an object.
        return serde_json::from_str(body)
            .map_err(|_| unreadable(provider, "the answer isn't a JSON list"));
    };
    // Some servers name the list `models` in every format.
    for field in [list_field, "models"] {
        if fields.raw(field).is_some() {
            return Ok(fields.items(field));
        }
    }
    Err(unreadable(provider, &format!("`{list_field}` is missing in the answer")))
}

/// Returns the context size of a model in Ollama's list of running models, or `None` if the model
/// isn't running.
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
        "the list of models can't be read: {why}. Check the base URL {}",
        provider.base_url()
    );
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

/// Reads a listed model, or returns `None` if the model has no valid name. Servers name the fields
/// differently: the first field with a positive number applies.
fn listed_model(item: &str) -> Option<ListedModel> {
    let fields = Fields::parse(item)?;
    let name = fields.nonempty_text("id").or_else(|| fields.nonempty_text("name"))?;
    if name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return None;
    }
    let meta = fields.object("meta").unwrap_or_default();
    let top_provider = fields.object("top_provider").unwrap_or_default();
    let context = [
        // The size at the running server takes precedence over the trained size.
        meta.number("n_ctx"),
        fields.number("loaded_context_length"),
        fields.number("max_model_len"),
        fields.number("max_input_tokens"),
        fields.number("context_window"),
        top_provider.number("context_length"),
        fields.number("context_length"),
        fields.number("max_context_length"),
        meta.number("n_ctx_train"),
    ];
    let max_output = [
        fields.number("max_tokens"),
        fields.number("max_output_tokens"),
        fields.number("max_completion_tokens"),
        top_provider.number("max_completion_tokens"),
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
