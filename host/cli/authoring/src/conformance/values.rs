//! Makes values from a JSON Schema: the smallest valid value, and hostile values.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Levels of a schema that are followed.
const MAX_DEPTH: usize = 12;

/// Most characters and elements that a schema can ask for.
const MAX_LENGTH: u64 = 100_000;
const MAX_ITEMS: u64 = 200;

/// Bytes of a long text.
const LONG: usize = 100_000;

/// The nesting levels of a deep value. JSON parsers with a limit allow 128.
const DEEP: usize = 100;

/// Texts that may match a pattern or a format.
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

/// The most values that are made from one document. In some documents, each definition refers twice
/// to the next one. Such a document would give an endless number of values.
const MAX_VALUES: u32 = 5_000;

/// The most bytes of strings in the values from one document. Hundreds of cases are made from these
/// values, and all cases are in memory.
const MAX_BYTES: u64 = 128 * 1024;

/// Makes values that match one schema document.
pub(crate) struct Maker<'s> {
    root: &'s Value,
    /// Whether the values have optional properties.
    all: bool,
    /// The number of values that can still be made.
    left: Cell<u32>,
    /// The bytes of strings that can still be made.
    bytes: Cell<u64>,
}

impl<'s> Maker<'s> {
    /// Prepares to make values. `all`: whether the values have optional properties.
    pub(crate) fn new(root: &'s Value, all: bool) -> Self {
        Self { root, all, left: Cell::new(MAX_VALUES), bytes: Cell::new(MAX_BYTES) }
    }

    /// Makes a value that fits the document, as far as this module knows.
    pub(crate) fn value(&self) -> Value {
        self.make(self.root, 0)
    }

    /// Returns the schema that a reference points to, with the keys next to `anyOf` and the like.
    pub(crate) fn follow(&self, schema: &'s Value) -> &'s Value {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(target) = self.referenced(schema) else { break };
            schema = target;
        }
        schema
    }

    /// Returns the schema that a reference in a schema points to.
    fn referenced(&self, schema: &Value) -> Option<&'s Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.root.pointer(reference.strip_prefix('#')?)
    }

    fn make(&self, schema: &'s Value, depth: usize) -> Value {
        let schema = self.follow(schema);
        let left = self.left.get();
        if depth > MAX_DEPTH || left == 0 {
            return Value::Null;
        }
        self.left.set(left - 1);
        if let Some(given) = given_value(schema) {
            return given.clone();
        }

        let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array());
        let mut choices = alternatives.into_iter().flatten();
        let choice = choices.find(|choice| kind(self.follow(choice)) != "null");
        let chosen = choice.map(|choice| self.make(choice, depth + 1));
        let all_of = schema.get("allOf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_simple = chosen.is_none() && all_of.is_empty();

        // The schema of an object can have its own fields in addition to the fields of its parts.
        let mut parts = Vec::new();
        if is_simple || kind(schema) == "object" {
            parts.push(self.make_of_kind(schema, depth));
        }
        parts.extend(all_of.iter().map(|part| self.make(part, depth + 1)));
        parts.extend(chosen);
        parts.into_iter().reduce(join).unwrap_or_default()
    }

    /// Makes a value of the schema's type.
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
        let least = number(schema, "minItems").unwrap_or(0).min(MAX_ITEMS);
        let count = least.max(u64::from(self.all));
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
            fields.entry(name).or_insert_with(|| json!("a"));
        }
        Value::Object(fields)
    }

    fn text(&self, schema: &Value) -> String {
        let least = number(schema, "minLength").unwrap_or(0).min(MAX_LENGTH).min(self.bytes.get());
        self.bytes.set(self.bytes.get() - least);

        let by_format = schema.get("format").and_then(Value::as_str).and_then(text_of_format);
        let mut candidates = by_format.into_iter().chain(TEXTS).map(|text| padded(text, least));
        let is_free = schema.get("pattern").is_none() && schema.get("format").is_none();
        let validator = if is_free { None } else { toolhold_core::compile_schema(schema).ok() };
        let text = match validator {
            Some(validator) => candidates.find(|text| validator.is_valid(&json!(text))),
            None => candidates.next(),
        };
        text.unwrap_or_else(|| padded("a", least))
    }
}

/// Returns the value that a schema contains, such as its default, or `None` if it has no value.
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

/// Returns the text, extended to the least length.
fn padded(text: &str, least: u64) -> String {
    let missing = (least as usize).saturating_sub(text.chars().count());
    format!("{text}{}", "a".repeat(missing))
}

/// Joins the fields of two objects. Of other values, returns the second one unless it is null.
fn join(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            one.extend(other);
            Value::Object(one)
        }
        (one, Value::Null) => one,
        (_, other) => other,
    }
}

/// Returns the first type of a schema that isn't null. If there is no type, derives the type from
/// the keywords.
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

/// Returns the integer next to 1 within the limits of a schema.
fn integer(schema: &Value) -> i64 {
    let above = limit(schema, "exclusiveMinimum").map(|limit| limit.saturating_add(1));
    let least = limit(schema, "minimum").or(above).unwrap_or(i64::MIN);
    let below = limit(schema, "exclusiveMaximum").map(|limit| limit.saturating_sub(1));
    let most = limit(schema, "maximum").or(below).unwrap_or(i64::MAX);
    let value = least.max(1).min(most);
    // The next multiple.
    let step = limit(schema, "multipleOf").unwrap_or(1).max(1);
    value.saturating_add(step - 1).div_euclid(step).saturating_mul(step)
}

fn limit(schema: &Value, key: &str) -> Option<i64> {
    schema.get(key).and_then(Value::as_f64).map(|limit| limit as i64)
}

/// Makes a different value for each index if this is easy, because the elements of an array may
/// have to differ.
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

/// Makes values to replace a valid value, each with a description. The schema may accept or refuse
/// these values.
pub(crate) fn hostile(value: &Value, schema: &Value, outside: &str) -> Vec<(&'static str, Value)> {
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
        values.extend(choices.iter().take(16).map(|choice| ("another choice", choice.clone())));
    }
    values.push(("deep nesting", deep()));
    values
}

/// Returns a value of another type than `value`. No host converts it, so a schema for `value`
/// doesn't accept it.
pub(crate) fn of_another_type(value: &Value) -> Value {
    match value {
        Value::Object(_) => json!(["another", "type"]),
        _ => json!({ "another": "type" }),
    }
}

/// Makes lists in lists.
pub(crate) fn deep() -> Value {
    (0..DEEP).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

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
        let made = hostile(&json!(3), &schema, "outside/x");
        assert!(made.contains(&("below a limit", json!(2))));
        let texts = hostile(&json!("a"), &json!({}), "outside/x");
        assert!(texts.iter().any(|(_, text)| text == "../outside/x"));
        for value in [json!(1), json!("a"), json!([]), json!({})] {
            assert_ne!(
                std::mem::discriminant(&of_another_type(&value)),
                std::mem::discriminant(&value)
            );
        }
    }
}
