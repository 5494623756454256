//! Describes the arguments in a tool's schema for people.

use serde_json::Value;
use toolhold_core::object_forms;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    /// The type, for example `text`, `whole number` or `content|files|count`.
    pub(crate) takes: String,
    pub(crate) required: bool,
    pub(crate) default: Option<String>,
    /// The description on one line.
    pub(crate) description: String,
}

/// The most nested references that are followed. A plugin's schema may be recursive.
const MAX_DEPTH: usize = 8;

/// Returns the arguments in a tool's schema, with required arguments first.
pub(crate) fn arguments(schema: &Value) -> Vec<Argument> {
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let depth = 0;
    let mut arguments = Vec::new();
    for (name, property) in properties {
        let default = match &property["default"] {
            Value::Null => None,
            default => Some(default.to_string()),
        };
        let description = property["description"].as_str().unwrap_or_default();
        let words: Vec<&str> = description.split_whitespace().collect();
        arguments.push(Argument {
            name: name.clone(),
            takes: type_text(property, schema, depth),
            required: is_required(name, schema),
            default,
            description: words.join(" "),
        });
    }
    // Required arguments come first, because `false` comes before `true`.
    arguments.sort_by_key(|argument| !argument.required);
    arguments
}

fn is_required(name: &str, schema: &Value) -> bool {
    let Some(required) = schema["required"].as_array() else { return false };
    required.iter().any(|other| other == name)
}

/// Describes the type of a schema. References refer to parts of `root`. `depth` is the number of
/// types around this type.
fn type_text(schema: &Value, root: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "anything".to_owned();
    }
    if let Some(reference) = schema["$ref"].as_str()
        && let Some(pointer) = reference.strip_prefix('#')
    {
        return match root.pointer(pointer) {
            Some(target) => type_text(target, root, depth + 1),
            None => "anything".to_owned(),
        };
    }
    if let Some(values) = schema["enum"].as_array() {
        let literals = values.iter().filter(|value| !value.is_null()).map(literal);
        return literals.collect::<Vec<_>>().join("|");
    }
    if let Some(value) = schema.get("const") {
        return literal(value);
    }

    if let Some(forms) = object_forms(schema) {
        return forms;
    }
    let mut types: Vec<String> = match &schema["type"] {
        Value::String(name) => vec![named_type(name, schema, root, depth)],
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .map(|name| named_type(name, schema, root, depth))
            .collect(),
        _ => Vec::new(),
    };
    for key in ["anyOf", "oneOf"] {
        for alternative in schema[key].as_array().into_iter().flatten() {
            if alternative["type"] != "null" {
                types.push(type_text(alternative, root, depth + 1));
            }
        }
    }
    // An argument that may be null is shown as optional.
    types.retain(|name| name != "null");
    types.dedup();
    if types.is_empty() { "anything".to_owned() } else { types.join("|") }
}

fn literal(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

/// Describes the type `name` of a schema. References refer to parts of `root`. `depth` is the
/// number of types around this type.
fn named_type(name: &str, schema: &Value, root: &Value, depth: usize) -> String {
    match name {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "number" => "number".to_owned(),
        "boolean" => "true|false".to_owned(),
        "object" => "JSON object".to_owned(),
        "array" => format!("list of {}", type_text(&schema["items"], root, depth + 1)),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_in_words() {
        let root = json!({ "$defs": { "Mode": { "oneOf": [{ "const": "a" }, { "const": "b" }] }, "Loop": { "$ref": "#/$defs/Loop" } } });
        let check =
            |schema: Value, expected: &str| assert_eq!(type_text(&schema, &root, 0), expected);
        check(json!({ "type": "string" }), "text");
        check(json!({ "type": ["integer", "null"] }), "whole number");
        check(json!({ "type": "array", "items": { "type": "string" } }), "list of text");
        check(json!({ "anyOf": [{ "$ref": "#/$defs/Mode" }, { "type": "null" }] }), "a|b");
        check(json!({ "enum": ["x", 5, null] }), "x|5");
        check(json!({ "$ref": "#/$defs/Loop" }), "anything");
        check(json!(true), "anything");
    }

    #[test]
    fn required_arguments_come_first() {
        let schema = json!({
            "properties": {
                "limit": { "type": "integer", "default": 100, "description": "At\n most" },
                "pattern": { "type": "string" }
            },
            "required": ["pattern"]
        });
        let arguments = arguments(&schema);
        assert_eq!(arguments[0].name, "pattern");
        assert_eq!(
            (arguments[1].default.as_deref(), arguments[1].description.as_str()),
            (Some("100"), "At most")
        );
    }
}
