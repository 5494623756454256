//! Parses an MCP client's file.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use serde_json::{Map, Value};

use crate::client_files::error::ClientFileError;

/// Parses a JSON file. An empty file is an empty object.
pub(crate) fn json_values(text: &str) -> Result<Value, ClientFileError> {
    let root = parse_json(text)?;
    Ok(root.to_serde_value().unwrap_or_else(|| Value::Object(Map::new())))
}

/// Parses JSON. Comments and trailing commas are allowed.
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

/// Parses TOML. An error contains the number of its line.
pub(crate) fn toml_values(text: &str) -> Result<Value, ClientFileError> {
    let error = match ::toml::from_str::<::toml::Table>(text) {
        Ok(values) => return Ok(serde_json::to_value(values)?),
        Err(error) => error,
    };
    // An error without a position concerns the whole text, so the text's start is the position.
    let start = error.span().map_or(0, |span| span.start);
    let text_before = &text[..start.min(text.len())];
    let line = 1 + text_before.matches('\n').count();
    Err(ClientFileError::Toml { line, error })
}
