//! A tool that does next to nothing, so that what its call costs is what every call costs.

use berth_sdk::{Annotations, Call, Failure, Output, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

berth_sdk::plugin! {
    name: "bench",
    description: "The smallest tool, to measure what a call costs",
    tools: [Echo],
}

/// Says back what it is told.
pub struct Echo;

/// What [`Echo`] takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EchoArguments {
    /// What to say back.
    text: String,
}

impl Tool for Echo {
    const NAME: &str = "echo";
    const DESCRIPTION: &str =
        "Says back what it is told. Use it to see whether tools work, and how fast.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Arguments = EchoArguments;

    fn call(arguments: EchoArguments, _call: &Call) -> Result<Output, Failure> {
        Ok(Output::text(arguments.text))
    }
}

#[cfg(test)]
mod tests {
    use super::Echo;

    #[test]
    fn echo_says_back_what_it_is_told() {
        let answer = berth_sdk::testing::call::<Echo>(serde_json::json!({ "text": "hello" }));
        assert_eq!(answer.unwrap().joined_text(), "hello");
    }
}
