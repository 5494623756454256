//! Makes the ordinary and hostile arguments for the calls of `toolhold plugin test`. The arguments
//! are made from a tool's schema.

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_core::{Definition, InvalidSchemaError, SchemaCost, SubjectKind, compile_schema};

use crate::conformance::values::{Maker, deep, hostile, kind, of_another_type};
use crate::conformance::world::{EXISTING, NEW, OUTSIDE};

/// The most arguments that are changed. Each case changes one argument.
const MAX_PLACES: usize = 24;

/// The most calls of a tool, and the most calls that the host must refuse.
const MAX_CASES: usize = 400;
const MAX_REFUSED: usize = 40;

/// The number of calls in which several arguments are hostile.
const MIXED: usize = 16;

/// The most work for checking one case: the number of values in the arguments multiplied by the
/// number of values in the schema.
const MAX_WORK: usize = 2_000_000;

/// The arguments of one call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// A description of the arguments.
    pub(crate) what: String,
    pub(crate) arguments: Value,
}

/// The cases of all calls of a tool.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    /// Arguments of a normal call: the required arguments, and all arguments.
    pub(crate) ordinary: Vec<Case>,
    /// Arguments that the schema accepts, and that no caller would give.
    pub(crate) hostile: Vec<Case>,
    /// Arguments that don't match the schema. The host must refuse them.
    pub(crate) refused: Vec<Case>,
}

/// The reason why no arguments can be made for a tool.
#[derive(Debug, Error)]
pub(crate) enum CasesError {
    #[error(transparent)]
    Schema(#[from] InvalidSchemaError),
    #[error(
        "no valid arguments could be made from its schema: give some in `examples`, at its top or \
         of each argument"
    )]
    NoArguments,
}

struct Collector<'d> {
    validator: &'d Validator,
    cost: SchemaCost,
    cases: Cases,
}

impl Cases {
    /// Makes the cases of a tool. The cases are the same for the same definition and seed.
    ///
    /// # Errors
    ///
    /// Returns an error if no cases can be made.
    pub(crate) fn from_definition(tool: &Definition, seed: u64) -> Result<Self, CasesError> {
        let schema = &tool.input_schema;
        let validator = compile_schema(schema)?;
        let cost = SchemaCost::from_schema(schema);
        let mut collector = Collector { validator: &validator, cost, cases: Self::default() };
        let least = in_the_world(tool, Maker::new(schema, false).value());
        let all = in_the_world(tool, Maker::new(schema, true).value());
        for (what, arguments) in [("the least arguments", &least), ("all arguments", &all)] {
            let is_known = collector.cases.ordinary.iter().any(|case| case.arguments == *arguments);
            if !is_known && collector.accepts(arguments) {
                let case = Case { what: what.to_owned(), arguments: arguments.clone() };
                collector.cases.ordinary.push(case);
            }
        }
        let Some(last) = collector.cases.ordinary.last() else {
            return Err(CasesError::NoArguments);
        };
        let base = last.arguments.clone();

        collector.add_fields(schema, &base);
        let mut places = Vec::new();
        collect_places(&Maker::new(schema, true), schema, &base, String::new(), &mut places);
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

/// A place in the arguments, as its JSON pointer and its schema.
type Place<'s> = (String, &'s Value);

impl Collector<'_> {
    fn is_too_much(&self, arguments: &Value) -> bool {
        let work = count(arguments).saturating_mul(self.cost.weight);
        work > MAX_WORK || !self.cost.allows(arguments)
    }

    fn accepts(&self, arguments: &Value) -> bool {
        !self.is_too_much(arguments) && self.validator.is_valid(arguments)
    }

    /// Adds a case to the hostile cases, or to the refused cases if the schema doesn't accept it.
    fn add(&mut self, what: String, arguments: Value) {
        if self.is_too_much(&arguments) {
            return;
        }
        let (list, most) = if self.validator.is_valid(&arguments) {
            (&mut self.cases.hostile, MAX_CASES)
        } else {
            (&mut self.cases.refused, MAX_REFUSED)
        };
        let is_known = list.iter().any(|case| case.arguments == arguments);
        if !is_known && list.len() < most {
            list.push(Case { what, arguments });
        }
    }

    /// Adds cases in which one argument is changed. Returns the values that the schema accepts,
    /// each with its pointer.
    fn add_changes<'p>(&mut self, base: &Value, places: &'p [Place<'_>]) -> Vec<(&'p str, Value)> {
        let mut accepted = Vec::new();
        for (pointer, schema) in places {
            let ordinary = base.pointer(pointer).cloned().unwrap_or_default();
            let other_type = with(base, pointer, of_another_type(&ordinary));
            self.add(format!("another type at {pointer}"), other_type);
            for (what, value) in hostile(&ordinary, schema, OUTSIDE) {
                let arguments = with(base, pointer, value.clone());
                if self.accepts(&arguments) {
                    accepted.push((pointer.as_str(), value));
                }
                self.add(format!("{what} at {pointer}"), arguments);
            }
        }
        accepted
    }

    /// Adds a case in which several arguments are changed, chosen at random.
    fn add_mixed(
        &mut self,
        base: &Value,
        places: &[Place<'_>],
        accepted: &[(&str, Value)],
        random: &mut Random,
    ) {
        let mut mixed = base.clone();
        for (pointer, _) in places {
            let values: Vec<&Value> = accepted
                .iter()
                .filter(|(known, _)| *known == pointer.as_str())
                .map(|(_, value)| value)
                .collect();
            // The last index isn't a value. It means that the argument doesn't change.
            let index = random.below(values.len() + 1);
            let Some(value) = values.get(index) else { continue };
            let changed = with(&mixed, pointer, (*value).clone());
            // Two values may be valid separately but not together.
            if self.accepts(&changed) {
                mixed = changed;
            }
        }
        self.add("several odd arguments".to_owned(), mixed);
    }

    /// Adds cases without each argument, and with an unknown argument.
    fn add_fields(&mut self, schema: &Value, base: &Value) {
        let names = schema.get("required").and_then(Value::as_array);
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            let mut fields = base.as_object().cloned().unwrap_or_default();
            fields.remove(name);
            self.add(format!("{name} is missing"), Value::Object(fields));
        }
        self.add("no argument".to_owned(), json!({}));
        for value in [json!("a"), deep()] {
            let mut fields = base.as_object().cloned().unwrap_or_default();
            fields.insert("no_such_argument".to_owned(), value);
            self.add("an unknown argument".to_owned(), Value::Object(fields));
        }
    }
}

/// Returns the number of values inside a value, including the value itself.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Collects the places in the arguments that can be changed, each with its schema.
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
                let name = name.replace('~', "~0").replace('/', "~1");
                let pointer = format!("{pointer}/{name}");
                collect_places(maker, property.unwrap_or(&Value::Null), value, pointer, places);
            }
        }
        Value::Array(items) => {
            if let (Some(first), Some(items)) = (items.first(), schema.get("items")) {
                collect_places(maker, items, first, format!("{pointer}/0"), places);
            }
        }
        _ => {}
    }
}

/// Returns the arguments with another value at a place.
fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = base.clone();
    if let Some(place) = changed.pointer_mut(pointer) {
        *place = value;
    }
    changed
}

/// Replaces the paths that a call acts on with paths of the test environment, and replaces commands
/// with a command that does nothing.
fn in_the_world(tool: &Definition, mut arguments: Value) -> Value {
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
        let gives_values =
            ["enum", "const", "examples"].iter().any(|key| schema.get(key).is_some());
        if gives_values {
            continue;
        }
        if let Some(place) = arguments.pointer_mut(&subject.pointer) {
            *place = if kind(schema) == "array" { json!([text]) } else { json!(text) };
        }
    }
    arguments
}

/// Returns the schema of an argument at the top level.
fn top_property<'s>(schema: &'s Value, pointer: &str) -> Option<&'s Value> {
    schema.get("properties")?.get(pointer.strip_prefix('/')?)
}

/// A generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// Returns the next number below a limit.
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
