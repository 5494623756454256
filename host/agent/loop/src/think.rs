//! Adds a field for thoughts to the schemas of complex tools, and removes the thoughts from calls.
//!
//! Some models choose better arguments if they write their reasons first. [`Augmenter::augment`]
//! adds a text field for the reasons to a complex schema. [`strip`] removes this field before the
//! call is made, so that the reasons don't reach rules, logs, session files or tools.
//!
//! A model that writes calls as text can also write its reasons as text.

use serde_json::{Map, Value, json};

/// The field that is added to a schema. Arguments whose names start with this name contain
/// thoughts.
pub(crate) const THOUGHTS_FIELD: &str = "_tafc_think";

/// The threshold if the configured number is invalid.
pub(crate) const DEFAULT_THRESHOLD: f64 = 0.6;

/// The result of a call that has only thoughts. The call isn't made.
pub(crate) const ONLY_THOUGHTS: &str = "The call was skipped, because it has only thoughts (`_tafc_think`) and no argument. Call the tool again, with its arguments.";

/// Deeper nesting adds no more complexity.
const MAX_DEPTH: usize = 8;

/// A longer list of allowed values adds no more complexity.
const MAX_VALUES: usize = 10;

/// More properties add no more complexity.
const MAX_PROPERTIES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Augmenter {
    threshold: f64,
}

impl Augmenter {
    /// Makes an augmenter for schemas of at least this complexity, from 0 to 1. Other thresholds
    /// are clamped. If the threshold isn't finite, [`DEFAULT_THRESHOLD`] applies.
    pub(crate) fn new(threshold: f64) -> Self {
        let threshold =
            if threshold.is_finite() { threshold.clamp(0.0, 1.0) } else { DEFAULT_THRESHOLD };
        Self { threshold }
    }

    /// Returns the schema with a field for the model's thoughts. Returns `None` if the schema is
    /// too simple or has no properties.
    pub(crate) fn augment(&self, schema: &Value) -> Option<Value> {
        let properties = schema.get("properties")?.as_object()?;
        if complexity(schema) < self.threshold {
            return None;
        }
        // Models write the fields in the order of the schema, so the thoughts come first.
        let thoughts = json!({
            "type": "string",
            "description": "Think here before you choose the other arguments. Nobody reads this \
                            text.",
        });
        let mut augmented = Map::from_iter([(THOUGHTS_FIELD.to_owned(), thoughts)]);
        for (name, property) in properties {
            // Don't offer such a property, because `strip` removes it from each call.
            if is_thought(name) {
                continue;
            }
            augmented.insert(name.clone(), property.clone());
        }
        let mut schema = schema.clone();
        schema["properties"] = Value::Object(augmented);
        Some(schema)
    }
}

impl Default for Augmenter {
    fn default() -> Self {
        Self::new(DEFAULT_THRESHOLD)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stripped {
    Nothing,
    Thoughts,
    /// All arguments were thoughts. The call is skipped, and its result is [`ONLY_THOUGHTS`].
    Everything,
}

/// Removes the top-level fields whose names start with [`THOUGHTS_FIELD`], in any case.
pub(crate) fn strip(arguments: &mut Value) -> Stripped {
    let Some(fields) = arguments.as_object_mut() else { return Stripped::Nothing };
    let before = fields.len();
    fields.retain(|name, _| !is_thought(name));
    if fields.len() == before {
        Stripped::Nothing
    } else if fields.is_empty() {
        Stripped::Everything
    } else {
        Stripped::Thoughts
    }
}

fn is_thought(name: &str) -> bool {
    name.get(..THOUGHTS_FIELD.len()).is_some_and(|start| start.eq_ignore_ascii_case(THOUGHTS_FIELD))
}

/// Returns the complexity of a schema, from 0 to 1.
///
/// Nesting adds at most 0.3. A choice between schemas (`anyOf`, `oneOf`, `allOf`) adds 0.4. The
/// longest list of allowed values adds at most 0.3. The number of properties adds at most 0.2.
pub(crate) fn complexity(schema: &Value) -> f64 {
    let mut shape = Shape::default();
    shape.read_schema(schema);
    let properties =
        schema.get("properties").and_then(Value::as_object).map_or(0, |fields| fields.len());
    let nesting = 0.3 * fraction(depth(schema, MAX_DEPTH), MAX_DEPTH);
    let choice = if shape.has_choice { 0.4 } else { 0.0 };
    let values = 0.3 * fraction(shape.longest_list, MAX_VALUES);
    let size = 0.2 * fraction(properties, MAX_PROPERTIES);
    (nesting + choice + values + size).min(1.0)
}

fn fraction(count: usize, max: usize) -> f64 {
    count.min(max) as f64 / max as f64
}

/// Returns the depth of a JSON value, at most `max`. A string or number has depth 1.
fn depth(value: &Value, max: usize) -> usize {
    if max <= 1 {
        return max;
    }
    let deepest = match value {
        Value::Object(fields) => fields.values().map(|value| depth(value, max - 1)).max(),
        Value::Array(items) => items.iter().map(|value| depth(value, max - 1)).max(),
        _ => None,
    };
    1 + deepest.unwrap_or(0)
}

#[derive(Default)]
struct Shape {
    has_choice: bool,
    longest_list: usize,
}

impl Shape {
    /// Finds choices and lists of allowed values in a schema and its nested schemas. Names of
    /// properties, and values such as `default`, aren't read as keywords.
    fn read_schema(&mut self, schema: &Value) {
        let Some(keywords) = schema.as_object() else { return };
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("enum", Value::Array(values)) => {
                    self.longest_list = self.longest_list.max(values.len());
                }
                ("anyOf" | "oneOf" | "allOf", Value::Array(schemas)) => {
                    self.has_choice = true;
                    schemas.iter().for_each(|schema| self.read_schema(schema));
                }
                (
                    "properties" | "patternProperties" | "$defs" | "definitions"
                    | "dependentSchemas",
                    Value::Object(schemas),
                ) => schemas.values().for_each(|schema| self.read_schema(schema)),
                // These keywords have values, not schemas.
                ("const" | "default" | "examples", _) => {}
                (_, Value::Array(schemas)) => {
                    schemas.iter().for_each(|schema| self.read_schema(schema));
                }
                (_, schema) => self.read_schema(schema),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::definition;
    use proptest::prelude::*;

    #[track_caller]
    fn check(schema: &Value, expected: f64) {
        assert!((complexity(schema) - expected).abs() < 0.0051, "{}", complexity(schema));
    }

    fn properties(count: usize, each: &Value) -> Value {
        let named = (0..count).map(|index| (format!("field_{index}"), each.clone()));
        json!({ "type": "object", "properties": Map::from_iter(named) })
    }

    #[test]
    fn scores_are_those_of_known_schemas() {
        let text = json!({ "type": "string" });
        let optional = json!({ "type": ["integer", "null"] });
        check(&properties(1, &text), 0.175);
        check(&properties(3, &optional), 0.26);
        check(&properties(5, &optional), 0.31);
        let mut browser = properties(24, &text);
        browser["properties"]["action"] =
            json!({ "type": "string", "enum": (0..22).collect::<Vec<_>>() });
        check(&browser, 0.69);
        let mut cron = properties(12, &text);
        cron["properties"]["schedule"] =
            json!({ "oneOf": [{ "properties": { "kind": { "enum": ["cron"] } } }] });
        check(&cron, 0.93);
        check(&Value::Null, 0.0375);
    }

    #[test]
    fn built_in_tools_are_simple_but_for_nested_choices() {
        let thinking = Augmenter::default();
        for (name, score) in
            [("read", 0.225), ("bash", 0.25), ("edit", 0.25), ("grep", 0.48), ("web_scrape", 0.825)]
        {
            let schema = definition(name).input_schema;
            check(&schema, score);
            assert_eq!(thinking.augment(&schema).is_some(), name == "web_scrape", "{name}");
        }
    }

    #[test]
    fn names_and_values_are_no_keywords() {
        let text = json!({ "type": "string" });
        let named = json!({ "properties": { "oneOf": text, "enum": text, "anyOf": text } });
        assert!(complexity(&named) < 0.3, "{}", complexity(&named));
        let value =
            json!({ "properties": { "a": { "default": { "oneOf": [1], "enum": [1, 2] } } } });
        assert!(complexity(&value) < 0.4, "{}", complexity(&value));
    }

    #[test]
    fn threshold_is_clamped() {
        let schema = definition("read").input_schema;
        assert!(Augmenter::new(-3.0).augment(&schema).is_some());
        assert!(Augmenter::new(7.0).augment(&definition("web_scrape").input_schema).is_none());
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Augmenter::new(odd), Augmenter::default());
        }
    }

    #[test]
    fn augmented_schema_has_the_field_first_and_nothing_else_changed() {
        let schema = definition("web_scrape").input_schema;
        let mut augmented = Augmenter::default().augment(&schema).unwrap();
        let fields = augmented["properties"].as_object_mut().unwrap();
        assert_eq!(fields.keys().next().unwrap(), THOUGHTS_FIELD);
        assert_eq!(fields[THOUGHTS_FIELD]["type"], "string");
        fields.shift_remove(THOUGHTS_FIELD);
        assert_eq!(augmented, schema);
        assert_eq!(Augmenter::new(0.0).augment(&json!({ "type": "object" })), None);
    }

    #[test]
    fn thoughts_are_stripped_in_any_case() {
        let mut arguments = json!({
            "_TAFC_Think": "a", "_tafc_think": 1, "_tafc_thinking_2": {}, "path": "x",
            "_tafc": 1, "think": { "_tafc_think": "stays: it belongs to the argument" },
        });
        assert_eq!(strip(&mut arguments), Stripped::Thoughts);
        let left: Vec<_> = arguments.as_object().unwrap().keys().collect();
        assert_eq!(left, ["path", "_tafc", "think"]);
        assert_eq!(strip(&mut arguments), Stripped::Nothing);
        assert_eq!(strip(&mut json!({ "_tafc_think": "only" })), Stripped::Everything);
        assert_eq!(strip(&mut json!({})), Stripped::Nothing);
        assert_eq!(strip(&mut json!("_tafc_think")), Stripped::Nothing);
        assert_eq!(strip(&mut json!({ "ünïcode_längs": 1 })), Stripped::Nothing);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(10, 60, 5, |inner| {
            let keys = prop::sample::select(
                &["oneOf", "enum", "properties", "items", "_tafc_THINK", "x"][..],
            );
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((keys, inner), 0..4).prop_map(|fields| {
                    Value::Object(
                        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn scores_and_stripping_hold_for_any_json(mut value in json_value()) {
            prop_assert!((0.0..=1.0).contains(&complexity(&value)));
            if let Some(augmented) = Augmenter::new(0.0).augment(&value) {
                let fields = augmented["properties"].as_object().unwrap();
                prop_assert_eq!(fields.keys().filter(|name| is_thought(name)).count(), 1);
            }
            strip(&mut value);
            let thoughts = value.as_object().is_some_and(|fields| fields.keys().any(|key| is_thought(key)));
            prop_assert!(!thoughts);
        }
    }
}
