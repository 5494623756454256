//! Rewrites the input schemas of tools so that every provider accepts them. A provider that refuses
//! one tool's schema refuses the whole request.

use serde_json::{Map, Value, json};
use toolhold_core::text::neutral_line;

/// Keywords that providers of models refuse at the top of an input schema.
const CHOICES: [&str; 8] = ["allOf", "anyOf", "else", "enum", "if", "not", "oneOf", "then"];

/// Levels of nested schemas that are searched for choices.
const MAX_NESTED: usize = 3;

/// The most schemas that are visited in the choices of one schema. A schema that refers to itself
/// has an unlimited number.
const MAX_PARTS: usize = 200;

/// Most characters of the name of an argument.
const MAX_ARGUMENT: usize = 64;

/// A required argument whose name providers of models refuse.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("it requires the argument `{name}`, and providers of models refuse that name")]
pub(crate) struct ArgumentNameError {
    name: String,
}

/// Returns an input schema that every provider accepts. The schema has no choice between schemas at
/// the top, and no argument names that a provider refuses. The omitted parts are checked when the
/// tool is called.
///
/// # Errors
///
/// Returns an error if a provider refuses the name of a required argument.
pub(crate) fn for_providers(schema: &Value) -> Result<Value, ArgumentNameError> {
    let mut parts = Vec::new();
    add_parts(schema, schema, None, MAX_NESTED, &mut parts);
    let mut schema = schema.clone();
    let Value::Object(fields) = &mut schema else { return Ok(schema) };
    fields.retain(|key, _| !CHOICES.contains(&&**key));
    for (choice, part) in parts {
        merge_part(fields, choice, &part);
    }

    let required = schema["required"].as_array().into_iter().flatten();
    if let Some(name) = required.filter_map(Value::as_str).find(|name| !is_fit(name)) {
        return Err(ArgumentNameError { name: neutral_line(name) });
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| is_fit(name));
    }
    Ok(schema)
}

/// Adds the properties of one of the schemas in a choice at the top. Names that a part of `allOf`
/// requires become required.
fn merge_part(fields: &mut Map<String, Value>, choice: &str, part: &Value) {
    if let Some(Value::Object(properties)) = part.get("properties") {
        let all = fields.entry("properties").or_insert_with(|| json!({}));
        let Some(all) = all.as_object_mut() else { return };
        for (name, property) in properties {
            let property = if property.is_object() { property.clone() } else { json!({}) };
            all.entry(name).or_insert(property);
        }
    }
    if choice == "allOf"
        && let Some(Value::Array(names)) = part.get("required")
    {
        let all = fields.entry("required").or_insert_with(|| json!([]));
        let Some(all) = all.as_array_mut() else { return };
        all.extend(names.iter().cloned());
    }
}

/// Checks whether providers accept the name of an argument.
fn is_fit(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_ARGUMENT
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

/// Adds the schemas in the choices at the top of a schema, each with the kind of the choice. An
/// argument is optional if only some of the alternatives require it. Therefore all parts inside a
/// choice get the kind of the choice `around` them.
fn add_parts(
    schema: &Value,
    whole: &Value,
    around: Option<&'static str>,
    depth: usize,
    found: &mut Vec<(&'static str, Value)>,
) {
    for choice in ["allOf", "anyOf", "oneOf"] {
        let kind = around.unwrap_or(choice);
        for part in schema.get(choice).and_then(Value::as_array).into_iter().flatten() {
            if found.len() == MAX_PARTS {
                return;
            }
            let part = referenced(part, whole).unwrap_or(part);
            found.push((kind, part.clone()));
            if depth == 0 {
                continue;
            }
            let inner_around = match around {
                None if choice != "allOf" => Some(choice),
                _ => around,
            };
            add_parts(part, whole, inner_around, depth - 1, found);
        }
    }
}

/// Returns the schema that the `$ref` of a schema points to.
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
