//! Checks untrusted schemas: they are bounded, self-contained, and neutralised.

use std::collections::HashMap;

use serde_json::Value;
use toolhold_contract::text::neutral_json;

/// Most bytes of a schema.
const MAX_SCHEMA: usize = 64 * 1024;

/// Most levels of nesting in a schema.
const MAX_DEPTH: usize = 32;

/// Most values in a schema after every reference is replaced by its target. The time for checking
/// arguments grows with this number. With a few dozen definitions that each refer twice to the next
/// one, the check would never end.
const MAX_UNFOLDED: usize = 100_000;

/// Most references in a row, since following them uses the stack.
const MAX_CHAIN: usize = 100;

/// The cost of checking one value of the arguments against a schema: the number of values in the
/// schema, references followed.
pub fn schema_weight(schema: &Value) -> usize {
    Unfolding::from_document(schema).values
}

/// Parses and checks a schema.
///
/// # Errors
///
/// What is wrong, as a phrase after "its schema".
pub fn parse(text: &str) -> Result<Value, String> {
    if text.len() > MAX_SCHEMA {
        return Err(format!("is {} bytes; the limit is {MAX_SCHEMA} bytes", text.len()));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    check(&value, 0)?;
    let cost = Unfolding::from_document(&value);
    if cost.values > MAX_UNFOLDED {
        return Err(format!(
            "unfolds to more than {MAX_UNFOLDED} values or has more than {MAX_CHAIN} references in a row, which are the limits; use fewer \
             references between its definitions"
        ));
    }
    if cost.returns > 1 {
        return Err(
            "refers back to itself more than once for the same place in the arguments; use one such reference for each place".into()
        );
    }
    // Models and people read the schema's texts (invariant 6).
    Ok(neutral_json(value))
}

fn check(value: &Value, depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("is nested deeper than {MAX_DEPTH} levels, which is the limit"));
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

/// References have to be pointers from the root, so that their targets are unambiguous.
fn check_keyword(key: &str, text: &str, depth: usize) -> Result<(), String> {
    let plain = |target: &str| target == "#" || (target.starts_with("#/") && !target.contains('%'));
    match key {
        "$ref" | "$dynamicRef" | "$recursiveRef" if !text.starts_with('#') => {
            Err("refers to another document".into())
        }
        "$ref" if !plain(text) => {
            Err(format!("refers to {text:?}; references need the form `#/$defs/NAME`"))
        }
        "$dynamicRef" | "$recursiveRef" => Err(format!("has a `{key}`; use `$ref`")),
        "$id" if depth > 0 => {
            Err("has a nested `$id`, which gives references inside it another root".into())
        }
        "$schema" if !text.contains("json-schema.org/") => {
            Err("has an unknown dialect in `$schema`".into())
        }
        _ => Ok(()),
    }
}

/// The cost of checking arguments against a part of a schema.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Values of the schema, references followed. A circular reference isn't followed again here:
    /// the arguments decide how often the check follows it.
    values: usize,
    /// Most circular references that apply to one place in the arguments. With two, the work
    /// doubles at each level of the arguments.
    returns: usize,
}

/// Adds up the cost of a schema.
struct Unfolding<'s> {
    document: &'s Value,
    /// Costs by target. `None` while the cost is being computed.
    costs: HashMap<&'s str, Option<Cost>>,
    /// The number of references that are being followed.
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
                // Properties and items apply to other places in the arguments than the rest does.
                let mut elsewhere = one;
                let here = fields.iter().fold(one, |sum, (key, item)| match (key.as_str(), item) {
                    ("$ref", Value::String(target)) => sum.and(self.target(target)),
                    ("properties", Value::Object(places)) => {
                        elsewhere = places
                            .values()
                            .fold(elsewhere, |most, place| most.combine(self.cost(place)));
                        sum
                    }
                    ("items" | "additionalProperties", place) => {
                        elsewhere = elsewhere.combine(self.cost(place));
                        sum
                    }
                    // Definitions count through references only.
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
    /// The cost of both parts, if they apply to the same place in the arguments.
    fn and(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            returns: self.returns.saturating_add(other.returns),
        }
    }

    /// The cost of both parts, if they apply to different places.
    fn combine(self, other: Self) -> Self {
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
        let error = parse(schema).expect_err("the schema is refused");
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn untrusted_schemas_stay_in_their_document_and_limits() {
        assert!(parse(r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}"##).is_ok());
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
        check_refused(r#"{"$defs":{"a":{"$id":"x"}}}"#, "another root");
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
        let definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
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
        check_refused(&tree(&format!(r#"{{"allOf":[{back},{back}]}}"#)), "more than once");
        check_refused(&tree(&format!(r#"{{"not":{back},"items":{back}}}"#)), "more than once");
    }

    #[test]
    fn schema_that_unfolds_too_far_is_refused() {
        check_refused(&chain(60, 2), "unfolds");
        check_refused(&chain(8, 10), "unfolds");
        check_refused(&chain(500, 1), "unfolds");
        assert!(parse(&chain(60, 1)).is_ok());
        assert!(
            parse(r##"{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"##).is_ok(),
            "a tree is allowed"
        );
    }
}
