//! Finds a provider for a configuration without providers: by a key in the environment, or by a
//! server on this machine.

use std::collections::BTreeMap;

use toolhold_core::HostError;
use toolhold_core::config::{
    Config, Folders, KNOWN_PROVIDERS, KnownProvider, ModelFormat, ProviderSettings,
};
use toolhold_net::requests::check_url;

use crate::choice::local::find_local_server;

/// A provider that was found without a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProvider {
    /// A phrase for people that names the variable with the key, or the server.
    pub origin: String,
}

/// A known provider whose key is in the environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentProvider {
    /// The provider.
    pub known: KnownProvider,
    /// The provider's table, with the default model and the name of the key's variable.
    pub settings: ProviderSettings,
}

impl EnvironmentProvider {
    /// Returns a phrase that names the variables with the provider's key and address.
    pub fn origin(&self) -> String {
        let KnownProvider { key_variable, base_url_variable, .. } = self.known;
        let has_key = !self.settings.secrets.is_empty();
        let has_address = !self.settings.base_url.is_empty();
        if has_key && has_address {
            format!("with the key of {key_variable}, at the address of {base_url_variable}")
        } else if has_key {
            format!("with the key of {key_variable}")
        } else {
            format!("at the address of {base_url_variable}")
        }
    }
}

/// Returns the known providers whose keys are in the environment, in order of precedence.
///
/// # Errors
///
/// Fails if a variable has an invalid base URL.
pub fn providers_from_environment(config: &Config) -> Result<Vec<EnvironmentProvider>, HostError> {
    let mut found = Vec::new();
    for known in KNOWN_PROVIDERS {
        if known.key_variable.is_empty() || config.variable(known.key_variable).is_none() {
            continue;
        }
        let settings = settings_from_environment(config, &known)?;
        found.push(EnvironmentProvider { known, settings });
    }
    Ok(found)
}

/// Finds providers, and adds them to a configuration without providers. The agent asks the first
/// provider, unless the command line names another provider. Returns `None` if the configuration
/// has a provider, or if no provider is found. No file is written.
///
/// # Errors
///
/// Returns an error if a variable has an invalid base URL.
pub async fn add_found_providers(
    config: &mut Config,
    folders: &Folders,
    front_end: &str,
) -> Result<Option<FoundProvider>, HostError> {
    if !config.values.providers.is_empty() {
        return Ok(None);
    }
    let mut from_variables = providers_from_environment(config)?;
    from_variables.extend(providers_without_key(config)?);
    if let Some(first) = from_variables.first() {
        let found = FoundProvider { origin: first.origin() };
        let name = first.known.name;
        let mut providers = BTreeMap::new();
        for EnvironmentProvider { known, mut settings } in from_variables {
            if settings.format != ModelFormat::ByName {
                // The server at this address isn't the provider's own server, and may not have the
                // provider's default model.
                settings.model.clear();
            }
            providers.insert(known.name.to_owned(), settings);
        }
        config.add_found_providers(name, providers);
        return Ok(Some(found));
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
    config.add_found_providers(name, BTreeMap::from([(name.to_owned(), settings)]));
    Ok(Some(FoundProvider { origin }))
}

/// Returns the known providers whose variable has another server's address, but which have no key
/// in the environment. The other server is often local, and needs no key.
fn providers_without_key(config: &Config) -> Result<Vec<EnvironmentProvider>, HostError> {
    let mut found = Vec::new();
    for known in KNOWN_PROVIDERS {
        // Only OpenAI uses the format Responses, and only OpenAI's formats are common on other
        // servers.
        let is_openai = known.format == ModelFormat::Responses;
        if !is_openai || config.variable(known.key_variable).is_some() {
            continue;
        }
        let mut settings = settings_from_environment(config, &known)?;
        // The format is set only for another server's address.
        let is_other_server = settings.format != ModelFormat::ByName;
        if is_other_server {
            settings.secrets.clear();
            found.push(EnvironmentProvider { known, settings });
        }
    }
    Ok(found)
}

/// Returns the settings of a known provider, with the address in its variable. A server that isn't
/// OpenAI's gets the format Chat, because Chat is older than Responses.
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
    if known.format == ModelFormat::Responses && url.host_str() != Some("api.openai.com") {
        settings.format = ModelFormat::Chat;
    }
    settings.base_url = base_url;
    Ok(settings)
}
