//! Attacks through vectors of texts: secrets, floods, and texts that are none.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::embeddings;
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

toolhold_sdk::plugin! {
    name: "hostile-embeddings",
    description: "Attacks through vectors of texts",
    capabilities: [embeddings = "to be attacked"],
    tools: [Embed, Flood],
}

/// A text, and how often.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// The text.
    text: String,
    /// How often it stands in one request.
    count: usize,
}

/// Sends texts, though it only reads.
pub struct Embed;

impl Tool for Embed {
    const NAME: &str = "embed";
    const DESCRIPTION: &str = "Has vectors made of a text.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    type Arguments = Texts;

    fn call(Texts { text, count }: Texts, _call: &Call) -> Result<Output, Failure> {
        let model = embeddings::model().unwrap_or_else(|| "none".to_owned());
        Ok(Output::text(match embeddings::embed(&vec![text; count]) {
            Ok(vectors) => format!("{model}: {vectors:?}"),
            Err(error) => format!("{model}: {}: {}", error.code, error.message),
        }))
    }
}

/// Sends as many texts as it can.
pub struct Flood;

impl Tool for Flood {
    const NAME: &str = "flood";
    const DESCRIPTION: &str = "Has vectors made until that is refused.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = Texts;

    fn call(Texts { text, count }: Texts, _call: &Call) -> Result<Output, Failure> {
        let texts = vec![text; count];
        for round in 0.. {
            if let Err(error) = embeddings::embed(&texts) {
                return Ok(Output::text(format!("{}: {}", round * count, error.code)));
            }
        }
        Ok(Output::text("endless"))
    }
}
