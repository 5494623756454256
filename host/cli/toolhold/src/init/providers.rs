//! The model providers with a key in the environment, for `toolhold init`.

use std::fmt::Write as _;
use std::io::{BufRead, Write};

use serde_json::json;
use toolhold_core::config::{Config, Folders, ModelFormat};
use toolhold_core::text::neutral_line;
use toolhold_models::choice::{
    EnvironmentProvider, add_found_providers, providers_from_environment,
};

use crate::arguments::YesOrNo;
use crate::ask::Dialogue;
use crate::error::Error;
use crate::host;
use crate::shown::toml;

/// Returns the providers with a key in the environment, if the person wants them in the file.
/// `answer` is the command line's answer. Without it, asks in `dialogue`, or returns no providers
/// if nobody can be asked. Also returns no providers if `existing` has a provider.
///
/// # Errors
///
/// Returns an error if a variable has an invalid base URL.
pub(super) fn choose<R: BufRead, W: Write>(
    answer: Option<YesOrNo>,
    dialogue: Option<&mut Dialogue<R, W>>,
    existing: &Config,
) -> Result<Vec<EnvironmentProvider>, Error> {
    let is_no = answer == Some(YesOrNo::No);
    let is_unasked = answer.is_none() && dialogue.is_none();
    let has_providers = !existing.values.providers.is_empty();
    if is_no || is_unasked || has_providers {
        return Ok(Vec::new());
    }
    let mut found = providers_from_environment(existing)?;
    // A configuration with such a base URL can't be loaded, so the provider is left out.
    found.retain(|provider| !provider.settings.base_url.contains(['?', '#']));
    let needs_question = answer.is_none() && !found.is_empty();
    if needs_question && let Some(dialogue) = dialogue {
        let is_accepted = ask(dialogue, &found)?;
        if !is_accepted {
            return Ok(Vec::new());
        }
    }
    Ok(found)
}

fn ask<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    found: &[EnvironmentProvider],
) -> Result<bool, Error> {
    dialogue.print("In your environment are keys of providers of models:")?;
    for provider in found {
        let EnvironmentProvider { known, settings } = provider;
        dialogue.print(&format!("  {}, {}: {}", known.name, provider.origin(), settings.model))?;
    }
    dialogue.print(
        "The file names the variables, never the keys. Toolhold's agent uses the first provider.",
    )?;
    let default_answer = true;
    dialogue.yes_or_no("Add these providers with these models?", default_answer)
}

/// Describes the model that the agent uses although no file names a provider. Returns nothing if
/// there is no such model.
pub(super) fn describe_found(existing: &Config, folders: &Folders) -> String {
    let mut config = existing.clone();
    // The file is complete without this text, and `toolhold run` reports the same errors.
    let Ok(Some(found)) = host::block_on(async {
        Ok(add_found_providers(&mut config, folders, "toolhold init").await?)
    }) else {
        return String::new();
    };
    let name = &config.values.agent.provider;
    let settings = config.values.providers.get(name);
    let model = settings.map_or("", |settings| settings.model.as_str());
    if model.is_empty() {
        return String::new();
    }
    format!(
        "No provider of models is in the file, so `toolhold run` and `toolhold chat` use {} of \
         {name}, {}.\n",
        neutral_line(model),
        found.origin(name)
    )
}

/// Returns the tables of the providers as TOML. If there are several, `[agent]` chooses the first.
/// Writing to a string never fails, so the results of `writeln!` are ignored.
pub(super) fn tables(providers: &[EnvironmentProvider]) -> String {
    let mut text = String::new();
    if let [first, _, ..] = providers {
        text += "\n[agent]\n# The table of [providers] whose model the agent uses.\n";
        let _ = writeln!(text, "provider = {}", toml(&json!(first.known.name)));
    }
    for EnvironmentProvider { known, settings } in providers {
        let _ = writeln!(text, "\n{}", known.table());
        if settings.format != ModelFormat::ByName {
            let _ = writeln!(text, "format = {}", toml(&json!(settings.format)));
        }
        if !settings.base_url.is_empty() {
            let _ = writeln!(text, "base_url = {}", toml(&json!(settings.base_url)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use toolhold_models::choice::KnownProvider;

    use super::*;

    fn provider(name: &str) -> EnvironmentProvider {
        let known = *KnownProvider::find(name).expect("it is known");
        EnvironmentProvider { known, settings: known.settings() }
    }

    #[test]
    fn several_providers_need_a_choice() {
        assert_eq!(tables(&[]), "");
        let anthropic = provider("anthropic");
        let table = format!("\n{}\n", anthropic.known.table());
        assert_eq!(tables(std::slice::from_ref(&anthropic)), table);
        let both = tables(&[anthropic, provider("openai")]);
        for part in ["[agent]\n", "\nprovider = \"anthropic\"\n", &table, "[providers.openai]\n"] {
            assert!(both.contains(part), "{part} is missing: {both}");
        }
    }

    #[test]
    fn address_of_the_environment_is_written_with_its_format() {
        let mut openai = provider("openai");
        openai.settings.format = ModelFormat::Chat;
        openai.settings.base_url = "https://h.example/v1".to_owned();
        let text = tables(&[openai]);
        let end = "secrets.key.env = \"OPENAI_API_KEY\"\nformat = \"chat\"\n\
                   base_url = \"https://h.example/v1\"\n";
        assert!(text.ends_with(end), "{text}");
    }
}
