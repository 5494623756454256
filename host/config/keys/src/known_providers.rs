//! The providers of models that Toolhold knows by name.

use std::collections::BTreeMap;

use crate::{ModelFormat, ProviderSettings, ServerSecret, VariableName};

/// A provider of models with known settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownProvider {
    /// The name of the provider's table in `[providers]`.
    pub name: &'static str,
    /// The format of the requests and answers.
    pub format: ModelFormat,
    /// The base URL.
    pub base_url: &'static str,
    /// The environment variable with the key, as in the provider's documentation. Empty if the
    /// provider needs no key.
    pub key_variable: &'static str,
    /// The environment variable that replaces `base_url`, as in the provider's documentation. Empty
    /// if there is no such variable.
    pub base_url_variable: &'static str,
    /// The model that Toolhold uses if the configuration names no model. If empty, Toolhold uses
    /// the first model that the server lists.
    pub default_model: &'static str,
}

/// The known providers. If the environment has the keys of several providers, the first of these
/// providers is used.
pub const KNOWN_PROVIDERS: [KnownProvider; 9] = [
    KnownProvider {
        name: "anthropic",
        format: ModelFormat::Messages,
        base_url: "https://api.anthropic.com/v1",
        key_variable: "ANTHROPIC_API_KEY",
        base_url_variable: "ANTHROPIC_BASE_URL",
        default_model: "claude-sonnet-5-5",
    },
    KnownProvider {
        name: "openai",
        format: ModelFormat::Responses,
        base_url: "https://api.openai.com/v1",
        key_variable: "OPENAI_API_KEY",
        base_url_variable: "OPENAI_BASE_URL",
        default_model: "gpt-5.6-terra",
    },
    KnownProvider {
        name: "gemini",
        format: ModelFormat::Chat,
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable: "GEMINI_API_KEY",
        base_url_variable: "",
        default_model: "gemini-flash-latest",
    },
    KnownProvider {
        name: "mistral",
        format: ModelFormat::Chat,
        base_url: "https://api.mistral.ai/v1",
        key_variable: "MISTRAL_API_KEY",
        base_url_variable: "",
        default_model: "mistral-medium-latest",
    },
    KnownProvider {
        name: "deepseek",
        format: ModelFormat::Chat,
        base_url: "https://api.deepseek.com/v1",
        key_variable: "DEEPSEEK_API_KEY",
        base_url_variable: "",
        default_model: "deepseek-v4-pro",
    },
    KnownProvider {
        name: "xai",
        format: ModelFormat::Chat,
        base_url: "https://api.x.ai/v1",
        key_variable: "XAI_API_KEY",
        base_url_variable: "",
        default_model: "grok-4.7",
    },
    KnownProvider {
        name: "groq",
        format: ModelFormat::Chat,
        base_url: "https://api.groq.com/openai/v1",
        key_variable: "GROQ_API_KEY",
        base_url_variable: "",
        default_model: "openai/gpt-oss-120b",
    },
    KnownProvider {
        name: "openrouter",
        format: ModelFormat::Chat,
        base_url: "https://openrouter.ai/api/v1",
        key_variable: "OPENROUTER_API_KEY",
        base_url_variable: "",
        default_model: "openrouter/auto",
    },
    KnownProvider {
        name: "ollama",
        format: ModelFormat::Ollama,
        base_url: "http://127.0.0.1:11434",
        key_variable: "",
        base_url_variable: "",
        default_model: "",
    },
];

impl KnownProvider {
    /// Returns the provider with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KNOWN_PROVIDERS.iter().find(|known| known.name == name)
    }

    /// Returns the provider's table of `[providers]`, with the default model and the name of the
    /// variable with the key.
    pub fn settings(&self) -> ProviderSettings {
        let mut secrets = BTreeMap::new();
        if !self.key_variable.is_empty() {
            let env = Some(VariableName(self.key_variable.to_owned()));
            secrets.insert("key".to_owned(), ServerSecret { env, ..ServerSecret::default() });
        }
        ProviderSettings {
            model: self.default_model.to_owned(),
            secrets,
            ..ProviderSettings::default()
        }
    }

    /// Returns the lines of `toolhold.toml` for the provider with its default model.
    pub fn table(&self) -> String {
        let Self { name, key_variable, default_model, .. } = self;
        let mut lines = format!("[providers.{name}]\nmodel = \"{default_model}\"");
        if !key_variable.is_empty() {
            lines += &format!("\nsecrets.key.env = \"{key_variable}\"");
        }
        lines
    }
}

impl ProviderSettings {
    /// Returns the format and the `base_url`. A missing value is taken from the known provider
    /// `name`. Returns `None` if a value is missing and there is no such provider.
    pub fn place(&self, name: &str) -> Option<(ModelFormat, &str)> {
        let known = KnownProvider::find(name);
        let format = if self.format == ModelFormat::ByName { known?.format } else { self.format };
        let base_url = if self.base_url.is_empty() { known?.base_url } else { &self.base_url };
        Some((format, base_url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_provider_a_model_and_an_address() {
        let mut variables = std::collections::BTreeSet::new();
        for known in KNOWN_PROVIDERS {
            let needs_key = !known.key_variable.is_empty();
            assert_eq!(needs_key, !known.default_model.is_empty(), "{}", known.name);
            assert_eq!(needs_key, known.base_url.starts_with("https://"), "{}", known.name);
            assert!(variables.insert(known.key_variable), "{}", known.key_variable);
            assert_eq!(KnownProvider::find(known.name), Some(&known));
            let place = known.settings().place(known.name).map(|(format, _)| format);
            assert_eq!(place, Some(known.format), "{}", known.name);
        }
        assert_eq!(KnownProvider::find("unknown"), None);
    }
}
