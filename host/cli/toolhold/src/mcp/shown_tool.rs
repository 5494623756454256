//! Shows the definition of an upstream server's tool to the person who approves it, with all that a
//! model would read.

use std::fmt::Write;

use serde_json::{Map, Value};
use toolhold_core::text::{neutral, neutral_line};

/// The definition in lines: its description, its arguments, and the rest as JSON.
pub(crate) fn lines(definition: &str) -> String {
    let Ok(Value::Object(mut tool)) = serde_json::from_str(definition) else {
        return indented(definition);
    };
    tool.shift_remove("name");
    let mut text = String::new();
    if let Some(Value::String(description)) = tool.shift_remove("description") {
        text += &indented(&description);
    }
    if let Some(Value::Object(schema)) = tool.shift_remove("inputSchema") {
        text += &of_arguments(schema);
    }
    text + &of_rest(tool)
}

fn of_arguments(mut schema: Map<String, Value>) -> String {
    let mut text = String::new();
    let required = match schema.shift_remove("required") {
        Some(Value::Array(names)) => names,
        Some(other) => {
            schema.insert("required".to_owned(), other);
            Vec::new()
        }
        None => Vec::new(),
    };
    if let Some(Value::Object(properties)) = schema.shift_remove("properties") {
        for (name, property) in properties {
            let is_required = required.iter().any(|it| *it == name);
            text += &of_argument(&name, property, is_required);
        }
    }
    if schema.get("type").is_some_and(|kind| kind == "object") {
        schema.shift_remove("type");
    }
    text + &of_rest(schema)
}

fn of_argument(name: &str, property: Value, is_required: bool) -> String {
    let Value::Object(mut property) = property else {
        return format!("  {}: {}\n", neutral_line(name), neutral_line(&property.to_string()));
    };
    let mut about = Vec::new();
    if let Some(Value::String(kind)) = property.get("type") {
        about.push(neutral_line(kind));
        property.shift_remove("type");
    }
    if is_required {
        about.push("required".to_owned());
    }
    let description = match property.shift_remove("description") {
        Some(Value::String(description)) => description,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    if !property.is_empty() {
        about.push(neutral_line(&Value::Object(property).to_string()));
    }
    let mut text = format!("  {}", neutral_line(name));
    if !about.is_empty() {
        let _ = write!(text, " ({})", about.join(", "));
    }
    if !description.is_empty() {
        let _ = write!(text, ": {}", neutral_line(&description));
    }
    text + "\n"
}

fn of_rest(rest: Map<String, Value>) -> String {
    let mut text = String::new();
    for (key, value) in rest {
        let value = neutral_line(&value.to_string());
        let _ = writeln!(text, "  {}: {value}", neutral_line(&key));
    }
    text
}

fn indented(text: &str) -> String {
    text.trim().lines().map(|line| format!("  {}\n", neutral(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_model_reads_is_shown() {
        let definition = r#"{"name":"search","description":"Searches.\nTwice.","annotations":{"readOnlyHint":true},
            "inputSchema":{"type":"object","required":["query"],"additionalProperties":false,"properties":{
            "limit":{"type":"integer","default":10},"query":{"type":"string","description":"The words."},"any":true}}}"#;
        assert_eq!(
            lines(definition),
            "  Searches.\n  Twice.\n  limit (integer, {\"default\":10})\n  query (string, required): The words.\n  any: true\n  additionalProperties: false\n  annotations: {\"readOnlyHint\":true}\n"
        );
        assert_eq!(lines("no JSON"), "  no JSON\n");
    }
}
