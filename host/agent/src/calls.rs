//! From an answer to calls, and from tools and results to what a model reads.

use std::sync::Arc;

use berth_core::Definition;
use berth_models::{ModelAnswer, ModelTool, RawJson, TurnMessage};
use serde_json::{Value, json};

use crate::context::COMPRESS;
use crate::conversation::{Conversation, Said};
use crate::settings::AgentSettings;
use crate::think::Augmenter;

/// What an answer says and wants.
pub(crate) struct Wanted {
    /// Its text, without the calls in it.
    pub(crate) text: String,
    pub(crate) calls: Vec<WantedCall>,
    /// What the person should know.
    pub(crate) notices: Vec<String>,
    /// What the model should know if it made no call.
    pub(crate) hint: Option<String>,
}

/// A call as the model wrote it.
pub(crate) struct WantedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments, or what is wrong with them.
    pub(crate) arguments: Result<Value, String>,
}

/// The calls of an answer.
pub(crate) fn wanted(
    answer: &ModelAnswer,
    settings: &AgentSettings,
    tools: &[Arc<Definition>],
    said: &[Said],
) -> Wanted {
    let native = answer.calls().map(|call| WantedCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: arguments(&call.arguments),
    });
    let calls: Vec<WantedCall> = native.collect();
    let _ = (settings, tools, said);
    Wanted { text: answer.text(), calls, notices: Vec::new(), hint: None }
}

/// The arguments of a native call. No text means none.
fn arguments(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("the arguments aren't a JSON object".to_owned()),
        Err(error) => Err(format!("the arguments aren't valid JSON: {error}")),
    }
}

/// What a model is told of a call that can't be made as it is.
pub(crate) fn invalid(why: &str) -> String {
    format!(
        "[tool_error]\ncategory: invalid_parameters\nerror: {why}\nsuggestion: Send the whole call again.\nretryable: false\n"
    )
}

/// The tools as the provider gets them: in the order of the catalogue, in the same bytes each time.
pub(crate) fn offered(settings: &AgentSettings, tools: &[Arc<Definition>]) -> Vec<ModelTool> {
    if !settings.native_tools {
        return Vec::new();
    }
    let augmenter = settings.thoughts.map(Augmenter::new);
    let tool = |tool: &Arc<Definition>| {
        let augmented =
            augmenter.as_ref().and_then(|augmenter| augmenter.augment(&tool.input_schema));
        ModelTool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            schema: RawJson::from_value(augmented.as_ref().unwrap_or(&tool.input_schema)),
        }
    };
    let compress = ModelTool {
        name: COMPRESS.to_owned(),
        description: "Summarises the older part of this conversation, to make room. Call it when much of it no longer matters.".to_owned(),
        schema: RawJson::from_value(&json!({ "type": "object", "properties": {}, "additionalProperties": false })),
    };
    tools.iter().map(tool).chain([compress]).collect()
}

/// The system text, with the tools if the model calls them in its text.
pub(crate) fn system_text(settings: &AgentSettings, tools: &[Arc<Definition>]) -> String {
    let _ = tools;
    settings.system.clone()
}

/// The conversation as the provider gets it.
pub(crate) fn messages(settings: &AgentSettings, conversation: &Conversation) -> Vec<TurnMessage> {
    let _ = settings;
    conversation.messages()
}
