//! The names of environment variables.

use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::string_types::{as_written, inline_schema};

/// The name of an environment variable: letters, digits and `_`, without a leading digit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariableName(pub(crate) String);

as_written!(VariableName);

const MAX_NAME: usize = 128;

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let has_valid_length = !name.is_empty() && name.len() <= MAX_NAME;
        let has_valid_characters =
            name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let begins_with_digit = name.starts_with(|first: char| first.is_ascii_digit());
        if has_valid_length && has_valid_characters && !begins_with_digit {
            return Ok(Self(name));
        }
        // The text after a `=` may be a secret, so the message doesn't show it.
        let shown = match name.split_once('=') {
            Some((before, _)) => before,
            None => name.as_str(),
        };
        Err(serde::de::Error::custom(format!(
            "`{shown}` isn't a valid variable name: `env` takes names of variables, as in \
             \"DATABASE_URL\"; the values come from your environment"
        )))
    }
}

inline_schema!(
    VariableName,
    "VariableName",
    json_schema!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME })
);
