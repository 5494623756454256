//! Reasons why the text of an MCP client's file can't be read or changed.

use jsonc_parser::errors::ParseError;

/// The obstacle to reading or changing the text of a client's file.
#[derive(Debug, thiserror::Error)]
pub enum ClientFileError {
    /// The text isn't JSON.
    #[error("line {}: it isn't valid JSON: {}", .0.line_display(), .0.kind())]
    Json(ParseError),
    /// The text isn't TOML.
    #[error("line {line}: it isn't valid TOML: {}", .error.message())]
    Toml {
        /// The line of the fault.
        line: usize,
        /// The fault.
        error: toml::de::Error,
    },
    /// The text isn't TOML that can be changed.
    #[error(transparent)]
    TomlDocument(#[from] toml_edit::TomlError),
    /// A value of the TOML text has no form in JSON.
    #[error(transparent)]
    Value(#[from] serde_json::Error),
    /// A value isn't an object but must be one.
    #[error("the file, or `{table}` in it, isn't an object")]
    NotAnObject {
        /// The table of the servers.
        table: String,
    },
    /// A server can't be put into the JSON text.
    #[error(
        "the change would also change something else: `{table}` or `{name}` may be in the file twice"
    )]
    PutJson {
        /// The table of the servers.
        table: String,
        /// The server.
        name: String,
    },
    /// A server can't be put into the TOML text.
    #[error("adding [{table}.{name}] would also change something else")]
    PutToml {
        /// The table of the servers.
        table: String,
        /// The server.
        name: String,
    },
    /// Servers can't be taken out.
    #[error("removing {what} from `{table}` would also change something else")]
    TakeOut {
        /// The word for these items.
        what: &'static str,
        /// The table of the servers.
        table: String,
    },
    /// Settings can't be changed.
    #[error("changing the settings would also change something else")]
    Settings,
}
