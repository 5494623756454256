//! Writes requests for Ollama's chat API and reads its answers, with one JSON value per line.

use crate::assembly::{Assembly, word};
use crate::body::{Writer, object};
use crate::raw::Fields;
use crate::turn::{
    Block, CallResult, FinishReason, ModelAnswer, ModelEvent, Part, ThinkingLevel, TokenUsage,
    Turn, TurnMessage,
};
use crate::wire::chat_request::{image_parts, result_text, write_tools};
use crate::wire::delta::DeltaMessage;
use crate::wire::{
    CallNames, Reader, Returned, WireError, WireFormat, WireOptions, WireRequest, arguments_object,
    joined_text, server_error, write_own_fields,
};

const FORMAT: WireFormat = WireFormat::Ollama;

/// Fields that can't be written from outside.
const RESERVED: [&str; 4] = ["messages", "model", "stream", "tools"];

pub(super) fn request(turn: &Turn, options: &WireOptions) -> WireRequest {
    let body = object(|body| {
        body.field("model", &turn.model);
        body.field("stream", &true);
        // By default, the server removes the start of a conversation that is too long, and doesn't
        // report an error.
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
                fields.maybe("num_predict", turn.max_output.as_ref());
                fields.maybe("num_ctx", options.context.as_ref());
            });
        }
        write_own_fields(body, options, &RESERVED);
        // Leaving the tools out is the only way to forbid calls.
        if !turn.forbid_calls {
            write_tools(body, turn);
        }
        let mut names = CallNames::default();
        body.array("messages", |messages| {
            if !turn.system.is_empty() {
                write_texts(messages, "system", &turn.system, &[]);
            }
            for message in &turn.messages {
                names.learn(message, FORMAT, options);
                match message {
                    TurnMessage::User(content) => {
                        write_texts(messages, "user", &joined_text(content), content);
                    }
                    TurnMessage::Model(answer) => write_answer(messages, answer, options, &names),
                    TurnMessage::Results(results) => write_results(messages, results, &names),
                }
            }
        });
    });
    WireRequest { path: "/api/chat", headers: Vec::new(), body }
}

/// Writes a message with a text and the images among some parts.
fn write_texts(messages: &mut Writer<'_>, role: &str, text: &str, parts: &[Part]) {
    messages.object_item(|message| {
        message.field("role", role);
        message.field("content", text);
        let images: Vec<&str> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Image { data, .. } => Some(data.as_str()),
                Part::Text(_) => None,
            })
            .collect();
        if !images.is_empty() {
            message.field("images", &images);
        }
    });
}

fn write_answer(
    messages: &mut Writer<'_>,
    answer: &ModelAnswer,
    options: &WireOptions,
    names: &CallNames<'_>,
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
            message.array("tool_calls", |calls| {
                for (block, raw) in returned.blocks() {
                    match (block, raw) {
                        (Block::Call(_), Some(raw)) => calls.item(raw.get()),
                        (Block::Call(call), None) => calls.object_item(|item| {
                            item.field("id", names.get(&call.id));
                            item.object("function", |function| {
                                function.field("name", &call.name);
                                function.raw("arguments", &arguments_object(&call.arguments));
                            });
                        }),
                        _ => {}
                    }
                }
            });
        }
    });
}

fn write_results(messages: &mut Writer<'_>, results: &[CallResult], names: &CallNames<'_>) {
    for result in results {
        messages.object_item(|message| {
            message.field("role", "tool");
            message.field("tool_name", &result.name);
            message.field("tool_call_id", names.get(&result.call));
            message.field("content", &result_text(result));
        });
    }
    let images = image_parts(results);
    if !images.is_empty() {
        write_texts(messages, "user", &joined_text(&images), &images);
    }
}

/// An answer that is read.
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
            assembly.stop = Some(match fields.some_text("done_reason").as_deref() {
                None | Some("stop") => FinishReason::End,
                Some("length") => FinishReason::Length,
                Some(other) => FinishReason::Other(word(other)),
            });
            assembly.usage = TokenUsage {
                input: fields.number("prompt_eval_count"),
                output: fields.number("eval_count"),
                ..TokenUsage::default()
            };
        }
        Ok(())
    }

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
