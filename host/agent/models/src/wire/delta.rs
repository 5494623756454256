//! Joins the pieces of a streamed message, for Chat Completions and Ollama.

use serde_json::value::RawValue;

use crate::assembly::{Assembly, finish_call};
use crate::merged::Merged;
use crate::raw::{Fields, RawJson, items, string};
use crate::turn::{Block, ModelCall, ModelEvent};
use crate::wire::{WireError, arguments_of};

/// The fields with thinking. Servers name this field differently.
const THINKING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Further fields that are sent back with thinking.
const ABOUT_THINKING: [&str; 2] = ["reasoning_details", "thinking_blocks"];

/// Fields that aren't sent back.
const NOT_RETURNED: [&str; 8] =
    ["annotations", "audio", "function_call", "images", "logprobs", "refusal", "role", "token_ids"];

#[derive(Debug, Default)]
pub(super) struct DeltaMessage {
    /// Whether each call arrives in one piece. Its arguments are then JSON instead of a string.
    has_whole_calls: bool,
    thinking: String,
    /// The fields of thinking, as they are sent back.
    thinking_fields: Merged,
    text: String,
    /// The parts of `content`, if a piece of `content` was a list.
    parts: Option<Vec<String>>,
    refusal: String,
    calls: Vec<Open>,
    unknown_fields: Merged,
}

#[derive(Debug)]
struct Open {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    unknown_fields: Merged,
    unknown_function_fields: Merged,
}

impl DeltaMessage {
    /// Makes the message of a server that sends each call in one piece, with arguments as JSON
    /// instead of a string.
    pub(super) fn with_whole_calls() -> Self {
        Self { has_whole_calls: true, ..Self::default() }
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        if self.refusal.is_empty() { None } else { Some(&self.refusal) }
    }

    pub(super) fn add(
        &mut self,
        delta: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        // Some servers send the same thinking in two fields. Only the first field is shown.
        let thinking = THINKING.iter().find_map(|name| delta.nonempty_text(name));
        if let Some(more) = thinking {
            assembly.add_thinking(&mut self.thinking, &more, events)?;
        }
        for (key, value) in delta.iter().filter(|(_, value)| value.get() != "null") {
            match key {
                "content" => self.add_content(value, assembly, events)?,
                "tool_calls" => {
                    for call in items(value) {
                        let call = Fields::parse(call.get()).unwrap_or_default();
                        self.add_call(&call, assembly, events)?;
                    }
                }
                "refusal" => {
                    let more = string(value).unwrap_or_default();
                    assembly.add_text(&mut self.refusal, &more, events)?;
                }
                _ if THINKING.contains(&key) || ABOUT_THINKING.contains(&key) => {
                    assembly.count_bytes(value.get().len())?;
                    self.thinking_fields.add(key, value);
                }
                _ if NOT_RETURNED.contains(&key) => {}
                // Unknown fields are sent back with the answer.
                _ => {
                    assembly.count_bytes(value.get().len())?;
                    self.unknown_fields.add(key, value);
                }
            }
        }
        // The old form of a call has neither an index nor an ID.
        if let Some(function) = delta.object("function_call") {
            self.add_function(None, "", Some(&function), assembly, events)?;
        }
        Ok(())
    }

    /// Adds a piece of `content`, which is a string or a list of parts. Parts are sent back
    /// unchanged.
    fn add_content(
        &mut self,
        content: &RawValue,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        if let Some(more) = string(content) {
            assembly.add_text(&mut self.text, &more, events)?;
            if !more.is_empty()
                && let Some(parts) = &mut self.parts
            {
                assembly.count_bytes(content.get().len())?;
                parts.push(format!(r#"{{"type":"text","text":{}}}"#, content.get()));
            }
            return Ok(());
        }
        for part in items(content) {
            assembly.begin_block()?;
            assembly.count_bytes(part.get().len())?;
            // Earlier pieces that were strings become the first part.
            if self.parts.is_none() && !self.text.is_empty() {
                let text_part = serde_json::json!({"type": "text", "text": self.text});
                self.parts = Some(vec![text_part.to_string()]);
            }
            self.parts.get_or_insert_default().push(part.get().to_owned());

            let fields = Fields::parse(part.get()).unwrap_or_default();
            if let Some(more) = fields.text("text") {
                assembly.add_text(&mut self.text, &more, events)?;
            }
            for thought in fields.items("thinking") {
                let thought = Fields::parse(thought.get()).unwrap_or_default();
                if let Some(more) = thought.text("text") {
                    assembly.add_thinking(&mut self.thinking, &more, events)?;
                }
            }
        }
        Ok(())
    }

    fn add_call(
        &mut self,
        call: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let function = call.object("function");
        // Some servers send the index in `function`.
        let index_in_function = function.as_ref().and_then(|function| function.number("index"));
        let index = call.number("index").or(index_in_function);
        let id = call.text("id").unwrap_or_default();
        self.add_function(index, &id, function.as_ref(), assembly, events)?;
        let Some(open) = self.find(index) else { return Ok(()) };
        // Unknown fields are sent back with the call.
        for (key, value) in call.iter() {
            if !matches!(key, "index" | "id" | "type" | "function") && value.get() != "null" {
                assembly.count_bytes(value.get().len())?;
                open.unknown_fields.add(key, value);
            }
        }
        for (key, value) in function.iter().flat_map(Fields::iter) {
            if !matches!(key, "index" | "name" | "arguments") && value.get() != "null" {
                assembly.count_bytes(value.get().len())?;
                open.unknown_function_fields.add(key, value);
            }
        }
        Ok(())
    }

    fn add_function(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: Option<&Fields<'_>>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError> {
        let name = function.and_then(|function| function.text("name")).unwrap_or_default();
        let raw_arguments = function.and_then(|function| function.raw("arguments"));
        let arguments = raw_arguments.map(arguments_of).unwrap_or_default();

        let has_whole_calls = self.has_whole_calls;
        match self.find(index) {
            Some(open) if !has_whole_calls && !open.is_other_call(index, id, &name, &arguments) => {
                if open.id.is_empty() {
                    id.clone_into(&mut open.id);
                }
                if open.name.is_empty() {
                    open.name = name.into_owned();
                }
            }
            _ => {
                assembly.begin_call(&name, events)?;
                self.calls.push(Open {
                    index,
                    id: id.to_owned(),
                    name: name.into_owned(),
                    arguments: String::new(),
                    unknown_fields: Merged::default(),
                    unknown_function_fields: Merged::default(),
                });
            }
        }

        let Some(open) = self.find(index) else { return Ok(()) };
        // Some servers repeat all arguments at the end, so complete arguments aren't added twice.
        if open.arguments == arguments && is_object(&arguments) {
            return Ok(());
        }
        assembly.add_arguments(&mut open.arguments, &arguments)
    }

    /// Returns the last call with `index`, or the last call if `index` is `None`.
    fn find(&mut self, index: Option<u64>) -> Option<&mut Open> {
        self.calls.iter_mut().rev().find(|open| index.is_none() || open.index == index)
    }

    pub(super) fn finish(
        self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError> {
        let mut blocks = Vec::new();
        if !self.thinking.is_empty() || !self.thinking_fields.is_empty() {
            let raw = if self.thinking_fields.is_empty() {
                None
            } else {
                Some(self.thinking_fields.json())
            };
            blocks.push(Block::Thinking { text: self.thinking, raw });
        }
        let text = self.text + &self.refusal;
        if let Some(parts) = self.parts {
            // The content arrived as a list of parts, and is sent back as a list.
            let content = format!(r#"{{"content":[{}]}}"#, parts.join(","));
            blocks.push(Block::Text { text, raw: RawJson::new(content).ok() });
        } else if !text.is_empty() {
            blocks.push(Block::Text { text, raw: None });
        }
        if !self.unknown_fields.is_empty() {
            blocks.push(Block::Opaque(self.unknown_fields.json()));
        }
        for open in self.calls {
            if open.name.is_empty() && open.arguments.trim().is_empty() {
                continue;
            }
            let call = open.finish(assembly, self.has_whole_calls)?;
            finish_call(&call, events);
            blocks.push(Block::Call(call));
        }
        Ok(blocks)
    }
}

fn is_object(json: &str) -> bool {
    Fields::parse(json).is_some()
}

impl Open {
    /// Checks whether a piece starts another call, although the piece has the same index or no
    /// index.
    fn is_other_call(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        if !id.is_empty() && !self.id.is_empty() {
            return self.id != id;
        }
        // Without IDs, a different name starts a new call.
        if self.name.is_empty() {
            return false;
        }
        if name != self.name {
            return true;
        }
        // The same name starts a new call only after complete arguments. With an index, new
        // arguments must start too, because some servers repeat the name in each piece.
        let may_begin_call = index.is_none() || arguments.starts_with('{');
        may_begin_call && is_object(&self.arguments)
    }

    /// Completes the call. If `keeps_object` is true, the arguments are sent back as a JSON object
    /// instead of a string.
    fn finish(
        mut self,
        assembly: &mut Assembly,
        keeps_object: bool,
    ) -> Result<ModelCall, WireError> {
        let id = assembly.call_id(&self.id)?;
        let has_unknown_fields =
            !self.unknown_fields.is_empty() || !self.unknown_function_fields.is_empty();
        let raw = if has_unknown_fields { Some(self.json(&id, keeps_object)) } else { None };
        let arguments = if self.arguments.is_empty() { "{}".to_owned() } else { self.arguments };
        Ok(ModelCall { id, name: self.name, arguments, raw })
    }

    /// Returns the call with its unknown fields, in the form that is sent back.
    fn json(&mut self, id: &str, keeps_object: bool) -> RawJson {
        let mut function = std::mem::take(&mut self.unknown_function_fields);
        function.set_text("name", &self.name);
        let arguments = super::arguments_object(&self.arguments);
        if keeps_object {
            function.set_json("arguments", arguments.into_owned());
        } else {
            function.set_text("arguments", &arguments);
        }

        let mut call = std::mem::take(&mut self.unknown_fields);
        call.set_text("id", id);
        if !keeps_object {
            call.set_text("type", "function");
        }
        call.set_json("function", function.json().get().to_owned());
        call.json()
    }
}
