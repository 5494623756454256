//! Makes ordinary and hostile arguments from the schema of a tool.

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_core::{Definition, InvalidSchemaError, SchemaCost, SubjectKind, compile_schema};

use crate::conformance::values::{Maker, deep, hostile_values, kind, of_another_type};
use crate::conformance::world::{EXISTING, NEW, OUTSIDE};

/// The most arguments that are changed. Each case changes one argument.
const MAX_PLACES: usize = 24;

/// The most hostile cases, and the most refused cases, of a tool.
const MAX_CASES: usize = 400;
const MAX_REFUSED: usize = 40;

/// The number of cases that change several arguments at once.
const MIXED: usize = 16;

/// The most values in the arguments, multiplied by the values in the schema. Checking takes too
/// long for a larger product, so its case is left out.
const MAX_WORK: usize = 2_000_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) arguments: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Cases {
    /// Cases with only the required arguments, and with all arguments.
    pub(crate) ordinary: Vec<Case>,
    /// Unusual arguments that the schema accepts.
    pub(crate) hostile: Vec<Case>,
    /// Arguments that the schema doesn't accept, and that the host must refuse.
    pub(crate) refused: Vec<Case>,
}

#[derive(Debug, Error)]
pub(crate) enum CasesError {
    #[error(transparent)]
    Schema(#[from] InvalidSchemaError),
    #[error(
        "no valid arguments could be generated from the schema: add `examples` at the top of the \
         schema, or to each argument"
    )]
    NoArguments,
}

struct Collector<'d> {
    validator: &'d Validator,
    cost: SchemaCost,
    cases: Cases,
}

impl Cases {
    /// Makes the cases of a tool. The same definition and seed always give the same cases.
    pub(crate) fn from_definition(tool: &Definition, seed: u64) -> Result<Self, CasesError> {
        let schema = &tool.input_schema;
        let validator = compile_schema(schema)?;
        let cost = SchemaCost::from_schema(schema);
        let mut collector = Collector { validator: &validator, cost, cases: Self::default() };
        let minimal = with_test_resources(tool, Maker::minimal(schema).value());
        collector.add_ordinary("the minimal arguments", minimal);
        let all = with_test_resources(tool, Maker::full(schema).value());
        collector.add_ordinary("all arguments", all);
        let Some(last) = collector.cases.ordinary.last() else {
            return Err(CasesError::NoArguments);
        };
        // All other cases change these arguments.
        let base = last.arguments.clone();

        collector.add_fields(schema, &base);
        let mut places = Vec::new();
        collect_places(&Maker::full(schema), schema, &base, String::new(), &mut places);
        let accepted = collector.add_changes(&base, &places);
        if places.len() > 1 {
            let mut random = Random(seed);
            for _ in 0..MIXED {
                collector.add_mixed(&base, &places, &accepted, &mut random);
            }
        }
        Ok(collector.cases)
    }
}

/// A JSON pointer into the arguments, and the schema at this place.
type Place<'s> = (String, &'s Value);

impl Collector<'_> {
    fn is_too_much(&self, arguments: &Value) -> bool {
        let work = count(arguments).saturating_mul(self.cost.weight);
        work > MAX_WORK || !self.cost.allows(arguments)
    }

    fn accepts(&self, arguments: &Value) -> bool {
        !self.is_too_much(arguments) && self.validator.is_valid(arguments)
    }

    /// Adds an ordinary case, unless the schema refuses `arguments` or the case is known.
    fn add_ordinary(&mut self, what: &str, arguments: Value) {
        let is_known = self.cases.ordinary.iter().any(|case| case.arguments == arguments);
        if !is_known && self.accepts(&arguments) {
            self.cases.ordinary.push(Case { what: what.to_owned(), arguments });
        }
    }

    /// Adds a hostile case or, if the schema refuses `arguments`, a refused case. Does nothing if
    /// the case is known or too expensive, or if there are too many cases.
    fn add(&mut self, what: String, arguments: Value) {
        if self.is_too_much(&arguments) {
            return;
        }
        let (cases, max_cases) = if self.validator.is_valid(&arguments) {
            (&mut self.cases.hostile, MAX_CASES)
        } else {
            (&mut self.cases.refused, MAX_REFUSED)
        };
        let is_known = cases.iter().any(|case| case.arguments == arguments);
        if !is_known && cases.len() < max_cases {
            cases.push(Case { what, arguments });
        }
    }

    /// Adds cases that change one argument. Returns the pointers and values that the schema
    /// accepts.
    fn add_changes<'p>(&mut self, base: &Value, places: &'p [Place<'_>]) -> Vec<(&'p str, Value)> {
        let mut accepted = Vec::new();
        for (pointer, schema) in places {
            let ordinary = base.pointer(pointer).cloned().unwrap_or_default();
            let other_type = with_value_at(base, pointer, of_another_type(&ordinary));
            self.add(format!("another type at {pointer}"), other_type);
            for (what, value) in hostile_values(&ordinary, schema, OUTSIDE) {
                let arguments = with_value_at(base, pointer, value.clone());
                if self.accepts(&arguments) {
                    accepted.push((pointer.as_str(), value));
                }
                self.add(format!("{what} at {pointer}"), arguments);
            }
        }
        accepted
    }

    /// Adds a case that changes random arguments. The new values come from `accepted`, the result
    /// of `add_changes`.
    fn add_mixed(
        &mut self,
        base: &Value,
        places: &[Place<'_>],
        accepted: &[(&str, Value)],
        random: &mut Random,
    ) {
        let mut mixed = base.clone();
        for (pointer, _) in places {
            let mut values = Vec::new();
            for (accepted_pointer, value) in accepted {
                if *accepted_pointer == pointer.as_str() {
                    values.push(value);
                }
            }
            // The index after the last value means no change.
            let index = random.below(values.len() + 1);
            let Some(value) = values.get(index) else { continue };
            let changed = with_value_at(&mixed, pointer, (*value).clone());
            // Two values that are valid alone may be invalid together.
            if self.accepts(&changed) {
                mixed = changed;
            }
        }
        self.add("several odd arguments".to_owned(), mixed);
    }

    /// Adds cases in which an argument is missing or unknown.
    fn add_fields(&mut self, schema: &Value, base: &Value) {
        // Ordinary arguments are always an object.
        let base_fields = base.as_object().cloned().unwrap_or_default();
        let names = schema.get("required").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let mut fields = base_fields.clone();
            fields.remove(name);
            self.add(format!("{name} is missing"), Value::Object(fields));
        }
        self.add("no argument".to_owned(), json!({}));
        for value in [json!("a"), deep()] {
            let mut fields = base_fields.clone();
            fields.insert("no_such_argument".to_owned(), value);
            self.add("an unknown argument".to_owned(), Value::Object(fields));
        }
    }
}

/// Counts the values inside `value`, including `value`.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Collects the pointers and schemas of the arguments that can be changed, at all levels. `schema`
/// and `value` belong to the argument at `pointer`.
fn collect_places<'s>(
    maker: &Maker<'s>,
    schema: &'s Value,
    value: &Value,
    pointer: String,
    places: &mut Vec<Place<'s>>,
) {
    let schema = maker.follow(schema);
    if places.len() >= MAX_PLACES {
        return;
    }
    if !pointer.is_empty() {
        places.push((pointer.clone(), schema));
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let property = schema.get("properties").and_then(|all| all.get(name));
                let property = property.unwrap_or(&Value::Null);
                // JSON pointers escape `~` and `/` in names.
                let name = name.replace('~', "~0").replace('/', "~1");
                let pointer = format!("{pointer}/{name}");
                collect_places(maker, property, value, pointer, places);
            }
        }
        // All items have the same schema, so only the first item is changed.
        Value::Array(items) => {
            if let (Some(first), Some(item_schema)) = (items.first(), schema.get("items")) {
                collect_places(maker, item_schema, first, format!("{pointer}/0"), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn with_value_at(base: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = base.clone();
    if let Some(place) = changed.pointer_mut(pointer) {
        *place = value;
    }
    changed
}

/// Replaces paths by files of the test, URLs by a URL without a server, and commands by the
/// harmless command `true`. Values that the schema lists stay.
fn with_test_resources(tool: &Definition, mut arguments: Value) -> Value {
    if !arguments.is_object() {
        arguments = Value::Object(Map::new());
    }
    for subject in &tool.subjects {
        let text = match subject.kind {
            SubjectKind::Path | SubjectKind::Name => match subject.access {
                toolhold_core::Access::Read => EXISTING,
                toolhold_core::Access::Write => NEW,
            },
            SubjectKind::Url => "https://plugin-test.invalid/",
            SubjectKind::Command => "true",
            SubjectKind::Text => continue,
        };
        let schema = top_property(&tool.input_schema, &subject.pointer).unwrap_or(&Value::Null);
        let lists_values =
            ["enum", "const", "examples"].iter().any(|key| schema.get(key).is_some());
        if lists_values {
            continue;
        }
        if let Some(argument) = arguments.pointer_mut(&subject.pointer) {
            *argument = if kind(schema) == "array" { json!([text]) } else { json!(text) };
        }
    }
    arguments
}

/// Returns the schema of the top-level argument at `pointer`.
fn top_property<'s>(schema: &'s Value, pointer: &str) -> Option<&'s Value> {
    schema.get("properties")?.get(pointer.strip_prefix('/')?)
}

/// The random number generator SplitMix64.
struct Random(u64);

impl Random {
    /// Returns a random number below `limit`, with the steps and constants of SplitMix64.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % limit.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: Value) -> Definition {
        Definition::new("tool", "does", schema)
    }

    fn sample() -> Definition {
        tool(json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "count": { "type": "integer", "minimum": 3 } },
            "required": ["path"],
            "additionalProperties": false,
        }))
    }

    fn has(cases: &[Case], what: &str) -> bool {
        cases.iter().any(|case| case.what.contains(what))
    }

    #[test]
    fn cases_are_where_they_belong() {
        let cases = Cases::from_definition(&sample(), 0).unwrap();
        assert_eq!(cases.ordinary.len(), 2);
        for what in
            ["NUL", "an empty text at /path", "escapes", "a large number at /count", "several"]
        {
            assert!(has(&cases.hostile, what), "{what}");
        }
        for what in ["path is missing", "another type at /count", "unknown", "below a limit"] {
            assert!(has(&cases.refused, what), "{what}");
        }
        assert!(cases.hostile.len() <= MAX_CASES && cases.refused.len() <= MAX_REFUSED);
    }

    #[test]
    fn seed_decides_on_the_mixed_ones() {
        let of = |seed| Cases::from_definition(&sample(), seed).unwrap().hostile;
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn unknown_argument_reaches_a_tool_that_takes_it() {
        let cases = Cases::from_definition(&tool(json!({ "type": "object" })), 0).unwrap();
        assert!(has(&cases.hostile, "unknown"));
        assert_eq!(cases.refused, []);
    }

    #[test]
    fn schema_without_a_value_says_what_to_do() {
        let impossible = json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "^q{7}$" } }, "required": ["a"] });
        let error = Cases::from_definition(&tool(impossible), 0).unwrap_err().to_string();
        assert!(error.contains("`examples`"), "{error}");
    }
}
