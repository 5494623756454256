//! The tools that the suite calls.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolhold_contract::{
    Body, BoxFuture, Call, Category, Content, Definition, Failure, Outcome, Output, Progress,
    ToolSource,
};
use toolhold_core::Annotations;

use crate::{PNG, WAV};

/// Reading tools, which need no approval.
const READING: [(&str, &str); 12] = [
    ("test_simple_text", "Answers with a text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with a sound"),
    ("test_embedded_resource", "Answers with a file"),
    ("test_multiple_content_types", "Answers with a text, an image and a file"),
    ("test_error_handling", "Fails"),
    ("test_tool_with_progress", "Tells three times how far it is"),
    ("test_logging_tool", "Answers with a text, and logs nothing to the client"),
    ("test_trigger_tool_change", "Puts a plugin into the plugin folder, or removes it"),
    ("json_schema_2020_12_tool", "Has a schema with everything in it"),
    ("failing_job", "Fails after a while"),
    ("protocol_error_job", "Comes to an error of the protocol after a while"),
];

/// Acting tools, which need approval: so the suite sees whether and how a person is asked.
const ACTING: [&str; 8] = [
    "test_elicitation",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

/// A tool whose argument the client repeats in a header.
const HEADER: &str = "test_header";

/// Answers at once.
const GREET: &str = "greet";

/// Waits for this number of seconds.
const SLOW: &str = "slow_compute";

/// Longer than a request is held open for a client that takes tasks.
const WHILE: Duration = Duration::from_secs(1);

/// The suite's tools, with a plugin that is added and removed.
pub(crate) struct Tools {
    /// A component.
    pub(crate) plugin: PathBuf,
    /// Its path in a watched folder.
    pub(crate) place: PathBuf,
}

impl ToolSource for Tools {
    fn name(&self) -> &str {
        "conformance"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let reading = Annotations {
            read_only: true,
            destructive: false,
            open_world: false,
            ..Annotations::default()
        };
        let anything = || json!({ "type": "object" });
        let reads = |name, description, schema| Definition {
            annotations: reading,
            ..Definition::new(name, description, schema)
        };
        let schema = |name| if name == "json_schema_2020_12_tool" { rich() } else { anything() };
        let header = json!({
            "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } }, "required": ["region"],
        });
        let reading =
            READING.into_iter().map(|(name, description)| reads(name, description, schema(name)));
        let acting = ACTING
            .into_iter()
            .map(|name| Definition::new(name, "Acts, so that it needs approval", anything()));
        let name = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
        let slow = json!({
            "type": "object", "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } }, "required": ["seconds"],
        });
        let others = [
            reads(HEADER, "Says its argument", header),
            reads(GREET, "Greets", name),
            reads(SLOW, "Takes its time", slow),
        ];
        reading.chain(acting).chain(others).map(Arc::new).collect()
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let part = |body, media_type: &str| Content {
                body,
                media_type: Some(media_type.to_owned()),
                meta: None,
            };
            let image = || part(Body::Bytes(PNG.into()), "image/png");
            let file = || part(Body::Bytes(b"{\"test\":\"data\"}".to_vec()), "application/json");
            let content = match call.tool.as_str() {
                "test_image_content" => vec![image()],
                "test_audio_content" => vec![part(Body::Bytes(WAV.into()), "audio/wav")],
                "test_embedded_resource" => vec![file()],
                "test_multiple_content_types" => {
                    vec![Content::text("Several kinds:"), image(), file()]
                }
                "test_error_handling" => {
                    return Err(Failure::new(Category::PermanentFailure, "it fails, as it has to"));
                }
                "test_tool_with_progress" => {
                    for third in 1..=3 {
                        let fraction = Some(f64::from(third) / 3.0);
                        call.events.progress(Progress {
                            fraction,
                            message: format!("{third} of 3"),
                            untrusted: false,
                        });
                    }
                    vec![Content::text("done")]
                }
                "test_trigger_tool_change" => vec![Content::text(self.change().map_err(failed)?)],
                GREET => vec![Content::text(format!(
                    "Hello, {}!",
                    call.arguments["name"].as_str().unwrap_or_default()
                ))],
                SLOW => {
                    wait(
                        &call,
                        Duration::from_secs_f64(
                            call.arguments["seconds"].as_f64().unwrap_or_default(),
                        ),
                    )
                    .await?;
                    vec![Content::text("computed")]
                }
                "failing_job" => {
                    wait(&call, WHILE).await?;
                    return Err(Failure::new(Category::PermanentFailure, "it fails, as it has to"));
                }
                "protocol_error_job" => {
                    wait(&call, WHILE).await?;
                    return Err(Failure::new(Category::ToolNotFound, "it is no tool any more"));
                }
                HEADER => {
                    vec![Content::text(call.arguments["region"].as_str().unwrap_or_default())]
                }
                _ => vec![Content::text("This is a simple text response for testing.")],
            };
            Ok(Output { content, ..Output::default() })
        })
    }
}

impl Tools {
    fn change(&self) -> std::io::Result<String> {
        if self.place.exists() {
            fs::remove_file(&self.place)?;
            return Ok("gone".to_owned());
        }
        let aside = self.place.with_extension("part");
        fs::copy(&self.plugin, &aside)?;
        fs::rename(&aside, &self.place)?;
        Ok("there".to_owned())
    }
}

/// Waits until the call is cancelled.
async fn wait(call: &Call, time: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(time, call.cancel.cancelled()).await {
        Ok(()) => Err(Failure::new(Category::Cancelled, "it was taken back")),
        Err(_) => Ok(()),
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::new(Category::PermanentFailure, error.to_string())
}

/// The schema that the suite looks for, keyword by keyword.
fn rich() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
