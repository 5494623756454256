//! Checks untrusted schemas. A schema must be within limits, without references to other documents,
//! and neutral.

use std::collections::HashMap;

use serde_json::{Map, Value};
use toolhold_contract::text::neutral_json;

/// Most bytes of a schema.
const MAX_SCHEMA: usize = 64 * 1024;

/// Most levels of nesting in a schema.
const MAX_DEPTH: usize = 32;

/// Most values in a schema after each reference is replaced with its target. The time for checking
/// arguments grows with this number. With a few dozen definitions that each refer to the next one
/// twice, the check would never end.
const MAX_UNFOLDED: usize = 100_000;

/// Most consecutive references. Following each reference uses the stack.
const MAX_CHAIN: usize = 100;

/// Most levels of a schema after references are followed. Reading and compiling the schema uses the
/// stack for each level: up to 10 KB without optimisation, and a thread has 2 MiB.
const MAX_LEVELS: usize = 150;

/// Limit for the levels of a value times the levels of a recursive schema. The check uses the stack
/// for each of these levels.
const MAX_NESTING: usize = 1_000;

/// Limit for the values of a value times the values of a schema. The limit is about a second of
/// work.
const MAX_WORK: usize = 20_000_000;

/// Keywords that contain values instead of schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// A reason why a schema is refused. The text is a phrase that follows "its schema".
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too large. Contains its size in bytes.
    #[error("is {0} bytes; the limit is {MAX_SCHEMA} bytes")]
    TooLarge(usize),
    /// The parser's error.
    #[error("is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The schema has too many levels.
    #[error("is nested too deeply; the limit is {MAX_DEPTH} levels")]
    TooDeep,
    /// The references lead to too many values, or a target is missing.
    #[error(
        "has too many references between its definitions, or one to nothing; the limits are \
         {MAX_UNFOLDED} values and {MAX_LEVELS} levels when expanded, and {MAX_CHAIN} references \
         in a row; use fewer references"
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
    /// A `$ref` that isn't a plain pointer.
    #[error("refers to {0:?}; references need the form `#/$defs/NAME`")]
    Reference(String),
    /// The keyword of a reference that is resolved while checking.
    #[error("has a `{0}`; use `$ref`")]
    DynamicReference(String),
    /// A part of the schema has an `$id`.
    #[error("has a nested `$id`, which changes the meaning of the references in it; remove it")]
    NestedId,
    /// The dialect isn't a dialect of JSON Schema.
    #[error("has an unknown dialect in `$schema`")]
    Dialect,
}

/// The cost of checking values against a schema.
#[derive(Clone, Copy, Debug)]
pub struct SchemaCost {
    /// The cost for each value. This is the number of values in the schema after references are
    /// followed.
    pub weight: usize,
    levels: usize,
    is_circular: bool,
}

impl SchemaCost {
    /// Computes the cost of a schema. The cost is unknown if a reference isn't a pointer from the
    /// root to a part of the schema. The weight of an unknown cost is the largest number.
    pub fn from_schema(schema: &Value) -> Self {
        let cost = Unfolding::cost_of_document(schema);
        let is_circular = cost.circular_references > 0;
        Self { weight: cost.values, levels: cost.levels, is_circular }
    }

    /// Checks whether a value is small enough for a check against the schema. Such a check can't be
    /// interrupted, and its stack doesn't grow.
    pub fn allows(self, value: &Value) -> bool {
        let (values, levels) = size(value);
        let nesting = if self.is_circular { levels.saturating_mul(self.levels) } else { 0 };
        values.saturating_mul(self.weight) <= MAX_WORK && nesting <= MAX_NESTING
    }
}

/// Returns the number of values in a value, including the value itself, and the number of its
/// levels.
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
/// The schema isn't JSON, is beyond a limit, or has references that aren't plain.
pub fn parse(text: &str) -> Result<Value, SchemaError> {
    if text.len() > MAX_SCHEMA {
        return Err(SchemaError::TooLarge(text.len()));
    }
    let value: Value = serde_json::from_str(text)?;
    check(&value, 0)?;
    let cost = Unfolding::cost_of_document(&value);
    if cost.values > MAX_UNFOLDED {
        return Err(SchemaError::UnfoldsTooFar);
    }
    if cost.circular_references > 1 {
        return Err(SchemaError::CircularTwice);
    }
    // Models and people read the schema's texts (invariant 6).
    Ok(neutral_json(value))
}

fn check(value: &Value, depth: usize) -> Result<(), SchemaError> {
    if depth > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check(item, depth + 1)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, item)| {
            if let Some(text) = item.as_str() {
                check_keyword(key, text, depth)?;
            }
            check(item, depth + 1)
        }),
        _ => Ok(()),
    }
}

/// Checks a keyword whose value is a string. References must be pointers from the root, so that
/// their targets are unambiguous.
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

/// The cost of checking arguments against a part of a schema.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// The number of values in the schema after references are followed. A circular reference isn't
    /// followed again, because the arguments determine how often the check follows it.
    values: usize,
    /// The largest number of circular references that apply to the same place in the arguments.
    /// With two, the work doubles at each level of the arguments.
    circular_references: usize,
    /// Levels of nesting, references followed.
    levels: usize,
}

/// Adds up the cost of a schema.
struct Unfolding<'s> {
    document: &'s Value,
    /// Costs by target. `None` while the cost is being computed.
    costs: HashMap<&'s str, Option<Cost>>,
    /// The number of references that are being followed.
    chain: usize,
    /// The number of levels around the part that is being added up.
    levels: usize,
}

impl<'s> Unfolding<'s> {
    fn cost_of_document(document: &'s Value) -> Cost {
        let mut unfolding = Self { document, costs: HashMap::new(), chain: 0, levels: 0 };
        unfolding.cost(document)
    }

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
                items.iter().fold(Cost::ONE_VALUE, |sum, item| sum.plus(self.cost(item)))
            }
            Value::Object(fields) => self.cost_of_object(fields),
            _ => Cost::ONE_VALUE,
        }
    }

    fn cost_of_object(&mut self, fields: &'s Map<String, Value>) -> Cost {
        // Properties and items apply to other places in the arguments than the other keywords do.
        let mut here = Cost::ONE_VALUE;
        let mut elsewhere = Cost::ONE_VALUE;
        for (key, item) in fields {
            match (key.as_str(), item) {
                ("$ref", Value::String(target)) => here = here.plus(self.cost_of_target(target)),
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    here = here.plus(Cost::UNKNOWN);
                }
                // References inside a part with an `$id` have another root.
                ("$id", Value::String(_)) if self.levels > 1 => here = here.plus(Cost::UNKNOWN),
                (key, data) if DATA.contains(&key) => {
                    let (values, _) = size(data);
                    here = here.plus(Cost { values, ..Cost::default() });
                }
                ("properties", Value::Object(properties)) => {
                    for property in properties.values() {
                        elsewhere = elsewhere.plus_elsewhere(self.cost(property));
                    }
                }
                ("items" | "additionalProperties", schema) => {
                    elsewhere = elsewhere.plus_elsewhere(self.cost(schema));
                }
                // Definitions add a cost only if a reference leads to them.
                ("$defs" | "definitions", _) => {}
                _ => here = here.plus(self.cost(item)),
            }
        }
        here.plus(elsewhere)
    }

    fn cost_of_target(&mut self, target: &'s str) -> Cost {
        match self.costs.get(target) {
            Some(Some(known)) => return *known,
            // This reference is inside its own target.
            Some(None) => return Cost { values: 1, circular_references: 1, levels: 1 },
            None => {}
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
    /// The cost of a value that has no parts.
    const ONE_VALUE: Self = Self { values: 1, circular_references: 0, levels: 0 };

    /// A cost that is more than any limit.
    const UNKNOWN: Self = Self { values: usize::MAX, circular_references: 0, levels: 0 };

    /// Adds the cost of another part of the schema that applies to the same place in the arguments.
    fn plus(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            circular_references: self.circular_references.saturating_add(other.circular_references),
            levels: self.levels.max(other.levels),
        }
    }

    /// Adds the cost of a part that applies to another place in the arguments.
    fn plus_elsewhere(self, other: Self) -> Self {
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
        check_refused(r##"{"$ref":"#/$defs/a"}"##, "one to nothing");
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
