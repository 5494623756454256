//! Any text as the schema of a tool, and any values as its arguments: checking them ends soon, and
//! says the same each time.

use std::sync::Arc;

use serde_json::Value;
use toolhold_component::SchemaCost;
use toolhold_component::schema::parse;
use toolhold_contract::text::neutral_json;
use toolhold_contract::{BoxFuture, Call, Definition, Outcome, Output, ToolSource};
use toolhold_fuzz::{NAMES, Target, json, schema};

use crate::Tool;
use crate::validate;

/// Most values in the schema of an upstream server, references followed.
const MAX_WEIGHT: usize = 20_000;

/// The limit for the weight of a schema times the bytes of arguments, in a program that isn't
/// optimised.
const MAX_WORK: usize = 1_000_000;

/// Most bytes of arguments.
const MAX_ARGUMENTS: usize = 1 << 20;

const TOKENS: [&str; 24] = [
    "{\"$ref\":\"#\"}",
    "{\"$ref\":\"#/$defs/a\"}",
    "{\"$ref\":\"#/$defs/b\"}",
    "\"$defs\":{",
    "\"properties\":{",
    "\"items\":",
    "\"allOf\":[",
    "\"anyOf\":[",
    "\"not\":",
    "\"type\":\"object\",",
    "\"type\":[\"integer\",\"null\"],",
    "\"additionalProperties\":false,",
    "\"unevaluatedProperties\":false,",
    "\"pattern\":\"(a|b)*c{99}\",",
    "\"required\":[\"a\"],",
    "\"enum\":[1,\"a\",null],",
    "\"multipleOf\":1e-300,",
    "\"_tafc_think\":1,",
    "{\"a\":",
    "[",
    "}",
    "]",
    "\"5.0\"",
    "\n",
];

#[test]
fn soak_any_schema_checks_any_arguments() {
    let target = Target {
        name: "schemas",
        test: "fuzz_tests::soak_any_schema_checks_any_arguments",
        tokens: &TOKENS,
        generate: |random| {
            let mut text = schema(random, 5)?;
            for _ in 0..random.int_in_range(1..=3)? {
                let levels = if random.ratio(1, 4)? { random.int_in_range(0..=120)? } else { 0 };
                let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
                text = format!("{text}\n{open}{}{close}", json(random, &NAMES, 5)?);
            }
            Ok(text.into_bytes())
        },
        read: |entry| entry,
        cases: 500,
    };
    target.run(|input| check(&String::from_utf8_lossy(input)));
}

/// Checks a schema, and in the lines behind it values.
fn check(text: &str) {
    let (written, values) = text.split_once('\n').unwrap_or((text, ""));
    let schema = match parse(written) {
        Ok(schema) => {
            let again = schema.to_string();
            assert!(
                again.len() > 64 * 1024 || parse(&again).ok().as_ref() == Some(&schema),
                "{again}"
            );
            schema
        }
        // The client of upstream servers has other bounds.
        Err(_) => match serde_json::from_str(written) {
            Ok(schema) if SchemaCost::from_schema(&schema).weight <= MAX_WEIGHT => {
                neutral_json(schema)
            }
            _ => return,
        },
    };
    let offered = Definition::new("tool", "A tool of somebody else.", schema);
    let source = Arc::new(Source(Arc::new(offered))) as Arc<dyn ToolSource>;
    let Ok(tools) = Tool::from_provider(&source) else { return };
    for value in values.lines().filter_map(|line| serde_json::from_str(line).ok()).take(4) {
        check_arguments(&tools[0], value);
    }
}

fn check_arguments(tool: &Tool, value: Value) {
    let work = tool.cost().weight.saturating_mul(value.to_string().len());
    if work > MAX_WORK || !tool.cost().allows(&value) {
        return;
    }
    let validator = tool.validator().expect("it was compiled");
    let mut arguments = Arc::new(value);
    if validate::normalize(&tool.definition, &mut arguments).is_err() {
        return;
    }
    let was_valid = arguments.is_object() && validator.is_valid(&arguments);
    let has_problems = validator.iter_errors(&arguments).next().is_some();
    assert_eq!(validator.is_valid(&arguments), !has_problems, "{arguments}");
    let given = Arc::clone(&arguments);
    match validate::arguments(tool, &mut arguments, MAX_ARGUMENTS) {
        Ok(()) => {
            assert!(validator.is_valid(&arguments), "{arguments} doesn't match");
            let mut again = Arc::clone(&arguments);
            assert_eq!(validate::arguments(tool, &mut again, MAX_ARGUMENTS), Ok(()));
            assert_eq!(again, arguments, "it is in its form already");
        }
        Err(failure) => {
            assert!(!was_valid, "{given} matches, and is refused: {failure:?}");
            assert!(failure.message.len() < 4096, "{} bytes", failure.message.len());
        }
    }
}

/// A source with one tool.
struct Source(Arc<Definition>);

impl ToolSource for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.0)]
    }

    fn call(&self, _call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async { Ok(Output::default()) })
    }
}
