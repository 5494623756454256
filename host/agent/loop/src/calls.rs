//! Finds the calls in a model's answer, native or written as text, and writes tools and results in
//! the form that the model reads.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::Definition;
use toolhold_models::{CallResult, ModelAnswer, ModelTool, Part, RawJson, TurnMessage};

use toolhold_text_calls::{
    CallForm, EarlierTexts, FindOptions, FormHint, OfferedTools, TextCall, find, shown_call,
    tool_result,
};

use crate::chosen::{CALL, CALL_TOOL, FIND, WrappedCallError, unwrapped};
use crate::context::COMPRESS;
use crate::conversation::Conversation;
use crate::events::text_of;
use crate::schemas::for_providers;
use crate::settings::AgentSettings;
use crate::think::Augmenter;

/// The text and the calls of an answer.
pub(crate) struct Wanted {
    /// The text, without the calls in it.
    pub(crate) text: String,
    pub(crate) calls: Vec<WantedCall>,
    /// A hint for the model, if it made no call.
    pub(crate) hint: Option<String>,
    /// The hint, worded for the person.
    pub(crate) notice: Option<String>,
}

/// A call as the model wrote it.
pub(crate) struct WantedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments, or the reason why they are invalid.
    pub(crate) arguments: Result<Value, ArgumentsError>,
    /// Whether the call needs approval if it acts, because the model may not have meant it.
    pub(crate) is_doubtful: bool,
}

/// A fault of the arguments that a model wrote.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentsError {
    #[error("the arguments aren't valid JSON: {0}")]
    Json(serde_json::Error),
    #[error("the arguments aren't a JSON object")]
    NotAnObject,
    #[error("the answer was cut in the middle of this call")]
    Cut,
    #[error(transparent)]
    Wrapped(#[from] WrappedCallError),
}

impl WantedCall {
    /// Replaces a call of `call_tool` with the inner call. All later checks see the inner tool.
    fn unwrapped(mut self) -> Self {
        if self.name != CALL_TOOL {
            return self;
        }
        let Ok(outer) = &self.arguments else { return self };
        match unwrapped(outer) {
            Ok((name, arguments)) => {
                self.name = name;
                self.arguments = Ok(arguments);
            }
            Err(error) => self.arguments = Err(error.into()),
        }
        self
    }
}

/// The rules and the state of finding calls in texts.
pub(crate) struct TextForms {
    /// The tools that may be called in text. `None`: the text has no calls.
    pub(crate) offered: Option<OfferedTools>,
    pub(crate) is_lenient: bool,
    pub(crate) is_local: bool,
    /// Whether the model made native calls in this session.
    pub(crate) used_native: bool,
    /// Whether a call in text wasn't made only because `lenient_models` doesn't name the model.
    pub(crate) lenient_helps: bool,
    /// The texts that the model has read.
    pub(crate) earlier: EarlierTexts,
}

impl TextForms {
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        let mut earlier = EarlierTexts::default();
        // The person accepted the project's instructions.
        earlier.add_message(&settings.system);
        Self {
            offered: None,
            is_lenient: settings.lenient_text,
            is_local: settings.is_local,
            used_native: false,
            lenient_helps: false,
            earlier,
        }
    }

    /// Offers the tools that may be called in texts.
    pub(crate) fn offer(&mut self, settings: &AgentSettings, tools: &[Arc<Definition>]) {
        self.is_lenient = settings.lenient_text;
        self.is_local = settings.is_local;
        if tools.is_empty() {
            self.offered = None;
            return;
        }
        let offered = OfferedTools::new(tools.iter().map(|tool| &**tool));
        // A model with native calls shows commands in blocks, and means no call.
        self.offered = Some(if settings.native_tools { offered.marked_only() } else { offered });
    }

    /// Finds the calls of an answer. `number`: the number of the answer's entry, for the IDs of
    /// calls in texts.
    pub(crate) fn wanted(&mut self, answer: &ModelAnswer, number: usize) -> Wanted {
        let native = answer.calls().map(|call| WantedCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: parse_arguments(&call.arguments),
            is_doubtful: false,
        });
        let calls: Vec<WantedCall> = native.map(WantedCall::unwrapped).collect();
        if !calls.is_empty() {
            self.used_native = true;
        }
        let text = answer.text();
        let offered = match &self.offered {
            Some(offered) if calls.is_empty() => offered,
            _ => return Wanted { text, calls, hint: None, notice: None },
        };

        let options = FindOptions {
            is_lenient: self.is_lenient,
            is_loopback: self.is_local,
            used_native_calls: self.used_native,
            earlier: Some(&self.earlier),
        };
        let found = find(&text, offered, &options);
        if let Some(FormHint::Json { lenient_helps: true, .. }) = found.hint {
            self.lenient_helps = true;
        }
        let mut hints: Vec<String> =
            found.rejected.iter().map(|rejected| rejected.why.clone()).collect();
        hints.extend(found.hint.iter().map(FormHint::for_model));

        let mut notice = found.hint.as_ref().and_then(FormHint::for_person);
        if found.calls.is_empty()
            && hints.is_empty()
            && let Some(tool) = shown_call(&text, offered)
        {
            notice = Some(format!("The model wrote a call of `{tool}` as text; no call was made."));
        }

        let mut text_calls = Vec::new();
        for (index, call) in found.calls.into_iter().enumerate() {
            text_calls.push(self.wanted_in_text(format!("{TEXT_CALL}{number}-{index}"), call));
        }
        Wanted {
            text: found.text_without_calls,
            calls: text_calls,
            hint: if hints.is_empty() { None } else { Some(hints.join("\n")) },
            notice,
        }
    }

    fn wanted_in_text(&self, id: String, call: TextCall) -> WantedCall {
        let wanted = WantedCall {
            id,
            name: call.name,
            arguments: Ok(call.arguments),
            is_doubtful: call.is_echo || call.form == CallForm::Json,
        };
        if wanted.name != CALL_TOOL {
            return wanted;
        }
        let mut inner = wanted.unwrapped();
        if let Ok(arguments) = &inner.arguments
            && is_echo(&self.earlier, &inner.name, arguments)
        {
            inner.is_doubtful = true;
        }
        inner
    }
}

/// Checks whether an earlier text has a call that the model didn't write as text itself.
pub(crate) fn is_echo(earlier: &EarlierTexts, name: &str, arguments: &Value) -> bool {
    let call = TextCall {
        name: name.to_owned(),
        arguments: arguments.clone(),
        form: CallForm::Json,
        is_offered: true,
        is_echo: false,
    };
    earlier.have(&call, None)
}

/// The prefix of the IDs of calls in texts.
const TEXT_CALL: &str = "text-";

/// Parses the arguments of a native call. An empty string and `null` mean that there are no
/// arguments. Some models encode the object twice.
fn parse_arguments(text: &str) -> Result<Value, ArgumentsError> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let value = match serde_json::from_str(text).map_err(ArgumentsError::Json)? {
        Value::String(encoded) => serde_json::from_str(&encoded).map_err(ArgumentsError::Json)?,
        value => value,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        _ => Err(ArgumentsError::NotAnObject),
    }
}

/// Returns the result of a call that can't be made.
pub(crate) fn invalid(error: impl std::error::Error) -> String {
    format!(
        "[tool_error]\ncategory: invalid_parameters\nerror: {error}\nsuggestion: Send the whole call again.\nretryable: false\n"
    )
}

/// Returns the tools as the provider gets them. The order is the order of the catalogue, and the
/// bytes are the same each time. `has_more`: whether `find_tools` can find other tools.
pub(crate) fn offered(
    settings: &AgentSettings,
    tools: &[Arc<Definition>],
    has_more: bool,
) -> Vec<ModelTool> {
    if !settings.native_tools {
        return Vec::new();
    }
    let augmenter = settings.thoughts.map(Augmenter::new);
    let compress = ModelTool {
        name: COMPRESS.to_owned(),
        description: "Summarises the older part of this conversation, to make room. Call it when much of that part no longer matters.".to_owned(),
        schema: RawJson::from_value(&json!({ "type": "object", "properties": {}, "additionalProperties": false })),
    };

    let mut model_tools: Vec<ModelTool> =
        tools.iter().filter_map(|tool| model_tool(tool, augmenter)).collect();
    model_tools.push(compress);
    if has_more {
        model_tools.extend(model_tool(&FIND, augmenter));
        model_tools.extend(model_tool(&CALL, augmenter));
    }
    model_tools
}

/// Returns a tool as the provider gets it. Returns `None` if providers don't accept the names of
/// its arguments.
fn model_tool(tool: &Definition, augmenter: Option<Augmenter>) -> Option<ModelTool> {
    let schema = match for_providers(&tool.input_schema) {
        Ok(schema) => schema,
        Err(error) => {
            tracing::warn!("`{}` isn't offered: {error}", tool.name);
            return None;
        }
    };
    let augmented = augmenter.and_then(|augmenter| augmenter.augment(&schema));
    Some(ModelTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: RawJson::from_value(augmented.as_ref().unwrap_or(&schema)),
    })
}

/// Returns the system text. The text includes the tools if the model calls them in text.
pub(crate) fn system_text(settings: &AgentSettings, forms: &TextForms) -> String {
    match &forms.offered {
        Some(offered) if !settings.native_tools => {
            format!("{}\n\n{}", settings.system, toolhold_text_calls::system_text(offered))
        }
        _ => settings.system.clone(),
    }
}

/// Returns the conversation as the provider gets it. Results of calls in text become text.
pub(crate) fn messages(conversation: &Conversation) -> Vec<TurnMessage> {
    // The ID of a call doesn't show this, because a server may choose any ID for native calls.
    let mut is_native = false;
    let mut messages: Vec<TurnMessage> = Vec::new();
    for message in conversation.messages() {
        let message = match message {
            TurnMessage::Model(answer) => {
                is_native = answer.calls().next().is_some();
                TurnMessage::Model(answer)
            }
            TurnMessage::Results(results) if !is_native => {
                TurnMessage::User(results.into_iter().flat_map(as_text).collect())
            }
            message => message,
        };
        match (messages.last_mut(), message) {
            // Models take turns.
            (Some(TurnMessage::User(known)), TurnMessage::User(parts)) => known.extend(parts),
            (_, message) => messages.push(message),
        }
    }
    messages
}

fn as_text(result: CallResult) -> Vec<Part> {
    let text = tool_result(&result.name, &text_of(&result.content));
    let images = result.content.into_iter().filter(|part| matches!(part, Part::Image { .. }));
    std::iter::once(Part::Text(text)).chain(images).collect()
}
