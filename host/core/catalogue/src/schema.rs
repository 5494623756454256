//! Compiles the JSON Schemas of arguments, with bounded patterns and no references out of the
//! document.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use toolhold_contract::text::{cut, neutral_line};

/// Most bytes of one compiled pattern of a schema.
const MAX_PATTERN: usize = 1 << 20;

/// Compiles a schema. References can't leave the document, and patterns run in linear time, since
/// schemas are untrusted.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline()
        .build(schema)
        .map_err(|error| neutral_line(cut(&error.to_string(), 1024)))
}
