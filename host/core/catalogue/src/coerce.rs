//! Converts arguments to the types that the schema requires. Models often write other types: `5.0`
//! for an integer, `"5"` for a number, `"true"` for a boolean, `null` for a missing argument. The
//! conversion comes first, so that all later steps see the same values.
//!
//! A value that fits several allowed types doesn't change, because its meaning isn't clear.

use serde_json::{Map, Number, Value};

/// Maximum number of nested references and alternatives that are followed. Third-party schemas can
/// be circular.
const MAX_DEPTH: usize = 16;

/// Maximum length in bytes of a string that is converted to a number.
const MAX_DIGITS: usize = 64;

/// The largest number below which a floating-point number represents every integer.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Converts arguments to the types of their schema. Other values don't change, and validation
/// refuses them later.
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
            if let Some(item_schema) = schema.get("items") {
                for item in items {
                    coerce_value(root, item_schema, item);
                }
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

fn drop_nulls(root: &Value, schema: &Value, fields: &mut Map<String, Value>) {
    if !fields.values().any(Value::is_null) {
        return;
    }
    fields.retain(|name, value| !(value.is_null() && is_optional(root, schema, name)));
}

/// Checks whether `null` stands for a missing argument: the schema doesn't require the argument,
/// and its type excludes `null`.
fn is_optional(root: &Value, schema: &Value, name: &str) -> bool {
    if let Some(Value::Array(required)) = schema.get("required")
        && required.iter().any(|required_name| required_name == name)
    {
        return false;
    }
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    property.is_some_and(|property| Types::from_schema(root, property).lacks(NULL))
}

fn property<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    let declared = schema.get("properties").and_then(|properties| properties.get(name));
    declared.or_else(|| schema.get("additionalProperties"))
}

/// Returns the schema to which `$ref` refers, or `schema` itself without a `$ref`.
fn follow_references<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    // References of an untrusted schema may form a circle.
    for _ in 0..MAX_DEPTH {
        let Some(Value::String(reference)) = schema.get("$ref") else { break };
        let Some(pointer) = reference.strip_prefix('#') else { break };
        let Some(target) = root.pointer(pointer) else { break };
        schema = target;
    }
    schema
}

/// Converts a floating-point number to an equal integer. Returns `None` for integers and for
/// numbers without an equal integer.
fn to_integer(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return None;
    }
    let float = number.as_f64()?;
    let is_whole = float.fract() == 0.0 && float.abs() <= MAX_WHOLE;
    if !is_whole {
        return None;
    }
    Some(Number::from(float as i64))
}

/// Parses a number. Returns `None` if the string isn't exactly one number.
fn parse_number(text: &str) -> Option<Number> {
    // Check the first and the last character, because the parser accepts spaces around the number.
    let starts_as_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let ends_as_number = text.ends_with(|c: char| c.is_ascii_digit());
    if text.len() > MAX_DIGITS || !starts_as_number || !ends_as_number {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Parses a boolean in any case, because Python writes `True`.
fn parse_boolean(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

// Each type is one bit, so that a set of types is a number.
const STRING: u8 = 1 << 0;
const INTEGER: u8 = 1 << 1;
const NUMBER: u8 = 1 << 2;
const NULL: u8 = 1 << 3;
const BOOLEAN: u8 = 1 << 4;
const OTHER: u8 = 1 << 5;
const ANY: u8 = STRING | INTEGER | NUMBER | NULL | BOOLEAN | OTHER;

/// The types that a schema allows, as bits. For uncertain types, all bits are set, so that nothing
/// is converted.
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

fn bits(root: &Value, schema: &Value, depth: usize) -> u8 {
    if depth > MAX_DEPTH {
        return ANY;
    }
    let Some(fields) = follow_references(root, schema).as_object() else { return ANY };
    let mut types = declared_bits(fields.get("type"));
    if let Some(Value::Array(values)) = fields.get("enum") {
        let mut value_types = 0;
        for value in values {
            value_types |= bit_of_value(value);
        }
        types &= value_types;
    } else if let Some(value) = fields.get("const") {
        types &= bit_of_value(value);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(alternatives)) = fields.get(key) {
            let mut alternative_types = 0;
            for alternative in alternatives {
                alternative_types |= bits(root, alternative, depth + 1);
            }
            types &= alternative_types;
        }
    }
    if let Some(Value::Array(parts)) = fields.get("allOf") {
        for part in parts {
            types &= bits(root, part, depth + 1);
        }
    }
    types
}

/// Returns the bits of the keyword `type`: a name, a list of names, or no restriction.
fn declared_bits(declared: Option<&Value>) -> u8 {
    match declared {
        Some(Value::String(name)) => bits_of_name(name),
        Some(Value::Array(names)) => {
            let mut types = 0;
            for name in names.iter().filter_map(Value::as_str) {
                types |= bits_of_name(name);
            }
            types
        }
        _ => ANY,
    }
}

/// Returns the bits of a type in a schema. Each integer is also a number.
fn bits_of_name(name: &str) -> u8 {
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
