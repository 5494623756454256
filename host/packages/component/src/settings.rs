//! The settings of a plugin as the plugin reads them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The settings of a plugin: `[plugins.NAME.config]` with the defaults of the schema.
#[derive(Debug, PartialEq, Eq)]
pub struct PluginConfig {
    /// The whole table as JSON text.
    all: String,
    /// The values as JSON.
    values: BTreeMap<String, String>,
}

impl PluginConfig {
    /// The key of the operator's rules for filters.
    pub const RULES: &'static str = "rules";

    /// Makes the settings from a table.
    pub fn new(table: Map<String, Value>) -> Self {
        let values = table.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
        Self { all: Value::Object(table).to_string(), values }
    }

    /// Returns the JSON of a value, or `None` if the value isn't set.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns the JSON of the whole table.
    pub fn all(&self) -> &str {
        &self.all
    }

    /// Checks whether no value is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the text of the rules for filters, or `None` if the rules aren't set or aren't a
    /// string.
    pub fn rules(&self) -> Option<String> {
        let json = self.get(Self::RULES)?;
        serde_json::from_str(json).ok()
    }
}

impl Default for PluginConfig {
    fn default() -> Self {
        Self::new(Map::new())
    }
}
