//! A tool that does almost nothing, so that the cost of its call is the cost of any call.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

toolhold_sdk::plugin! {
    name: "bench",
    description: "The smallest tool, to measure the cost of a call",
    tools: [Echo],
}

/// Returns the text that it gets.
pub struct Echo;

/// The arguments of [`Echo`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EchoArguments {
    /// The text to return.
    text: String,
}

impl Tool for Echo {
    const NAME: &str = "echo";
    const DESCRIPTION: &str =
        "Returns the text that it gets. Use it to check that tools work, and how fast they are.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = EchoArguments;

    fn call(arguments: EchoArguments, _call: &Call) -> Result<Output, Failure> {
        Ok(Output::text(arguments.text))
    }
}

#[cfg(test)]
mod tests {
    use super::Echo;

    #[test]
    fn echo_returns_its_text() {
        let answer = toolhold_sdk::testing::call::<Echo>(serde_json::json!({ "text": "hello" }));
        assert_eq!(answer.unwrap().joined_text(), "hello");
    }
}
