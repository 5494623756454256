//! Converts arguments to the types that the schema requires. Models and their providers often write
//! other types: `5.0` for an integer, `"5"` for a number, `"true"` for a boolean, `null` for a
//! missing argument. The host converts arguments first, so all later steps see the same values.
//!
//! If a schema allows more than one type, nothing is changed, since the meaning isn't clear.

use serde_json::{Map, Number, Value};

/// Most nested references and alternatives that are followed, since schemas come from plugins.
const MAX_DEPTH: usize = 16;

/// Most bytes of a text that is converted to a number.
const MAX_DIGITS: usize = 64;

/// Maximum up to which a floating-point number can represent every integer.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Converts arguments to the types that their schema requires. Values that can't be converted don't
/// change, and validation refuses them later.
pub(crate) fn coerce(schema: &Value, arguments: &mut Value) {
    coerce_value(schema, schema, arguments);
}

fn coerce_value(root: &Value, schema: &Value, value: &mut Value) {
    let schema = follow_references(root, schema);
    match value {
        Value::Object(fields) => {
            drop_nulls(root, schema, fields);
            for (name, value) in fields {
                if let Some(property) = property(schema, name) {
                    coerce_value(root, property, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(each) = schema.get("items") {
                items.iter_mut().for_each(|item| coerce_value(root, each, item));
            }
        }
        Value::Number(number) => {
            if let Some(integer) = to_integer(number)
                && Types::from_schema(root, schema).wants(INTEGER, NUMBER)
            {
                *number = integer;
            }
        }
        Value::String(text) => {
            if let Some(boolean) = parse_boolean(text) {
                if Types::from_schema(root, schema).wants(BOOLEAN, STRING) {
                    *value = Value::Bool(boolean);
                }
                return;
            }
            let Some(number) = parse_number(text) else { return };
            let types = Types::from_schema(root, schema);
            if !types.wants(INTEGER | NUMBER, STRING) {
                return;
            }
            let only_integers = types.lacks(NUMBER);
            let number = match to_integer(&number) {
                Some(integer) if only_integers => integer,
                _ => number,
            };
            *value = Value::Number(number);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Removes optional arguments that are null, unless the schema allows null.
fn drop_nulls(root: &Value, schema: &Value, fields: &mut Map<String, Value>) {
    if !fields.values().any(Value::is_null) {
        return;
    }
    fields.retain(|name, value| !(value.is_null() && is_optional(root, schema, name)));
}

fn is_optional(root: &Value, schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    if required.is_some_and(|required| required.iter().any(|known| known == name)) {
        return false;
    }
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    property.is_some_and(|property| Types::from_schema(root, property).lacks(NULL))
}

/// Returns the schema of the property with this name.
fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let declared = schema.get("properties").and_then(|properties| properties.get(name));
    declared.or_else(|| schema.get("additionalProperties"))
}

/// Returns the schema that a reference points to.
fn follow_references<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    for _ in 0..MAX_DEPTH {
        let Some(Value::String(reference)) = schema.get("$ref") else { break };
        let Some(pointer) = reference.strip_prefix('#') else { break };
        let Some(target) = root.pointer(pointer) else { break };
        schema = target;
    }
    schema
}

/// Converts a floating-point number to an equal integer. Returns `None` if the number has a
/// fraction, is too large, or is already an integer.
fn to_integer(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return None;
    }
    let float = number.as_f64()?;
    let is_whole = float.fract() == 0.0 && float.abs() <= MAX_WHOLE;
    is_whole.then(|| Number::from(float as i64))
}

/// Parses a number. Returns `None` if the text isn't exactly one number.
fn parse_number(text: &str) -> Option<Number> {
    // The parser would skip spaces around the number.
    let starts_as_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let ends_as_number = text.ends_with(|c: char| c.is_ascii_digit());
    if text.len() > MAX_DIGITS || !starts_as_number || !ends_as_number {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Parses a boolean in any case, since Python writes `True`.
fn parse_boolean(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

const STRING: u8 = 1;
const INTEGER: u8 = 2;
const NUMBER: u8 = 4;
const NULL: u8 = 8;
const BOOLEAN: u8 = 16;
const OTHER: u8 = 32;
const ANY: u8 = 63;

/// The types that a schema allows, as bits. If the types aren't certain, more bits are set, and
/// nothing is converted.
#[derive(Clone, Copy)]
struct Types(u8);

impl Types {
    fn from_schema(root: &Value, schema: &Value) -> Self {
        Self(bits(root, schema, 0))
    }

    /// Checks whether at least one type of `wanted` is allowed, and no type of `excluded`.
    fn wants(self, wanted: u8, excluded: u8) -> bool {
        self.0 & wanted != 0 && self.0 & excluded == 0
    }

    fn lacks(self, types: u8) -> bool {
        self.0 & types == 0
    }
}

/// Returns the types that a schema allows. Each keyword of the schema can only remove types.
fn bits(root: &Value, schema: &Value, depth: usize) -> u8 {
    if depth > MAX_DEPTH {
        return ANY;
    }
    let schema = follow_references(root, schema);
    let Some(fields) = schema.as_object() else { return ANY };
    let mut types = match fields.get("type") {
        Some(Value::String(name)) => bit(name),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).fold(0, |types, name| types | bit(name))
        }
        _ => ANY,
    };
    if let Some(Value::Array(values)) = fields.get("enum") {
        types &= values.iter().fold(0, |types, value| types | bit_of_value(value));
    } else if let Some(value) = fields.get("const") {
        types &= bit_of_value(value);
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
        "boolean" => BOOLEAN,
        _ => OTHER,
    }
}

fn bit_of_value(value: &Value) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::Number(number) if number.is_f64() => NUMBER,
        Value::Number(_) => INTEGER,
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
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
    fn integers_as_floats_and_numbers_as_text_are_converted() {
        for (property, given, expected) in [
            (json!({ "type": "integer" }), "5.0", "5"),
            (json!({ "type": "integer" }), "-3e2", "-300"),
            (json!({ "type": "integer" }), "-0.0", "0"),
            (json!({ "type": "integer" }), r#""5""#, "5"),
            (json!({ "type": "boolean" }), r#""true""#, "true"),
            (json!({ "type": ["boolean", "null"] }), r#""False""#, "false"),
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
    fn other_values_stay() {
        for (property, given) in [
            (json!({ "type": "integer" }), "5.5"),
            (json!({ "type": "integer" }), "1e300"),
            (json!({ "type": "integer" }), "9007199254740994.0"),
            (json!({ "type": "number" }), "5.0"),
            (json!({ "type": "string" }), r#""5""#),
            (json!({ "type": ["integer", "string"] }), r#""5""#),
            (json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }), r#""5""#),
            (json!({ "enum": [5, "5"] }), r#""5""#),
            (json!({ "type": "boolean" }), r#""yes""#),
            (json!({ "type": ["boolean", "string"] }), r#""true""#),
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
    fn null_removes_optional_argument() {
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
    fn circular_schema_terminates() {
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
