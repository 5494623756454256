//! Compiles the JSON Schemas of arguments. Patterns have a size limit, and references can't leave
//! the document.

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use toolhold_contract::text::{cut, neutral_line};

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// Maximum length of an error message about a schema, in bytes.
const MAX_MESSAGE: usize = 1024;

/// A schema that can't be compiled. The schema is untrusted, so the message is cut and neutralised.
#[derive(Debug, thiserror::Error)]
#[error("{}", neutral_line(cut(&.0.to_string(), MAX_MESSAGE)))]
pub struct InvalidSchemaError(ValidationError<'static>);

/// Compiles an untrusted schema. References can't leave the document, and patterns run in linear
/// time.
///
/// # Errors
///
/// Returns an error if the schema is invalid, if a reference leaves the document, or if a pattern
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
