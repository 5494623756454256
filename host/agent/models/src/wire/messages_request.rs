//! Writes requests for Anthropic's Messages API, with cache marks.

use crate::body::{Writer, object};
use crate::turn::{Block, ModelTool, Part, ThinkingLevel, Turn, TurnMessage};
use crate::wire::{
    Caching, CallNames, Returned, WireFormat, WireOptions, WireRequest, arguments_object,
    write_own_fields,
};

const FORMAT: WireFormat = WireFormat::Messages;

/// The most tokens of an answer if the turn has no limit. The format requires a number, and the
/// models that are in use allow this number.
const MAX_OUTPUT: u32 = 8192;

/// The tokens for the answer next to a thinking budget.
const ANSWER_ROOM: u32 = 4096;

/// The most new blocks since the last request for which the end of that request needs no mark. The
/// server looks for cached blocks in the 20 blocks before a mark.
const LOOK_BACK: usize = 18;

const MARK: &str = r#"{"type":"ephemeral"}"#;

/// Fields that can't be written from outside.
const RESERVED: [&str; 7] =
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
        write_own_fields(body, options, &RESERVED);
        if options.caching == Caching::Automatic {
            body.raw("cache_control", MARK);
        }
        write_beginning(body, turn, options.caching != Caching::Off);
        // The messages are last, because everything before them is the same in the next turn.
        let marked = marked_messages(turn, options.caching);
        let mut names = CallNames::default();
        body.array("messages", |messages| {
            for (index, message) in turn.messages.iter().enumerate() {
                names.learn(message, FORMAT, options);
                let is_marked = marked.contains(&Some(index));
                write_message(messages, message, options, &names, is_marked);
            }
        });
    });
    let headers = vec![("anthropic-version", "2023-06-01")];
    WireRequest { path: "/messages", headers, body }
}

fn max_tokens(turn: &Turn) -> u32 {
    let max = turn.max_output.unwrap_or(MAX_OUTPUT);
    match turn.thinking {
        // The budget is part of `max`, so `max` must also have room for the answer.
        ThinkingLevel::Tokens(budget) => max.max(budget.saturating_add(ANSWER_ROOM)),
        _ => max,
    }
}

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
            config.maybe("effort", effort);
            if let Some(output) = &turn.output_schema {
                config.object("format", |format| {
                    format.field("type", "json_schema");
                    format.raw("schema", output.schema.get());
                });
            }
        });
    }
}

/// Writes the tools and the system text. The mark is at their end, which never moves.
fn write_beginning(body: &mut Writer<'_>, turn: &Turn, has_mark: bool) {
    if !turn.tools.is_empty() {
        body.array("tools", |tools| {
            for (index, tool) in turn.tools.iter().enumerate() {
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
        item.raw("cache_control", MARK);
    }
}

/// Returns the messages whose last block gets a cache mark.
///
/// With [`Caching::Marks`], these are the ends of the last request and of this request. With
/// [`Caching::Automatic`], the server marks the end of this request. The end of the last request
/// gets a mark only if so many new blocks follow that the server would not find it.
fn marked_messages(turn: &Turn, caching: Caching) -> [Option<usize>; 2] {
    let messages = &turn.messages;
    let last_answer = messages.iter().rposition(|message| matches!(message, TurnMessage::Model(_)));
    let last_request_end = last_answer.and_then(|answer| answer.checked_sub(1));
    match caching {
        Caching::Off => [None, None],
        Caching::Marks => [last_request_end, messages.len().checked_sub(1)],
        Caching::Automatic => {
            let new_messages = last_answer.map_or(&[][..], |answer| &messages[answer..]);
            let new_blocks: usize = new_messages.iter().map(count_blocks).sum();
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
    names: &CallNames<'_>,
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
                    item.field("tool_use_id", names.get(&result.call));
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
            // The server refuses a message without content.
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
                            item.field("id", names.get(&call.id));
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

/// Checks whether a block is a text without content. The server would refuse such a block.
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

fn write_parts(items: &mut Writer<'_>, content: &[Part], is_marked: bool) {
    let last = content.iter().rposition(is_shown);
    if last.is_none() {
        items.object_item(|item| write_text(item, "(no output)", is_marked));
    }
    for (index, part) in content.iter().enumerate().filter(|(_, part)| is_shown(part)) {
        let is_marked = is_marked && Some(index) == last;
        items.object_item(|item| match part {
            Part::Text(text) => write_text(item, text, is_marked),
            Part::Image { media_type, data } => {
                item.field("type", "image");
                item.object("source", |source| {
                    source.field("type", "base64");
                    source.field("media_type", media_type);
                    source.field("data", data);
                });
                write_mark(item, is_marked);
            }
        });
    }
}
