//! Attacks with its parts. A test writes the manifest that names them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool, parts};

toolhold_sdk::plugin! {
    name: "hostile-parts",
    description: "Attacks with its parts",
    capabilities: [parts = "to be attacked"],
    tools: [Run],
}

/// What a part gets.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// The part.
    part: String,
    /// The inputs.
    inputs: Vec<String>,
    /// How often each of them is given.
    #[serde(default = "once")]
    times: usize,
}

fn once() -> usize {
    1
}

/// Runs a part.
pub struct Run;

impl Tool for Run {
    const NAME: &str = "run";
    const DESCRIPTION: &str = "Runs a part on inputs.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = Inputs;

    fn call(Inputs { part, inputs, times }: Inputs, _call: &Call) -> Result<Output, Failure> {
        let inputs = inputs.iter().flat_map(|input| std::iter::repeat_n(input, times));
        let answers = parts::run(&part, inputs.map(|input| input.clone().into_bytes()).collect());
        let answers = answers.into_iter().map(|answer| match answer {
            Ok(bytes) if bytes.len() > 1000 => json!({ "bytes": bytes.len() }),
            Ok(bytes) => json!({ "answer": String::from_utf8_lossy(&bytes) }),
            Err(error) => json!({ "code": error.code, "message": error.message }),
        });
        let answers: Vec<_> = answers.collect();
        if times == 1 {
            return Ok(Output::text(json!(answers).to_string()));
        }
        // Thousands of answers would be cut: how often there is each of them.
        let mut counts = BTreeMap::<String, usize>::new();
        answers.iter().for_each(|answer| *counts.entry(answer.to_string()).or_default() += 1);
        Ok(Output::text(json!(counts).to_string()))
    }
}
