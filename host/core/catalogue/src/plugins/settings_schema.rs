//! Builds the JSON Schema of the configuration, including the schemas of plugins for their own
//! settings.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use toolhold_config::{Config, Folders, Inputs};
use toolhold_contract::HostError;
use toolhold_contract::text::{cut, neutral_line};

use super::folder::PluginFolder;
use super::{candidate, reason_of};
use crate::schema::{self, InvalidSchemaError};

/// Maximum size of the schemas of all plugins in bytes. Schemas beyond this limit are omitted.
const MAX_TOTAL: usize = 4 << 20;

/// Schema keywords whose values are data, not schemas.
const DATA_KEYWORDS: [&str; 4] = ["const", "default", "enum", "examples"];

/// Maximum length of a plugin's name in a note, in bytes.
const MAX_NAME: usize = 80;

/// Maximum length of an error in a note, in bytes.
const MAX_ERROR: usize = 1024;

/// Keywords that give a schema its own name or root, and change the meaning of references in
/// another document.
const NAMING_KEYWORDS: [&str; 5] = ["$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary"];

/// Returns the JSON Schema of the configuration. The key `plugins.NAME.config` has the schema in
/// the plugin's manifest. Omitted schemas are logged. Blocks.
pub fn config_schema(folders: &Folders, inputs: &Inputs, directory: &Path) -> Value {
    let schema = toolhold_config::schema();
    let Ok(loaded) = toolhold_config::load(folders, inputs) else {
        let note = "the schemas of plugins are left out, because the configuration isn't \
                    valid; `toolhold config check` shows the errors";
        tracing::warn!("{note}");
        return schema;
    };
    let (schema_with_plugins, notes) =
        with_plugins(schema, read_schemas(&loaded, folders, directory));
    for note in &notes {
        tracing::warn!("{note}");
    }
    schema_with_plugins
}

/// The schema of the settings in a plugin's manifest, if there is one.
type ManifestSchema = Result<Option<Value>, HostError>;

#[derive(Debug, thiserror::Error)]
enum LeftOutError {
    #[error("{}", reason_of(.0))]
    Unread(#[from] HostError),
    #[error("the name isn't a valid plugin name")]
    Name,
    #[error("{0}")]
    Schema(#[from] InvalidSchemaError),
    #[error("the schemas of all plugins have more than {MAX_TOTAL} bytes")]
    TooLarge,
}

/// Reads the schemas of all configured plugins and of the plugin folder.
fn read_schemas(
    loaded: &Config,
    folders: &Folders,
    directory: &Path,
) -> Vec<(String, ManifestSchema)> {
    let mut names: BTreeSet<String> = loaded.values.plugins.keys().cloned().collect();
    // Ignore an unreadable folder, because the host loads no plugin from it.
    if let Ok(Some(folder)) = PluginFolder::open(&loaded.plugin_folder(folders, directory)) {
        names.extend(folder.names().unwrap_or_default());
    }
    let mut schemas = Vec::new();
    for name in names {
        let candidate = candidate(loaded, folders, directory, &name);
        let schema = candidate.map(|candidate| candidate.info().manifest.config_schema.clone());
        schemas.push((name, schema));
    }
    schemas
}

/// Adds the schemas of plugins to the schema of the configuration. Returns a note for each omitted
/// schema.
fn with_plugins(
    mut whole: Value,
    plugin_schemas: Vec<(String, ManifestSchema)>,
) -> (Value, Vec<String>) {
    let mut notes = Vec::new();
    let mut total_bytes = 0;
    let any_plugin = whole["properties"]["plugins"]["additionalProperties"].clone();
    for (name, schema) in plugin_schemas {
        let result = match schema {
            Ok(None) => continue,
            Ok(Some(schema)) => to_embeddable(schema, &name, &mut total_bytes),
            Err(error) => Err(error.into()),
        };
        match result {
            Ok(embeddable) => {
                whole["properties"]["plugins"]["properties"][&name] = json!({
                    "allOf": [
                        any_plugin,
                        { "properties": { "config": { "$ref": definition_pointer(&name) } } },
                    ],
                });
                whole["$defs"][definition_name(&name)] = embeddable;
            }
            Err(error) => notes.push(neutral_line(&format!(
                "the schema of the plugin `{}` is left out: {}",
                cut(&name, MAX_NAME),
                cut(&error.to_string(), MAX_ERROR)
            ))),
        }
    }
    (whole, notes)
}

/// Returns the name of a plugin's definition. All other definitions start with a capital letter, so
/// the name is unique.
fn definition_name(name: &str) -> String {
    format!("plugin-{name}")
}

/// Returns the JSON pointer to a definition. Plugin names need no escapes.
fn definition_pointer(name: &str) -> String {
    format!("#/$defs/{}", definition_name(name))
}

/// Converts a plugin's schema to a part of another document, with adjusted references.
///
/// Compiles the schema as a check, because it comes from a third party. Adds the schema's size to
/// `total_bytes`, the size of all schemas.
fn to_embeddable(
    schema: Value,
    name: &str,
    total_bytes: &mut usize,
) -> Result<Value, LeftOutError> {
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(LeftOutError::Name);
    }
    schema::compile(&schema)?;
    let mut embeddable = move_schema(schema, &definition_pointer(name));
    remove_defaults_from_required(&mut embeddable);

    *total_bytes += embeddable.to_string().len();
    if *total_bytes > MAX_TOTAL {
        return Err(LeftOutError::TooLarge);
    }
    Ok(embeddable)
}

/// Makes settings with a default optional, because the host adds defaults before it checks for
/// required settings.
fn remove_defaults_from_required(schema: &mut Value) {
    let mut with_default = BTreeSet::new();
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (key, property) in properties {
            if property.get("default").is_some() {
                with_default.insert(key.clone());
            }
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|key| match key.as_str() {
            Some(key) => !with_default.contains(key),
            None => true,
        });
    }
}

/// Makes the references of a schema start at `root`, and removes keywords that name the schema,
/// such as `$id`. A limit for manifests bounds the depth of the recursion.
fn move_schema(schema: Value, root: &str) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(|item| move_schema(item, root)).collect(),
        Value::Object(fields) => {
            let mut moved_fields = Map::new();
            for (key, field) in fields {
                let is_name = NAMING_KEYWORDS.contains(&key.as_str()) && field.is_string();
                if is_name {
                    continue;
                }
                let moved_field = move_keyword(&key, field, root);
                moved_fields.insert(key, moved_field);
            }
            Value::Object(moved_fields)
        }
        other => other,
    }
}

/// Changes the value of a keyword for [`move_schema`]. Data doesn't change.
fn move_keyword(keyword: &str, value: Value, root: &str) -> Value {
    if DATA_KEYWORDS.contains(&keyword) {
        return value;
    }
    match (keyword, value) {
        ("$ref", Value::String(target)) => match target.strip_prefix('#') {
            Some(pointer) => format!("{root}{pointer}").into(),
            None => target.into(),
        },
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
            Value::Object(fields),
        ) => fields.into_iter().map(|(key, field)| (key, move_schema(field, root))).collect(),
        (_, value) => move_schema(value, root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(whole: &Value, configuration: &Value) -> Vec<String> {
        let validator = schema::compile(whole).expect("the schema is valid");
        validator
            .iter_errors(configuration)
            .map(|error| error.instance_path().to_string())
            .collect()
    }

    fn with(schema: Value) -> (Value, Vec<String>) {
        with_plugins(toolhold_config::schema(), vec![("a".to_owned(), Ok(Some(schema)))])
    }

    #[test]
    fn settings_are_checked_by_the_plugins_own_schema() {
        let own = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a",
            "type": "object", "additionalProperties": false,
            "required": ["server", "tries"],
            "properties": {
                "server": { "$ref": "#/$defs/Server" },
                "tries": { "type": "integer", "default": 3 },
                // A setting that has the name of a keyword, and data that looks like a reference.
                "$ref": { "const": { "$ref": "#/x" } },
                "default": { "$ref": "#/$defs/Server" },
            },
            "$defs": { "Server": { "type": "string", "pattern": "^https:" } },
        });
        let (whole, notes) = with(own);
        assert_eq!(notes, [""; 0]);
        let config = |config: Value| json!({ "plugins": { "a": { "config": config } } });
        assert_eq!(problems(&whole, &config(json!({ "server": "https://x" }))), [""; 0]);
        let valid =
            json!({ "server": "https://x", "$ref": { "$ref": "#/x" }, "default": "https:" });
        assert_eq!(problems(&whole, &config(valid)), [""; 0]);
        for (invalid, place) in [
            (json!({ "server": "ftp://x" }), "/plugins/a/config/server"),
            (json!({ "server": "https://x", "default": 1 }), "/plugins/a/config/default"),
            (json!({ "server": "https://x", "sever": 1 }), "/plugins/a/config"),
            (json!({ "tries": 1 }), "/plugins/a/config"),
        ] {
            assert_eq!(problems(&whole, &config(invalid)), [place]);
        }
        // The rest of the plugin's table is checked as before, and so are other plugins.
        let misspelt = json!({ "plugins": { "a": { "pth": "" }, "b": { "pth": "" } } });
        assert_eq!(problems(&whole, &misspelt).len(), 2);
        let other = json!({ "plugins": { "b": { "config": { "anything": 1 } } } });
        assert_eq!(problems(&whole, &other), [""; 0]);
    }

    #[test]
    fn broken_schemas_are_left_out_and_the_rest_stays() {
        let other = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        for (broken, reason) in [
            (Ok(Some(json!({ "type": "object", "properties": 1 }))), "left out: "),
            (Ok(Some(json!({ "$ref": "#/$defs/Missing", "type": "object" }))), "left out: "),
            (
                Ok(Some(json!({ "type": "object", "patternProperties": { "(": true } }))),
                "left out: ",
            ),
            (
                Err(HostError::Load {
                    plugin: "a".to_owned(),
                    reason: "it\nis\u{1b}[31m missing".to_owned(),
                }),
                "is missing",
            ),
        ] {
            let found = vec![("a".to_owned(), broken), ("b".to_owned(), Ok(Some(other.clone())))];
            let (whole, notes) = with_plugins(toolhold_config::schema(), found);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].contains("`a`") && !notes[0].contains('\u{1b}'), "{notes:?}");
            assert!(reason == "is missing" || notes[0].contains(reason), "{notes:?}");
            let written = json!({ "plugins": { "a": { "config": { "x": 1 } }, "b": { "config": { "n": "" } } } });
            assert_eq!(problems(&whole, &written), ["/plugins/b/config/n"]);
        }
    }

    #[test]
    fn a_plugin_changes_nothing_outside_of_its_settings() {
        let hostile = json!({
            "type": "object", "$anchor": "Plugin", "$comment": "x",
            "$defs": { "Plugin": { "not": {} }, "Tools": { "not": {} } },
            "properties": { "tools": { "$ref": "#/$defs/Tools" } },
        });
        let (whole, notes) = with(hostile);
        assert_eq!(notes, [""; 0]);
        let fine = json!({ "tools": { "autonomy": "full" }, "plugins": { "a": { "config": {} } } });
        assert_eq!(problems(&whole, &fine), [""; 0]);
        let mut others = whole.clone();
        others["$defs"].as_object_mut().unwrap().remove("plugin-a");
        others["properties"]["plugins"].as_object_mut().unwrap().remove("properties");
        assert_eq!(others, toolhold_config::schema(), "nothing else differs");
    }

    #[test]
    fn too_many_bytes_are_left_out() {
        let long = json!({ "type": "object", "description": "x".repeat(60_000) });
        let found = (0..100).map(|number| (format!("p{number}"), Ok(Some(long.clone())))).collect();
        let (whole, notes) = with_plugins(toolhold_config::schema(), found);
        assert!((20..40).contains(&notes.len()), "{}", notes.len());
        assert!(whole.to_string().len() < MAX_TOTAL + (1 << 20));
    }
}
