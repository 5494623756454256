//! Reads a plugin's own settings from `[plugins.NAME.config]`.

use serde_json::{Map, Value};

use super::keys::dotted;
use super::{Config, Problem};

/// Most bytes of a plugin's settings as JSON text. Longer settings are refused.
const MAX_BYTES: usize = 64 * 1024;

/// Most levels of tables and lists in the settings. Deeper settings are refused.
const MAX_DEPTH: usize = 32;

/// The level of the values in `[plugins.NAME.config]`.
const FIRST_LEVEL: usize = 1;

impl Config {
    /// Converts the settings of a plugin to JSON. A date becomes a string. Returns no settings if
    /// the plugin has no table.
    ///
    /// # Errors
    ///
    /// Fails if the settings are too long or too deep, or if JSON can't represent a value.
    pub fn plugin_config(&self, plugin: &str) -> Result<Map<String, Value>, Problem> {
        let Some(settings) = self.values.plugins.get(plugin) else { return Ok(Map::new()) };
        let table = dotted(&["plugins".to_owned(), plugin.to_owned(), "config".to_owned()]);
        let mut config = Map::new();
        for (key, value) in &settings.config.0 {
            let converted = json(value, FIRST_LEVEL).map_err(|error| {
                let quoted_key = dotted(std::slice::from_ref(key));
                Problem::new(self.source_below(&table), format!("`{table}.{quoted_key}` {error}"))
            })?;
            config.insert(key.clone(), converted);
        }
        // A JSON object can always be written as text.
        let size = serde_json::to_string(&config).map_or(0, |text| text.len());
        if size > MAX_BYTES {
            let message = format!("`{table}` is {size} bytes as JSON; the limit is {MAX_BYTES}");
            return Err(Problem::new(self.source_below(&table), message));
        }
        Ok(config)
    }
}

/// The message is a phrase after the key.
#[derive(Debug, PartialEq, thiserror::Error)]
enum JsonError {
    #[error("is nested deeper than {MAX_DEPTH} levels, the limit")]
    Depth,
    #[error("is {0}, which JSON doesn't have")]
    Number(f64),
}

/// Converts a value to JSON. `depth` is the level of the value, counted from 1.
fn json(value: &toml::Value, depth: usize) -> Result<Value, JsonError> {
    if depth > MAX_DEPTH {
        return Err(JsonError::Depth);
    }
    Ok(match value {
        toml::Value::String(text) => Value::String(text.clone()),
        toml::Value::Integer(number) => (*number).into(),
        // JSON has no infinite number and no NaN.
        toml::Value::Float(number) => match serde_json::Number::from_f64(*number) {
            Some(finite) => Value::Number(finite),
            None => return Err(JsonError::Number(*number)),
        },
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(|item| json(item, depth + 1)).collect::<Result<_, _>>()?
        }
        toml::Value::Table(table) => {
            let fields =
                table.iter().map(|(key, value)| Ok((key.clone(), json(value, depth + 1)?)));
            Value::Object(fields.collect::<Result<_, JsonError>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_become_json_within_limits() {
        let parse = |text: &str| -> toml::Value {
            toml::Value::Table(text.parse::<toml::Table>().expect("it is TOML"))
        };
        let written = "text = \"a\"\nnumber = 1\npart = 0.5\nflag = true\nday = 2026-01-02\n\
            list = [1, [2]]\n[inner]\nx = { y = 1 }\n";
        assert_eq!(
            super::json(&parse(written), 1),
            Ok(json!({
                "text": "a", "number": 1, "part": 0.5, "flag": true, "day": "2026-01-02",
                "list": [1, [2]], "inner": { "x": { "y": 1 } },
            }))
        );
        let refused =
            |text: &str| super::json(&parse(text), 1).expect_err("it is refused").to_string();
        assert!(refused("x = nan").contains("JSON doesn't have"));
        let nested = |levels: usize| format!("x = {}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(super::json(&parse(&nested(MAX_DEPTH - 1)), 1).is_ok());
        assert!(refused(&nested(MAX_DEPTH)).contains("32 levels"));
    }
}
