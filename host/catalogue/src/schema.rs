//! Schemas of arguments, compiled.

use berth_contract::text::{cut, neutral_line};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

/// Bytes of a compiled pattern of a schema.
const MAX_PATTERN: usize = 1 << 20;

/// Prepares a schema. No reference leaves the document, and patterns run on a linear engine, since
/// schemas come from strangers.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline()
        .build(schema)
        .map_err(|error| neutral_line(cut(&error.to_string(), 1024)))
}
