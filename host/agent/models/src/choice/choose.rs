//! Chooses the model that the command line or the configuration means.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use toolhold_core::config::{
    Config, Folders, ModelFormat, ProviderSettings, ThinkingEffort, dotted_name,
};
use toolhold_core::{HostError, door};
use toolhold_net::read;

use crate::choice::error::ChoiceError;
use crate::choice::model::ChosenModel;
use crate::{ModelClient, ModelEndpoint, ModelKey, ThinkingLevel, WireFormat};

/// Chooses the model of the command line or of the configuration. `wanted`: the name of a provider,
/// a model, or both from the command line.
///
/// # Errors
///
/// Returns an error if no model is configured, or if its key can't be read.
pub async fn choose_model(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
    wanted: Option<&str>,
) -> Result<ChosenModel, ChoiceError> {
    let (name, model) = choose_names(config, wanted)?;
    let Some(settings) = config.values.providers.get(name) else { return Err(unchosen(config)) };
    let model = model.unwrap_or(&settings.model);
    if model.is_empty() {
        return Err(wrong(
            name,
            "names no `model`; write one there, or use `--model`: `toolhold models` lists them",
        ));
    }

    let provider = make_endpoint(config, folders, directory, name, settings).await?;
    let mut client = ModelClient::new(door(config, folders, front_end));
    // A server that never begins to answer sends no byte either.
    let idle = Duration::from_secs(settings.idle_secs.get());
    client.times.first = idle;
    client.times.idle = idle;
    Ok(ChosenModel { client, provider, model: model.to_owned() })
}

/// Returns the names of the provider and the model. The model has no name here if the provider's
/// table sets the model.
fn choose_names<'a>(
    config: &'a Config,
    wanted: Option<&'a str>,
) -> Result<(&'a str, Option<&'a str>), ChoiceError> {
    let agent = &config.values.agent;
    let providers = &config.values.providers;
    if let Some(wanted) = wanted {
        if providers.contains_key(wanted) {
            return Ok((wanted, None));
        }
        if let Some((name, model)) = wanted.split_once('/')
            && providers.contains_key(name)
        {
            return Ok((name, Some(model)));
        }
    }

    let name = if !agent.provider.is_empty() {
        agent.provider.as_str()
    } else if providers.len() == 1
        && let Some(only) = providers.keys().next()
    {
        only.as_str()
    } else {
        return Err(unchosen(config));
    };
    let configured = if agent.model.is_empty() { None } else { Some(agent.model.as_str()) };
    Ok((name, wanted.or(configured)))
}

async fn make_endpoint(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    name: &str,
    settings: &ProviderSettings,
) -> Result<ModelEndpoint, ChoiceError> {
    let Some((format, base_url)) = settings.place(name) else {
        let by_name = settings.format == ModelFormat::ByName;
        let missing = if by_name { "format" } else { "base_url" };
        return Err(wrong(name, format_args!("has no `{missing}`, and isn't a known provider")));
    };
    let format = match format {
        ModelFormat::ByName => {
            return Err(wrong(
                name,
                "has no `format`: \"messages\", \"chat\", \"responses\" or \"ollama\"",
            ));
        }
        ModelFormat::Messages => WireFormat::Messages,
        ModelFormat::Chat => WireFormat::Chat,
        ModelFormat::Responses => WireFormat::Responses,
        ModelFormat::Ollama => WireFormat::Ollama,
    };

    let mut provider =
        ModelEndpoint::new(name, format, base_url).map_err(|error| wrong(name, error))?;
    for (header, value) in &settings.headers {
        let header =
            HeaderName::try_from(header.as_str()).map_err(|error| wrong_header(name, error))?;
        let value = HeaderValue::from_str(value).map_err(|error| wrong_header(name, error))?;
        provider = provider.header(header, value);
    }
    let context_tokens = settings.context_tokens.get();
    provider = provider
        .context(if context_tokens > 0 { Some(context_tokens) } else { None })
        .dimensions(settings.dimensions.get());

    let Some((secret_name, secret)) = settings.secrets.first_key_value() else {
        return Ok(provider);
    };
    let table = format!("providers.{name}.secrets.{}", dotted_name(secret_name));
    let source = config.source_of(&table, secret, folders, directory);
    let value = tokio::task::spawn_blocking(move || read(&source))
        .await
        .map_err(|error| wrong(name, error))?
        .map_err(|error| wrong(name, format_args!("secret `{secret_name}`: {error}")))?;
    let key = ModelKey::new(secret_name, value.expose()).map_err(|error| wrong(name, error))?;
    if secret.header.is_none() {
        return Ok(provider.key(key));
    }
    let (header, prefix) = secret.placement();
    let header = HeaderName::try_from(header).map_err(|error| wrong_header(name, error))?;
    Ok(provider.key(key.in_header(header, &prefix)))
}

/// Returns the amount of thinking that a provider's table asks for.
pub fn thinking_level(effort: ThinkingEffort) -> ThinkingLevel {
    match effort {
        ThinkingEffort::Default => ThinkingLevel::Usual,
        ThinkingEffort::Off => ThinkingLevel::Off,
        ThinkingEffort::Low => ThinkingLevel::Effort("low".to_owned()),
        ThinkingEffort::Medium => ThinkingLevel::Effort("medium".to_owned()),
        ThinkingEffort::High => ThinkingLevel::Effort("high".to_owned()),
    }
}

fn wrong(name: &str, why: impl fmt::Display) -> ChoiceError {
    HostError::Config(format!("[providers.{name}] {why}")).into()
}

fn wrong_header(name: &str, error: impl fmt::Display) -> ChoiceError {
    wrong(name, format_args!("has a header: {error}"))
}

/// Returns the error that no model is chosen.
fn unchosen(config: &Config) -> ChoiceError {
    let names: Vec<&str> = config.values.providers.keys().map(String::as_str).collect();
    if names.is_empty() {
        return ChoiceError::NoProvider;
    }
    HostError::Config(format!(
        "[providers] has several tables ({}); write `provider` in [agent], or use `--model NAME`",
        names.join(", ")
    ))
    .into()
}
