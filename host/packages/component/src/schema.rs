//! Checks untrusted schemas: their size, their references and their texts.

use std::collections::HashMap;

use serde_json::{Map, Value};
use toolhold_contract::text::neutral_json;

/// Most bytes of a schema. A larger schema is refused.
const MAX_SCHEMA: usize = 64 * 1024;

/// Most levels of nesting in a schema. A deeper schema is refused.
const MAX_DEPTH: usize = 32;

/// Most values in a schema after each reference is replaced with its target. The time for checking
/// arguments grows with this number. A few dozen definitions, each with two references to the next
/// definition, would take forever.
const MAX_UNFOLDED: usize = 100_000;

/// Most references in a row. Following a reference uses the stack.
const MAX_CHAIN: usize = 100;

/// Most levels of a schema after references are followed. Reading and compiling a schema uses up to
/// 10 KB of the stack for each level, and a thread has 2 MiB.
const MAX_LEVELS: usize = 150;

/// Limit for the levels of a value times the levels of a recursive schema, because the check uses
/// the stack for each of them. A value above the limit is refused.
const MAX_NESTING: usize = 1_000;

/// Limit for the number of values in a value times the number of values in a schema. It stands for
/// about a second of work. A value above the limit is refused.
const MAX_WORK: usize = 20_000_000;

/// Keywords that contain data instead of schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The reason why a schema is refused, as a phrase after "its schema".
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too large. The number is its size in bytes.
    #[error("is {0} bytes; the limit is {MAX_SCHEMA} bytes")]
    TooLarge(usize),
    /// The schema isn't JSON.
    #[error("is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The schema has too many levels.
    #[error("is nested too deeply; the limit is {MAX_DEPTH} levels")]
    TooDeep,
    /// The references lead to too many values or levels, or a target is missing.
    #[error(
        "has too many references, or a reference without a target; the limits are {MAX_UNFOLDED} \
         values and {MAX_LEVELS} levels when expanded, and {MAX_CHAIN} references in a row; use \
         fewer references"
    )]
    UnfoldsTooFar,
    /// Several circular references apply to the same place in the arguments.
    #[error(
        "has more than one recursive reference for the same place in the arguments; use one such \
         reference for each place"
    )]
    CircularTwice,
    /// A reference leads to another document.
    #[error("refers to another document")]
    OtherDocument,
    /// A `$ref` isn't a plain pointer. Contains the reference.
    #[error("refers to {0:?}; references need the form `#/$defs/NAME`")]
    Reference(String),
    /// The schema has a `$dynamicRef` or `$recursiveRef`. Contains the keyword.
    #[error("has a `{0}`; use `$ref`")]
    DynamicReference(String),
    /// A part of the schema has an `$id`.
    #[error("has a nested `$id`, which changes the meaning of references; remove the `$id`")]
    NestedId,
    /// The dialect isn't a dialect of JSON Schema.
    #[error("has an unknown dialect in `$schema`")]
    Dialect,
}

/// The cost of checking values against a schema.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCost {
    /// The number of values in the schema after references are followed.
    pub weight: usize,
    levels: usize,
    is_circular: bool,
}

impl SchemaCost {
    /// Computes the cost of a schema. `weight` is [`usize::MAX`] if a reference isn't a pointer
    /// from the root to a part of the schema.
    pub fn from_schema(schema: &Value) -> Self {
        let cost = Unfolding::cost_of_document(schema);
        let is_circular = cost.circular_references > 0;
        Self { weight: cost.values, levels: cost.levels, is_circular }
    }

    /// Checks whether a value is small enough for a check against the schema. A check can't be
    /// interrupted, and a large value could overflow the stack.
    pub fn allows(self, value: &Value) -> bool {
        let (values, levels) = size(value);
        let nesting = if self.is_circular { levels.saturating_mul(self.levels) } else { 0 };
        values.saturating_mul(self.weight) <= MAX_WORK && nesting <= MAX_NESTING
    }
}

/// Returns the number of values in `value`, including itself, and its number of levels.
fn size(value: &Value) -> (usize, usize) {
    match value {
        Value::Array(items) => size_with(items.iter()),
        Value::Object(fields) => size_with(fields.values()),
        _ => (1, 1),
    }
}

fn size_with<'v>(items: impl Iterator<Item = &'v Value>) -> (usize, usize) {
    let mut values = 1;
    let mut levels = 1;
    for item in items {
        let (item_values, item_levels) = size(item);
        values += item_values;
        levels = levels.max(item_levels + 1);
    }
    (values, levels)
}

/// Parses and checks a schema.
///
/// # Errors
///
/// Returns an error if the schema isn't JSON, exceeds a limit, or has a reference that isn't a
/// pointer from the root, such as `#/$defs/NAME`.
pub fn parse(text: &str) -> Result<Value, SchemaError> {
    if text.len() > MAX_SCHEMA {
        return Err(SchemaError::TooLarge(text.len()));
    }
    let value: Value = serde_json::from_str(text)?;
    let depth = 0;
    check(&value, depth)?;
    let cost = Unfolding::cost_of_document(&value);
    if cost.values > MAX_UNFOLDED {
        return Err(SchemaError::UnfoldsTooFar);
    }
    // With two circular references for the same place, the work doubles at each level of a value.
    if cost.circular_references > 1 {
        return Err(SchemaError::CircularTwice);
    }
    // Models and people read the schema's texts, so control characters are replaced.
    Ok(neutral_json(value))
}

/// Checks the depth and the keywords of a schema. `depth` is the number of levels around `value`.
fn check(value: &Value, depth: usize) -> Result<(), SchemaError> {
    if depth > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    match value {
        Value::Array(items) => {
            for item in items {
                check(item, depth + 1)?;
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                if let Some(text) = item.as_str() {
                    check_keyword(key, text, depth)?;
                }
                check(item, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks a keyword whose value is a text. References must be pointers from the root, because other
/// references are ambiguous.
fn check_keyword(key: &str, text: &str, depth: usize) -> Result<(), SchemaError> {
    let is_pointer = text == "#" || (text.starts_with("#/") && !text.contains('%'));
    match key {
        "$ref" | "$dynamicRef" | "$recursiveRef" if !text.starts_with('#') => {
            Err(SchemaError::OtherDocument)
        }
        "$ref" if !is_pointer => Err(SchemaError::Reference(text.to_owned())),
        "$dynamicRef" | "$recursiveRef" => Err(SchemaError::DynamicReference(key.to_owned())),
        "$id" if depth > 0 => Err(SchemaError::NestedId),
        "$schema" if !text.contains("json-schema.org/") => Err(SchemaError::Dialect),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, Default)]
struct Cost {
    /// The number of values in the schema after references are followed. A circular reference is
    /// followed only once, because the arguments decide how often the check follows it.
    values: usize,
    /// Most circular references that apply to the same place in the arguments. Two of them double
    /// the work at each level of the arguments.
    circular_references: usize,
    /// The number of levels after references are followed.
    levels: usize,
}

/// Computes the cost of a schema.
struct Unfolding<'s> {
    document: &'s Value,
    /// The costs of targets. `None` while a cost is being computed.
    costs: HashMap<&'s str, Option<Cost>>,
    /// The number of references that are being followed.
    chain: usize,
    /// The number of levels around the current part.
    levels: usize,
}

impl<'s> Unfolding<'s> {
    fn cost_of_document(document: &'s Value) -> Cost {
        let mut unfolding = Self { document, costs: HashMap::new(), chain: 0, levels: 0 };
        unfolding.cost(document)
    }

    /// Returns the cost of a part of the schema. The cost of parts that are nested deeper than
    /// [`MAX_LEVELS`] is unknown.
    fn cost(&mut self, value: &'s Value) -> Cost {
        if self.levels == MAX_LEVELS {
            return Cost::UNKNOWN;
        }
        self.levels += 1;
        let cost = self.cost_of_parts(value);
        self.levels -= 1;
        Cost { levels: cost.levels + 1, ..cost }
    }

    fn cost_of_parts(&mut self, value: &'s Value) -> Cost {
        match value {
            Value::Array(items) => {
                let mut sum = Cost::ONE_VALUE;
                for item in items {
                    sum = sum.plus(self.cost(item));
                }
                sum
            }
            Value::Object(fields) => self.cost_of_object(fields),
            _ => Cost::ONE_VALUE,
        }
    }

    /// Returns the cost of an object of the schema, without its own level.
    fn cost_of_object(&mut self, fields: &'s Map<String, Value>) -> Cost {
        // `properties` and `items` apply to parts of the arguments. Other keywords apply to the
        // arguments themselves.
        let mut same_place = Cost::ONE_VALUE;
        let mut other_places = Cost::ONE_VALUE;
        for (key, item) in fields {
            match (key.as_str(), item) {
                ("$ref", Value::String(target)) => {
                    same_place = same_place.plus(self.cost_of_target(target));
                }
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    same_place = same_place.plus(Cost::UNKNOWN);
                }
                // References in a part with an `$id` start at another root.
                ("$id", Value::String(_)) if self.levels > 1 => {
                    same_place = same_place.plus(Cost::UNKNOWN);
                }
                // Keywords such as `enum` contain data instead of schemas.
                (key, data) if DATA.contains(&key) => {
                    let (values, _) = size(data);
                    same_place = same_place.plus(Cost { values, ..Cost::default() });
                }
                ("properties", Value::Object(properties)) => {
                    for property in properties.values() {
                        other_places = other_places.plus_other_place(self.cost(property));
                    }
                }
                ("items" | "additionalProperties", schema) => {
                    other_places = other_places.plus_other_place(self.cost(schema));
                }
                // Definitions cost something only if a reference leads to them.
                ("$defs" | "definitions", _) => {}
                _ => same_place = same_place.plus(self.cost(item)),
            }
        }
        same_place.plus(other_places)
    }

    fn cost_of_target(&mut self, target: &'s str) -> Cost {
        if let Some(entry) = self.costs.get(target) {
            // If the cost isn't known yet, the reference is inside of its own target.
            let circular = Cost { values: 1, circular_references: 1, levels: 1 };
            return entry.unwrap_or(circular);
        }
        let Some(pointer) = target.strip_prefix('#') else { return Cost::UNKNOWN };
        if pointer.contains('%') || self.chain >= MAX_CHAIN {
            return Cost::UNKNOWN;
        }
        let Some(value) = self.document.pointer(pointer) else { return Cost::UNKNOWN };

        self.costs.insert(target, None);
        self.chain += 1;
        let cost = self.cost(value);
        self.chain -= 1;
        self.costs.insert(target, Some(cost));
        cost
    }
}

impl Cost {
    /// The cost of a value without parts.
    const ONE_VALUE: Self = Self { values: 1, circular_references: 0, levels: 0 };

    /// A cost above every limit.
    const UNKNOWN: Self = Self { values: usize::MAX, circular_references: 0, levels: 0 };

    /// Adds the cost of a part of the schema that applies to the same place in the arguments.
    fn plus(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            circular_references: self.circular_references.saturating_add(other.circular_references),
            levels: self.levels.max(other.levels),
        }
    }

    /// Adds the cost of a part of the schema that applies to another place in the arguments. The
    /// circular references of different places don't multiply the work, so they aren't added.
    fn plus_other_place(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            circular_references: self.circular_references.max(other.circular_references),
            levels: self.levels.max(other.levels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_refused(schema: &str, reason: &str) {
        let error = parse(schema).expect_err("the schema is refused").to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn untrusted_schemas_stay_in_their_document_and_limits() {
        let inner = r##"{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{}}}"##;
        assert!(parse(inner).is_ok());
        check_refused(r##"{"$ref":"#/$defs/a"}"##, "without a target");
        check_refused(r#"{"$ref":"https://example.com/x"}"#, "another document");
        check_refused(r#"{"properties":{"a":{"$dynamicRef":"other.json#x"}}}"#, "another document");
        check_refused("{", "not JSON");
        check_refused(&format!("{}1{}", r#"{"a":"#.repeat(40), "}".repeat(40)), "nested");
        check_refused(&format!("\"{}\"", "x".repeat(MAX_SCHEMA)), "bytes");
    }

    #[test]
    fn references_have_to_be_plain_pointers_from_the_root() {
        check_refused(r##"{"$ref":"#anchor"}"##, "the form");
        check_refused(r##"{"$ref":"#/$defs/a%31"}"##, "the form");
        check_refused(r##"{"$dynamicRef":"#a"}"##, "use `$ref`");
        check_refused(r#"{"$defs":{"a":{"$id":"x"}}}"#, "a nested `$id`");
        assert!(
            parse(r#"{"$id":"https://example.com/mine","properties":{"$id":{"type":"string"}}}"#)
                .is_ok()
        );
    }

    fn chain(length: usize, times: usize) -> String {
        let definition = |number: usize| {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            (format!("d{number}"), json!({ "allOf": vec![next; times] }))
        };
        let mut definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
        definitions.insert(format!("d{length}"), json!({}));
        json!({ "$ref": "#/$defs/d0", "$defs": definitions }).to_string()
    }

    #[test]
    fn circular_reference_is_allowed_once_a_place() {
        let tree = |node: &str| {
            format!(r##"{{"$ref":"#/$defs/t","$defs":{{"t":{{"properties":{{"x":{node}}}}}}}}}"##)
        };
        let back = r##"{"$ref":"#/$defs/t"}"##;
        assert!(parse(&tree(back)).is_ok());
        assert!(parse(&tree(&format!(r#"{{"anyOf":[{back},{{"type":"null"}}]}}"#))).is_ok());
        check_refused(&tree(&format!(r#"{{"allOf":[{back},{back}]}}"#)), "more than one recursive");
        check_refused(
            &tree(&format!(r#"{{"not":{back},"items":{back}}}"#)),
            "more than one recursive",
        );
    }

    #[test]
    fn values_and_levels_are_counted() {
        assert_eq!(size(&json!({ "a": [1, 2, { "b": "x" }], "c": null })), (7, 4));
    }

    #[track_caller]
    fn check_unknown(schema: &Value) {
        assert_eq!(SchemaCost::from_schema(schema).weight, usize::MAX, "{schema}");
    }

    #[test]
    fn references_that_cant_be_followed_have_no_known_cost() {
        for reference in ["#a", "#/$defs/a%31", "#/$defs/00", "b.json", "https://example.com/a#"] {
            let defs = json!({ "a": { "$anchor": "a" }, "a1": {} });
            check_unknown(
                &json!({ "$id": "https://example.com/a", "$ref": reference, "$defs": defs }),
            );
        }
        check_unknown(&json!({ "items": { "$dynamicRef": "#a" } }));
        check_unknown(
            &json!({ "items": { "$id": "b", "$ref": "#/$defs/a", "$defs": { "a": {} } } }),
        );
        let data =
            json!({ "const": { "$ref": "x" }, "properties": { "$id": { "type": "string" } } });
        assert_eq!(SchemaCost::from_schema(&data).weight, 7);
    }

    #[test]
    fn deep_schemas_are_refused_with_references_followed() {
        let nested = |levels: usize, inner: Value| {
            (0..levels).fold(inner, |inner, _| json!({ "not": inner }))
        };
        let chain = |levels: usize| {
            let next = |number: usize| json!({ "$ref": format!("#/$defs/{}", number + 1) });
            let mut definitions: serde_json::Map<_, _> =
                (0..20).map(|number| (number.to_string(), nested(levels, next(number)))).collect();
            definitions
                .insert("20".into(), json!({ "properties": { "a": { "$ref": "#/$defs/0" } } }));
            json!({ "$ref": "#/$defs/0", "$defs": definitions })
        };
        check_unknown(&chain(100));
        check_unknown(&chain(12));
        let cost = SchemaCost::from_schema(&chain(4));
        assert!(cost.weight < 1000 && cost.allows(&json!({ "a": 1 })), "{cost:?}");
        let deep = (0..20).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(!cost.allows(&deep), "each level goes through all definitions");
        assert!(SchemaCost::from_schema(&nested(100, json!(true))).allows(&deep));
    }

    #[test]
    fn schema_that_unfolds_too_far_is_refused() {
        check_refused(&chain(60, 2), "when expanded");
        check_refused(&chain(8, 10), "when expanded");
        check_refused(&chain(500, 1), "when expanded");
        assert!(parse(&chain(40, 1)).is_ok());
        assert!(
            parse(r##"{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"##).is_ok(),
            "a tree is allowed"
        );
    }
}
