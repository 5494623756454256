//! Writes requests in the format of OpenAI's Responses.

use crate::body::{Writer, object};
use crate::turn::{Block, CallResult, Part, ThinkingLevel, Turn, TurnMessage};
use crate::wire::chat_request::result_text;
use crate::wire::{
    CallIds, Returned, WireFormat, WireOptions, WireRequest, arguments_object, has_image,
    write_configured_fields,
};

const FORMAT: WireFormat = WireFormat::Responses;

/// Fields that the configuration can't set. Some fields make the server store the conversation.
const RESERVED_FIELDS: [&str; 9] = [
    "conversation",
    "include",
    "input",
    "instructions",
    "model",
    "previous_response_id",
    "store",
    "stream",
    "tools",
];

pub(super) fn request(turn: &Turn, options: &WireOptions) -> WireRequest {
    let body = object(|body| {
        body.field("model", &turn.model);
        body.field("stream", &true);
        // The server stores nothing, so the answer has to contain the thinking, in encrypted form.
        body.field("store", &false);
        body.raw("include", r#"["reasoning.encrypted_content"]"#);
        body.optional_field("max_output_tokens", turn.max_output.as_ref());
        match &turn.thinking {
            ThinkingLevel::Off => body.raw("reasoning", r#"{"effort":"none"}"#),
            ThinkingLevel::Effort(effort) => body.object("reasoning", |reasoning| {
                reasoning.field("effort", effort);
                reasoning.field("summary", "auto");
            }),
            ThinkingLevel::Usual | ThinkingLevel::Tokens(_) => {}
        }
        if let Some(output) = &turn.output_schema {
            body.object("text", |text| {
                text.object("format", |format| {
                    format.field("type", "json_schema");
                    format.field("name", &output.name);
                    format.field("strict", &true);
                    format.raw("schema", output.schema.get());
                });
            });
        }
        if turn.forbid_calls && !turn.tools.is_empty() {
            body.field("tool_choice", "none");
        }
        write_configured_fields(body, options, &RESERVED_FIELDS);
        if !turn.tools.is_empty() {
            body.array("tools", |tools| {
                for tool in &turn.tools {
                    tools.object_item(|item| {
                        item.field("type", "function");
                        item.field("name", &tool.name);
                        item.field("description", &tool.description);
                        item.raw("parameters", tool.schema.get());
                        // A strict schema would have to name every field as required.
                        item.field("strict", &false);
                    });
                }
            });
        }
        if !turn.system.is_empty() {
            body.field("instructions", &turn.system);
        }
        let mut call_ids = CallIds::default();
        body.array("input", |input| {
            for message in &turn.messages {
                call_ids.add_message(message, FORMAT, options);
                write_message(input, message, options, &call_ids);
            }
        });
    });
    WireRequest { path: "/responses", headers: Vec::new(), body }
}

fn write_message(
    input: &mut Writer<'_>,
    message: &TurnMessage,
    options: &WireOptions,
    call_ids: &CallIds<'_>,
) {
    match message {
        TurnMessage::User(content) => input.object_item(|item| {
            item.field("type", "message");
            item.field("role", "user");
            item.array("content", |parts| write_parts(parts, content));
        }),
        TurnMessage::Results(results) => {
            for result in results {
                write_result(input, result, call_ids);
            }
        }
        TurnMessage::Model(answer) => {
            for (block, raw) in Returned::new(answer, FORMAT, options).blocks() {
                match (block, raw) {
                    (_, Some(raw)) => input.item(raw.get()),
                    (Block::Text { text, .. }, None) if !text.is_empty() => {
                        input.object_item(|item| {
                            item.field("type", "message");
                            item.field("role", "assistant");
                            item.array("content", |parts| {
                                parts.object_item(|part| {
                                    part.field("type", "output_text");
                                    part.field("text", text);
                                    part.raw("annotations", "[]");
                                });
                            });
                        });
                    }
                    (Block::Call(call), None) => input.object_item(|item| {
                        item.field("type", "function_call");
                        item.field("call_id", call_ids.get(&call.id));
                        item.field("name", &call.name);
                        item.field("arguments", &*arguments_object(&call.arguments));
                    }),
                    _ => {}
                }
            }
        }
    }
}

/// Writes a result as text, or as a list of parts if the result has images.
fn write_result(input: &mut Writer<'_>, result: &CallResult, call_ids: &CallIds<'_>) {
    input.object_item(|item| {
        item.field("type", "function_call_output");
        item.field("call_id", call_ids.get(&result.call));
        if has_image(&result.content) {
            item.array("output", |parts| write_parts(parts, &result.content));
        } else {
            item.field("output", &result_text(result));
        }
    });
}

fn write_parts(parts: &mut Writer<'_>, content: &[Part]) {
    for part in content {
        parts.object_item(|item| match part {
            Part::Text(text) => {
                item.field("type", "input_text");
                item.field("text", text);
            }
            Part::Image { media_type, data } => {
                item.field("type", "input_image");
                item.field("image_url", &format!("data:{media_type};base64,{data}"));
            }
        });
    }
}
