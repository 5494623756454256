//! Checks the settings of a plugin against the schema in its manifest, and adds the schema's
//! defaults.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolhold_config::{Config, Source, dotted_name};
use toolhold_contract::HostError;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_engine::{Candidate, Manifest, PluginConfig, PluginGrants, SchemaCost};

use super::{Plugins, blocking};
use crate::schema::{self, InvalidSchemaError};
use crate::validate;

/// Maximum number of problems in one error.
const MAX_PROBLEMS: usize = 5;

/// Maximum length of a key's place in bytes.
const MAX_PLACE: usize = 300;

impl Plugins {
    /// Returns the grants of a third-party plugin, with settings that match the plugin's schema.
    pub(super) async fn policy_for(
        &self,
        name: &str,
        candidate: &Candidate,
    ) -> Result<PluginGrants, HostError> {
        let policy = self.policies.third_party(name)?;
        let written = self.policies.config.plugin_config(name).map_err(|problem| {
            load_error(name, format!("{} ({})", problem.message, shown(&problem.source)))
        })?;
        let info = Arc::clone(candidate.info());
        let has_schema = info.manifest.config_schema.is_some();
        let settings = if has_schema {
            let config = self.policies.config.clone();
            let checked =
                blocking(move || check_settings(written, &info.manifest, &config)).await?;
            checked.map_err(|error| load_error(name, error.to_string()))?
        } else {
            written
        };
        Ok(PluginGrants { config: PluginConfig::new(settings).into(), ..policy })
    }
}

fn load_error(name: &str, reason: String) -> HostError {
    HostError::Load { plugin: name.to_owned(), reason }
}

/// Returns the place of a setting. Flags contain their whole value, so the place is cut.
fn shown(place: &Source) -> String {
    neutral_line(cut(&place.to_string(), MAX_PLACE))
}

#[derive(Debug, thiserror::Error)]
enum SettingsError {
    #[error("the settings have too many values, or levels, to check against the plugin's schema")]
    TooLarge,
    #[error("the `config_schema` of the manifest can't be used: {0}")]
    Schema(#[from] InvalidSchemaError),
    /// Each problem names the wrong key, its place and the expected value.
    #[error(
        "the settings don't match the schema in the plugin's manifest: {}; `toolhold plugin \
         inspect {plugin}` shows the keys",
        .problems.join("; ")
    )]
    Mismatch { plugin: String, problems: Vec<String> },
}

fn check_settings(
    mut written: Map<String, Value>,
    manifest: &Manifest,
    config: &Config,
) -> Result<Map<String, Value>, SettingsError> {
    let Some(schema) = &manifest.config_schema else { return Ok(written) };
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (key, property) in properties {
            if let Some(default) = property.get("default") {
                written.entry(key.clone()).or_insert_with(|| default.clone());
            }
        }
    }
    let settings = Value::Object(written);
    if !SchemaCost::from_schema(schema).allows(&settings) {
        return Err(SettingsError::TooLarge);
    }

    let validator = schema::compile(schema)?;
    let mut problems = Vec::new();
    for problem in validator.iter_errors(&settings).take(MAX_PROBLEMS) {
        let table = format!("plugins.{}.config", dotted_name(&manifest.name));
        let path = problem.instance_path().to_string();
        let first_part = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let source = if first_part.is_empty() {
            config.source_below(&table)
        } else {
            // A path is a JSON pointer, which escapes `/` and `~`.
            let key = first_part.replace("~1", "/").replace("~0", "~");
            config.source_below(&format!("{table}.{}", dotted_name(&key)))
        };
        let place = shown(&source);
        let description = validate::describe(&problem, schema, "key");
        problems.push(format!("[{table}] in {place}: {description}"));
    }
    if !problems.is_empty() {
        return Err(SettingsError::Mismatch { plugin: manifest.name.clone(), problems });
    }
    match settings {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}
