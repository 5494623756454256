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

/// Most bytes of an answer with a list. The longest lists have a few hundred models with a page of
/// text each.
const MAX_LIST: usize = 16 << 20;

/// Most models of a list.
const MAX_MODELS: usize = 10_000;

/// Most bytes of a model's name.
const MAX_NAME: usize = 256;

/// A model that a provider has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name in requests.
    pub name: String,
    /// The most tokens that it reads, as far as the server says it.
    pub context: Option<u64>,
    /// The most tokens that it answers, as far as the server says it.
    pub max_output: Option<u64>,
}

impl ModelClient {
    /// The models of a provider, in its order. Each is asked once, without further attempts.
    ///
    /// # Errors
    ///
    /// There is no list.
    pub async fn list(
        &self,
        provider: &ModelEndpoint,
        cancel: &CancellationToken,
    ) -> Result<Vec<ListedModel>, ModelError> {
        let listed = cancel
            .run_until_cancelled(self.listed(provider))
            .await
            .unwrap_or_else(|| Err(cancelled(provider)));
        listed.map_err(|error| provider.hide_keys_in(error))
    }

    /// The most tokens that a model reads: the number that was set for the provider, otherwise the
    /// server's number. `None`: there is no number.
    ///
    /// # Errors
    ///
    /// The server doesn't answer.
    pub async fn context_window(
        &self,
        provider: &ModelEndpoint,
        model: &str,
        cancel: &CancellationToken,
    ) -> Result<Option<u64>, ModelError> {
        let found = async {
            if let Some(set) = provider.options().context {
                return Ok(Some(set));
            }
            if provider.format() == WireFormat::Ollama {
                return self.ollama_window(provider, model).await;
            }
            let models = self.listed(provider).await?;
            Ok(models.into_iter().find(|it| it.name == model).and_then(|it| it.context))
        };
        let found =
            cancel.run_until_cancelled(found).await.unwrap_or_else(|| Err(cancelled(provider)));
        found.map_err(|error| provider.hide_keys_in(error))
    }

    async fn listed(&self, provider: &ModelEndpoint) -> Result<Vec<ListedModel>, ModelError> {
        let (path, headers, list) = match provider.format() {
            WireFormat::Messages => {
                ("/models?limit=1000", vec![("anthropic-version", "2023-06-01")], "data")
            }
            WireFormat::Chat | WireFormat::Responses => ("/models", Vec::new(), "data"),
            WireFormat::Ollama => ("/api/tags", Vec::new(), "models"),
        };
        let body = self.read(provider, provider.request(Method::GET, path, headers)?, "").await?;
        // Some servers answer with the list alone.
        let items = match Fields::parse(&body) {
            Some(fields) if fields.raw(list).is_some() => fields.items(list),
            Some(fields) if fields.raw("models").is_some() => fields.items("models"),
            Some(_) => return Err(unreadable(provider, &format!("it has no `{list}`"))),
            None => serde_json::from_str(&body)
                .map_err(|_| unreadable(provider, "it isn't a list in JSON"))?,
        };
        if items.len() > MAX_MODELS {
            let message = format!("it has more than {MAX_MODELS} models, the limit");
            return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
        }
        Ok(items.into_iter().filter_map(|item| listed_model(item.get())).collect())
    }

    /// The tokens of a conversation that Ollama can read: the room of the running model, otherwise
    /// the length that the model was made for.
    async fn ollama_window(
        &self,
        provider: &ModelEndpoint,
        model: &str,
    ) -> Result<Option<u64>, ModelError> {
        let request = provider.request(Method::GET, "/api/ps", Vec::new())?;
        if let Ok(running) = self.read(provider, request, model).await {
            let fields = Fields::parse(&running).unwrap_or_default();
            let items = fields.items("models");
            let mut models = items.iter().filter_map(|item| Fields::parse(item.get()));
            let wanted = models.find(|it| {
                ["name", "model"].iter().any(|key| it.text(key).as_deref() == Some(model))
            });
            let running = wanted.and_then(|it| it.number("context_length"));
            if running.is_some() {
                return Ok(running);
            }
        }
        let body = object(|body| body.field("model", model));
        let request = provider
            .request(Method::POST, "/api/show", Vec::new())?
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let shown = self.read(provider, request, model).await?;
        let info = Fields::parse(&shown)
            .and_then(|fields| fields.object("model_info"))
            .unwrap_or_default();
        let name = info.iter().map(|(key, _)| key).find(|key| key.ends_with(".context_length"));
        Ok(name.and_then(|name| info.number(name)))
    }

    /// The whole body of an answer that isn't streamed.
    pub(crate) async fn read(
        &self,
        provider: &ModelEndpoint,
        request: Request,
        model: &str,
    ) -> Result<String, ModelError> {
        let mut answer: Response = self.send(provider, request, model).await?;
        let mut body = Vec::new();
        loop {
            let read = answer.chunk().await;
            let Some(piece) =
                read.map_err(|error| ModelError::from_door(provider.name(), &error))?
            else {
                break;
            };
            if body.len() + piece.len() > MAX_LIST {
                let message = format!("its answer has more than {} MiB, the limit", MAX_LIST >> 20);
                return Err(ModelError::new(ModelErrorKind::Cap, provider.name(), message));
            }
            body.extend_from_slice(&piece);
        }
        let guard = KeyGuards::new(provider.keys());
        let body = guard.hidden(&String::from_utf8_lossy(&body));
        if guard.is_in_text(&body) {
            let message = "its answer contains the key, and isn't used";
            return Err(ModelError::new(ModelErrorKind::Malformed, provider.name(), message));
        }
        Ok(body)
    }
}

fn unreadable(provider: &ModelEndpoint, why: &str) -> ModelError {
    let message = format!(
        "its list of models can't be read: {why}. Check the base URL {}",
        provider.base_url()
    );
    ModelError::new(ModelErrorKind::Malformed, provider.name(), message)
}

/// A model of a list, read by the words of all known servers. A model whose name can't be used is
/// left out.
fn listed_model(item: &str) -> Option<ListedModel> {
    let fields = Fields::parse(item)?;
    let name = fields.some_text("id").or_else(|| fields.some_text("name"))?;
    let is_usable = name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    let meta = fields.object("meta").unwrap_or_default();
    let top = fields.object("top_provider").unwrap_or_default();
    let context = [
        // The room of a running server comes before the length that the model was made for.
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
    is_usable.then(|| ListedModel {
        name: name.into_owned(),
        context: first_positive(&context),
        max_output: first_positive(&max_output),
    })
}

fn first_positive(numbers: &[Option<u64>]) -> Option<u64> {
    numbers.iter().flatten().copied().find(|it| *it > 0)
}
