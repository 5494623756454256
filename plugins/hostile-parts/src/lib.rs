//! Attacks with its parts. A test writes the manifest that names them.

use berth_sdk::{Annotations, Call, Failure, Output, Tool, parts};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

berth_sdk::plugin! {
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
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Arguments = Inputs;

    fn call(Inputs { part, inputs, times }: Inputs, _call: &Call) -> Result<Output, Failure> {
        let inputs = inputs.iter().flat_map(|input| std::iter::repeat_n(input, times));
        let answers = parts::run(&part, inputs.map(|input| input.clone().into_bytes()).collect());
        let answers = answers.into_iter().map(|answer| match answer {
            Ok(bytes) if bytes.len() > 1000 => json!({ "bytes": bytes.len() }),
            Ok(bytes) => json!({ "answer": String::from_utf8_lossy(&bytes) }),
            Err(error) => json!({ "code": error.code, "message": error.message }),
        });
        Ok(Output::text(json!(answers.collect::<Vec<_>>()).to_string()))
    }
}
