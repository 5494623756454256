//! Puts a model's answer together from its pieces, and stops an answer that exceeds a cap.

use std::collections::HashSet;

use toolhold_contract::text::{cut, neutral_line};

use crate::raw::Fields;
use crate::turn::{Block, FinishReason, ModelCall, ModelEvent, TokenUsage, Turn, TurnMessage};
use crate::wire_types::{WireCaps, WireError};

/// The most bytes of a string that the server chooses, such as the model's name.
const WORD: usize = 256;

/// Most bytes of the name or the ID of a call.
const MAX_NAME: usize = 256;

/// The state of an answer that comes, common to all formats.
#[derive(Debug)]
pub(crate) struct Assembly {
    caps: WireCaps,
    bytes: usize,
    blocks: usize,
    calls: usize,
    ids: HashSet<String>,
    next_id: usize,
    model: String,
    /// The most tokens that were asked for.
    max_output: Option<u64>,
    pub(crate) usage: TokenUsage,
    pub(crate) stop: Option<FinishReason>,
    /// Whether the stream has reported its end.
    pub(crate) is_done: bool,
}

impl Assembly {
    pub(crate) fn new(turn: &Turn, caps: WireCaps) -> Self {
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

    /// Reads the name of the answering model from the object, if the name is there.
    pub(crate) fn read_model(&mut self, fields: &Fields<'_>) {
        if let Some(model) = fields.some_text("model") {
            self.model = word(&model);
        }
    }

    /// Returns the name of the model that answers.
    pub(crate) fn model(self) -> String {
        self.model
    }

    /// Counts bytes that are stored.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), WireError> {
        self.bytes += bytes;
        if self.bytes > self.caps.answer {
            return Err(WireError::cap("its answer", self.caps.answer as u64));
        }
        Ok(())
    }

    pub(crate) fn begin_block(&mut self) -> Result<(), WireError> {
        self.blocks += 1;
        if self.blocks > self.caps.blocks {
            return Err(WireError::count("blocks in its answer", self.caps.blocks));
        }
        Ok(())
    }

    /// Counts a call, and adds the event for its start.
    pub(crate) fn begin_call(
        &mut self,
        name: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        self.calls += 1;
        if self.calls > self.caps.calls {
            return Err(WireError::count("calls in its answer", self.caps.calls));
        }
        check_name(name)?;
        events.push(ModelEvent::CallBegun(name.to_owned()));
        Ok(())
    }

    /// Adds to the arguments of a call.
    pub(crate) fn add_arguments(
        &mut self,
        arguments: &mut String,
        more: &str,
    ) -> Result<(), WireError> {
        if arguments.len() + more.len() > self.caps.arguments {
            let limit = self.caps.arguments as u64;
            return Err(WireError::cap("the arguments of one of its calls", limit));
        }
        self.keep(more.len())?;
        arguments.push_str(more);
        Ok(())
    }

    /// Adds to a text.
    pub(crate) fn add_text(
        &mut self,
        text: &mut String,
        more: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if !more.is_empty() {
            self.keep(more.len())?;
            text.push_str(more);
            events.push(ModelEvent::Text(more.to_owned()));
        }
        Ok(())
    }

    /// Adds to a thinking text.
    pub(crate) fn add_thinking(
        &mut self,
        text: &mut String,
        more: &str,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if !more.is_empty() {
            self.keep(more.len())?;
            text.push_str(more);
            events.push(ModelEvent::Thinking(more.to_owned()));
        }
        Ok(())
    }

    /// Returns the ID of a call: the server's ID, or a new ID if the server's ID is missing or
    /// already used. The same answer to the same turn always gets the same IDs.
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

    /// Returns the reason why the answer ended, from the server's words and the blocks.
    pub(crate) fn stop(&self, blocks: &[Block]) -> FinishReason {
        let has_calls = blocks.iter().any(|block| matches!(block, Block::Call(_)));
        match &self.stop {
            // Many servers report `End` although there are calls, or `Calls` although there are
            // none.
            None | Some(FinishReason::End | FinishReason::Calls) if has_calls => {
                FinishReason::Calls
            }
            // In the format Responses, llama.cpp reports a truncated answer as complete.
            None | Some(FinishReason::End) if self.has_most_output() => FinishReason::Length,
            None | Some(FinishReason::Calls) => FinishReason::End,
            Some(stop) => stop.clone(),
        }
    }

    /// Checks whether the answer has as many tokens as were asked for.
    fn has_most_output(&self) -> bool {
        match (self.max_output, self.usage.output) {
            (Some(most), Some(output)) => output >= most,
            _ => false,
        }
    }
}

/// Returns a string of the server on one line, truncated if it is long.
pub(crate) fn word(text: &str) -> String {
    neutral_line(cut(text, WORD))
}

/// Adds the event that a call is complete.
pub(crate) fn finish_call(call: &ModelCall, events: &mut Vec<ModelEvent>) {
    events.push(ModelEvent::Call(call.clone()));
}

fn check_name(name: &str) -> Result<(), WireError> {
    if name.len() > MAX_NAME {
        return Err(WireError::cap("the name or the ID of one of its calls", MAX_NAME as u64));
    }
    Ok(())
}
