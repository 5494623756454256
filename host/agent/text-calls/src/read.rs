//! Reads the calls in a block. A block with any other part is refused.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::block::{Block, BlockKind};
use super::marks::{Tag, TagFamily, read_tag};
use super::offered_tools::{OfferedTool, OfferedTools};
use super::{CallForm, TextCall};

const MAX_CALLS: usize = 16;

const MAX_NAME: usize = 128;

/// Reads the calls of a block. Fails if a part of the block isn't a call, or if a call isn't
/// allowed at this place.
pub(super) fn read_block(
    block: &Block,
    offered: &OfferedTools,
) -> Result<Vec<TextCall>, BlockError> {
    let body = &block.raw[block.body_start..block.body_end.max(block.body_start)];
    if block.is_ambiguous {
        return Err(BlockError::Ambiguous);
    }
    if block.is_quoted {
        return Err(BlockError::Quoted);
    }
    if block.is_too_deep {
        return Err(BlockError::TooDeep);
    }
    match &block.kind {
        BlockKind::Fence(_) | BlockKind::JsonFence if !block.is_closed => {
            Err(BlockError::OpenFence)
        }
        BlockKind::JsonFence => Err(BlockError::JsonFence),
        BlockKind::Fence(info) => read_fence(info, &without_indentation(block, body), offered),
        BlockKind::Tag(TagFamily::Tools) if !block.is_closed => Err(BlockError::Tools),
        BlockKind::Tag(TagFamily::Tools) => {
            // Leave out the closing tag, which is part of the body.
            let json = body.rfind('<').map_or("", |end| &body[..end]);
            let call = canonical_call(json, offered).ok_or(BlockError::Tools)?;
            Ok(vec![TextCall { form: CallForm::Tag, ..call }])
        }
        BlockKind::Tag(_) => {
            let calls = Vec::new();
            let tags =
                Tags { text: &block.raw, position: 0, offered, calls, has_attributes: false };
            tags.read()
        }
        BlockKind::Line => {
            let call = read_line(block.raw.trim(), offered).ok_or(BlockError::Line)?;
            Ok(vec![call])
        }
    }
}

/// Reads a call in JSON without a block or tag. Returns `None` unless the JSON names an offered
/// tool, and has arguments and no unknown fields.
pub(super) fn canonical_call(json: &str, offered: &OfferedTools) -> Option<TextCall> {
    let Value::Object(mut fields) = serde_json::from_str(json.trim()).ok()? else { return None };
    let known_fields = ["name", "arguments", "parameters", "id", "type"];
    if fields.keys().any(|key| !known_fields.contains(&key.as_str())) {
        return None;
    }
    let arguments = match (fields.remove("arguments"), fields.remove("parameters")) {
        (Some(arguments), None) | (None, Some(arguments)) => arguments,
        (Some(_), Some(_)) | (None, None) => return None,
    };
    if !arguments.is_object() {
        return None;
    }
    let name = fields.get("name")?.as_str()?;
    let tool = offered.named(name)?;
    Some(TextCall {
        name: tool.name.clone(),
        arguments,
        form: CallForm::Json,
        is_offered: true,
        is_echo: false,
    })
}

/// Makes a call. An alias is replaced by the tool's name. Fails if the name's length isn't valid,
/// or if the arguments are neither an object nor a text for a tool with a text argument.
fn make_call(
    offered: &OfferedTools,
    name: &str,
    arguments: Value,
    form: CallForm,
) -> Result<TextCall, CallError> {
    let name = name.trim();
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(CallError::NameLength(name.len()));
    }
    let tool = offered.named(name);
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::Null => Value::Object(Map::new()),
        Value::String(text) => text_arguments(tool, text)?,
        _ => return Err(CallError::Arguments { tool: name.to_owned() }),
    };
    let is_offered = tool.is_some();
    let name = tool.map_or(name, |tool| &tool.name).to_owned();
    Ok(TextCall { name, arguments, form, is_offered, is_echo: false })
}

/// Reads arguments in a string: a JSON object, or the value of the tool's text argument.
fn text_arguments(tool: Option<&OfferedTool>, text: String) -> Result<Value, CallError> {
    let object: Option<Map<String, Value>> = serde_json::from_str(&text).ok();
    let text_argument = tool.and_then(OfferedTool::bare_argument);
    let (Some(tool), Some(text_argument)) = (tool, text_argument) else {
        return object.map(Value::Object).ok_or(CallError::ArgumentText);
    };
    match object {
        Some(fields) if has_all_arguments(tool, &fields) => Ok(Value::Object(fields)),
        // The text isn't an object of the tool's arguments.
        _ => {
            let value = (text_argument.to_owned(), Value::String(text));
            Ok(Value::Object(Map::from_iter([value])))
        }
    }
}

fn has_all_arguments(tool: &OfferedTool, fields: &Map<String, Value>) -> bool {
    fields.keys().all(|name| tool.has_argument(name))
}

/// Reads the body of a fenced block. `info` is the text after the opening fence, which is
/// `tool_call`, `tool NAME` or a tool's tag.
fn read_fence(info: &str, body: &str, offered: &OfferedTools) -> Result<Vec<TextCall>, BlockError> {
    if info == "tool_call" {
        let mut calls = Vec::new();
        for value in serde_json::Deserializer::from_str(body).into_iter::<Value>() {
            let value = value.map_err(BlockError::Json)?;
            add_json(&mut calls, value, offered, CallForm::ToolFence)?;
        }
        return if calls.is_empty() { Err(BlockError::Empty) } else { Ok(calls) };
    }

    let text = body.strip_suffix('\n').unwrap_or(body);
    let is_empty = text.trim().is_empty();
    let call = match offered.fenced(info) {
        // The text argument must not be empty.
        Some(_) if is_empty => return Err(BlockError::Empty),
        Some(tool) => make_call(offered, &tool.name, Value::from(text), CallForm::Fence)?,
        None => {
            let name = info.strip_prefix("tool").unwrap_or_default();
            let arguments = if is_empty { Value::Null } else { Value::from(text) };
            make_call(offered, name, arguments, CallForm::ToolFence)?
        }
    };
    Ok(vec![call])
}

/// Returns the body of a fenced block without the block's indentation, and with Unix line ends,
/// because commands need them.
fn without_indentation<'a>(block: &Block, body: &'a str) -> Cow<'a, str> {
    let indentation = block.raw.bytes().take_while(|byte| *byte == b' ').count();
    let body = if body.contains("\r\n") {
        Cow::Owned(body.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(body)
    };
    if indentation == 0 {
        return body;
    }
    let mut unindented = String::new();
    for line in body.split_inclusive('\n') {
        let spaces = line.bytes().take(indentation).take_while(|byte| *byte == b' ').count();
        unindented.push_str(&line[spaces..]);
    }
    Cow::Owned(unindented)
}

/// Adds the calls in a JSON value: a call, a list of calls, or `{"tool_calls": […]}`.
fn add_json(
    calls: &mut Vec<TextCall>,
    value: Value,
    offered: &OfferedTools,
    form: CallForm,
) -> Result<(), BlockError> {
    let values = match value {
        Value::Array(values) => values,
        Value::Object(mut fields) => match fields.remove("tool_calls") {
            // An object with a name is a call itself, so it can't be a list of calls, too.
            Some(Value::Array(values)) if !fields.contains_key("name") => values,
            Some(_) => return Err(BlockError::ToolCalls),
            None => vec![Value::Object(fields)],
        },
        _ => return Err(BlockError::NoObject),
    };
    if values.is_empty() {
        return Err(BlockError::Empty);
    }
    for value in values {
        if calls.len() == MAX_CALLS {
            return Err(BlockError::TooManyCalls);
        }
        calls.push(json_call(value, offered, form)?);
    }
    Ok(())
}

/// Reads one call in JSON. Models have different names for the fields of a call.
fn json_call(value: Value, offered: &OfferedTools, form: CallForm) -> Result<TextCall, CallError> {
    let Value::Object(mut fields) = value else { return Err(CallError::Fields) };
    if let Some(Value::Object(function)) = fields.remove("function") {
        fields = function;
    }
    let name = fields.remove("name").or_else(|| fields.remove("tool_id"));
    let Some(Value::String(name)) = name else { return Err(CallError::Fields) };
    let mut arguments = None;
    for key in ["arguments", "parameters", "params"] {
        let Some(value) = fields.remove(key) else { continue };
        if arguments.is_some() {
            return Err(CallError::ArgumentsTwice { tool: name });
        }
        arguments = Some(value);
    }
    make_call(offered, &name, arguments.unwrap_or(Value::Null), form)
}

/// Reads a line `tool/argument>value` or `tool/{…}`. Returns `None` if the tool or an argument
/// doesn't exist, because prose may look similar.
pub(super) fn read_line(line: &str, offered: &OfferedTools) -> Option<TextCall> {
    let (name, parameters) = line.split_once('/')?;
    let tool = offered.named(name)?;
    let fields: Map<String, Value> = if parameters.starts_with('{') {
        serde_json::from_str(parameters).ok()?
    } else {
        let (argument, value) = parameters.split_once('>')?;
        let value = value.trim();
        if value.is_empty() {
            return None;
        }
        Map::from_iter([(argument.to_owned(), tool.value(argument, value))])
    };
    if !has_all_arguments(tool, &fields) {
        return None;
    }
    make_call(offered, name, Value::Object(fields), CallForm::Line).ok()
}

struct Tags<'a> {
    text: &'a str,
    position: usize,
    offered: &'a OfferedTools,
    calls: Vec<TextCall>,
    /// Whether a tag had attributes other than a tool's name.
    has_attributes: bool,
}

impl<'a> Tags<'a> {
    /// Reads all calls inside a tag: JSON, tags, or a tool's name with pairs of tags.
    fn read(mut self) -> Result<Vec<TextCall>, BlockError> {
        loop {
            self.skip_space();
            let rest = self.rest();
            if rest.is_empty() {
                break;
            }
            if self.calls.len() >= MAX_CALLS {
                return Err(BlockError::TooManyCalls);
            }
            if rest.starts_with(['{', '[']) {
                self.read_json_value()?;
            } else if rest.starts_with('<') {
                self.read_tagged_call()?;
            } else {
                self.read_name_and_pairs()?;
            }
        }
        if !self.calls.is_empty() {
            Ok(self.calls)
        } else if self.has_attributes {
            Err(BlockError::Attributes)
        } else {
            Err(BlockError::Empty)
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_space(&mut self) {
        self.position = self.text.len() - self.rest().trim_start().len();
    }

    /// Reads a JSON value, and adds its calls. Other text may follow.
    fn read_json_value(&mut self) -> Result<(), BlockError> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        let first_value = values.next().ok_or(BlockError::Empty)?;
        let value = first_value.map_err(BlockError::Json)?;
        let length = values.byte_offset();
        add_json(&mut self.calls, value, self.offered, CallForm::Tag)?;
        self.position += length;
        Ok(())
    }

    /// Reads a tag and, if the tag names a tool, the arguments and the end of the call.
    fn read_tagged_call(&mut self) -> Result<(), BlockError> {
        let Ok((tag, length)) = read_tag(self.rest()) else { return Err(unexpected(self.rest())) };
        match tag {
            Tag::Open(TagFamily::Invoke, attributes) if !attributes.is_empty() => {
                let name = attribute(attributes).ok_or(BlockError::NamelessInvoke)?;
                self.position += length;
                let arguments = self.read_parameters(name, "</invoke>")?;
                self.calls.push(make_call(self.offered, name, arguments, CallForm::Invoke)?);
            }
            Tag::Open(TagFamily::Call | TagFamily::Invoke, attributes) => {
                if !attributes.is_empty() {
                    self.has_attributes = true;
                }
                self.position += length;
            }
            Tag::Close(_) => self.position += length,
            Tag::Other(inner) if inner.starts_with("function=") => {
                let name = &inner["function=".len()..];
                self.position += length;
                let arguments = self.read_parameters(name, "</function>")?;
                self.calls.push(make_call(self.offered, name, arguments, CallForm::Invoke)?);
            }
            _ => return Err(unexpected(self.rest())),
        }
        Ok(())
    }

    /// Reads parameters up to the closing tag `end`.
    fn read_parameters(&mut self, tool: &str, end: &'static str) -> Result<Value, BlockError> {
        let tool = self.offered.named(tool);
        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if self.rest().starts_with(end) {
                self.position += end.len();
                return Ok(Value::Object(arguments));
            }
            let Ok((Tag::Other(inner), length)) = read_tag(self.rest()) else {
                return Err(BlockError::NoTag(end));
            };
            self.position += length;
            let name = parameter_name(inner).ok_or(BlockError::NoTag(end))?;
            let value = self.take_until("</parameter>")?;
            insert_argument(&mut arguments, tool, name.trim(), value)?;
        }
    }

    /// Reads a tool's name and the pairs of `<arg_key>` and `<arg_value>` after it, up to a closing
    /// tag.
    fn read_name_and_pairs(&mut self) -> Result<(), BlockError> {
        let rest = self.rest();
        let name_end = rest.find(['<', '\n']).unwrap_or(rest.len());
        let name = rest[..name_end].trim();
        let tool = self.offered.named(name).ok_or_else(|| unexpected(rest))?;
        self.position += name_end;

        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if self.rest().starts_with("<arg_key>") {
                self.position += "<arg_key>".len();
                let key = self.take_until("</arg_key>")?;
                self.skip_space();
                if !self.rest().starts_with("<arg_value>") {
                    return Err(BlockError::NoTag("<arg_value>"));
                }
                self.position += "<arg_value>".len();
                let value = self.take_until("</arg_value>")?;
                insert_argument(&mut arguments, Some(tool), key.trim(), value)?;
            } else if matches!(read_tag(self.rest()), Ok((Tag::Close(_), _))) {
                let arguments = Value::Object(arguments);
                self.calls.push(make_call(self.offered, name, arguments, CallForm::Invoke)?);
                return Ok(());
            } else {
                return Err(BlockError::NoTag("</tool_call>"));
            }
        }
    }

    /// Reads the text up to `end`, and skips `end`.
    fn take_until(&mut self, end: &'static str) -> Result<&'a str, BlockError> {
        let rest = self.rest();
        let length = rest.find(end).ok_or(BlockError::NoTag(end))?;
        self.position += length + end.len();
        Ok(&rest[..length])
    }
}

/// Adds an argument that was written as text. Fails if the argument is repeated.
fn insert_argument(
    arguments: &mut Map<String, Value>,
    tool: Option<&OfferedTool>,
    name: &str,
    text: &str,
) -> Result<(), CallError> {
    // Remove the line ends that models often put around the value.
    let text = text.strip_prefix('\n').unwrap_or(text);
    let value = text.strip_suffix('\n').unwrap_or(text);
    let value = match tool {
        Some(tool) => tool.value(name, value),
        None => Value::from(value),
    };
    match arguments.insert(name.to_owned(), value) {
        Some(_) => Err(CallError::RepeatedArgument(name.to_owned())),
        None => Ok(()),
    }
}

fn parameter_name(tag: &str) -> Option<&str> {
    match tag.strip_prefix("parameter=") {
        Some(name) => Some(name),
        None => attribute(tag.strip_prefix("parameter ")?),
    }
}

/// Returns the value of the attribute `name`, or `None` if there are other attributes.
fn attribute(attributes: &str) -> Option<&str> {
    let value = attributes.trim().strip_prefix("name")?.trim_start().strip_prefix('=')?.trim();
    let quote = value.chars().next()?;
    let name = value.strip_prefix(['"', '\''])?.strip_suffix(quote)?;
    if name.contains(quote) { None } else { Some(name) }
}

fn unexpected(rest: &str) -> BlockError {
    BlockError::Unexpected(super::excerpt(rest, 40))
}

/// The reason why a block is refused, for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum BlockError {
    #[error(
        "the ends of the code blocks are unclear, because one block contains a line that opens \
         another block. Use a longer fence (````) around code with fences, or write the call in a \
         message without other code"
    )]
    Ambiguous,
    #[error("the call may belong to the quotation before it: leave an empty line")]
    Quoted,
    #[error("the tags of the call are nested too deeply: use only one tag")]
    TooDeep,
    #[error("the block is empty")]
    Empty,
    #[error("the block has too many calls; the limit is {MAX_CALLS}")]
    TooManyCalls,
    #[error("the message has too many calls; the limit is {}", super::MAX_CALLS)]
    TooManyCallsInMessage,
    #[error("the block isn't closed: add a line of ``` at the end")]
    OpenFence,
    #[error("a block of JSON isn't a call")]
    JsonFence,
    #[error("the line isn't a call")]
    Line,
    #[error(
        "<tools> has to contain one call and nothing else: {{\"name\": …, \"arguments\": {{…}}}}. \
         Use <tool_call> instead"
    )]
    Tools,
    #[error(
        "a tag with attributes isn't a call: write a block ```tool_call that contains {{\"name\": \
         …, \"arguments\": {{…}}}}"
    )]
    Attributes,
    #[error("<invoke> has to name its tool: <invoke name=\"…\">")]
    NamelessInvoke,
    #[error("`{0}` is missing")]
    NoTag(&'static str),
    #[error("the call has to be {{\"name\": …, \"arguments\": {{…}}}}, but starts with `{0}`")]
    Unexpected(String),
    #[error("the JSON of the call isn't valid: {0}")]
    Json(serde_json::Error),
    #[error("the call has to be a JSON object")]
    NoObject,
    #[error("`tool_calls` has to be a list of calls")]
    ToolCalls,
    #[error(transparent)]
    Call(#[from] CallError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("the call has to be {{\"name\": …, \"arguments\": {{…}}}}")]
    Fields,
    #[error("the tool's name has {0} bytes; 1 to {MAX_NAME} are valid")]
    NameLength(usize),
    #[error("the arguments of `{tool}` have to be a JSON object")]
    Arguments { tool: String },
    #[error("the arguments have to be a JSON object, such as {{\"path\": \"a.txt\"}}")]
    ArgumentText,
    #[error("the call of `{tool}` has arguments under two names: use only `arguments`")]
    ArgumentsTwice { tool: String },
    #[error("`{0}` is given more than once")]
    RepeatedArgument(String),
}
