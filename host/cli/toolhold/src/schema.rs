//! Describes the arguments in a tool's schema as a table for people.

use serde_json::Value;

/// An argument of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    /// Its name.
    pub(crate) name: String,
    /// Its type: `text`, `whole number`, `content|files|count`.
    pub(crate) takes: String,
    /// Whether it is required.
    pub(crate) required: bool,
    /// Its default, if the schema names one.
    pub(crate) default: Option<String>,
    /// Its description on one line.
    pub(crate) description: String,
}

/// Largest depth of references: plugins write the schemas.
const MAX_DEPTH: usize = 8;

/// The arguments in a tool's input schema, the required ones first.
pub(crate) fn arguments(schema: &Value) -> Vec<Argument> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut arguments: Vec<Argument> = properties
        .map(|(name, property)| Argument {
            name: name.clone(),
            takes: type_text(property, schema, 0),
            required: is_required(name, schema),
            default: property.get("default").filter(|value| !value.is_null()).map(Value::to_string),
            description: property["description"]
                .as_str()
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        })
        .collect();
    arguments.sort_by_key(|argument| !argument.required);
    arguments
}

fn is_required(name: &str, schema: &Value) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
}

fn type_text(schema: &Value, root: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "anything".to_owned();
    }
    if let Some(pointer) = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'))
    {
        return root
            .pointer(pointer)
            .map_or_else(|| "anything".to_owned(), |target| type_text(target, root, depth + 1));
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .filter(|value| !value.is_null())
            .map(literal)
            .collect::<Vec<_>>()
            .join("|");
    }
    if let Some(value) = schema.get("const") {
        return literal(value);
    }
    let mut forms: Vec<String> = match &schema["type"] {
        Value::String(name) => vec![named(name, schema, root, depth)],
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .map(|name| named(name, schema, root, depth))
            .collect(),
        _ => Vec::new(),
    };
    for key in ["anyOf", "oneOf"] {
        let others =
            schema[key].as_array().into_iter().flatten().filter(|form| form["type"] != "null");
        forms.extend(others.map(|form| type_text(form, root, depth + 1)));
    }
    // A nullable argument is simply optional.
    forms.retain(|form| form != "null");
    forms.dedup();
    if forms.is_empty() { "anything".to_owned() } else { forms.join("|") }
}

fn literal(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn named(name: &str, schema: &Value, root: &Value, depth: usize) -> String {
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
