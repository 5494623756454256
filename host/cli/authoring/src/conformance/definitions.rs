//! Checks a tool's descriptions, schemas, examples and defaults.

use serde_json::{Map, Value};
use toolhold_core::{Definition, compile_schema};

use crate::conformance::report::{CheckResult, Finding, short};

/// The names of the check.
pub(crate) const NAME: &str = "definition";

/// Checks one definition. The host has already checked the limits, because it doesn't load a tool
/// that exceeds them.
pub(crate) fn check(tool: &Definition) -> CheckResult {
    let mut findings = Vec::new();
    if tool.description.trim().is_empty() {
        findings.push(Finding::new(
            "a description: models choose a tool by it",
            "none",
            "describe the tool's action, use, result and failures",
        ));
    }
    let arguments = tool.input_schema.get("properties").and_then(Value::as_object);
    let mut undescribed = Vec::new();
    for (name, schema) in arguments.into_iter().flatten() {
        if !is_described(schema) && !is_explained(tool, name, schema) {
            undescribed.push(short(name));
        }
    }
    // A component that isn't made for Toolhold has only the text of its WIT.
    if !undescribed.is_empty() && !tool.foreign {
        findings.push(Finding::new(
            "a description of each argument",
            format!("none of {}", undescribed.join(", ")),
            "describe each in the schema: in Rust by a comment above the field",
        ));
    }
    check_schema(&tool.input_schema, "input schema", &mut findings);
    if let Some(schema) = &tool.output_schema {
        check_schema(schema, "output schema", &mut findings);
    }
    CheckResult::from_findings(NAME, "name, descriptions, schemas, examples and defaults", findings)
}

/// Checks a schema of a tool. `what`: the name of the schema in findings.
fn check_schema(schema: &Value, what: &str, findings: &mut Vec<Finding>) {
    if let Err(error) = compile_schema(schema) {
        findings.push(Finding::new(
            format!("a valid JSON Schema (2020-12) as {what}"),
            error.to_string(),
            "correct the schema: without it, nobody can call the tool",
        ));
        return;
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        findings.push(Finding::new(
            format!("`\"type\": \"object\"` at the top of the {what}"),
            short(&schema.get("type").map_or("no type".to_owned(), Value::to_string)),
            "MCP clients accept no other type: put the value into a field of an object",
        ));
    }
    check_samples(schema, schema, what, findings);
}

/// Checks whether a schema has a description. The description may be in an alternative of the
/// schema.
fn is_described(schema: &Value) -> bool {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let forms = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(key)?.as_array());
    !text.trim().is_empty() || forms.flatten().any(is_described)
}

/// Checks whether an argument needs no description. Models read each description in every
/// conversation, so an argument needs none if the call acts on it, if its values are listed, or if
/// the tool's own description names it.
fn is_explained(tool: &Definition, name: &str, schema: &Value) -> bool {
    let pointer = format!("/{name}");
    let is_subject = tool.subjects.iter().any(|subject| subject.pointer == pointer);
    let mut words =
        tool.description.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    is_subject || schema.get("enum").is_some() || words.any(|word| word == name)
}

/// Checks the examples and defaults of a schema, and of its properties at any level.
fn check_samples(root: &Value, schema: &Value, what: &str, findings: &mut Vec<Finding>) {
    let examples = schema.get("examples").and_then(Value::as_array).into_iter().flatten();
    // A default of null means no default.
    let default = schema.get("default").filter(|default| !default.is_null());
    let samples: Vec<&Value> = examples.chain(default).collect();
    if !samples.is_empty()
        && let Ok(validator) = compile_schema(&with_definitions(root, schema))
    {
        for value in samples {
            let Some(error) = validator.iter_errors(value).next() else { continue };
            findings.push(Finding::new(
                format!("examples and defaults that fit the {what}"),
                format!("{}: {error}", short(&value.to_string())),
                "correct the value or its schema",
            ));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for property in properties.into_iter().flat_map(Map::values) {
        check_samples(root, property, what, findings);
    }
    if let Some(items) = schema.get("items") {
        check_samples(root, items, what, findings);
    }
}

/// Returns a part of a schema, with the definitions to which the part may refer.
fn with_definitions(root: &Value, part: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(fields) = &mut part {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(key) {
                fields.entry(key).or_insert_with(|| definitions.clone());
            }
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::report::Status;
    use serde_json::json;

    #[track_caller]
    fn finds(tool: &Definition, expected: Option<&str>) {
        let check = check(tool);
        match expected {
            None => assert_eq!(check.status, Status::Passed, "{check}"),
            Some(expected) => {
                assert_eq!(check.status, Status::Failed);
                assert!(check.to_string().contains(expected), "{check}");
            }
        }
    }

    #[test]
    fn each_mistake_is_found() {
        let good = Definition::new(
            "tool",
            "Does.",
            json!({
                "type": "object",
                "properties": {
                    "a": { "type": "integer", "description": "A.", "default": 3, "examples": [1] },
                    "b": { "$ref": "#/$defs/b", "description": "B.", "default": "x" },
                    "c": { "type": "string", "description": "C.", "default": null },
                },
                "$defs": { "b": { "enum": ["x"] } },
            }),
        );
        finds(&good, None);
        finds(
            &Definition { description: " ".to_owned(), ..good.clone() },
            Some("a description: models"),
        );
        let with = |pointer: &str, value: Value| {
            let mut schema = good.input_schema.clone();
            *schema.pointer_mut(pointer).expect("it is there") = value;
            Definition { input_schema: schema, ..good.clone() }
        };
        finds(&with("/properties/a/description", json!("")), Some("none of a"));
        finds(&with("/properties/a/default", json!("3")), Some("examples and defaults"));
        finds(&with("/properties/a/examples", json!([1, "2"])), Some("examples and defaults"));
        finds(&with("/properties/b/default", json!("y")), Some("examples and defaults"));
        finds(&with("/properties/a/type", json!("int")), Some("a valid JSON Schema"));
        finds(&with("/type", json!("array")), Some("at the top of the input schema"));
        let output = Some(json!({ "type": "array" }));
        finds(&Definition { output_schema: output, ..good.clone() }, Some("of the output schema"));
        // Its descriptions are those of its WIT.
        let foreign = with("/properties/a/description", json!(""));
        finds(&Definition { foreign: true, ..foreign }, None);
    }
}
