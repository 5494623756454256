//! Rewrites the input schemas of tools so that all providers accept them. A single schema that a
//! provider doesn't accept makes it refuse the whole request.

use serde_json::{Map, Value, json};
use toolhold_core::text::neutral_line;

/// Keywords that providers refuse at the top of an input schema.
const CHOICE_KEYWORDS: [&str; 8] = ["allOf", "anyOf", "else", "enum", "if", "not", "oneOf", "then"];

/// The depth to which nested schemas are searched for choices.
const MAX_NESTED: usize = 3;

/// The most schemas that are visited in one schema. The limit ends the search in a schema that
/// refers to itself.
const MAX_PARTS: usize = 200;

const MAX_ARGUMENT: usize = 64;

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the tool requires the argument `{name}`, a name that model providers refuse")]
pub(crate) struct ArgumentNameError {
    name: String,
}

/// Returns an input schema that every provider accepts. Properties in `anyOf`, `oneOf` and `allOf`
/// move to the top, and these keywords and unaccepted argument names are removed. The host still
/// checks each call against the original schema.
///
/// # Errors
///
/// Fails if providers refuse the name of a required argument.
pub(crate) fn for_providers(schema: &Value) -> Result<Value, ArgumentNameError> {
    let mut parts = Vec::new();
    let outer_alternative = None;
    add_parts(schema, schema, outer_alternative, MAX_NESTED, &mut parts);
    let mut merged = schema.clone();
    let Value::Object(fields) = &mut merged else { return Ok(merged) };
    fields.retain(|keyword, _| !CHOICE_KEYWORDS.contains(&keyword.as_str()));
    for (choice, part) in parts {
        merge_part(fields, choice, &part);
    }

    if let Some(Value::Array(required)) = fields.get("required") {
        for name in required.iter().filter_map(Value::as_str) {
            if !is_accepted_name(name) {
                return Err(ArgumentNameError { name: neutral_line(name) });
            }
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.retain(|name, _| is_accepted_name(name));
    }
    Ok(merged)
}

/// Merges the schema `part` of a choice into the fields of the schema around it. Required names of
/// `part` stay required only if the choice is `allOf`.
fn merge_part(fields: &mut Map<String, Value>, choice: &str, part: &Value) {
    if let Some(Value::Object(properties)) = part.get("properties") {
        let merged = fields.entry("properties").or_insert_with(|| json!({}));
        let Some(merged_properties) = merged.as_object_mut() else { return };
        for (name, property) in properties {
            // Providers refuse `true` and `false` as schemas.
            let property = if property.is_object() { property.clone() } else { json!({}) };
            merged_properties.entry(name).or_insert(property);
        }
    }
    if choice == "allOf"
        && let Some(Value::Array(names)) = part.get("required")
    {
        let required = fields.entry("required").or_insert_with(|| json!([]));
        let Some(required_names) = required.as_array_mut() else { return };
        required_names.extend(names.iter().cloned());
    }
}

fn is_accepted_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_ARGUMENT
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

/// Adds the schemas in `allOf`, `anyOf` and `oneOf` of `schema` to `found`, each with its keyword.
/// If `schema` is itself in an `anyOf` or `oneOf`, `outer_alternative` is this keyword. It is added
/// instead of the keyword in `schema`, because an argument in an alternative is optional.
/// References refer to parts of `whole`.
fn add_parts(
    schema: &Value,
    whole: &Value,
    outer_alternative: Option<&'static str>,
    levels_left: usize,
    found: &mut Vec<(&'static str, Value)>,
) {
    for choice in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(parts)) = schema.get(choice) else { continue };
        for part in parts {
            if found.len() == MAX_PARTS {
                return;
            }
            let part = referenced(part, whole).unwrap_or(part);
            found.push((outer_alternative.unwrap_or(choice), part.clone()));
            if levels_left == 0 {
                continue;
            }
            let mut part_alternative = outer_alternative;
            if outer_alternative.is_none() && choice != "allOf" {
                part_alternative = Some(choice);
            }
            add_parts(part, whole, part_alternative, levels_left - 1, found);
        }
    }
}

fn referenced<'a>(schema: &Value, whole: &'a Value) -> Option<&'a Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    whole.pointer(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_refuses_isnt_in_an_input_schema() {
        let (text, number) = (json!({ "type": "string" }), json!({ "type": "number" }));
        let branch = |name: &str| json!({ "properties": { name: text }, "required": [name] });
        for (odd, expected) in [
            (
                json!({ "type": "object", "anyOf": [branch("id"), branch("name")], "not": { "required": ["x"] } }),
                json!({ "type": "object", "properties": { "id": text, "name": text } }),
            ),
            (
                json!({ "type": "object", "properties": { "a": number }, "required": ["a"], "allOf": [{ "$ref": "#/$defs/b" }], "$defs": { "b": branch("b") } }),
                json!({ "type": "object", "properties": { "a": number, "b": text }, "required": ["a", "b"], "$defs": { "b": branch("b") } }),
            ),
            (
                json!({ "type": "object", "oneOf": [{ "allOf": [branch("deep")] }, true, 7], "properties": { "deep": number } }),
                json!({ "type": "object", "properties": { "deep": number } }),
            ),
            (
                json!({ "type": "object", "properties": { "$filter": text, "a b": text, "a.b-c_1": text } }),
                json!({ "type": "object", "properties": { "a.b-c_1": text } }),
            ),
        ] {
            assert_eq!(for_providers(&odd), Ok(expected), "{odd}");
        }
        let needed = branch("$filter");
        assert!(for_providers(&needed) == Err(ArgumentNameError { name: "$filter".to_owned() }));
        let round = json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }] } }, "anyOf": [{ "$ref": "#/$defs/a" }] });
        assert!(for_providers(&round).is_ok());
        let wide = json!({ "anyOf": vec![json!({ "$ref": "#" }); 1000] });
        let mut found = Vec::new();
        add_parts(&wide, &wide, None, MAX_NESTED, &mut found);
        assert_eq!(found.len(), MAX_PARTS);
    }
}
