//! Writes requests in the format of Anthropic's Messages, with cache marks.

use crate::body::{Writer, object};
use crate::turn::{Block, ModelTool, Part, ThinkingLevel, Turn, TurnMessage};
use crate::wire::{
    Caching, CallIds, Returned, WireFormat, WireOptions, WireRequest, arguments_object,
    write_configured_fields,
};

const FORMAT: WireFormat = WireFormat::Messages;

/// The most tokens of an answer if the turn has no limit. The format requires a number.
const MAX_OUTPUT: u32 = 8192;

/// The tokens of the answer in addition to a thinking budget.
const ANSWER_ROOM: u32 = 4096;

/// The most new blocks after the end of the last request without a mark. The server looks for
/// cached blocks only in the 20 blocks before a mark.
const LOOK_BACK: usize = 18;

const CACHE_MARK: &str = r#"{"type":"ephemeral"}"#;

/// Fields that the configuration can't set.
const RESERVED_FIELDS: [&str; 7] =
    ["cache_control", "max_tokens", "messages", "model", "stream", "system", "tools"];

pub(super) fn request(turn: &Turn, options: &WireOptions) -> WireRequest {
    let body = object(|body| {
        body.field("model", &turn.model);
        body.field("max_tokens", &max_tokens(turn));
        body.field("stream", &true);
        write_thinking(body, turn);
        if turn.forbid_calls && !turn.tools.is_empty() {
            body.raw("tool_choice", r#"{"type":"none"}"#);
        }
        write_configured_fields(body, options, &RESERVED_FIELDS);
        if options.caching == Caching::Automatic {
            body.raw("cache_control", CACHE_MARK);
        }
        write_beginning(body, turn, options.caching != Caching::Off);
        // The messages come last, so that requests start with the same bytes, as the server's cache
        // requires.
        let marked = marked_messages(turn, options.caching);
        let mut call_ids = CallIds::default();
        body.array("messages", |messages| {
            for (index, message) in turn.messages.iter().enumerate() {
                call_ids.add_message(message, FORMAT, options);
                let is_marked = marked.contains(&Some(index));
                write_message(messages, message, options, &call_ids, is_marked);
            }
        });
    });
    let headers = vec![("anthropic-version", "2023-06-01")];
    WireRequest { path: "/messages", headers, body }
}

/// Returns the limit of the answer's tokens. The limit includes thinking, and leaves at least
/// [`ANSWER_ROOM`] tokens for the text after a thinking budget.
fn max_tokens(turn: &Turn) -> u32 {
    let wanted = turn.max_output.unwrap_or(MAX_OUTPUT);
    match turn.thinking {
        ThinkingLevel::Tokens(budget) => wanted.max(budget.saturating_add(ANSWER_ROOM)),
        _ => wanted,
    }
}

/// Writes the amount of thinking and the schema of the answer.
fn write_thinking(body: &mut Writer<'_>, turn: &Turn) {
    match &turn.thinking {
        ThinkingLevel::Usual => {}
        ThinkingLevel::Off => body.raw("thinking", r#"{"type":"disabled"}"#),
        ThinkingLevel::Effort(_) => {
            body.raw("thinking", r#"{"type":"adaptive","display":"summarized"}"#);
        }
        ThinkingLevel::Tokens(budget) => body.object("thinking", |thinking| {
            thinking.field("type", "enabled");
            thinking.field("budget_tokens", budget);
        }),
    }
    let effort = match &turn.thinking {
        ThinkingLevel::Effort(effort) => Some(effort),
        _ => None,
    };
    if effort.is_some() || turn.output_schema.is_some() {
        body.object("output_config", |config| {
            config.optional_field("effort", effort);
            if let Some(output) = &turn.output_schema {
                config.object("format", |format| {
                    format.field("type", "json_schema");
                    format.raw("schema", output.schema.get());
                });
            }
        });
    }
}

/// Writes the tools and the system text, which are the same in each request of a conversation. If
/// `has_mark` is true, the last of these parts gets a cache mark.
fn write_beginning(body: &mut Writer<'_>, turn: &Turn, has_mark: bool) {
    if !turn.tools.is_empty() {
        body.array("tools", |tools| {
            for (index, tool) in turn.tools.iter().enumerate() {
                // The last tool is the end if there is no system text.
                let is_end = turn.system.is_empty() && index + 1 == turn.tools.len();
                tools.object_item(|item| write_tool(item, tool, has_mark && is_end));
            }
        });
    }
    if !turn.system.is_empty() {
        body.array("system", |system| {
            system.object_item(|item| {
                item.field("type", "text");
                item.field("text", &turn.system);
                write_mark(item, has_mark);
            });
        });
    }
}

fn write_tool(item: &mut Writer<'_>, tool: &ModelTool, is_marked: bool) {
    item.field("name", &tool.name);
    item.field("description", &tool.description);
    item.raw("input_schema", tool.schema.get());
    write_mark(item, is_marked);
}

fn write_mark(item: &mut Writer<'_>, is_marked: bool) {
    if is_marked {
        item.raw("cache_control", CACHE_MARK);
    }
}

/// Returns the indexes of the messages whose last block gets a cache mark. The server caches a
/// request up to a mark.
///
/// With [`Caching::Marks`], the end of the last request and the end of this request get a mark.
/// With [`Caching::Automatic`], the server marks the end of this request, and looks for the end of
/// the last request only in the [`LOOK_BACK`] blocks before. If there are more new blocks, the end
/// of the last request gets a mark.
fn marked_messages(turn: &Turn, caching: Caching) -> [Option<usize>; 2] {
    let messages = &turn.messages;
    let last_answer = messages.iter().rposition(|message| matches!(message, TurnMessage::Model(_)));
    // The last request ended before the last answer.
    let last_request_end = last_answer.and_then(|answer| answer.checked_sub(1));
    match caching {
        Caching::Off => [None, None],
        Caching::Marks => [last_request_end, messages.len().checked_sub(1)],
        Caching::Automatic => {
            let new_blocks: usize = match last_answer {
                Some(answer) => messages[answer..].iter().map(count_blocks).sum(),
                None => 0,
            };
            if new_blocks > LOOK_BACK { [last_request_end, None] } else { [None, None] }
        }
    }
}

fn count_blocks(message: &TurnMessage) -> usize {
    match message {
        TurnMessage::User(content) => content.len(),
        TurnMessage::Model(answer) => answer.blocks.len(),
        TurnMessage::Results(results) => results.len(),
    }
}

fn write_message(
    messages: &mut Writer<'_>,
    message: &TurnMessage,
    options: &WireOptions,
    call_ids: &CallIds<'_>,
    is_marked: bool,
) {
    match message {
        TurnMessage::User(content) => write_content(messages, "user", |items| {
            write_parts(items, content, is_marked);
        }),
        TurnMessage::Results(results) if results.is_empty() => {}
        TurnMessage::Results(results) => write_content(messages, "user", |items| {
            for (index, result) in results.iter().enumerate() {
                items.object_item(|item| {
                    item.field("type", "tool_result");
                    item.field("tool_use_id", call_ids.get(&result.call));
                    item.array("content", |parts| write_parts(parts, &result.content, false));
                    if result.failed {
                        item.field("is_error", &true);
                    }
                    write_mark(item, is_marked && index + 1 == results.len());
                });
            }
        }),
        TurnMessage::Model(answer) => {
            let returned = Returned::new(answer, FORMAT, options);
            // The server refuses a message without content, or with only blank text.
            if returned.blocks().all(|(block, _)| is_blank(block)) {
                return write_content(messages, "assistant", |items| {
                    items.item(r#"{"type":"text","text":"(no answer)"}"#);
                });
            }
            write_content(messages, "assistant", |items| {
                for (block, raw) in returned.blocks().filter(|(block, _)| !is_blank(block)) {
                    match (block, raw) {
                        (_, Some(raw)) => items.item(raw.get()),
                        (Block::Call(call), None) => items.object_item(|item| {
                            item.field("type", "tool_use");
                            item.field("id", call_ids.get(&call.id));
                            item.field("name", &call.name);
                            item.raw("input", &arguments_object(&call.arguments));
                        }),
                        (Block::Text { text, .. }, None) => {
                            items.object_item(|item| write_text(item, text, false));
                        }
                        _ => {}
                    }
                }
            });
        }
    }
}

/// Checks for a blank text, which the server refuses.
fn is_blank(block: &Block) -> bool {
    matches!(block, Block::Text { text, .. } if text.trim().is_empty())
}

fn write_content(messages: &mut Writer<'_>, role: &str, fill: impl FnOnce(&mut Writer<'_>)) {
    messages.object_item(|message| {
        message.field("role", role);
        message.array("content", fill);
    });
}

fn write_text(item: &mut Writer<'_>, text: &str, is_marked: bool) {
    item.field("type", "text");
    item.field("text", text);
    write_mark(item, is_marked);
}

fn is_shown(part: &Part) -> bool {
    !matches!(part, Part::Text(text) if text.trim().is_empty())
}

/// Writes the parts that have content. If `is_marked` is true, the last written part gets a cache
/// mark.
fn write_parts(items: &mut Writer<'_>, content: &[Part], is_marked: bool) {
    let last = content.iter().rposition(is_shown);
    if last.is_none() {
        items.object_item(|item| write_text(item, "(no output)", is_marked));
    }
    for (index, part) in content.iter().enumerate().filter(|(_, part)| is_shown(part)) {
        let has_mark = is_marked && Some(index) == last;
        items.object_item(|item| match part {
            Part::Text(text) => write_text(item, text, has_mark),
            Part::Image { media_type, data } => {
                item.field("type", "image");
                item.object("source", |source| {
                    source.field("type", "base64");
                    source.field("media_type", media_type);
                    source.field("data", data);
                });
                write_mark(item, has_mark);
            }
        });
    }
}
