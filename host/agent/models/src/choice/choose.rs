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
use crate::choice::local::{LOCAL, SERVER_NAMES, listed_model};
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
    let (name, settings, configured_model) = choose_configured(config, wanted)?;
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

/// Returns the name and the settings of the chosen provider, and the model. The model is empty only
/// for a provider that Toolhold found in the environment, whose server lists the models.
pub(super) fn choose_configured<'a>(
    config: &'a Config,
    wanted: Option<&'a str>,
) -> Result<(&'a str, &'a ProviderSettings, &'a str), ChoiceError> {
    let (name, wanted_model) = choose_names(config, wanted)?;
    let Some(settings) = config.values.providers.get(name) else {
        return Err(no_provider_chosen(config));
    };
    let model = wanted_model.unwrap_or(&settings.model);
    if model.is_empty() && !config.has_found_provider(name) {
        return Err(provider_error(
            name,
            "names no `model`; set `model`, or use `--model`: `toolhold models` lists the models",
        ));
    }
    Ok((name, settings, model))
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
        // The user means a provider that isn't available, not a model with this name. A task for
        // this provider must not go to another one.
        if let Some(name) = missing_provider(config, wanted) {
            return Err(missing_provider_error(config, name));
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

/// Returns the name of the known provider or local server that `wanted` names. Call this function
/// only if `[providers]` has no such table.
fn missing_provider<'a>(config: &Config, wanted: &'a str) -> Option<&'a str> {
    let (name, has_model) = match wanted.split_once('/') {
        Some((name, _)) => (name, true),
        None => (wanted, false),
    };
    let is_known = KnownProvider::find(name).is_some();
    // A configured server may have a model with the plain name of a server, such as `llama.cpp`.
    let is_server = SERVER_NAMES.contains(&name) && (has_model || !has_written_table(config));
    if is_known || is_server { Some(name) } else { None }
}

/// Checks whether a file names a provider. Toolhold only looks for providers if no file does.
fn has_written_table(config: &Config) -> bool {
    config.values.providers.keys().any(|name| !config.has_found_provider(name))
}

/// Makes the error for a known provider or local server that was neither found nor configured.
fn missing_provider_error(config: &Config, name: &str) -> ChoiceError {
    let key_variable = KnownProvider::find(name).map_or("", |known| known.key_variable);
    let mut message = if has_written_table(config) {
        format!(
            "`{name}` names a provider, but there is no [providers.{}]; write that table, or name \
             another model",
            dotted_name(name)
        )
    } else if !key_variable.is_empty() {
        format!(
            "`{name}` names a provider, but {key_variable} isn't set; set it, or name another model"
        )
    } else if config.has_found_provider(LOCAL) && SERVER_NAMES.contains(&name) {
        format!("the server on this machine has the name `{LOCAL}` here, not `{name}`")
    } else {
        format!(
            "`{name}` names a server on this machine, but no such server with a model was found; \
             start it, or name another model"
        )
    };
    if !config.values.providers.is_empty() {
        message += &format!(
            ". If another provider has a model whose name begins with `{name}`, write the \
             provider's name before it: `--model PROVIDER/{name}…`"
        );
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration without providers, for which these providers were found.
    fn found(names: &[&str]) -> Config {
        let mut config = Config::default();
        let mut providers = std::collections::BTreeMap::new();
        for &name in names {
            providers.insert(name.to_owned(), ProviderSettings::default());
        }
        config.add_found_providers(names.first().expect("there is one"), providers);
        config
    }

    #[track_caller]
    fn assert_chosen(config: &Config, wanted: &str, name: &str, model: Option<&str>) {
        let chosen = choose_names(config, Some(wanted)).expect("it is clear");
        assert_eq!(chosen, (name, model), "{wanted}");
    }

    #[track_caller]
    fn assert_refused(config: &Config, wanted: &str, why: &str) {
        let error = choose_names(config, Some(wanted)).expect_err("nobody is asked").to_string();
        assert!(error.contains(why), "{wanted}: {error}");
    }

    #[test]
    fn model_of_a_named_provider_goes_to_no_other_provider() {
        let config = found(&["openai"]);
        for wanted in ["ollama", "ollama/qwen3:8b", "local", "llama.cpp/qwen3", "vllm/Qwen/Qwen3"] {
            assert_refused(&config, wanted, "no such server");
        }
        assert_refused(&config, "mistral/large", "MISTRAL_API_KEY isn't set");
        // Names of makers in a model's name aren't the names of providers.
        for wanted in ["gpt-6", "ollama2", "meta-llama/llama-4", "mistralai/large"] {
            assert_chosen(&config, wanted, "openai", Some(wanted));
        }
        let model = "openai/gpt-oss-120b";
        let config = found(&["groq"]);
        assert_refused(&config, model, "--model PROVIDER/openai");
        assert_chosen(&config, "groq/openai/gpt-oss-120b", "groq", Some(model));
    }

    #[test]
    fn server_on_this_machine_is_asked_besides_a_key() {
        let config = found(&["openai", "ollama", "local"]);
        assert_chosen(&config, "ollama", "ollama", None);
        assert_chosen(&config, "ollama/qwen3:8b", "ollama", Some("qwen3:8b"));
        assert_chosen(&config, "local/qwen3", "local", Some("qwen3"));
        assert_chosen(&config, "gpt-6", "openai", Some("gpt-6"));
        assert_refused(&config, "vllm/qwen3", "the name `local`");
    }
}
