//! The finding of `toolhold doctor` about the model of the agent.

use toolhold_core::config::{Config, ModelFormat};
use toolhold_core::doctor::Finding;

use crate::choice::choose::choose_configured;
use crate::choice::error::ChoiceError;
use crate::choice::found::{providers_from_environment, providers_without_key};

/// Returns a finding that names the model of the agent, or tells how to choose a model. Sends no
/// request, so servers on this machine aren't found.
pub fn model_finding(config: &Config) -> Finding {
    let found = describe_model(config).unwrap_or_else(|error| error.to_string());
    Finding::ok("model of the agent", found)
}

fn describe_model(config: &Config) -> Result<String, ChoiceError> {
    if !config.values.providers.is_empty() {
        let command_line = None;
        let (provider, _, model) = choose_configured(config, command_line)?;
        return Ok(format!("{provider}/{model}"));
    }
    let mut found = providers_from_environment(config)?;
    found.extend(providers_without_key(config)?);
    let Some(first) = found.first() else {
        return Ok(
            "none, unless a model server runs on this machine; `toolhold models` tells how \
                   to configure one"
                .to_owned(),
        );
    };
    let name = first.known.name;
    // Another server than the provider's own may not have the default model.
    let model = if first.settings.format == ModelFormat::ByName {
        format!("{name}/{}", first.settings.model)
    } else {
        format!("a model of {name}")
    };
    Ok(format!("{model}, {}", first.origin()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toolhold_core::config::ProviderSettings;

    use super::*;

    #[test]
    fn model_or_the_way_to_one_is_named() {
        let mut config = Config::default();
        assert!(model_finding(&config).found.contains("`toolhold models`"));

        let one = ProviderSettings { model: "small".to_owned(), ..ProviderSettings::default() };
        config.values.providers = BTreeMap::from([("one".to_owned(), one.clone())]);
        assert_eq!(model_finding(&config).found, "one/small");
        config.values.providers.insert("two".to_owned(), one);
        assert!(model_finding(&config).found.contains("`provider` in [agent]"));
    }
}
