//! Checks a tool's descriptions, schemas, examples and defaults.

use serde_json::{Map, Value};
use toolhold_core::{Definition, compile_schema};

use crate::conformance::report::{CheckResult, Finding, short};

pub(crate) const NAME: &str = "definition";

/// Checks one definition. The host has already enforced its limits.
pub(crate) fn check(tool: &Definition) -> CheckResult {
    let mut findings = Vec::new();
    if tool.description.trim().is_empty() {
        findings.push(Finding::new(
            "a description, by which models choose the tool",
            "none",
            "describe the tool's action, use, result and failures",
        ));
    }
    let undescribed = undescribed_arguments(tool);
    // A component that isn't made for Toolhold can't describe arguments.
    if !undescribed.is_empty() && !tool.foreign {
        findings.push(Finding::new(
            "a description of each argument",
            format!("none of {}", undescribed.join(", ")),
            "describe each argument in the schema (in Rust: a doc comment above the field)",
        ));
    }
    check_schema(&tool.input_schema, "input schema", &mut findings);
    if let Some(schema) = &tool.output_schema {
        check_schema(schema, "output schema", &mut findings);
    }
    CheckResult::from_findings(NAME, "name, descriptions, schemas, examples and defaults", findings)
}

/// Returns the names of the arguments that need a description and have none.
fn undescribed_arguments(tool: &Definition) -> Vec<String> {
    let arguments = tool.input_schema.get("properties").and_then(Value::as_object);
    let mut undescribed = Vec::new();
    for (name, schema) in arguments.into_iter().flatten() {
        if !is_described(schema) && !is_explained(tool, name, schema) {
            undescribed.push(short(name));
        }
    }
    undescribed
}

/// Checks that a schema is valid, describes an object, and accepts its own examples and defaults.
/// Findings call the schema `what`.
fn check_schema(schema: &Value, what: &str, findings: &mut Vec<Finding>) {
    if let Err(error) = compile_schema(schema) {
        findings.push(Finding::new(
            format!("a valid JSON Schema (2020-12) as {what}"),
            error.to_string(),
            "correct the schema: with an invalid schema, nobody can call the tool",
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

/// Checks whether a schema or one of its alternatives has a description.
fn is_described(schema: &Value) -> bool {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    if !description.trim().is_empty() {
        return true;
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        let alternatives = schema.get(key).and_then(Value::as_array);
        if alternatives.is_some_and(|alternatives| alternatives.iter().any(is_described)) {
            return true;
        }
    }
    false
}

/// Checks whether the role, the choices or the tool's description already explain an argument.
/// Such an argument needs no description of its own, which every model would have to read.
fn is_explained(tool: &Definition, name: &str, schema: &Value) -> bool {
    let pointer = format!("/{name}");
    let has_role = tool.subjects.iter().any(|subject| subject.pointer == pointer);
    let has_choices = schema.get("enum").is_some();
    let mut words =
        tool.description.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_in_description = words.any(|word| word == name);
    has_role || has_choices || is_in_description
}

/// Checks the examples and defaults in all levels of a schema.
fn check_samples(root: &Value, schema: &Value, what: &str, findings: &mut Vec<Finding>) {
    let mut samples: Vec<&Value> = Vec::new();
    if let Some(Value::Array(examples)) = schema.get("examples") {
        samples.extend(examples);
    }
    // The default `null` means no default.
    if let Some(default) = schema.get("default")
        && !default.is_null()
    {
        samples.push(default);
    }
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

/// Adds the definitions of `root` to `part`, which may refer to these definitions.
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
            Some("a description, by which models"),
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
