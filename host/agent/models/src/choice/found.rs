//! Finds providers for a configuration without providers: by the keys in the environment, and by
//! the servers on this machine.

use std::collections::BTreeMap;

use toolhold_core::HostError;
use toolhold_core::config::{
    Config, Folders, KNOWN_PROVIDERS, KnownProvider, ModelFormat, ProviderSettings,
};
use toolhold_net::requests::check_url;

use crate::choice::local::find_local_servers;

/// The providers that were found without a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProviders {
    origins: BTreeMap<String, String>,
}

impl FoundProviders {
    /// Returns a phrase for people that names the variable with the provider's key, or the server.
    /// Returns an empty phrase if `provider` wasn't found.
    pub fn origin(&self, provider: &str) -> &str {
        self.origins.get(provider).map_or("", String::as_str)
    }
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
) -> Result<Option<FoundProviders>, HostError> {
    if !config.values.providers.is_empty() {
        return Ok(None);
    }
    let mut from_variables = providers_from_environment(config)?;
    from_variables.extend(providers_without_key(config)?);
    let mut names = Vec::new();
    let mut providers = BTreeMap::new();
    let mut origins = BTreeMap::new();
    for provider in from_variables {
        let origin = provider.origin();
        let EnvironmentProvider { known, mut settings } = provider;
        if settings.format != ModelFormat::ByName {
            // The server at this address isn't the provider's own server, and may not have the
            // provider's default model.
            settings.model.clear();
        }
        names.push(known.name);
        providers.insert(known.name.to_owned(), settings);
        origins.insert(known.name.to_owned(), origin);
    }
    // A key must not hide the servers on this machine. Otherwise, a task for a local model could go
    // to the key's provider.
    for server in find_local_servers(config, folders, front_end).await {
        let settings = ProviderSettings {
            format: server.format,
            base_url: server.base_url,
            model: server.model,
            ..ProviderSettings::default()
        };
        names.push(server.name);
        origins.insert(server.name.to_owned(), format!("of the server at {}", settings.base_url));
        providers.insert(server.name.to_owned(), settings);
    }
    let Some(first) = names.first() else { return Ok(None) };
    config.add_found_providers(first, providers);
    Ok(Some(FoundProviders { origins }))
}

/// Returns the known providers whose variable has another server's address, but which have no key
/// in the environment. The other server is often local, and needs no key.
pub(super) fn providers_without_key(
    config: &Config,
) -> Result<Vec<EnvironmentProvider>, HostError> {
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
