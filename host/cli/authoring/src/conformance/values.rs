//! Makes valid and hostile values from a JSON Schema.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// The most levels of a schema for which values are made.
const MAX_DEPTH: usize = 12;

/// The limits up to which the values satisfy a schema's `minLength` and `minItems`.
const MAX_LENGTH: u64 = 100_000;
const MAX_ITEMS: u64 = 200;

/// The bytes of the long text among the hostile values.
const LONG: usize = 100_000;

/// The levels of a deep hostile value. JSON parsers with a limit usually allow 128 levels.
const DEEP: usize = 100;

/// Strings that may match a pattern or a format.
const TEXTS: [&str; 14] = [
    "a",
    "1",
    "A",
    "a1",
    "1.0.0",
    "2024-01-02",
    "12:00:00Z",
    "2024-01-02T12:00:00Z",
    "https://plugin-test.invalid/",
    "user@plugin-test.invalid",
    "127.0.0.1",
    "::1",
    "00000000-0000-4000-8000-000000000000",
    "0123456789abcdef",
];

/// The most values from one schema. If each definition refers twice to the next definition, the
/// number of values grows exponentially.
const MAX_VALUES: u32 = 5_000;

/// The most bytes of strings from one schema. Hundreds of cases contain these strings, and all
/// cases are in memory.
const MAX_BYTES: u64 = 128 * 1024;

/// The most choices of an `enum` among the hostile values.
const MAX_CHOICES: usize = 16;

pub(crate) struct Maker<'s> {
    root: &'s Value,
    /// Whether values have their optional properties.
    all: bool,
    /// The number of values that can still be made.
    remaining_values: Cell<u32>,
    /// The bytes of strings that can still be made.
    remaining_bytes: Cell<u64>,
}

impl<'s> Maker<'s> {
    /// Makes values with only required properties.
    pub(crate) fn minimal(root: &'s Value) -> Self {
        let all = false;
        Self::new(root, all)
    }

    /// Makes values with required and optional properties.
    pub(crate) fn full(root: &'s Value) -> Self {
        let all = true;
        Self::new(root, all)
    }

    fn new(root: &'s Value, all: bool) -> Self {
        let remaining_values = Cell::new(MAX_VALUES);
        let remaining_bytes = Cell::new(MAX_BYTES);
        Self { root, all, remaining_values, remaining_bytes }
    }

    /// Makes a value that usually matches the schema. Callers must check the value.
    pub(crate) fn value(&self) -> Value {
        self.make(self.root, 0)
    }

    /// Follows at most [`MAX_DEPTH`] references of a schema, because references may form a circle.
    pub(crate) fn follow(&self, schema: &'s Value) -> &'s Value {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(target) = self.referenced(schema) else { break };
            schema = target;
        }
        schema
    }

    fn referenced(&self, schema: &Value) -> Option<&'s Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Makes a value that usually matches `schema`. `depth` is the nesting depth of the schema.
    fn make(&self, schema: &'s Value, depth: usize) -> Value {
        let schema = self.follow(schema);
        let remaining_values = self.remaining_values.get();
        if depth > MAX_DEPTH || remaining_values == 0 {
            return Value::Null;
        }
        self.remaining_values.set(remaining_values - 1);
        if let Some(given) = given_value(schema) {
            return given.clone();
        }

        let alternative = self.make_alternative(schema, depth);
        let all_of = match schema.get("allOf") {
            Some(Value::Array(schemas)) => schemas.as_slice(),
            _ => &[],
        };
        let is_simple = alternative.is_none() && all_of.is_empty();

        // An object may have fields besides `allOf` or `anyOf`.
        let mut value = Value::Null;
        if is_simple || kind(schema) == "object" {
            value = self.make_of_kind(schema, depth);
        }
        for part in all_of {
            value = join(value, self.make(part, depth + 1));
        }
        match alternative {
            Some(alternative) => join(value, alternative),
            None => value,
        }
    }

    /// Makes a value for the first alternative other than null.
    fn make_alternative(&self, schema: &'s Value, depth: usize) -> Option<Value> {
        let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array())?;
        let first = alternatives.iter().find(|schema| kind(self.follow(schema)) != "null")?;
        Some(self.make(first, depth + 1))
    }

    fn make_of_kind(&self, schema: &'s Value, depth: usize) -> Value {
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => json!(integer(schema)),
            "number" => json!(integer(schema) as f64),
            "boolean" => json!(false),
            "null" => Value::Null,
            _ => json!(self.text(schema)),
        }
    }

    fn array(&self, schema: &'s Value, depth: usize) -> Value {
        let mut count = number(schema, "minItems").unwrap_or(0).min(MAX_ITEMS);
        // Full values have an item that a hostile value can replace.
        if self.all {
            count = count.max(1);
        }
        let mut items = Vec::new();
        for index in 0..count {
            items.push(match schema.get("items") {
                Some(item) => distinct(self.make(item, depth + 1), index),
                None => json!(index),
            });
        }
        Value::Array(items)
    }

    fn object(&self, schema: &'s Value, depth: usize) -> Value {
        let required: Vec<&str> = names(schema, "required");
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut fields = Map::new();
        for (name, property) in properties.into_iter().flatten() {
            if self.all || required.contains(&name.as_str()) {
                fields.insert(name.clone(), self.make(property, depth + 1));
            }
        }
        for name in required {
            // The schema says nothing about this property, so any value is valid.
            fields.entry(name).or_insert_with(|| json!("a"));
        }
        Value::Object(fields)
    }

    /// Makes a text of the minimum length that matches the pattern and the format, if possible.
    fn text(&self, schema: &Value) -> String {
        let remaining_bytes = self.remaining_bytes.get();
        let min_length = number(schema, "minLength").unwrap_or(0);
        let length = min_length.min(MAX_LENGTH).min(remaining_bytes);
        self.remaining_bytes.set(remaining_bytes - length);

        let by_format = schema.get("format").and_then(Value::as_str).and_then(text_of_format);
        let has_form = schema.get("pattern").is_some() || schema.get("format").is_some();
        let validator = if has_form { toolhold_core::compile_schema(schema).ok() } else { None };
        for candidate in by_format.into_iter().chain(TEXTS) {
            let text = padded(candidate, length);
            if validator.as_ref().is_none_or(|validator| validator.is_valid(&json!(text))) {
                return text;
            }
        }
        padded("a", length)
    }
}

/// Returns a value from the schema, such as the default.
fn given_value(schema: &Value) -> Option<&Value> {
    if let Some(value) = schema.get("const") {
        return Some(value);
    }
    for key in ["examples", "enum"] {
        if let Some(first) = schema.get(key).and_then(|values| values.get(0)) {
            return Some(first);
        }
    }
    let default = schema.get("default")?;
    if default.is_null() { None } else { Some(default) }
}

fn text_of_format(format: &str) -> Option<&'static str> {
    match format {
        "date" => Some("2024-01-02"),
        "time" => Some("12:00:00Z"),
        "date-time" => Some("2024-01-02T12:00:00Z"),
        "uri" | "url" | "uri-reference" | "iri" => Some("https://plugin-test.invalid/"),
        "email" => Some("user@plugin-test.invalid"),
        "ipv4" => Some("127.0.0.1"),
        "ipv6" => Some("::1"),
        "uuid" => Some("00000000-0000-4000-8000-000000000000"),
        _ => None,
    }
}

fn padded(text: &str, least: u64) -> String {
    let missing = (least as usize).saturating_sub(text.chars().count());
    format!("{text}{}", "a".repeat(missing))
}

/// Adds the fields of `addition` to `base` if both are objects. Otherwise, returns `addition`, or
/// `base` if `addition` is null.
fn join(base: Value, addition: Value) -> Value {
    match (base, addition) {
        (Value::Object(mut fields), Value::Object(more_fields)) => {
            fields.extend(more_fields);
            Value::Object(fields)
        }
        (base, Value::Null) => base,
        (_, addition) => addition,
    }
}

/// Returns the first type other than null. If the schema has no `type`, other keywords decide.
/// Returns an empty string for an unknown type.
pub(crate) fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            let mut names = names.iter().filter_map(Value::as_str);
            names.find(|name| *name != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ if schema.get("items").is_some() => "array",
        _ => "",
    }
}

fn names<'s>(schema: &'s Value, key: &str) -> Vec<&'s str> {
    let list = schema.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn number(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key)?.as_u64()
}

/// Returns the integer within the schema's limits that is nearest to 1, rounded up to a multiple of
/// `multipleOf`.
fn integer(schema: &Value) -> i64 {
    let above_exclusive = limit(schema, "exclusiveMinimum").map(|limit| limit.saturating_add(1));
    let minimum = limit(schema, "minimum").or(above_exclusive).unwrap_or(i64::MIN);
    let below_exclusive = limit(schema, "exclusiveMaximum").map(|limit| limit.saturating_sub(1));
    let maximum = limit(schema, "maximum").or(below_exclusive).unwrap_or(i64::MAX);
    let nearest = minimum.max(1).min(maximum);

    let factor = limit(schema, "multipleOf").unwrap_or(1).max(1);
    // Adding `factor - 1` rounds the quotient up.
    let multiple = nearest.saturating_add(factor - 1).div_euclid(factor);
    multiple.saturating_mul(factor)
}

fn limit(schema: &Value, key: &str) -> Option<i64> {
    schema.get(key).and_then(Value::as_f64).map(|limit| limit as i64)
}

/// Makes a string or number differ for each `index` except 0, because the items of an array may
/// have to be different.
fn distinct(value: Value, index: u64) -> Value {
    match value {
        Value::String(text) if index > 0 => json!(format!("{text}{index}")),
        Value::Number(number) if index > 0 => match number.as_i64() {
            Some(number) => json!(number.saturating_add(index as i64)),
            None => Value::Number(number),
        },
        value => value,
    }
}

/// Returns hostile replacements for a valid `value`, with descriptions. The schema may refuse some
/// replacements. `outside` is the path of a file without a grant.
pub(crate) fn hostile_values(
    value: &Value,
    schema: &Value,
    outside: &str,
) -> Vec<(&'static str, Value)> {
    let mut values = match value {
        Value::String(_) => texts(outside),
        Value::Number(_) => numbers(schema),
        Value::Bool(value) => vec![("the other boolean", json!(!value))],
        Value::Array(items) => {
            let first = items.first().cloned().unwrap_or_default();
            let long = (0..MAX_ITEMS).map(|index| distinct(first.clone(), index)).collect();
            vec![
                ("an empty list", json!([])),
                ("a long list", long),
                ("the same twice", json!([first, first])),
            ]
        }
        Value::Object(_) => vec![
            ("an empty object", json!({})),
            (
                "odd names",
                json!({ "": 1, "__proto__": { "a": 1 }, "constructor": 1, "a\u{0}b": 1 }),
            ),
        ],
        Value::Null => Vec::new(),
    };
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        for choice in choices.iter().take(MAX_CHOICES) {
            values.push(("another choice", choice.clone()));
        }
    }
    values.push(("deep nesting", deep()));
    values
}

/// Returns a value of a type that the host can't convert to the type of `value`.
pub(crate) fn of_another_type(value: &Value) -> Value {
    match value {
        Value::Object(_) => json!(["another", "type"]),
        _ => json!({ "another": "type" }),
    }
}

pub(crate) fn deep() -> Value {
    (0..DEEP).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

/// Returns hostile strings with descriptions. `outside` is the path of a file without a grant.
fn texts(outside: &str) -> Vec<(&'static str, Value)> {
    let texts = [
        ("an empty text", String::new()),
        ("spaces", " \t ".to_owned()),
        ("a very long text", "x".repeat(LONG)),
        ("NUL in a text", "a\u{0}b".to_owned()),
        ("control characters", "\u{1b}[2J\u{7}\u{8}\u{7f}\u{9b}".to_owned()),
        ("line ends", "a\r\nb\n\rc\u{2028}d".to_owned()),
        (
            "odd Unicode",
            "\u{feff}\u{202e}e\u{301}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{fffd}".to_owned(),
        ),
        ("the last characters of Unicode", "\u{ffff}\u{10ffff}\u{fdd0}".to_owned()),
        ("halves of a surrogate pair as text", r"\ud83d \udc00".to_owned()),
        ("a path that escapes", format!("../{outside}")),
        ("a path that climbs", "../../../../../../../../etc/passwd".to_owned()),
        ("an absolute path", "/etc/passwd".to_owned()),
        ("a path in the home", "~/.ssh/id_rsa".to_owned()),
        ("a path on itself", "./././.".to_owned()),
        (
            "shell characters",
            "$(touch made) `touch made`; touch made | cat & > made '\" \\".to_owned(),
        ),
        ("an option", "--help".to_owned()),
        ("a format", "%s%n%x {0} {} ${a} {{a}}".to_owned()),
        ("half of a JSON text", r#"{"a": [1, "#.to_owned()),
        ("a number as text", "1e400".to_owned()),
        ("a pattern that is slow elsewhere", "(a+)+$".to_owned()),
        ("an open bracket", "[(*".to_owned()),
    ];
    texts.map(|(what, text)| (what, json!(text))).into()
}

/// Returns hostile numbers, such as numbers next to the schema's limits, with descriptions.
fn numbers(schema: &Value) -> Vec<(&'static str, Value)> {
    let mut numbers: Vec<(&str, Value)> = vec![
        ("zero", json!(0)),
        ("a negative number", json!(-1)),
        ("one", json!(1)),
        ("a large number", json!(1_u64 << 31)),
        ("2^53 and 1", json!((1_i64 << 53) + 1)),
        ("the largest number of 64 bits", json!(u64::MAX)),
        ("the least number of 64 bits", json!(i64::MIN)),
        ("a fraction", json!(0.5)),
        ("a huge number", json!(1e308)),
        ("a tiny number", json!(5e-324)),
        ("minus zero", json!(-0.0)),
    ];
    let limits = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    for limit in limits.iter().filter_map(|key| schema.get(key)) {
        numbers.push(("a limit", limit.clone()));
        if let Some(limit) = limit.as_i64() {
            numbers.push(("below a limit", json!(limit.saturating_sub(1))));
            numbers.push(("above a limit", json!(limit.saturating_add(1))));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_bounded_together() {
        let schema = json!({
            "type": "array", "minItems": 200,
            "items": { "type": "array", "minItems": 20, "items": { "type": "string", "minLength": 100_000 } },
        });
        let made = Maker::new(&schema, false).value().to_string();
        assert!(made.len() < 2 * MAX_BYTES as usize, "{} bytes", made.len());
    }

    #[track_caller]
    fn check(schema: Value, all: bool) -> Value {
        let made = Maker::new(&schema, all).value();
        let validator = toolhold_core::compile_schema(&schema).expect("it is a schema");
        assert!(validator.is_valid(&made), "{schema} doesn't take {made}");
        made
    }

    #[test]
    fn made_values_are_valid() {
        for schema in [
            json!({ "type": "string", "minLength": 5, "pattern": "^a" }),
            json!({ "type": "string", "format": "date" }),
            json!({ "type": "integer", "minimum": 10, "maximum": 20, "multipleOf": 7 }),
            json!({ "type": "integer", "maximum": -5 }),
            json!({ "type": "number", "exclusiveMinimum": 3 }),
            json!({ "enum": ["x", "y"] }),
            json!({ "type": ["null", "boolean"] }),
            json!({ "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/d" }], "$defs": { "d": { "const": 4 } } }),
            json!({ "type": "array", "minItems": 3, "uniqueItems": true, "items": { "type": "string" } }),
            json!({
                "type": "object",
                "properties": { "a": { "type": "object", "properties": { "b": {} }, "required": ["b"] }, "c": { "type": "integer" } },
                "required": ["a", "z"],
                "allOf": [{ "type": "object", "properties": { "d": { "const": 1 } }, "required": ["d"] }],
            }),
        ] {
            check(schema.clone(), false);
            check(schema, true);
        }
    }

    #[test]
    fn circular_schema_ends() {
        let schema = json!({ "type": "object", "properties": { "next": { "$ref": "#" } } });
        assert_eq!(check(schema.clone(), false), json!({}));
        Maker::new(&schema, true).value();
        Maker::new(&json!({ "$ref": "#" }), true).value();
    }

    #[test]
    fn hostile_values_are_of_the_same_type_or_none_of_the_schema() {
        let schema = json!({ "type": "integer", "minimum": 3 });
        let made = hostile_values(&json!(3), &schema, "outside/x");
        assert!(made.contains(&("below a limit", json!(2))));
        let texts = hostile_values(&json!("a"), &json!({}), "outside/x");
        assert!(texts.iter().any(|(_, text)| text == "../outside/x"));
        for value in [json!(1), json!("a"), json!([]), json!({})] {
            assert_ne!(
                std::mem::discriminant(&of_another_type(&value)),
                std::mem::discriminant(&value)
            );
        }
    }
}
