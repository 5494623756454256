//! Reads answers in the format of Anthropic's Messages.

use serde_json::value::RawValue;

use crate::assembly::{Assembly, finish_call, short_line};
use crate::merged::Merged;
use crate::raw::{Fields, string};
use crate::turn::{Block, FinishReason, ModelCall, ModelEvent, TokenUsage};
use crate::wire::{Reader, WireError, arguments_object, server_error};

#[derive(Debug, Default)]
pub(super) struct Messages {
    blocks: Vec<Open>,
    /// Whether the server sent the reason of the end. The final event is then optional.
    has_stop: bool,
}

#[derive(Debug)]
struct Open {
    /// The block's index in the stream. Pieces belong to the last block with their index.
    index: u64,
    kind: Kind,
    object: Merged,
    text: String,
    /// The arguments, if they arrive in pieces.
    arguments: Option<String>,
    /// The block, after it is complete.
    block: Option<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    Other,
}

impl Kind {
    fn from_block(fields: &Fields<'_>) -> Self {
        match fields.text("type").as_deref() {
            Some("text") => Self::Text,
            Some("thinking") => Self::Thinking,
            Some("tool_use") => Self::Call,
            _ => Self::Other,
        }
    }
}

impl Reader for Messages {
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
            "message_start" => {
                if let Some(message) = fields.object("message") {
                    self.begin(&message, assembly, events)?;
                }
            }
            "content_block_start" => {
                let index = fields.number("index").unwrap_or_else(|| self.next_index());
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
            // A server that doesn't stream sends a whole answer.
            "message" => {
                self.begin(fields, assembly, events)?;
                self.end(Some(fields), assembly);
                assembly.is_done = true;
            }
            "error" => return Err(server_error(fields)),
            // A gateway before the server sends errors without a type.
            "" if fields.raw("error").is_some() => return Err(server_error(fields)),
            // `ping`, and events of later versions of the API.
            _ => {}
        }
        Ok(())
    }

    /// Ends the answer, and returns its blocks. Fails if the answer is incomplete.
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
        // The first event of a stream usually has no blocks, but a whole answer has all of them.
        for (index, block) in message.items("content").into_iter().enumerate() {
            self.begin_block(index as u64, block, assembly, events)?;
        }
        Ok(())
    }

    /// Reads the reason why the answer ended, if the event has a reason.
    fn end(&mut self, delta: Option<&Fields<'_>>, assembly: &mut Assembly) {
        let Some(delta) = delta else { return };
        let Some(reason) = delta.nonempty_text("stop_reason") else { return };
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
                    details
                        .nonempty_text("explanation")
                        .or_else(|| details.nonempty_text("category"))
                });
                FinishReason::Refused(short_line(&why.unwrap_or_default()))
            }
            other => FinishReason::Other(short_line(other)),
        });
    }

    fn begin_block(
        &mut self,
        index: u64,
        block: &RawValue,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        // A repeated index starts a new block.
        if let Some(open) = self.open(Some(index)) {
            open.finish(assembly, events)?;
        }

        let fields = Fields::parse(block.get()).unwrap_or_default();
        assembly.begin_block()?;
        assembly.count_bytes(block.get().len())?;
        let kind = Kind::from_block(&fields);
        let object = Merged::new(&fields);
        let mut open =
            Open { index, kind, object, text: String::new(), arguments: None, block: None };
        match kind {
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
            // Some servers leave out the event of a block's start, so the first piece starts the
            // block.
            let json = match &*kind {
                "text_delta" => r#"{"type":"text","text":""}"#,
                "thinking_delta" => r#"{"type":"thinking","thinking":""}"#,
                _ => return Ok(()),
            };
            let block = serde_json::from_str(json)
                .map_err(|error| WireError::Malformed(error.to_string()))?;
            let index = index.unwrap_or_else(|| self.next_index());
            self.begin_block(index, block, assembly, events)?;
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
                    assembly.count_bytes(value.get().len())?;
                    open.object.push("citations", value);
                }
                // The signature arrives in one piece.
                ("signature", _) => {
                    assembly.count_bytes(value.get().len())?;
                    open.object.set(key, value);
                }
                _ => {
                    assembly.count_bytes(value.get().len())?;
                    open.object.add(key, value);
                }
            }
        }

        match open.kind {
            Kind::Text => {
                let text = delta.text("text").unwrap_or_default();
                assembly.add_text(&mut open.text, &text, events)
            }
            Kind::Thinking => {
                let text = delta.text("thinking").unwrap_or_default();
                assembly.add_thinking(&mut open.text, &text, events)
            }
            Kind::Call | Kind::Other => Ok(()),
        }
    }

    /// Returns the last block with `index`, or the last block if `index` is `None`. Returns `None`
    /// if this block is missing or complete.
    fn open(&mut self, index: Option<u64>) -> Option<&mut Open> {
        let mut blocks = self.blocks.iter_mut().rev();
        let last = match index {
            Some(index) => blocks.find(|open| open.index == index),
            None => blocks.next(),
        }?;
        if last.block.is_none() { Some(last) } else { None }
    }

    fn next_index(&self) -> u64 {
        self.blocks.last().map_or(0, |last| last.index.saturating_add(1))
    }
}

impl Open {
    /// Completes the block, unless the block is already complete.
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
        let arguments = self.arguments.take().unwrap_or_default();
        self.block = Some(match self.kind {
            Kind::Text => {
                let has_unknown_fields = has_more(&object, &["type", "text"]);
                let raw = if has_unknown_fields { Some(object.json()) } else { None };
                Block::Text { text, raw }
            }
            Kind::Thinking => Block::Thinking { text, raw: Some(object.json()) },
            Kind::Call => {
                let call = make_call(object, arguments, assembly)?;
                finish_call(&call, events);
                Block::Call(call)
            }
            Kind::Other => {
                if !arguments.is_empty() {
                    object.set_json("input", arguments_object(&arguments).into_owned());
                }
                Block::Opaque(object.json())
            }
        });
        Ok(())
    }
}

/// Makes the call of a block. `pieces` are the joined arguments that arrived in pieces. If there
/// are none, the arguments in the block apply.
fn make_call(
    mut object: Merged,
    pieces: String,
    assembly: &mut Assembly,
) -> Result<ModelCall, WireError> {
    let json = object.json();
    let fields = json.fields();
    let name = fields.text("name").unwrap_or_default().into_owned();
    let server_id = fields.text("id").unwrap_or_default();
    let id = assembly.call_id(&server_id)?;
    let arguments = if pieces.is_empty() {
        fields.raw("input").map_or("{}", |input| input.get()).to_owned()
    } else {
        pieces
    };

    let mut raw = None;
    // A block with unknown fields is sent back with these fields, so its JSON is kept.
    if has_more(&object, &["type", "id", "name", "input"]) {
        object.set_json("input", arguments_object(&arguments).into_owned());
        if id != server_id {
            object.set_text("id", &id);
        }
        raw = Some(object.json());
    }
    Ok(ModelCall { id, name, arguments, raw })
}

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
