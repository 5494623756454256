//! Compiles the JSON Schemas of arguments, with bounded patterns and no references out of the
//! document.

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use toolhold_contract::text::{cut, neutral_line};

/// Maximum size of a compiled pattern of a schema, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// A schema that can't be compiled. The message is cut and neutralised, since the schema is
/// untrusted.
#[derive(Debug, thiserror::Error)]
#[error("{}", neutral_line(cut(&.0.to_string(), 1024)))]
pub struct InvalidSchemaError(ValidationError<'static>);

/// Compiles a schema. Schemas are untrusted, so references can't leave the document, and patterns
/// run in linear time.
///
/// # Errors
///
/// Returns an error if the schema isn't valid, if a reference leaves the document, or if a pattern
/// is too large.
pub fn compile(schema: &Value) -> Result<Validator, InvalidSchemaError> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline()
        .build(schema)
        .map_err(InvalidSchemaError)
}
