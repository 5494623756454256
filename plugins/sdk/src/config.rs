//! The plugin's own settings: the table `[plugins.NAME.config]` of the operator's configuration.
//!
//! ```toml
//! [plugins.tickets.config]
//! server = "https://tickets.example.com"
//! retries = 3
//! ```
//!
//! ```no_run
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! let server: Option<String> = toolhold_sdk::config::get("server")?;
//! let retries = toolhold_sdk::config::get::<u32>("retries")?.unwrap_or(2);
//! # Ok(())
//! # }
//! ```
//!
//! A plugin may bring a JSON Schema of them: `config_schema` of [`plugin!`](crate::plugin). The
//! host then checks the table when it loads the plugin, and fills in the defaults of the schema.
//! Settings are no place for secrets: see [`secrets`](crate::secrets).
//!
//! In unit tests there are the settings that [`testing::set_config`](crate::testing::set_config)
//! sets.

use serde::de::DeserializeOwned;

use crate::Failure;

/// The value of a key. `None`: it isn't set.
///
/// # Errors
///
/// The value has another type.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    let value = host::get(key);
    value.map(|text| decode(&text, &format!("the setting `{key}`"))).transpose()
}

/// The whole table.
///
/// # Errors
///
/// The table has another type.
pub fn all<T: DeserializeOwned>() -> Result<T, Failure> {
    decode(&host::all(), "the plugin's settings")
}

fn decode<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::permanent("config", format!("{what}: {error}")))
}

#[cfg(target_arch = "wasm32")]
use crate::contract::bindings::toolhold::host::config as host;

/// The stand-in for the host in unit tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host {
    use std::cell::RefCell;

    use serde_json::{Map, Value};

    thread_local! {
        static CONFIG: RefCell<Map<String, Value>> = RefCell::default();
    }

    pub(crate) fn set(config: Map<String, Value>) {
        CONFIG.set(config);
    }

    pub(super) fn get(key: &str) -> Option<String> {
        CONFIG.with_borrow(|config| config.get(key).map(Value::to_string))
    }

    pub(super) fn all() -> String {
        CONFIG.with_borrow(|config| Value::Object(config.clone()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    #[test]
    fn settings_have_types() {
        assert_eq!(super::get::<String>("server").unwrap(), None);
        crate::testing::set_config(json!({ "server": "a", "retries": 3 }));
        assert_eq!(super::get::<String>("server").unwrap().as_deref(), Some("a"));
        assert_eq!(super::all::<BTreeMap<String, Value>>().unwrap()["retries"], 3);
        let failure = super::get::<bool>("retries").unwrap_err();
        assert!(failure.message.starts_with("the setting `retries`: invalid type"), "{failure}");
    }
}
