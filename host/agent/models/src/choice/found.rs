//! Finds a provider of models for a configuration that names none: by a key in the environment, or
//! a server on this machine.

use toolhold_core::HostError;
use toolhold_core::config::{
    Config, Folders, KNOWN_PROVIDERS, KnownProvider, ModelFormat, ProviderSettings,
};
use toolhold_net::requests::check_url;

use crate::choice::local::find_local_server;

/// A provider that was found, and that no file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProvider {
    /// The origin of the provider for people: the variable with the key, or the server.
    pub origin: String,
}

/// Adds the providers that are found to a configuration without providers. The agent asks the first
/// one, unless the command line names another one. Returns `None` if the configuration has a
/// provider, or if no provider is found. Nothing is written.
///
/// # Errors
///
/// A variable has a base URL that can't be used.
pub async fn add_found_providers(
    config: &mut Config,
    folders: &Folders,
    front_end: &str,
) -> Result<Option<FoundProvider>, HostError> {
    if !config.values.providers.is_empty() {
        return Ok(None);
    }
    let mut first = None;
    for known in KNOWN_PROVIDERS {
        if known.key_variable.is_empty() || config.variable(known.key_variable).is_none() {
            continue;
        }
        let settings = settings_from_environment(config, &known)?;
        if first.is_none() {
            let mut origin = format!("with the key of {}", known.key_variable);
            if !settings.base_url.is_empty() {
                origin += &format!(", at the address of {}", known.base_url_variable);
            }
            known.name.clone_into(&mut config.values.agent.provider);
            first = Some(FoundProvider { origin });
        }
        config.values.providers.insert(known.name.to_owned(), settings);
    }
    if first.is_some() {
        return Ok(first);
    }

    let Some(server) = find_local_server(config, folders, front_end).await else {
        return Ok(None);
    };
    let origin = format!("of the server at {}", server.base_url);
    let name = if server.format == ModelFormat::Ollama { "ollama" } else { "local" };
    let settings = ProviderSettings {
        format: server.format,
        base_url: server.base_url,
        model: server.model,
        ..ProviderSettings::default()
    };
    config.values.providers.insert(name.to_owned(), settings);
    Ok(Some(FoundProvider { origin }))
}

/// Returns the table of a provider whose key is in the environment.
fn settings_from_environment(
    config: &Config,
    known: &KnownProvider,
) -> Result<ProviderSettings, HostError> {
    let mut settings = known.settings();
    let variable = known.base_url_variable;
    let Some(base_url) = config.variable(variable) else { return Ok(settings) };
    let url = check_url(&base_url).map_err(|error| {
        HostError::Config(format!("the address of {variable} can't be used: {error}"))
    })?;
    // Servers that stand in for OpenAI's speak its older format.
    if known.format == ModelFormat::Responses && url.host_str() != Some("api.openai.com") {
        settings.format = ModelFormat::Chat;
    }
    settings.base_url = base_url;
    Ok(settings)
}
