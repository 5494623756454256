//! Arguments that mean what the schema wants and are written in another form, as models and their
//! providers do: `5.0` for a whole number, `"5"` for a number, `null` for what is left out. They
//! are put in the schema's form before anything looks at them, so everything behind sees the same.
//!
//! Where a schema takes more than one form, nothing is changed: what can be meant two ways is not
//! ours to decide.

use serde_json::{Map, Number, Value};

/// References and alternatives are followed this deep: schemas come from plugins.
const MAX_DEPTH: usize = 16;

/// Bytes of a text that is taken for a number.
const MAX_DIGITS: usize = 64;

/// Beyond it, not every whole number is a floating-point one.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Puts arguments in the form that their schema wants. What doesn't fit stays, for the check behind
/// to refuse.
pub(crate) fn coerce(schema: &Value, arguments: &mut Value) {
    put(schema, schema, arguments);
}

fn put(root: &Value, schema: &Value, value: &mut Value) {
    let schema = followed(root, schema);
    match value {
        Value::Object(fields) => {
            drop_nulls(root, schema, fields);
            for (name, value) in fields {
                if let Some(property) = property(schema, name) {
                    put(root, property, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(each) = schema.get("items") {
                items.iter_mut().for_each(|item| put(root, each, item));
            }
        }
        Value::Number(number) => {
            if let Some(whole) =
                whole(number).filter(|_| Types::from_schema(root, schema).wants(INTEGER, NUMBER))
            {
                *number = whole;
            }
        }
        Value::String(text) => {
            let Some(number) = number(text) else { return };
            let types = Types::from_schema(root, schema);
            if types.wants(INTEGER | NUMBER, STRING) {
                let number =
                    if types.wants(NUMBER, 0) { number } else { whole(&number).unwrap_or(number) };
                *value = Value::Number(number);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// An optional argument that is null is one that is left out, unless the schema has a meaning for
/// null.
fn drop_nulls(root: &Value, schema: &Value, fields: &mut Map<String, Value>) {
    if !fields.values().any(Value::is_null) {
        return;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|required| required.iter().any(|known| known == name));
    let is_optional = |name: &str| {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        property.is_some_and(|property| {
            !is_required(name) && Types::from_schema(root, property).lacks(NULL)
        })
    };
    fields.retain(|name, value| !(value.is_null() && is_optional(name)));
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let own = schema.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| schema.get("additionalProperties"))
}

/// What a reference leads to.
fn followed<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    for _ in 0..MAX_DEPTH {
        let pointer = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| reference.strip_prefix('#'));
        match pointer.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// The same number as a whole one, where it is one and isn't written so.
fn whole(number: &Number) -> Option<Number> {
    let float = number
        .as_f64()
        .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() <= MAX_WHOLE)?;
    Some(Number::from(float as i64))
}

/// The number that a text is, and nothing else.
fn number(text: &str) -> Option<Number> {
    let is_one = text.len() <= MAX_DIGITS
        && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit());
    is_one.then(|| serde_json::from_str(text).ok()).flatten()
}

const STRING: u8 = 1;
const INTEGER: u8 = 2;
const NUMBER: u8 = 4;
const NULL: u8 = 8;
const OTHER: u8 = 16;
const ANY: u8 = 31;

/// The types that a schema takes, as bits. Rather too many than too few: then nothing is changed.
#[derive(Clone, Copy)]
struct Types(u8);

impl Types {
    fn from_schema(root: &Value, schema: &Value) -> Self {
        Self(bits(root, schema, 0))
    }

    /// Whether one of `these` is taken, and none of `those`.
    fn wants(self, these: u8, those: u8) -> bool {
        self.0 & these != 0 && self.0 & those == 0
    }

    fn lacks(self, these: u8) -> bool {
        self.0 & these == 0
    }
}

fn bits(root: &Value, schema: &Value, depth: usize) -> u8 {
    if depth > MAX_DEPTH {
        return ANY;
    }
    let schema = followed(root, schema);
    let Some(fields) = schema.as_object() else { return ANY };
    let mut types = match fields.get("type") {
        Some(Value::String(name)) => bit(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).fold(0, |types, name| types | bit(name))
        }
        _ => ANY,
    };
    let values = fields
        .get("enum")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .or(fields.get("const").map(std::slice::from_ref));
    if let Some(values) = values {
        types &= values.iter().fold(0, |types, value| types | bit_of(value));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(forms)) = fields.get(key) {
            types &= forms.iter().fold(0, |types, form| types | bits(root, form, depth + 1));
        }
    }
    if let Some(Value::Array(forms)) = fields.get("allOf") {
        types = forms.iter().fold(types, |types, form| types & bits(root, form, depth + 1));
    }
    types
}

fn bit(name: &str) -> u8 {
    match name {
        "string" => STRING,
        "integer" => INTEGER,
        "number" => NUMBER | INTEGER,
        "null" => NULL,
        _ => OTHER,
    }
}

fn bit_of(value: &Value) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::Number(number) if number.is_f64() => NUMBER,
        Value::Number(_) => INTEGER,
        Value::Null => NULL,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(property: &Value, given: &str, expected: &str) {
        let schema = json!({ "type": "object", "properties": { "a": property }, "required": ["a"], "$defs": { "n": { "type": "integer" } } });
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
        let mut arguments = json!({ "a": parse(given), "other": 5.0 });
        coerce(&schema, &mut arguments);
        assert_eq!(arguments, json!({ "a": parse(expected), "other": 5.0 }), "{property}");
    }

    #[test]
    fn whole_numbers_and_numbers_as_text_are_taken() {
        for (property, given, expected) in [
            (json!({ "type": "integer" }), "5.0", "5"),
            (json!({ "type": "integer" }), "-3e2", "-300"),
            (json!({ "type": "integer" }), "-0.0", "0"),
            (json!({ "type": "integer" }), r#""5""#, "5"),
            (json!({ "type": "integer" }), r#""5.0""#, "5"),
            (json!({ "type": "integer" }), r#""18446744073709551615""#, "18446744073709551615"),
            (json!({ "type": ["integer", "null"] }), "5.0", "5"),
            (json!({ "type": "number" }), r#""2.5""#, "2.5"),
            (json!({ "type": "number" }), r#""5""#, "5"),
            (json!({ "$ref": "#/$defs/n" }), "5.0", "5"),
            (json!({ "anyOf": [{ "$ref": "#/$defs/n" }, { "type": "null" }] }), "5.0", "5"),
            (json!({ "allOf": [{ "$ref": "#/$defs/n" }] }), r#""7""#, "7"),
            (json!({ "enum": [1, 2] }), "2.0", "2"),
            (
                json!({ "type": "array", "items": { "type": "integer" } }),
                r#"[1.0, "2", "x"]"#,
                r#"[1, 2, "x"]"#,
            ),
            (
                json!({ "type": "object", "properties": { "b": { "type": "integer" } } }),
                r#"{"b": 1.0}"#,
                r#"{"b": 1}"#,
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
                r#"{"b": "1"}"#,
                r#"{"b": 1}"#,
            ),
        ] {
            check(&property, given, expected);
        }
    }

    #[test]
    fn everything_else_stays() {
        for (property, given) in [
            (json!({ "type": "integer" }), "5.5"),
            (json!({ "type": "integer" }), "1e300"),
            (json!({ "type": "integer" }), "9007199254740994.0"),
            (json!({ "type": "number" }), "5.0"),
            (json!({ "type": "string" }), r#""5""#),
            (json!({ "type": ["integer", "string"] }), r#""5""#),
            (json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }), r#""5""#),
            (json!({ "enum": [5, "5"] }), r#""5""#),
            (json!({ "type": "boolean" }), r#""true""#),
            (json!({ "type": "boolean" }), "1.0"),
            (json!({}), r#""5""#),
            (json!({}), "5.0"),
            (json!(true), "5.0"),
            (json!({ "type": "integer" }), "null"),
            (json!({ "type": "integer" }), "true"),
            (json!({ "type": "array", "items": { "type": "integer" } }), "5.0"),
        ] {
            check(&property, given, given);
        }
        for text in [
            "", " 5", "5 ", "05", "+5", "0x5", "5,0", "5_000", ".5", "5.", "1e999", "NaN",
            "Infinity", "five", "٥", "5\n", "--5",
        ] {
            let text = json!(text).to_string();
            check(&json!({ "type": "number" }), &text, &text);
        }
    }

    #[test]
    fn a_null_leaves_an_optional_argument_out() {
        let properties = json!({
            "path": { "type": "string" }, "limit": { "type": "integer" }, "any": {}, "maybe": { "type": ["string", "null"] },
        });
        let schema = json!({ "type": "object", "properties": properties, "required": ["path"] });
        let mut arguments =
            json!({ "path": null, "limit": null, "any": null, "maybe": null, "unknown": null });
        coerce(&schema, &mut arguments);
        assert_eq!(arguments, json!({ "path": null, "any": null, "maybe": null, "unknown": null }));
    }

    #[test]
    fn a_schema_that_leads_back_to_itself_ends() {
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "anyOf": [{ "$ref": "#" }] }),
            json!({ "properties": { "a": { "anyOf": [{ "$ref": "#/properties/a" }] } } }),
        ] {
            let mut arguments = json!({ "a": { "a": ["5", 5.0] } });
            let before = arguments.clone();
            coerce(&schema, &mut arguments);
            assert_eq!(arguments, before);
        }
    }
}
