//! Ollama's chat API, whose answers have one JSON value per line.

use crate::assembly::{Assembly, short_line};
use crate::body::{Writer, object};
use crate::raw::Fields;
use crate::turn::{
    Block, CallResult, FinishReason, ModelAnswer, ModelEvent, Part, ThinkingLevel, TokenUsage,
    Turn, TurnMessage,
};
use crate::wire::chat_request::{image_parts, result_text, write_tools};
use crate::wire::delta::DeltaMessage;
use crate::wire::{
    CallIds, Reader, Returned, WireError, WireFormat, WireOptions, WireRequest, arguments_object,
    joined_text, server_error, write_configured_fields,
};

const FORMAT: WireFormat = WireFormat::Ollama;

/// Fields that the configuration can't set.
const RESERVED_FIELDS: [&str; 4] = ["messages", "model", "stream", "tools"];

pub(super) fn request(turn: &Turn, options: &WireOptions) -> WireRequest {
    let body = object(|body| {
        body.field("model", &turn.model);
        body.field("stream", &true);
        // Without these fields, the server silently removes the start of a long conversation.
        body.field("truncate", &false);
        body.field("shift", &false);
        match &turn.thinking {
            ThinkingLevel::Usual => {}
            ThinkingLevel::Off => body.field("think", &false),
            ThinkingLevel::Effort(effort) => body.field("think", effort),
            ThinkingLevel::Tokens(_) => body.field("think", &true),
        }
        if let Some(output) = &turn.output_schema {
            body.raw("format", output.schema.get());
        }
        if turn.max_output.is_some() || options.context.is_some() {
            body.object("options", |fields| {
                fields.optional_field("num_predict", turn.max_output.as_ref());
                fields.optional_field("num_ctx", options.context.as_ref());
            });
        }
        write_configured_fields(body, options, &RESERVED_FIELDS);
        // Leaving out the tools is the only way to forbid calls in this API.
        if !turn.forbid_calls {
            write_tools(body, turn);
        }
        let mut call_ids = CallIds::default();
        body.array("messages", |messages| {
            if !turn.system.is_empty() {
                write_texts(messages, "system", &turn.system, &[]);
            }
            for message in &turn.messages {
                call_ids.add_message(message, FORMAT, options);
                match message {
                    TurnMessage::User(content) => {
                        write_texts(messages, "user", &joined_text(content), content);
                    }
                    TurnMessage::Model(answer) => {
                        write_answer(messages, answer, options, &call_ids);
                    }
                    TurnMessage::Results(results) => write_results(messages, results, &call_ids),
                }
            }
        });
    });
    WireRequest { path: "/api/chat", headers: Vec::new(), body }
}

/// Writes a message with `text` and the images in `parts`. Texts in `parts` are ignored.
fn write_texts(messages: &mut Writer<'_>, role: &str, text: &str, parts: &[Part]) {
    messages.object_item(|message| {
        message.field("role", role);
        message.field("content", text);
        let mut images: Vec<&str> = Vec::new();
        for part in parts {
            if let Part::Image { data, .. } = part {
                images.push(data);
            }
        }
        if !images.is_empty() {
            message.field("images", &images);
        }
    });
}

fn write_answer(
    messages: &mut Writer<'_>,
    answer: &ModelAnswer,
    options: &WireOptions,
    call_ids: &CallIds<'_>,
) {
    let returned = Returned::new(answer, FORMAT, options);
    messages.object_item(|message| {
        message.field("role", "assistant");
        message.field("content", &answer.text());
        for (block, raw) in returned.blocks() {
            if let (Block::Thinking { .. } | Block::Opaque(_), Some(raw)) = (block, raw) {
                message.fields_of(raw);
            }
        }
        if answer.calls().next().is_some() {
            message.array("tool_calls", |calls| write_calls(calls, &returned, call_ids));
        }
    });
}

fn write_calls(calls: &mut Writer<'_>, returned: &Returned<'_>, call_ids: &CallIds<'_>) {
    for (block, raw) in returned.blocks() {
        let Block::Call(call) = block else { continue };
        if let Some(raw) = raw {
            calls.item(raw.get());
            continue;
        }
        calls.object_item(|item| {
            item.field("id", call_ids.get(&call.id));
            item.object("function", |function| {
                function.field("name", &call.name);
                function.raw("arguments", &arguments_object(&call.arguments));
            });
        });
    }
}

/// Writes each result as a message. Results can't have images in this format, so a user message
/// with all images follows.
fn write_results(messages: &mut Writer<'_>, results: &[CallResult], call_ids: &CallIds<'_>) {
    for result in results {
        messages.object_item(|message| {
            message.field("role", "tool");
            message.field("tool_name", &result.name);
            message.field("tool_call_id", call_ids.get(&result.call));
            message.field("content", &result_text(result));
        });
    }
    let images = image_parts(results);
    if !images.is_empty() {
        write_texts(messages, "user", &joined_text(&images), &images);
    }
}

#[derive(Debug)]
pub(super) struct Ollama {
    message: DeltaMessage,
}

impl Default for Ollama {
    fn default() -> Self {
        Self { message: DeltaMessage::with_whole_calls() }
    }
}

impl Reader for Ollama {
    /// Reads one event of the stream. Events have no names in this format.
    fn read(
        &mut self,
        _name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if fields.raw("error").is_some() {
            return Err(server_error(fields));
        }
        assembly.read_model(fields);
        if let Some(message) = fields.object("message") {
            self.message.add(&message, assembly, events)?;
        }
        if fields.is_true("done") {
            assembly.is_done = true;
            assembly.stop = Some(match fields.nonempty_text("done_reason").as_deref() {
                None | Some("stop") => FinishReason::End,
                Some("length") => FinishReason::Length,
                Some(other) => FinishReason::Other(short_line(other)),
            });
            assembly.usage = TokenUsage {
                input: fields.number("prompt_eval_count"),
                output: fields.number("eval_count"),
                ..TokenUsage::default()
            };
        }
        Ok(())
    }

    /// Ends the answer, and returns its blocks. Fails if the answer is incomplete.
    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError> {
        if !assembly.is_done {
            return Err(WireError::Cut);
        }
        std::mem::take(&mut self.message).finish(assembly, events)
    }
}
