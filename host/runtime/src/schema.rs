//! The schemas of strangers: bounded, self-contained, and neutral before anyone reads them.

use std::collections::HashMap;

use berth_contract::text::neutral_json;
use serde_json::Value;

/// Bytes of a schema.
const MAX_SCHEMA: usize = 64 * 1024;

/// How deep a schema is nested.
const MAX_DEPTH: usize = 32;

/// Values in a schema once every reference is replaced by what it names. Checking arguments takes
/// time in proportion to it, and a few dozen definitions that each refer twice to the next would
/// keep a processor busy for ever.
const MAX_UNFOLDED: usize = 100_000;

/// References that lead from one to the next: whoever follows them does so on a stack.
const MAX_CHAIN: usize = 100;

/// How many values checking arguments against a schema may look at for one place in them: the
/// values of the schema, references followed.
pub fn schema_weight(schema: &Value) -> usize {
    Unfolding::from_document(schema).values
}

/// Parses and checks a schema.
///
/// # Errors
///
/// What is wrong, to be read after "its schema".
pub(crate) fn checked(text: &str) -> Result<Value, String> {
    if text.len() > MAX_SCHEMA {
        return Err(format!("has {} bytes; at most {MAX_SCHEMA} are taken", text.len()));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    check(&value, 0)?;
    let cost = Unfolding::from_document(&value);
    if cost.values > MAX_UNFOLDED {
        return Err(format!(
            "unfolds to more than {MAX_UNFOLDED} values, or over more than {MAX_CHAIN} references in a row; let its definitions refer to \
             each other less often"
        ));
    }
    if cost.returns > 1 {
        return Err(
            "refers back to itself more than once for the same place in the arguments".into()
        );
    }
    // Models and people read what it says (invariant 6).
    Ok(neutral_json(value))
}

fn check(value: &Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("is nested more than {MAX_DEPTH} deep"));
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

/// References are by pointer and from the root, so that what they name can be told without a second
/// opinion.
fn check_keyword(key: &str, text: &str, depth: usize) -> Result<(), String> {
    let plain = |target: &str| target == "#" || (target.starts_with("#/") && !target.contains('%'));
    match key {
        "$ref" | "$dynamicRef" | "$recursiveRef" if !text.starts_with('#') => {
            Err("refers to another document".into())
        }
        "$ref" if !plain(text) => {
            Err(format!("refers to {text:?}; a reference here has the form `#/$defs/NAME`"))
        }
        "$dynamicRef" | "$recursiveRef" => {
            Err(format!("has a `{key}`; `$ref` is what is taken here"))
        }
        "$id" if depth > 0 => {
            Err("has an `$id` inside, which gives references there another root".into())
        }
        "$schema" if !text.contains("json-schema.org/") => Err("is of an unknown dialect".into()),
        _ => Ok(()),
    }
}

/// What checking arguments against a part of a schema may take.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Values of the schema, references followed. One that leads back to where it is being followed
    /// from counts as nothing more: how often it is followed again depends on the arguments.
    values: usize,
    /// How often at most one place in the arguments is checked against a reference that leads back.
    /// Twice, and the work doubles with each level of the arguments.
    returns: usize,
}

/// Adds up the cost of a schema.
struct Unfolding<'s> {
    document: &'s Value,
    /// By target; absent from the moment that it is looked into until its cost is known.
    costs: HashMap<&'s str, Option<Cost>>,
    /// References that are being followed.
    chain: usize,
}

impl<'s> Unfolding<'s> {
    fn from_document(document: &'s Value) -> Cost {
        Self { document, costs: HashMap::new(), chain: 0 }.cost(document)
    }

    fn cost(&mut self, value: &'s Value) -> Cost {
        let one = Cost { values: 1, returns: 0 };
        match value {
            Value::Array(items) => items.iter().fold(one, |sum, item| sum.and(self.cost(item))),
            Value::Object(fields) => {
                // Each of these is about another place in the arguments than the rest.
                let mut elsewhere = one;
                let here = fields.iter().fold(one, |sum, (key, item)| match (key.as_str(), item) {
                    ("$ref", Value::String(target)) => sum.and(self.target(target)),
                    ("properties", Value::Object(places)) => {
                        elsewhere = places
                            .values()
                            .fold(elsewhere, |most, place| most.beside(self.cost(place)));
                        sum
                    }
                    ("items" | "additionalProperties", place) => {
                        elsewhere = elsewhere.beside(self.cost(place));
                        sum
                    }
                    // Only through references.
                    ("$defs" | "definitions", _) => sum,
                    _ => sum.and(self.cost(item)),
                });
                here.and(elsewhere)
            }
            _ => one,
        }
    }

    fn target(&mut self, target: &'s str) -> Cost {
        if let Some(known) = self.costs.get(target) {
            return known.unwrap_or(Cost { values: 1, returns: 1 });
        }
        let Some(value) = self.document.pointer(target.trim_start_matches('#')) else {
            return Cost::default();
        };
        if self.chain == MAX_CHAIN {
            return Cost { values: usize::MAX, returns: 0 };
        }
        self.costs.insert(target, None);
        self.chain += 1;
        let cost = self.cost(value);
        self.chain -= 1;
        self.costs.insert(target, Some(cost));
        cost
    }
}

impl Cost {
    /// Of both, for one place in the arguments.
    fn and(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            returns: self.returns.saturating_add(other.returns),
        }
    }

    /// Of both, for two places.
    fn beside(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            returns: self.returns.max(other.returns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_refused(schema: &str, reason: &str) {
        let error = checked(schema).expect_err("is refused");
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn schemas_of_strangers_stay_in_their_document_and_bounds() {
        assert!(checked(r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}"##).is_ok());
        check_refused(r#"{"$ref":"https://example.com/x"}"#, "another document");
        check_refused(r#"{"properties":{"a":{"$dynamicRef":"other.json#x"}}}"#, "another document");
        check_refused("{", "not JSON");
        check_refused(&format!("{}1{}", r#"{"a":"#.repeat(40), "}".repeat(40)), "nested");
        check_refused(&format!("\"{}\"", "x".repeat(MAX_SCHEMA)), "bytes");
    }

    #[test]
    fn references_are_plain_pointers_from_the_root() {
        check_refused(r##"{"$ref":"#anchor"}"##, "the form");
        check_refused(r##"{"$ref":"#/$defs/a%31"}"##, "the form");
        check_refused(r##"{"$dynamicRef":"#a"}"##, "`$ref` is what is taken");
        check_refused(r#"{"$defs":{"a":{"$id":"x"}}}"#, "another root");
        assert!(
            checked(r#"{"$id":"https://example.com/mine","properties":{"$id":{"type":"string"}}}"#)
                .is_ok()
        );
    }

    fn chain(length: usize, times: usize) -> String {
        let definition = |number: usize| {
            let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
            (format!("d{number}"), json!({ "allOf": vec![next; times] }))
        };
        let definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
        json!({ "$ref": "#/$defs/d0", "$defs": definitions }).to_string()
    }

    #[test]
    fn what_refers_back_to_itself_does_so_once_a_place() {
        let tree = |node: &str| {
            format!(r##"{{"$ref":"#/$defs/t","$defs":{{"t":{{"properties":{{"x":{node}}}}}}}}}"##)
        };
        let back = r##"{"$ref":"#/$defs/t"}"##;
        assert!(checked(&tree(back)).is_ok());
        assert!(checked(&tree(&format!(r#"{{"anyOf":[{back},{{"type":"null"}}]}}"#))).is_ok());
        check_refused(&tree(&format!(r#"{{"allOf":[{back},{back}]}}"#)), "more than once");
        check_refused(&tree(&format!(r#"{{"not":{back},"items":{back}}}"#)), "more than once");
    }

    #[test]
    fn a_schema_does_not_unfold_without_end() {
        check_refused(&chain(60, 2), "unfolds");
        check_refused(&chain(8, 10), "unfolds");
        check_refused(&chain(500, 1), "unfolds");
        assert!(checked(&chain(60, 1)).is_ok());
        assert!(
            checked(r##"{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"##).is_ok(),
            "a tree is no fault"
        );
    }
}
