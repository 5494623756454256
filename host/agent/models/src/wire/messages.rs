//! Reads answers of Anthropic's Messages.

use serde_json::value::RawValue;

use crate::assembly::{Assembly, finish_call, word};
use crate::merged::Merged;
use crate::raw::{Fields, string};
use crate::turn::{Block, FinishReason, ModelCall, ModelEvent, TokenUsage};
use crate::wire::{Reader, WireError, arguments_object, server_error};

/// An answer that is read.
#[derive(Debug, Default)]
pub(super) struct Messages {
    blocks: Vec<Open>,
    /// The reason and the end were seen: without the latter, the former is enough.
    has_stop: bool,
}

/// A block, of which more may come.
#[derive(Debug)]
struct Open {
    /// Its number in the stream. Only the last one with a number gets more.
    index: u64,
    kind: Kind,
    object: Merged,
    text: String,
    /// The arguments, if they come in pieces.
    arguments: Option<String>,
    /// The finished block.
    block: Option<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    Other,
}

impl Reader for Messages {
    fn read(
        &mut self,
        name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let kind = fields.text("type").unwrap_or_default();
        match if kind.is_empty() { name } else { &kind } {
            "message_start" => {
                if let Some(message) = fields.object("message") {
                    self.begin(&message, assembly, events)?;
                }
            }
            "content_block_start" => {
                let index = fields.number("index").unwrap_or_else(|| {
                    self.blocks.last().map_or(0, |it| it.index.saturating_add(1))
                });
                if let Some(block) = fields.raw("content_block") {
                    self.begin_block(index, block, assembly, events)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = fields.object("delta") {
                    self.add(fields.number("index"), &delta, assembly, events)?;
                }
            }
            "content_block_stop" => {
                let index = fields.number("index");
                if let Some(open) = self.open(index) {
                    open.finish(assembly, events)?;
                }
            }
            "message_delta" => {
                self.end(fields.object("delta").as_ref(), assembly);
                if let Some(usage) = fields.object("usage") {
                    assembly.usage = assembly.usage.updated(read_usage(&usage));
                }
            }
            "message_stop" => {
                assembly.is_done = true;
            }
            // A whole answer, from a server that doesn't stream.
            "message" => {
                self.begin(fields, assembly, events)?;
                self.end(Some(fields), assembly);
                assembly.is_done = true;
            }
            "error" => return Err(server_error(fields)),
            // An error of something before the server.
            "" if fields.raw("error").is_some() => return Err(server_error(fields)),
            // `ping`, and what is still to be invented.
            _ => {}
        }
        Ok(())
    }

    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError> {
        if !assembly.is_done && !self.has_stop {
            return Err(WireError::Cut);
        }
        let mut blocks = Vec::new();
        for mut open in self.blocks.drain(..) {
            open.finish(assembly, events)?;
            blocks.extend(open.block);
        }
        Ok(blocks)
    }
}

impl Messages {
    fn begin(
        &mut self,
        message: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        assembly.read_model(message);
        if let Some(usage) = message.object("usage") {
            assembly.usage = assembly.usage.updated(read_usage(&usage));
        }
        // Usually empty.
        for (index, block) in message.items("content").into_iter().enumerate() {
            self.begin_block(index as u64, block, assembly, events)?;
        }
        Ok(())
    }

    fn end(&mut self, delta: Option<&Fields<'_>>, assembly: &mut Assembly) {
        let Some(delta) = delta else { return };
        let Some(reason) = delta.some_text("stop_reason") else { return };
        self.has_stop = true;
        assembly.stop = Some(match &*reason {
            "end_turn" | "stop_sequence" => FinishReason::End,
            "tool_use" => FinishReason::Calls,
            "max_tokens" => FinishReason::Length,
            "model_context_window_exceeded" => FinishReason::ContextFull,
            "pause_turn" => FinishReason::Paused,
            "refusal" => {
                let details = delta.object("stop_details");
                let why = details.as_ref().and_then(|details| {
                    details.some_text("explanation").or_else(|| details.some_text("category"))
                });
                FinishReason::Refused(word(&why.unwrap_or_default()))
            }
            other => FinishReason::Other(word(other)),
        });
    }

    fn begin_block(
        &mut self,
        index: u64,
        block: &RawValue,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        // A number that comes again means another block: the first block is complete.
        if let Some(open) = self.open(Some(index)) {
            open.finish(assembly, events)?;
        }
        let fields = Fields::parse(block.get()).unwrap_or_default();
        assembly.begin_block()?;
        assembly.keep(block.get().len())?;
        let mut open = Open {
            index,
            kind: match fields.text("type").as_deref() {
                Some("text") => Kind::Text,
                Some("thinking") => Kind::Thinking,
                Some("tool_use") => Kind::Call,
                _ => Kind::Other,
            },
            object: Merged::new(&fields),
            text: String::new(),
            arguments: None,
            block: None,
        };
        match open.kind {
            Kind::Text => {
                let text = fields.text("text").unwrap_or_default();
                assembly.add_text(&mut open.text, &text, events)?;
            }
            Kind::Thinking => {
                let text = fields.text("thinking").unwrap_or_default();
                assembly.add_thinking(&mut open.text, &text, events)?;
            }
            Kind::Call => assembly.begin_call(&fields.text("name").unwrap_or_default(), events)?,
            Kind::Other => {}
        }
        self.blocks.push(open);
        Ok(())
    }

    fn add(
        &mut self,
        index: Option<u64>,
        delta: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let kind = delta.text("type").unwrap_or_default();
        if self.open(index).is_none() {
            // A server that leaves out where blocks begin.
            let implied = match &*kind {
                "text_delta" => r#"{"type":"text","text":""}"#,
                "thinking_delta" => r#"{"type":"thinking","thinking":""}"#,
                _ => return Ok(()),
            };
            let implied = serde_json::from_str(implied)
                .map_err(|error| WireError::Malformed(error.to_string()))?;
            let next = self.blocks.last().map_or(0, |it| it.index.saturating_add(1));
            self.begin_block(index.unwrap_or(next), implied, assembly, events)?;
        }
        let Some(open) = self.open(index) else { return Ok(()) };
        for (key, value) in delta.iter().filter(|(key, _)| *key != "type") {
            match (key, &*kind) {
                ("partial_json", _) => {
                    let more = string(value).unwrap_or_default();
                    let arguments = open.arguments.get_or_insert_default();
                    assembly.add_arguments(arguments, &more)?;
                }
                ("citation", "citations_delta") => {
                    assembly.keep(value.get().len())?;
                    open.object.push("citations", value);
                }
                // The signature comes once, and whole.
                ("signature", _) => {
                    assembly.keep(value.get().len())?;
                    open.object.set(key, value);
                }
                _ => {
                    assembly.keep(value.get().len())?;
                    open.object.add(key, value);
                }
            }
        }
        let text = match open.kind {
            Kind::Text => delta.text("text"),
            Kind::Thinking => delta.text("thinking"),
            Kind::Call | Kind::Other => None,
        };
        match (open.kind, text) {
            (Kind::Text, Some(text)) => assembly.add_text(&mut open.text, &text, events),
            (_, Some(text)) => assembly.add_thinking(&mut open.text, &text, events),
            _ => Ok(()),
        }
    }

    /// The block that a number means, unless it is finished. Without a number, the last one.
    fn open(&mut self, index: Option<u64>) -> Option<&mut Open> {
        let found =
            self.blocks.iter_mut().rev().find(|open| index.is_none_or(|it| it == open.index));
        found.filter(|open| open.block.is_none())
    }
}

impl Open {
    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if self.block.is_some() {
            return Ok(());
        }
        let mut object = std::mem::take(&mut self.object);
        let text = std::mem::take(&mut self.text);
        self.block = Some(match self.kind {
            Kind::Text => {
                let raw = has_more(&object, &["type", "text"]).then(|| object.json());
                Block::Text { text, raw }
            }
            Kind::Thinking => Block::Thinking { text, raw: Some(object.json()) },
            Kind::Call => {
                let raw = object.json();
                let fields = raw.fields();
                let sent = fields.text("id").unwrap_or_default().into_owned();
                let name = fields.text("name").unwrap_or_default().into_owned();
                let id = assembly.call_id(&sent)?;
                let input = fields.raw("input").map(|input| input.get().to_owned());
                let arguments = self
                    .arguments
                    .take()
                    .filter(|arguments| !arguments.is_empty())
                    .or(input)
                    .unwrap_or_else(|| "{}".to_owned());
                let raw = has_more(&object, &["type", "id", "name", "input"]).then(|| {
                    object.set_json("input", arguments_object(&arguments).into_owned());
                    if id != sent {
                        object.set_text("id", &id);
                    }
                    object.json()
                });
                let call = ModelCall { id, name, arguments, raw };
                finish_call(&call, events);
                Block::Call(call)
            }
            Kind::Other => {
                if let Some(arguments) = self.arguments.take().filter(|it| !it.is_empty()) {
                    object.set_json("input", arguments_object(&arguments).into_owned());
                }
                Block::Opaque(object.json())
            }
        });
        Ok(())
    }
}

/// Whether a block has fields that aren't known here.
fn has_more(object: &Merged, known: &[&str]) -> bool {
    object.keys().any(|key| !known.contains(&key) && object.has(key))
}

fn read_usage(usage: &Fields<'_>) -> TokenUsage {
    let details = usage.object("output_tokens_details").unwrap_or_default();
    TokenUsage {
        input: usage.number("input_tokens"),
        cache_read: usage.number("cache_read_input_tokens"),
        cache_written: usage.number("cache_creation_input_tokens"),
        output: usage.number("output_tokens"),
        reasoning: details.number("thinking_tokens").or_else(|| details.number("reasoning_tokens")),
    }
}
