//! Reads answers in the format of OpenAI's Responses. Items are sent back unchanged.

use serde_json::value::RawValue;

use crate::assembly::{Assembly, finish_call, short_line};
use crate::merged::Merged;
use crate::raw::{Fields, RawJson};
use crate::turn::{Block, FinishReason, ModelCall, ModelEvent, TokenUsage};
use crate::wire::{Reader, ServerError, WireError, arguments_of, server_error};

#[derive(Debug, Default)]
pub(super) struct Responses {
    items: Vec<Open>,
    refusal: String,
}

#[derive(Debug, Default)]
struct Open {
    index: u64,
    /// The last version of the item.
    raw: Option<RawJson>,
    /// Whether `raw` is complete. The first version of an item has no texts or arguments.
    is_whole: bool,
    text: String,
    thinking: String,
    arguments: String,
    has_call: bool,
    block: Option<Block>,
}

impl Reader for Responses {
    fn read(
        &mut self,
        name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let field = fields.text("type").unwrap_or_default();
        let kind = if field.is_empty() { name } else { &field };
        match kind {
            "response.output_item.added" => {
                if let Some(item) = fields.raw("item") {
                    self.begin(fields.number("output_index"), item, assembly, events)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = fields.raw("item") {
                    let open = self.open(fields.number("output_index"), assembly)?;
                    open.finish(item, assembly, events)?;
                }
            }
            "response.output_text.delta" => {
                let open = self.open(fields.number("output_index"), assembly)?;
                let more = fields.text("delta").unwrap_or_default();
                assembly.add_text(&mut open.text, &more, events)?;
            }
            "response.refusal.delta" => {
                let open = self.open(fields.number("output_index"), assembly)?;
                let more = fields.text("delta").unwrap_or_default();
                assembly.add_text(&mut open.text, &more, events)?;
                assembly.count_bytes(more.len())?;
                self.refusal.push_str(&more);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let open = self.open(fields.number("output_index"), assembly)?;
                let more = fields.text("delta").unwrap_or_default();
                assembly.add_thinking(&mut open.thinking, &more, events)?;
            }
            "response.reasoning_summary_part.added" => {
                let open = self.open(fields.number("output_index"), assembly)?;
                if !open.thinking.is_empty() {
                    assembly.add_thinking(&mut open.thinking, "\n\n", events)?;
                }
            }
            "response.function_call_arguments.delta" => {
                let open = self.open(fields.number("output_index"), assembly)?;
                let more = fields.text("delta").unwrap_or_default();
                assembly.add_arguments(&mut open.arguments, &more)?;
            }
            "response.completed" | "response.incomplete" | "response.done" | "response.failed" => {
                let response = fields.object("response").unwrap_or_default();
                self.end(kind, &response, assembly, events)?;
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                let response = fields.object("response").unwrap_or_default();
                assembly.read_model(&response);
            }
            "error" => return Err(server_error(fields)),
            // Other events repeat texts, or are about the server's own tools.
            _ => {
                // A gateway before the server sends errors without a type.
                if !kind.starts_with("response.") && fields.raw("error").is_some() {
                    return Err(server_error(fields));
                }
                // A server that doesn't stream sends a whole answer.
                if fields.text("object").as_deref() == Some("response") {
                    self.end("", fields, assembly, events)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the answer, and returns its blocks. Fails if the answer is incomplete.
    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError> {
        if !assembly.is_done || assembly.stop.is_none() {
            return Err(WireError::Cut);
        }
        if !self.refusal.is_empty() {
            assembly.stop = Some(FinishReason::Refused(short_line(&self.refusal)));
        }
        let mut blocks = Vec::new();
        for mut open in self.items.drain(..) {
            open.close(assembly, events)?;
            blocks.extend(open.block);
        }
        Ok(blocks)
    }
}

impl Responses {
    /// Returns the item with `index`, or the last item if `index` is `None`. If this item is
    /// missing or complete, adds a new item.
    fn open(
        &mut self,
        index: Option<u64>,
        assembly: &mut Assembly,
    ) -> Result<&mut Open, WireError> {
        let last_index = self.items.last().map(|open| open.index);
        let first_index = 0;
        let index = index.or(last_index).unwrap_or(first_index);
        let known_position = self.items.iter().rposition(|open| open.index == index);
        if let Some(position) = known_position
            && self.items[position].block.is_none()
        {
            return Ok(&mut self.items[position]);
        }
        assembly.begin_block()?;
        self.items.push(Open { index, ..Open::default() });
        let new_position = self.items.len() - 1;
        Ok(&mut self.items[new_position])
    }

    /// Starts an item. If `index` is `None`, the item gets the next index.
    fn begin(
        &mut self,
        index: Option<u64>,
        item: &RawValue,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let next_index = self.items.last().map_or(0, |open| open.index.saturating_add(1));
        let index = index.unwrap_or(next_index);
        let mut open = self.open(Some(index), assembly)?;
        if open.raw.is_some() {
            // The server repeated the index before the first item was complete.
            open.close(assembly, events)?;
            open = self.open(Some(index), assembly)?;
        }

        let fields = Fields::parse(item.get()).unwrap_or_default();
        open.begin_call(&fields, assembly, events)?;
        assembly.count_bytes(item.get().len())?;
        open.raw = Some(item.into());
        Ok(())
    }

    /// Reads the last event of the answer: the token counts, and the reason of the end. Fails if
    /// the event is an error.
    fn end(
        &mut self,
        kind: &str,
        response: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let status = response.text("status").unwrap_or_default();
        if kind == "response.failed" || status == "failed" || response.raw("error").is_some() {
            let error = ServerError::from_fields(response).unwrap_or_default();
            return Err(WireError::Server(error));
        }
        assembly.read_model(response);
        if let Some(usage) = response.object("usage") {
            assembly.usage = assembly.usage.updated(read_usage(&usage));
        }
        // Some servers send the items only with the last event.
        let has_no_block = self.items.iter().all(|open| open.block.is_none());
        if has_no_block {
            for (index, item) in response.items("output").into_iter().enumerate() {
                self.open(Some(index as u64), assembly)?.finish(item, assembly, events)?;
            }
        }
        assembly.stop = Some(finish_reason(kind, &status, response));
        assembly.is_done = true;
        Ok(())
    }
}

impl Open {
    fn finish(
        &mut self,
        item: &RawValue,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let fields = Fields::parse(item.get()).unwrap_or_default();
        self.begin_call(&fields, assembly, events)?;
        assembly.count_bytes(item.get().len())?;
        self.raw = Some(item.into());
        self.is_whole = true;
        self.close(assembly, events)
    }

    /// Starts the call of an item, if the item is a call that hasn't started.
    fn begin_call(
        &mut self,
        item: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let is_call = item.text("type").as_deref() == Some("function_call");
        if is_call && !self.has_call {
            self.has_call = true;
            assembly.begin_call(&item.text("name").unwrap_or_default(), events)?;
        }
        Ok(())
    }

    fn close(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if self.block.is_some() {
            return Ok(());
        }
        let raw = self.raw.take();
        let fields = raw.as_ref().map(RawJson::fields).unwrap_or_default();
        let kind = fields.text("type").unwrap_or_default();
        self.block = Some(match &*kind {
            "function_call" => {
                let mut call = self.make_call(&fields, assembly)?;
                if call.raw.is_none() {
                    call.raw.clone_from(&raw);
                }
                finish_call(&call, events);
                Block::Call(call)
            }
            "message" => {
                if self.text.is_empty() {
                    let whole = texts(&fields, "content");
                    assembly.add_text(&mut self.text, &whole, events)?;
                }
                let text = std::mem::take(&mut self.text);
                Block::Text { text, raw: if self.is_whole { raw } else { None } }
            }
            "reasoning" => {
                if self.thinking.is_empty() {
                    let mut whole = texts(&fields, "summary");
                    if whole.is_empty() {
                        whole = texts(&fields, "content");
                    }
                    assembly.add_thinking(&mut self.thinking, &whole, events)?;
                }
                let text = std::mem::take(&mut self.thinking);
                Block::Thinking { text, raw: if self.is_whole { raw } else { None } }
            }
            // Only pieces of text arrived.
            "" if raw.is_none() => {
                if !self.text.is_empty() {
                    Block::Text { text: std::mem::take(&mut self.text), raw: None }
                } else if !self.thinking.is_empty() {
                    Block::Thinking { text: std::mem::take(&mut self.thinking), raw: None }
                } else {
                    return Ok(());
                }
            }
            _ => match raw {
                Some(raw) if self.is_whole => Block::Opaque(raw),
                _ => return Ok(()),
            },
        });
        Ok(())
    }

    /// Makes the call of an item. `raw` is set only if the call that is sent back differs from the
    /// item.
    fn make_call(
        &mut self,
        item: &Fields<'_>,
        assembly: &mut Assembly,
    ) -> Result<ModelCall, WireError> {
        let complete_arguments = item.raw("arguments").map(arguments_of).unwrap_or_default();
        // Pieces were already checked against the limit. Complete arguments without pieces are
        // checked here.
        if complete_arguments.is_empty() || self.arguments.is_empty() {
            assembly.add_arguments(&mut self.arguments, &complete_arguments)?;
        }
        let arguments = if complete_arguments.is_empty() {
            std::mem::take(&mut self.arguments)
        } else {
            complete_arguments.into_owned()
        };
        let call_id = item.text("call_id");
        let server_id = call_id.clone().or_else(|| item.text("id")).unwrap_or_default();
        let id = assembly.call_id(&server_id)?;

        let mut object = Merged::new(item);
        let mut is_changed = false;
        if item.text("arguments").is_none_or(|text| text != arguments) {
            object.set_text("arguments", &arguments);
            is_changed = true;
        }
        if call_id.is_none_or(|text| text != id) {
            object.set_text("call_id", &id);
            is_changed = true;
        }
        let name = item.text("name").unwrap_or_default().into_owned();
        let raw = if is_changed { Some(object.json()) } else { None };
        Ok(ModelCall { id, name, arguments, raw })
    }
}

fn finish_reason(kind: &str, status: &str, response: &Fields<'_>) -> FinishReason {
    let details = response.object("incomplete_details");
    let reason = details.as_ref().and_then(|details| details.nonempty_text("reason"));
    match reason.as_deref() {
        None if kind == "response.incomplete" || status == "incomplete" => {
            FinishReason::Other("incomplete".to_owned())
        }
        None => FinishReason::End,
        Some("max_output_tokens" | "max_tokens") => FinishReason::Length,
        Some("content_filter") => FinishReason::Refused("content_filter".to_owned()),
        Some(other) => FinishReason::Other(short_line(other)),
    }
}

/// Joins the texts in the list `name`. Except in `content`, the texts are summaries of thinking,
/// and get an empty line between them.
fn texts(fields: &Fields<'_>, name: &str) -> String {
    let mut joined = String::new();
    for part in fields.items(name) {
        let part = Fields::parse(part.get()).unwrap_or_default();
        if let Some(text) = part.text("text").or_else(|| part.text("refusal")) {
            if name != "content" && !joined.is_empty() {
                joined.push_str("\n\n");
            }
            joined.push_str(&text);
        }
    }
    joined
}

fn read_usage(usage: &Fields<'_>) -> TokenUsage {
    let input_details = usage.object("input_tokens_details").unwrap_or_default();
    let output_details = usage.object("output_tokens_details").unwrap_or_default();
    let cache_read = input_details.number("cached_tokens");
    let cache_written = input_details.number("cache_write_tokens");
    // In this format, `input_tokens` includes cached tokens.
    let cached = cache_read.unwrap_or(0).saturating_add(cache_written.unwrap_or(0));
    TokenUsage {
        input: usage.number("input_tokens").map(|all| all.saturating_sub(cached)),
        cache_read,
        cache_written,
        output: usage.number("output_tokens"),
        reasoning: output_details.number("reasoning_tokens"),
    }
}
