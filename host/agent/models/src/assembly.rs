//! Assembles a model's answer from its pieces, and stops an answer that exceeds a limit.

use std::collections::HashSet;

use toolhold_contract::text::{cut, neutral_line};

use crate::raw::Fields;
use crate::turn::{Block, FinishReason, ModelCall, ModelEvent, TokenUsage, Turn, TurnMessage};
use crate::wire_types::{WireCaps, WireError};

/// The most bytes of a server's string, such as the model's name. Longer strings are cut.
const MAX_LINE: usize = 256;

/// The most bytes of a call's name or ID.
const MAX_NAME: usize = 256;

/// An answer that is still arriving, in any format.
#[derive(Debug)]
pub(crate) struct Assembly {
    caps: WireCaps,
    bytes: usize,
    blocks: usize,
    calls: usize,
    ids: HashSet<String>,
    next_id: usize,
    model: String,
    max_output: Option<u64>,
    pub(crate) usage: TokenUsage,
    pub(crate) stop: Option<FinishReason>,
    pub(crate) is_done: bool,
}

impl Assembly {
    pub(crate) fn new(turn: &Turn, caps: WireCaps) -> Self {
        // The IDs of new calls must differ from all earlier IDs.
        let mut ids = HashSet::new();
        for message in &turn.messages {
            if let TurnMessage::Model(answer) = message {
                ids.extend(answer.calls().map(|call| call.id.clone()));
            }
        }
        Self {
            caps,
            bytes: 0,
            blocks: 0,
            calls: 0,
            next_id: ids.len(),
            ids,
            model: turn.model.clone(),
            max_output: turn.max_output.map(u64::from),
            usage: TokenUsage::default(),
            stop: None,
            is_done: false,
        }
    }

    pub(crate) fn read_model(&mut self, fields: &Fields<'_>) {
        if let Some(model) = fields.nonempty_text("model") {
            self.model = short_line(&model);
        }
    }

    pub(crate) fn model(self) -> String {
        self.model
    }

    /// Counts bytes of the answer that are stored. Fails if the answer is too large.
    pub(crate) fn count_bytes(&mut self, bytes: usize) -> Result<(), WireError> {
        self.bytes += bytes;
        if self.bytes > self.caps.answer {
            return Err(WireError::cap("the model's answer", self.caps.answer as u64));
        }
        Ok(())
    }

    pub(crate) fn begin_block(&mut self) -> Result<(), WireError> {
        self.blocks += 1;
        if self.blocks > self.caps.blocks {
            return Err(WireError::count("blocks in the model's answer", self.caps.blocks));
        }
        Ok(())
    }

    /// Counts a call, and adds its start event. Fails if there are too many calls, or if the name
    /// is too long.
    pub(crate) fn begin_call(
        &mut self,
        name: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        self.calls += 1;
        if self.calls > self.caps.calls {
            return Err(WireError::count("calls in the model's answer", self.caps.calls));
        }
        check_name(name)?;
        events.push(ModelEvent::CallBegun(name.to_owned()));
        Ok(())
    }

    /// Adds a piece to the arguments of a call. Fails if the call or the answer is too large.
    pub(crate) fn add_arguments(
        &mut self,
        arguments: &mut String,
        more: &str,
    ) -> Result<(), WireError> {
        if arguments.len() + more.len() > self.caps.arguments {
            let limit = self.caps.arguments as u64;
            return Err(WireError::cap("the arguments of a call", limit));
        }
        self.count_bytes(more.len())?;
        arguments.push_str(more);
        Ok(())
    }

    pub(crate) fn add_text(
        &mut self,
        text: &mut String,
        more: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if !more.is_empty() {
            self.count_bytes(more.len())?;
            text.push_str(more);
            events.push(ModelEvent::Text(more.to_owned()));
        }
        Ok(())
    }

    pub(crate) fn add_thinking(
        &mut self,
        text: &mut String,
        more: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if !more.is_empty() {
            self.count_bytes(more.len())?;
            text.push_str(more);
            events.push(ModelEvent::Thinking(more.to_owned()));
        }
        Ok(())
    }

    /// Returns the server's ID of a call, or a new ID if the server's ID is missing or repeated.
    /// New IDs are numbered, so that the same answer to the same turn gets the same IDs.
    pub(crate) fn call_id(&mut self, sent: &str) -> Result<String, WireError> {
        check_name(sent)?;
        if !sent.is_empty() && self.ids.insert(sent.to_owned()) {
            return Ok(sent.to_owned());
        }
        loop {
            let id = format!("call_{}", self.next_id);
            self.next_id += 1;
            if self.ids.insert(id.clone()) {
                return Ok(id);
            }
        }
    }

    /// Returns the reason why the answer ended. A reason that contradicts the answer is corrected.
    pub(crate) fn finish_reason(&self, blocks: &[Block]) -> FinishReason {
        let has_calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
        match &self.stop {
            // Many servers mix up `End` and `Calls`.
            None | Some(FinishReason::End | FinishReason::Calls) if has_calls => {
                FinishReason::Calls
            }
            // In the format Responses, llama.cpp reports an answer that it has cut at the limit as
            // complete, so the number of tokens decides.
            None | Some(FinishReason::End) if self.has_reached_max_output() => FinishReason::Length,
            None | Some(FinishReason::Calls) => FinishReason::End,
            Some(stop) => stop.clone(),
        }
    }

    fn has_reached_max_output(&self) -> bool {
        match (self.max_output, self.usage.output) {
            (Some(max_output), Some(output)) => output >= max_output,
            _ => false,
        }
    }
}

pub(crate) fn short_line(text: &str) -> String {
    neutral_line(cut(text, MAX_LINE))
}

pub(crate) fn finish_call(call: &ModelCall, events: &mut Vec<ModelEvent>) {
    events.push(ModelEvent::Call(call.clone()));
}

fn check_name(name: &str) -> Result<(), WireError> {
    if name.len() > MAX_NAME {
        return Err(WireError::cap("the name or the ID of a call", MAX_NAME as u64));
    }
    Ok(())
}
