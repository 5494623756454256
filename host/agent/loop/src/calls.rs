//! Finds the calls in a model's answer, native or written as text. Writes tools and results in the
//! form that the model reads.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_core::Definition;
use toolhold_models::{CallResult, ModelAnswer, ModelTool, Part, RawJson, TurnMessage};

use toolhold_text_calls::{
    CallForm, EarlierTexts, FindOptions, FormHint, OfferedTools, TextCall, find, shown_call,
    tool_result,
};

use crate::chosen::{CALL_DEFINITION, CALL_TOOL, FIND_DEFINITION, WrappedCallError, inner_call};
use crate::context::COMPRESS_TOOL;
use crate::conversation::Conversation;
use crate::events::text_of;
use crate::schemas::for_providers;
use crate::settings::AgentSettings;
use crate::think::Augmenter;

pub(crate) struct Wanted {
    /// The text of the answer, without calls.
    pub(crate) text: String,
    pub(crate) calls: Vec<WantedCall>,
    /// A hint for the model after text that looks like a call but isn't one.
    pub(crate) hint: Option<String>,
    /// A notice for the person about text that looks like a call.
    pub(crate) notice: Option<String>,
}

pub(crate) struct WantedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Result<Value, ArgumentsError>,
    /// Whether the model may not have meant the call. A doubtful call that acts needs approval.
    pub(crate) is_doubtful: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentsError {
    #[error("the arguments aren't valid JSON: {0}")]
    Json(serde_json::Error),
    #[error("the arguments aren't a JSON object")]
    NotAnObject,
    #[error("the answer ended in the middle of this call")]
    Cut,
    #[error(transparent)]
    Wrapped(#[from] WrappedCallError),
}

impl WantedCall {
    /// Returns the inner call of `call_tool`, or `self` for any other tool.
    fn unwrap_call(mut self) -> Self {
        if self.name != CALL_TOOL {
            return self;
        }
        let Ok(outer) = &self.arguments else { return self };
        match inner_call(outer) {
            Ok((name, arguments)) => {
                self.name = name;
                self.arguments = Ok(arguments);
            }
            Err(error) => self.arguments = Err(error.into()),
        }
        self
    }
}

/// The rules and the state for finding calls in texts.
pub(crate) struct TextForms {
    /// The tools that may be called in text, or `None` if calls in text are ignored.
    pub(crate) offered: Option<OfferedTools>,
    pub(crate) is_lenient: bool,
    pub(crate) is_local: bool,
    pub(crate) used_native: bool,
    /// Whether a call in text was ignored only because `lenient_models` doesn't name the model.
    pub(crate) lenient_helps: bool,
    /// The texts that the model has read. A call that appears in such a text may be a copy.
    pub(crate) earlier: EarlierTexts,
}

impl TextForms {
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        let mut earlier = EarlierTexts::default();
        // The system text contains the project's instructions. The person accepted them, so a call
        // in them counts like a call in a message of the person.
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

    /// Sets the tools that the model may call in its text.
    pub(crate) fn offer(&mut self, settings: &AgentSettings, tools: &[Arc<Definition>]) {
        self.is_lenient = settings.lenient_text;
        self.is_local = settings.is_local;
        if tools.is_empty() {
            self.offered = None;
            return;
        }
        let offered = OfferedTools::new(tools.iter().map(|tool| &**tool));
        // A model with native calls often shows commands in code blocks as examples. So only an
        // explicit form, such as a `tool_call` block, counts as a call of such a model.
        let accepted = if settings.native_tools { offered.explicit_only() } else { offered };
        self.offered = Some(accepted);
    }

    /// Finds the calls of an answer. `number` is the number of the answer's entry. It becomes part
    /// of the IDs of calls in text, which have no IDs of their own.
    pub(crate) fn wanted(&mut self, answer: &ModelAnswer, number: usize) -> Wanted {
        let native = answer.calls().map(|call| WantedCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: parse_arguments(&call.arguments),
            is_doubtful: false,
        });
        let calls: Vec<WantedCall> = native.map(WantedCall::unwrap_call).collect();
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
        let is_only_text = found.calls.is_empty() && hints.is_empty();
        if is_only_text && let Some(tool) = shown_call(&text, offered) {
            notice = Some(format!(
                "The model wrote a call of `{tool}` as text, so the tool was not called."
            ));
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

    /// Returns a call that the model wrote in its text, with an ID. Plain JSON and possible copies
    /// of earlier texts are doubtful.
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
        // An earlier text may contain only the inner call, so look for this one, too.
        let mut inner = wanted.unwrap_call();
        if let Ok(arguments) = &inner.arguments
            && is_echo(&self.earlier, &inner.name, arguments)
        {
            inner.is_doubtful = true;
        }
        inner
    }
}

/// Checks whether a text that the model has read contains the call.
pub(crate) fn is_echo(earlier: &EarlierTexts, name: &str, arguments: &Value) -> bool {
    let call = TextCall {
        name: name.to_owned(),
        arguments: arguments.clone(),
        // Calls in this form are also compared with messages of the person.
        form: CallForm::Json,
        is_offered: true,
        is_echo: false,
    };
    earlier.contain(&call, None)
}

const TEXT_CALL: &str = "text-";

/// Parses the arguments of a native call. An empty string and `null` mean no arguments. Some models
/// encode the object as a JSON string.
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

pub(crate) fn invalid(error: impl std::error::Error) -> String {
    format!(
        "[tool_error]\ncategory: invalid_parameters\nerror: {error}\nsuggestion: Send the whole call again.\nretryable: false\n"
    )
}

/// Returns the tools in the provider's form: `tools` and `compress_context`. If the host has tools
/// that aren't in `tools` (`has_more`), adds `find_tools` and `call_tool`. Returns no tools if the
/// model has no native calls.
pub(crate) fn offered(
    settings: &AgentSettings,
    tools: &[Arc<Definition>],
    has_more: bool,
) -> Vec<ModelTool> {
    if !settings.native_tools {
        return Vec::new();
    }
    let augmenter = settings.thoughts.map(Augmenter::new);
    let mut model_tools: Vec<ModelTool> =
        tools.iter().filter_map(|tool| model_tool(tool, augmenter)).collect();
    model_tools.push(compress_tool());
    if has_more {
        model_tools.extend(model_tool(&FIND_DEFINITION, augmenter));
        model_tools.extend(model_tool(&CALL_DEFINITION, augmenter));
    }
    model_tools
}

fn compress_tool() -> ModelTool {
    ModelTool {
        name: COMPRESS_TOOL.to_owned(),
        description:
            "Summarises the older part of this conversation, to make room. Call this tool when \
             much of the older part no longer matters."
                .to_owned(),
        schema: RawJson::from_value(
            &json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        ),
    }
}

/// Returns a tool in the provider's form, or `None` if providers refuse the names of its arguments.
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

/// Returns the system text. The text also describes the tools if the model has no native calls.
pub(crate) fn system_text(settings: &AgentSettings, forms: &TextForms) -> String {
    match &forms.offered {
        Some(offered) if !settings.native_tools => {
            format!("{}\n\n{}", settings.system, toolhold_text_calls::system_text(offered))
        }
        _ => settings.system.clone(),
    }
}

/// Returns the conversation in the provider's form. Results of calls in text become text.
pub(crate) fn messages(conversation: &Conversation) -> Vec<TurnMessage> {
    // An ID doesn't show whether a call is native, because a server may choose any ID, even
    // `text-1`. So results count as native if the answer before them has native calls.
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
            // Providers refuse two messages of the person in a row.
            (Some(TurnMessage::User(last_parts)), TurnMessage::User(parts)) => {
                last_parts.extend(parts);
            }
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
