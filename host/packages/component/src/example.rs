//! Makes an example of the values that a schema accepts, for people and models.

use serde_json::Value;

/// Most levels of an example. Deeper values are shown as an ellipsis.
const MAX_DEPTH: usize = 4;

/// Most cases of a choice that are shown. Further cases are only counted.
const MAX_CASES: usize = 6;

/// Returns the forms of a choice between objects, such as
/// `{"tag": "circle", "value": 1} or {"tag": "point"}`.
pub fn object_forms(schema: &Value) -> Option<String> {
    let cases = choices(schema)?;
    if cases.is_empty() || cases.iter().any(|case| case["type"] != "object") {
        return None;
    }
    let mut forms = Vec::new();
    for case in cases.iter().take(MAX_CASES) {
        let depth = 0;
        forms.push(example(case, depth));
    }
    if cases.len() > MAX_CASES {
        forms.push(format!("{} more", cases.len() - MAX_CASES));
    }
    Some(forms.join(" or "))
}

/// Returns the alternatives of a schema.
fn choices(schema: &Value) -> Option<&Vec<Value>> {
    ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array())
}

/// Returns an example of a value as JSON. An ellipsis stands for the content of a string, and for a
/// value of an unknown type or below [`MAX_DEPTH`] levels.
fn example(schema: &Value, depth: usize) -> String {
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(value) = schema.get("enum").and_then(|values| values.get(0)) {
        return value.to_string();
    }
    if depth > MAX_DEPTH {
        return "…".to_owned();
    }
    if let Some(first) = choices(schema).and_then(|cases| cases.first()) {
        return example(first, depth + 1);
    }
    let type_name = match &schema["type"] {
        Value::Array(names) => names.first().and_then(Value::as_str),
        single => single.as_str(),
    };
    match type_name {
        Some("object") => object_example(schema, depth),
        Some("array") => format!("[{}]", example(array_item(schema), depth + 1)),
        Some("string") => r#""…""#.to_owned(),
        Some("integer" | "number") => "1".to_owned(),
        Some("boolean") => "true".to_owned(),
        Some("null") => "null".to_owned(),
        _ => "…".to_owned(),
    }
}

fn array_item(schema: &Value) -> &Value {
    schema.get("items").or_else(|| schema["prefixItems"].get(0)).unwrap_or(&Value::Null)
}

/// Returns an example of an object as JSON. Only required fields are shown.
fn object_example(schema: &Value, depth: usize) -> String {
    let required = schema["required"].as_array().into_iter().flatten();
    let mut fields = Vec::new();
    for name in required.filter_map(Value::as_str) {
        let value = example(&schema["properties"][name], depth + 1);
        fields.push(format!("{}: {value}", Value::from(name)));
    }
    format!("{{{}}}", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(tag: &str, value: Option<Value>) -> Value {
        let mut case = json!({
            "type": "object", "properties": { "tag": { "const": tag } }, "required": ["tag"],
        });
        if let Some(value) = value {
            case["properties"]["value"] = value;
            case["required"] = json!(["tag", "value"]);
        }
        case
    }

    #[test]
    fn choice_between_objects_is_shown_by_its_forms() {
        let point = json!({ "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] });
        let float = json!({ "anyOf": [{ "type": "number" }, { "enum": ["NaN"] }] });
        let shape = json!({ "oneOf": [
            case("circle", Some(float)),
            case("polygon", Some(json!({ "type": "array", "items": point }))),
            case("point", None),
        ] });
        assert_eq!(
            object_forms(&shape).as_deref(),
            Some(
                r#"{"tag": "circle", "value": 1} or {"tag": "polygon", "value": [{"x": 1}]} or {"tag": "point"}"#
            )
        );
    }

    #[test]
    fn other_schemas_have_no_forms_and_large_ones_end() {
        for schema in [
            json!({}),
            json!({ "oneOf": [] }),
            json!({ "oneOf": [{ "type": "string" }] }),
            json!({ "oneOf": 3 }),
            json!(true),
        ] {
            assert_eq!(object_forms(&schema), None, "{schema}");
        }
        let mut deep = json!({ "type": "string" });
        for _ in 0..30 {
            deep = json!({ "oneOf": [case("a", Some(deep))] });
        }
        assert!(object_forms(&deep).is_some_and(|forms| forms.len() < 200));
        let many = json!({ "oneOf": vec![case("a", None); 500] });
        assert!(object_forms(&many).is_some_and(|forms| forms.ends_with(" or 494 more")));
    }
}
