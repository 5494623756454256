//! Writes requests of OpenAI's Chat Completions.

use crate::body::{Writer, object};
use crate::turn::{Block, CallResult, ModelAnswer, Part, ThinkingLevel, Turn, TurnMessage};
use crate::wire::{
    CallIds, Returned, WireFormat, WireOptions, WireRequest, arguments_object, has_image,
    joined_text, write_configured_fields,
};

const FORMAT: WireFormat = WireFormat::Chat;

/// Fields that the configuration can't set.
const RESERVED_FIELDS: [&str; 5] = ["messages", "model", "stream", "stream_options", "tools"];

pub(super) fn request(turn: &Turn, options: &WireOptions) -> WireRequest {
    let body = object(|body| {
        body.field("model", &turn.model);
        body.field("stream", &true);
        body.raw("stream_options", r#"{"include_usage":true}"#);
        let max = if options.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        body.optional_field(max, turn.max_output.as_ref());
        match &turn.thinking {
            ThinkingLevel::Off => body.field("reasoning_effort", "none"),
            ThinkingLevel::Effort(effort) => body.field("reasoning_effort", effort),
            ThinkingLevel::Usual | ThinkingLevel::Tokens(_) => {}
        }
        if let Some(output) = &turn.output_schema {
            body.object("response_format", |format| {
                format.field("type", "json_schema");
                format.object("json_schema", |schema| {
                    schema.field("name", &output.name);
                    schema.field("strict", &true);
                    schema.raw("schema", output.schema.get());
                });
            });
        }
        if turn.forbid_calls && !turn.tools.is_empty() {
            body.field("tool_choice", "none");
        }
        write_configured_fields(body, options, &RESERVED_FIELDS);
        write_tools(body, turn);
        let mut call_ids = CallIds::default();
        body.array("messages", |messages| {
            if !turn.system.is_empty() {
                messages.object_item(|message| {
                    message.field("role", "system");
                    message.field("content", &turn.system);
                });
            }
            for message in &turn.messages {
                call_ids.add_message(message, FORMAT, options);
                match message {
                    TurnMessage::User(content) => write_user(messages, content),
                    TurnMessage::Model(answer) => {
                        write_answer(messages, answer, options, &call_ids);
                    }
                    TurnMessage::Results(results) => write_results(messages, results, &call_ids),
                }
            }
        });
    });
    WireRequest { path: "/chat/completions", headers: Vec::new(), body }
}

pub(super) fn write_tools(body: &mut Writer<'_>, turn: &Turn) {
    if turn.tools.is_empty() {
        return;
    }
    body.array("tools", |tools| {
        for tool in &turn.tools {
            tools.object_item(|item| {
                item.field("type", "function");
                item.object("function", |function| {
                    function.field("name", &tool.name);
                    function.field("description", &tool.description);
                    function.raw("parameters", tool.schema.get());
                });
            });
        }
    });
}

fn write_user(messages: &mut Writer<'_>, content: &[Part]) {
    messages.object_item(|message| {
        message.field("role", "user");
        // Many small servers accept only a string as the content.
        if !has_image(content) {
            return message.field("content", &joined_text(content));
        }
        message.array("content", |parts| {
            for part in content {
                parts.object_item(|item| match part {
                    Part::Text(text) => {
                        item.field("type", "text");
                        item.field("text", text);
                    }
                    Part::Image { media_type, data } => {
                        item.field("type", "image_url");
                        item.object("image_url", |url| {
                            url.field("url", &format!("data:{media_type};base64,{data}"));
                        });
                    }
                });
            }
        });
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
        let has_calls = answer.calls().next().is_some();
        let content = returned.blocks().find_map(|(block, raw)| match block {
            // The JSON of the content may include thinking, so it isn't sent if thinking must be
            // left out.
            Block::Text { .. } if !options.drop_thinking => raw,
            _ => None,
        });
        if let Some(content) = content {
            message.fields_of(content);
        } else {
            let text = answer.text();
            if text.is_empty() && has_calls {
                message.raw("content", "null");
            } else {
                message.field("content", &text);
            }
        }
        for (block, raw) in returned.blocks() {
            if let (Block::Thinking { .. } | Block::Opaque(_), Some(raw)) = (block, raw) {
                message.fields_of(raw);
            }
        }
        if has_calls {
            message.array("tool_calls", |calls| {
                for (block, raw) in returned.blocks() {
                    match (block, raw) {
                        (Block::Call(_), Some(raw)) => calls.item(raw.get()),
                        (Block::Call(call), None) => calls.object_item(|item| {
                            item.field("id", call_ids.get(&call.id));
                            item.field("type", "function");
                            item.object("function", |function| {
                                function.field("name", &call.name);
                                function.field("arguments", &*arguments_object(&call.arguments));
                            });
                        }),
                        _ => {}
                    }
                }
            });
        }
    });
}

/// Writes each result as a message. Results can't have images in this format, so a user message
/// with all images follows.
fn write_results(messages: &mut Writer<'_>, results: &[CallResult], call_ids: &CallIds<'_>) {
    for result in results {
        messages.object_item(|message| {
            message.field("role", "tool");
            message.field("tool_call_id", call_ids.get(&result.call));
            message.field("content", &result_text(result));
        });
    }
    let images = image_parts(results);
    if !images.is_empty() {
        write_user(messages, &images);
    }
}

/// Returns the text of a result, or a short note if there is no text. Results can't have images in
/// this format.
pub(super) fn result_text(result: &CallResult) -> String {
    let text = joined_text(&result.content);
    if !text.is_empty() {
        text
    } else if has_image(&result.content) {
        "(the image follows)".to_owned()
    } else {
        "(no output)".to_owned()
    }
}

/// Returns the images of results. Before the images of each result is a text with the tool's name.
pub(super) fn image_parts(results: &[CallResult]) -> Vec<Part> {
    let mut parts = Vec::new();
    for result in results.iter().filter(|result| has_image(&result.content)) {
        parts.push(Part::Text(format!("Images of the result of `{}`:", result.name)));
        let images = result.content.iter().filter(|part| matches!(part, Part::Image { .. }));
        parts.extend(images.cloned());
    }
    parts
}
