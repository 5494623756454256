//! The errors of reading and changing an MCP client's file.

use jsonc_parser::errors::ParseError;

/// The reason why a client's file can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ClientFileError {
    /// The text isn't JSON.
    #[error("line {}: the file isn't valid JSON: {}", .0.line_display(), .0.kind())]
    Json(ParseError),
    /// The text isn't TOML.
    #[error("line {line}: the file isn't valid TOML: {}", .error.message())]
    Toml {
        /// The line with the error.
        line: usize,
        /// The error.
        error: toml::de::Error,
    },
    /// The TOML text can't be edited.
    #[error(transparent)]
    TomlDocument(#[from] toml_edit::TomlError),
    /// A value of the TOML text has no form in JSON.
    #[error(transparent)]
    Value(#[from] serde_json::Error),
    /// A value must be an object.
    #[error("the file, or `{table}` in it, isn't an object")]
    NotAnObject {
        /// The table of the servers.
        table: String,
    },
    /// Adding a server to the JSON text would change other values.
    #[error(
        "the change would also change something else: `{table}` or `{name}` may be in the file twice"
    )]
    PutJson {
        /// The table of the servers.
        table: String,
        /// The server.
        name: String,
    },
    /// Adding a server to the TOML text would change other values.
    #[error("adding [{table}.{name}] would also change something else")]
    PutToml {
        /// The table of the servers.
        table: String,
        /// The server.
        name: String,
    },
    /// Removing items would change other values.
    #[error("removing {what} from `{table}` would also change something else")]
    TakeOut {
        /// The word for the items.
        what: &'static str,
        /// The table of the servers.
        table: String,
    },
    /// Changing settings would change other values.
    #[error("changing the settings would also change something else")]
    Settings,
}
