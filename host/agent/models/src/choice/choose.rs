//! Chooses the model from the command line or the configuration.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use toolhold_core::config::{
    Config, Folders, KnownProvider, ModelFormat, ProviderSettings, ThinkingEffort, dotted_name,
};
use toolhold_core::{HostError, outbound_client};
use toolhold_net::{SecretError, SecretFormError, SecretSource, read};

use crate::choice::error::ChoiceError;
use crate::choice::local::listed_model;
use crate::choice::model::ChosenModel;
use crate::{ModelClient, ModelEndpoint, ModelKey, ThinkingLevel, WireFormat};

/// Chooses the model from the command line or the configuration. `wanted` is the user's choice, in
/// the form `PROVIDER`, `MODEL` or `PROVIDER/MODEL`.
///
/// # Errors
///
/// Fails if no model is configured or its key can't be read.
pub async fn choose_model(
    config: &Config,
    folders: &Folders,
    directory: &Path,
    front_end: &str,
    wanted: Option<&str>,
) -> Result<ChosenModel, ChoiceError> {
    let (name, wanted_model) = choose_names(config, wanted)?;
    let Some(settings) = config.values.providers.get(name) else {
        return Err(no_provider_chosen(config));
    };
    let configured_model = wanted_model.unwrap_or(&settings.model);
    // If Toolhold found the provider in the environment, the provider's server lists the models.
    if configured_model.is_empty() && !config.has_found_provider(name) {
        return Err(provider_error(
            name,
            "names no `model`; set `model`, or use `--model`: `toolhold models` lists the models",
        ));
    }

    let provider = make_endpoint(config, folders, directory, name, settings).await?;
    let outbound_client = outbound_client(config, folders, front_end);
    let mut client = ModelClient::new(outbound_client);
    // `idle_secs` also limits the silence before the server's first byte.
    let idle = Duration::from_secs(settings.idle_secs.get());
    client.times.first = idle;
    client.times.idle = idle;
    let model = if configured_model.is_empty() {
        listed_model(&client, &provider).await
    } else {
        configured_model.to_owned()
    };
    Ok(ChosenModel { client, provider, model })
}

/// Returns the names of the provider and the model. If the model is `None`, the model in the
/// provider's table applies.
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
        // The user means a known provider that has no key, not a model with this name.
        if let Some(known) = KnownProvider::find(wanted)
            && !known.key_variable.is_empty()
        {
            return Err(missing_provider(config, known));
        }
    }

    let name = default_provider(config)?;
    // A name that isn't a provider is a model of the chosen provider.
    let configured_model = if agent.model.is_empty() { None } else { Some(agent.model.as_str()) };
    Ok((name, wanted.or(configured_model)))
}

/// Returns the name of the provider in `[agent]`, or of the only provider. Fails if the choice
/// isn't clear.
fn default_provider(config: &Config) -> Result<&str, ChoiceError> {
    let agent = &config.values.agent;
    if !agent.provider.is_empty() {
        return Ok(agent.provider.as_str());
    }
    let mut names = config.values.providers.keys();
    match (names.next(), names.next()) {
        (Some(only_name), None) => Ok(only_name.as_str()),
        _ => Err(no_provider_chosen(config)),
    }
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
        return Err(provider_error(
            name,
            format_args!("has no `{missing}`, which only known providers can leave out"),
        ));
    };
    let format = match format {
        ModelFormat::ByName => {
            return Err(provider_error(
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
        ModelEndpoint::new(name, format, base_url).map_err(|error| provider_error(name, error))?;
    for (header, value) in &settings.headers {
        let header =
            HeaderName::try_from(header.as_str()).map_err(|error| wrong_header(name, error))?;
        let value = HeaderValue::from_str(value).map_err(|error| wrong_header(name, error))?;
        provider = provider.header(header, value);
    }
    let context_tokens = match settings.context_tokens.get() {
        0 => None,
        tokens => Some(tokens),
    };
    provider = provider.context(context_tokens).dimensions(settings.dimensions.get());

    let Some((secret_name, secret)) = settings.secrets.first_key_value() else {
        return Ok(provider);
    };
    let table = format!("providers.{name}.secrets.{}", dotted_name(secret_name));
    let source = config.source_of(&table, secret, folders, directory);
    let origin = match &source {
        SecretSource::Variable { name, .. } => name.clone(),
        SecretSource::File(path) => path.display().to_string(),
        SecretSource::Command(words) => {
            format!("the command `{}`", words.first().map_or("", String::as_str))
        }
    };
    let value = tokio::task::spawn_blocking(move || read(&source))
        .await
        .map_err(|error| provider_error(name, error))?
        .map_err(|error| wrong_secret(name, secret_name, &error))?;
    let key = ModelKey::new(secret_name, value.expose())
        .map_err(|error| provider_error(name, error))?
        .read_from(origin);
    if secret.header.is_none() {
        return Ok(provider.key(key));
    }
    let (header, prefix) = secret.placement();
    let header = HeaderName::try_from(header).map_err(|error| wrong_header(name, error))?;
    Ok(provider.key(key.in_header(header, &prefix)))
}

/// Returns the amount of thinking for a provider's setting.
pub fn thinking_level(effort: ThinkingEffort) -> ThinkingLevel {
    match effort {
        ThinkingEffort::Default => ThinkingLevel::Usual,
        ThinkingEffort::Off => ThinkingLevel::Off,
        ThinkingEffort::Low => ThinkingLevel::Effort("low".to_owned()),
        ThinkingEffort::Medium => ThinkingLevel::Effort("medium".to_owned()),
        ThinkingEffort::High => ThinkingLevel::Effort("high".to_owned()),
    }
}

fn provider_error(name: &str, why: impl fmt::Display) -> ChoiceError {
    HostError::Config(format!("[providers.{name}] {why}")).into()
}

/// Makes the error for a secret that can't be read. If the key is too short, the error also says
/// how to configure a provider without a key.
fn wrong_secret(name: &str, secret: &str, error: &SecretError) -> ChoiceError {
    let is_short = matches!(
        error,
        SecretError::Variable(_, SecretFormError::Short)
            | SecretError::FileContent { source: SecretFormError::Short, .. }
            | SecretError::Output(_, SecretFormError::Short)
    );
    // Some local servers accept any key, and their documentation suggests a short key, so a short
    // key may mean that no key is needed.
    let mut remedy = String::new();
    if is_short {
        let unset = match error {
            SecretError::Variable(variable, _) => format!("unset {variable}, or "),
            _ => String::new(),
        };
        remedy = format!(
            ". If the server needs no key, {unset}write [providers.{name}] without `secrets`"
        );
    }
    provider_error(name, format_args!("secret `{secret}`: {error}{remedy}"))
}

fn wrong_header(name: &str, error: impl fmt::Display) -> ChoiceError {
    provider_error(name, format_args!("has an invalid header: {error}"))
}

/// Makes the error for a known provider without a key in the environment and without a table in
/// `[providers]`.
fn missing_provider(config: &Config, known: &KnownProvider) -> ChoiceError {
    let KnownProvider { name, key_variable, .. } = known;
    let providers = &config.values.providers;
    // Keys in the environment are only used if the configuration has no table.
    let has_written_table = providers.keys().any(|name| !config.has_found_provider(name));
    let message = if has_written_table {
        format!(
            "`{name}` names a provider, but there is no [providers.{name}]; write that table, or \
             name another model"
        )
    } else {
        format!(
            "`{name}` names a provider, but {key_variable} isn't set; set it, or name another model"
        )
    };
    HostError::Config(message).into()
}

/// Makes the error for a configuration with no provider, or with several providers and no choice.
fn no_provider_chosen(config: &Config) -> ChoiceError {
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
