//! The reference of the configuration, made from its schema.

use std::fmt::Write as _;

use serde_json::Value;

/// Columns of a document.
const WIDTH: usize = 140;

/// Every key of the configuration, by table.
pub(super) fn reference(schema: &Value) -> String {
    let mut text = String::new();
    for name in schema["properties"].as_object().expect("the configuration has keys").keys() {
        table(schema, &schema["properties"][name], name, &mut text);
    }
    text
}

fn table(root: &Value, schema: &Value, path: &str, text: &mut String) {
    let target = resolved(root, schema);
    let more = &target["additionalProperties"];
    if more.is_object() {
        // Of a table of tables, the inner one is described.
        return table(root, &with(more, "description", &schema["description"]), &format!("{path}.NAME"), text);
    }
    let description = [&schema["description"], &target["description"]].into_iter().find_map(Value::as_str);
    let _ = writeln!(text, "### `[{path}]`\n\n{}\n", wrapped(description.unwrap_or_default(), ""));
    let (tables, values): (Vec<_>, Vec<_>) = properties(target).partition(|(_, property)| is_table(root, property));
    for (name, property) in &values {
        let default = property.get("default").map_or_else(|| "absent by default".to_owned(), |default| format!("by default `{default}`"));
        let description = property["description"].as_str().unwrap_or_default();
        let _ = writeln!(text, "{}", wrapped(&format!("* **`{name}`**: {}; {default}. {description}", kind(root, property)), "  "));
    }
    if !values.is_empty() {
        text.push('\n');
    }
    for (name, property) in tables {
        table(root, property, &format!("{path}.{name}"), text);
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, property)| (name.as_str(), property))
}

fn is_table(root: &Value, schema: &Value) -> bool {
    resolved(root, schema)["type"] == "object"
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|reference| root.pointer(reference.trim_start_matches('#')));
    target.unwrap_or(schema)
}

fn with(schema: &Value, key: &str, value: &Value) -> Value {
    let mut schema = schema.clone();
    schema[key] = value.clone();
    schema
}

/// What a key takes, in words.
fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    for key in ["anyOf", "oneOf"] {
        if let Some(forms) = schema[key].as_array() {
            // A key that may be absent is one that may be null, which TOML can't say.
            let forms = forms.iter().filter(|form| form["type"] != "null");
            return forms.map(|form| kind(root, form)).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(only) = schema.get("const") {
        return format!("`{only}`");
    }
    let names = match &schema["type"] {
        Value::Array(names) => names.first().and_then(Value::as_str),
        name => name.as_str(),
    };
    match names {
        Some("integer") => format!("a whole number from {} to {}", schema["minimum"], schema["maximum"]),
        Some("string") => "a text".to_owned(),
        Some("array") => format!("a list, each {}", kind(root, &schema["items"])),
        Some("object") => {
            let fields: Vec<String> = properties(schema).map(|(name, field)| format!("`{name}` ({})", kind(root, field))).collect();
            format!("a table of {}", fields.join(" and "))
        }
        other => panic!("the reference has no word for the type {other:?}"),
    }
}

/// A paragraph in lines, those after the first behind `indentation`.
fn wrapped(text: &str, indentation: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= WIDTH);
        match lines.last_mut() {
            Some(line) if !full => line.extend([if line.trim().is_empty() { "" } else { " " }, word]),
            _ => lines.push(format!("{indentation}{word}")),
        }
    }
    lines.join("\n")
}
