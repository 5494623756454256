//! Parses an MCP client's file as JSON with comments, or as TOML.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use serde_json::{Map, Value};

use crate::client_files::error::ClientFileError;

/// Parses the values of a JSON file. A file without text is an empty object.
pub(crate) fn json_values(text: &str) -> Result<Value, ClientFileError> {
    let root = parse_json(text)?;
    Ok(root.to_serde_value().unwrap_or_else(|| Value::Object(Map::new())))
}

/// Parses JSON. The only valid extensions are comments and trailing commas.
pub(crate) fn parse_json(text: &str) -> Result<CstRootNode, ClientFileError> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    CstRootNode::parse(text, &options).map_err(ClientFileError::Json)
}

/// Parses the values of a TOML file.
pub(crate) fn toml_values(text: &str) -> Result<Value, ClientFileError> {
    let values: ::toml::Table = ::toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text[..start].matches('\n').count() + 1;
        ClientFileError::Toml { line, error }
    })?;
    Ok(serde_json::to_value(values)?)
}
