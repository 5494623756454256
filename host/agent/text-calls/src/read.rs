//! Reads the calls in a block, in each form in which models write them. A block is read as a whole:
//! if any part of it isn't a call, none of it is.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::block::{Block, BlockKind};
use super::marks::{Family, Tag, read_tag};
use super::offered_tools::{OfferedTool, OfferedTools};
use super::{CallForm, TextCall};

/// Most calls in one block.
const MAX_CALLS: usize = 16;

/// Bytes of the longest name of a tool that is given on.
const MAX_NAME: usize = 128;

/// The calls in a block, or why there are none.
pub(super) fn read_block(
    block: &Block,
    offered: &OfferedTools,
) -> Result<Vec<TextCall>, BlockError> {
    let body = &block.raw[block.body..block.body_end.max(block.body)];
    match &block.kind {
        _ if block.is_ambiguous => Err(BlockError::Ambiguous),
        _ if block.is_quoted => Err(BlockError::Quoted),
        _ if block.is_too_deep => Err(BlockError::TooDeep),
        BlockKind::Fence(_) | BlockKind::JsonFence if !block.is_closed => {
            Err(BlockError::OpenFence)
        }
        BlockKind::JsonFence => Err(BlockError::JsonFence),
        BlockKind::Fence(info) => read_fence(info, &without_indentation(block, body), offered),
        BlockKind::Tag(Family::Tools) if !block.is_closed => Err(BlockError::Tools),
        BlockKind::Tag(Family::Tools) => {
            let body = body.rfind('<').map_or("", |end| &body[..end]);
            let call = canonical_call(body, offered).ok_or(BlockError::Tools)?;
            Ok(vec![TextCall { form: CallForm::Tag, ..call }])
        }
        BlockKind::Tag(_) => {
            Tags { text: &block.raw, at: 0, offered, calls: Vec::new(), has_attributes: false }
                .read()
        }
        BlockKind::Line => {
            read_line(block.raw.trim(), offered).map(|call| vec![call]).ok_or(BlockError::Line)
        }
    }
}

/// A call in the one form that needs no mark: an object with the name of an offered tool and its
/// arguments, and no other field that means anything.
pub(super) fn canonical_call(json: &str, offered: &OfferedTools) -> Option<TextCall> {
    let Value::Object(mut fields) = serde_json::from_str(json.trim()).ok()? else { return None };
    let known = ["name", "arguments", "parameters", "id", "type"];
    if fields.keys().any(|key| !known.contains(&key.as_str())) || fields.len() < 2 {
        return None;
    }
    let arguments = match (fields.remove("arguments"), fields.remove("parameters")) {
        (Some(arguments @ Value::Object(_)), None) | (None, Some(arguments @ Value::Object(_))) => {
            arguments
        }
        _ => return None,
    };
    let tool = offered.named(fields.get("name")?.as_str()?)?;
    Some(TextCall {
        name: tool.name.clone(),
        arguments,
        form: CallForm::Json,
        is_offered: true,
        is_echo: false,
    })
}

fn call(
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

/// Arguments that were written as one text: a JSON object, or the argument that takes a text.
fn text_arguments(tool: Option<&OfferedTool>, text: String) -> Result<Value, CallError> {
    match (serde_json::from_str(&text), tool.and_then(OfferedTool::bare_argument)) {
        // For a tool that takes a text, an object with other fields is such a text.
        (Ok(Value::Object(fields)), bare)
            if bare.is_none() || tool.is_none_or(|tool| has_all(tool, &fields)) =>
        {
            Ok(Value::Object(fields))
        }
        (_, Some(argument)) => {
            Ok(Value::Object(Map::from_iter([(argument.to_owned(), Value::String(text))])))
        }
        _ => Err(CallError::ArgumentText),
    }
}

/// Whether the fields are all arguments of a tool.
fn has_all(tool: &OfferedTool, fields: &Map<String, Value>) -> bool {
    fields.keys().all(|name| tool.has_argument(name))
}

/// ```` ```tool_call ````, ```` ```tool NAME ````, or the tag of a tool.
fn read_fence(info: &str, body: &str, offered: &OfferedTools) -> Result<Vec<TextCall>, BlockError> {
    if info == "tool_call" {
        let mut calls = Vec::new();
        for value in serde_json::Deserializer::from_str(body).into_iter::<Value>() {
            let value = value.map_err(BlockError::Json)?;
            add_json(&mut calls, value, offered, CallForm::ToolFence)?;
        }
        return if calls.is_empty() { Err(BlockError::Empty) } else { Ok(calls) };
    }
    let own = offered.fenced(info);
    let (name, form) = match own {
        Some(tool) => (tool.name.as_str(), CallForm::Fence),
        None => (info.strip_prefix("tool").unwrap_or_default().trim(), CallForm::ToolFence),
    };
    let text = body.strip_suffix('\n').unwrap_or(body);
    if text.trim().is_empty() {
        // A tool without arguments needs none. A command, for example, can't be empty.
        return match own {
            Some(_) => Err(BlockError::Empty),
            None => Ok(vec![call(offered, name, Value::Null, form)?]),
        };
    }
    Ok(vec![call(offered, name, Value::String(text.to_owned()), form)?])
}

/// The body of a fenced block, without the spaces that its first line has too, and with the line
/// ends of Unix: a command isn't written for another system.
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
    let lines = body.split_inclusive('\n').map(|line| {
        let spaces = line.bytes().take(indentation).take_while(|byte| *byte == b' ').count();
        &line[spaces..]
    });
    Cow::Owned(lines.collect())
}

/// Adds the calls in a JSON value: one call, a list of calls, or `{"tool_calls": […]}`.
fn add_json(
    calls: &mut Vec<TextCall>,
    value: Value,
    offered: &OfferedTools,
    form: CallForm,
) -> Result<(), BlockError> {
    let values = match value {
        Value::Array(values) => values,
        Value::Object(mut fields) => match fields.remove("tool_calls") {
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

fn json_call(value: Value, offered: &OfferedTools, form: CallForm) -> Result<TextCall, CallError> {
    let Value::Object(mut fields) = value else { return Err(CallError::Fields) };
    if let Some(Value::Object(function)) = fields.remove("function") {
        fields = function;
    }
    let name = fields.remove("name").or_else(|| fields.remove("tool_id"));
    let Some(Value::String(name)) = name else { return Err(CallError::Fields) };
    let mut arguments =
        ["arguments", "parameters", "params"].into_iter().filter_map(|key| fields.remove(key));
    let first = arguments.next();
    if arguments.next().is_some() {
        return Err(CallError::ArgumentsTwice { tool: name });
    }
    call(offered, &name, first.unwrap_or(Value::Null), form)
}

/// `tool/argument>value` or `tool/{…}`: only for a tool and an argument that exist, since this form
/// has no mark that prose doesn't have.
pub(super) fn read_line(line: &str, offered: &OfferedTools) -> Option<TextCall> {
    let (name, rest) = line.split_once('/')?;
    let tool = offered.named(name)?;
    let arguments = if rest.starts_with('{') {
        let fields: Map<String, Value> = serde_json::from_str(rest).ok()?;
        has_all(tool, &fields).then_some(Value::Object(fields))?
    } else {
        let (argument, value) = rest.split_once('>')?;
        let is_known = tool.has_argument(argument) && !value.trim().is_empty();
        let value = tool.value(argument, value.trim());
        is_known.then(|| Value::Object(Map::from_iter([(argument.to_owned(), value)])))?
    };
    call(offered, name, arguments, CallForm::Line).ok()
}

/// Reads a block of tags.
struct Tags<'a> {
    text: &'a str,
    at: usize,
    offered: &'a OfferedTools,
    calls: Vec<TextCall>,
    /// Whether a tag of a call had some, which are never a call.
    has_attributes: bool,
}

impl<'a> Tags<'a> {
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
                let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
                let value = values.next().ok_or(BlockError::Empty)?.map_err(BlockError::Json)?;
                let length = values.byte_offset();
                add_json(&mut self.calls, value, self.offered, CallForm::Tag)?;
                self.at += length;
            } else if rest.starts_with('<') {
                self.read_tag()?;
            } else {
                self.read_name_and_pairs()?;
            }
        }
        if !self.calls.is_empty() {
            return Ok(self.calls);
        }
        Err(if self.has_attributes { BlockError::Attributes } else { BlockError::Empty })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn read_tag(&mut self) -> Result<(), BlockError> {
        let Ok((tag, length)) = read_tag(self.rest()) else { return Err(unexpected(self.rest())) };
        match tag {
            Tag::Open(Family::Invoke, attributes) if !attributes.is_empty() => {
                let name = attribute(attributes).ok_or(BlockError::NamelessInvoke)?;
                self.at += length;
                let arguments = self.read_parameters(name, "</invoke>")?;
                self.calls.push(call(self.offered, name, arguments, CallForm::Invoke)?);
            }
            Tag::Open(Family::Call | Family::Invoke, attributes) => {
                self.has_attributes |= !attributes.is_empty();
                self.at += length;
            }
            Tag::Close(_) => self.at += length,
            Tag::Other(inner) if inner.starts_with("function=") => {
                let name = &inner["function=".len()..];
                self.at += length;
                let arguments = self.read_parameters(name, "</function>")?;
                self.calls.push(call(self.offered, name, arguments, CallForm::Invoke)?);
            }
            _ => return Err(unexpected(self.rest())),
        }
        Ok(())
    }

    /// `<parameter name="…">…</parameter>` or `<parameter=…>…</parameter>`, until `end`.
    fn read_parameters(&mut self, tool: &str, end: &'static str) -> Result<Value, BlockError> {
        let tool = self.offered.named(tool);
        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if self.rest().starts_with(end) {
                self.at += end.len();
                return Ok(Value::Object(arguments));
            }
            let tag_name = match read_tag(self.rest()) {
                Ok((Tag::Other(inner), length)) => {
                    self.at += length;
                    inner
                        .strip_prefix("parameter=")
                        .or_else(|| attribute(inner.strip_prefix("parameter ")?))
                }
                _ => None,
            };
            let name = tag_name.ok_or(BlockError::NoTag(end))?.trim();
            let value = self.take_until("</parameter>")?;
            self.insert(&mut arguments, tool, name, value)?;
        }
    }

    /// A tool's name, then `<arg_key>…</arg_key><arg_value>…</arg_value>`, until the tag is closed.
    fn read_name_and_pairs(&mut self) -> Result<(), BlockError> {
        let rest = self.rest();
        let name = rest.find(['<', '\n']).map_or(rest, |end| &rest[..end]).trim();
        let tool = self.offered.named(name).ok_or_else(|| unexpected(rest))?;
        self.at += rest.find(['<', '\n']).unwrap_or(rest.len());
        let mut arguments = Map::new();
        loop {
            self.skip_space();
            if self.rest().starts_with("<arg_key>") {
                self.at += "<arg_key>".len();
                let key = self.take_until("</arg_key>")?;
                self.skip_space();
                if !self.rest().starts_with("<arg_value>") {
                    return Err(BlockError::NoTag("<arg_value>"));
                }
                self.at += "<arg_value>".len();
                let value = self.take_until("</arg_value>")?;
                self.insert(&mut arguments, Some(tool), key.trim(), value)?;
            } else if matches!(read_tag(self.rest()), Ok((Tag::Close(_), _))) {
                let call = call(self.offered, name, Value::Object(arguments), CallForm::Invoke)?;
                self.calls.push(call);
                return Ok(());
            } else {
                return Err(BlockError::NoTag("</tool_call>"));
            }
        }
    }

    fn take_until(&mut self, end: &'static str) -> Result<&'a str, BlockError> {
        let rest = self.rest();
        let length = rest.find(end).ok_or(BlockError::NoTag(end))?;
        self.at += length + end.len();
        Ok(&rest[..length])
    }

    fn insert(
        &self,
        arguments: &mut Map<String, Value>,
        tool: Option<&OfferedTool>,
        name: &str,
        value: &str,
    ) -> Result<(), CallError> {
        // Models write the value on lines of its own.
        let text = value.strip_prefix('\n').unwrap_or(value);
        let value = text.strip_suffix('\n').unwrap_or(text);
        let value = tool.map_or_else(|| Value::from(value), |tool| tool.value(name, value));
        match arguments.insert(name.to_owned(), value) {
            Some(_) => Err(CallError::RepeatedArgument(name.to_owned())),
            None => Ok(()),
        }
    }
}

/// The value of the one attribute `name`.
fn attribute(attributes: &str) -> Option<&str> {
    let quoted = attributes.trim().strip_prefix("name")?.trim_start().strip_prefix('=')?.trim();
    let quote = quoted.chars().next().filter(|c| "\"'".contains(*c))?;
    quoted[1..].strip_suffix(quote).filter(|name| !name.contains(quote))
}

fn unexpected(rest: &str) -> BlockError {
    BlockError::Unexpected(super::excerpt(rest, 40))
}

/// The reason why a block contains no calls, for the model: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum BlockError {
    #[error(
        "it is unclear which code block ends where, since one contains a line that opens another. \
         Use a longer fence (````) around code with fences, or write the call in a message without \
         other code"
    )]
    Ambiguous,
    #[error("the call may belong to the quotation before it: leave an empty line")]
    Quoted,
    #[error("its tags are nested too deeply: use one")]
    TooDeep,
    #[error("the block is empty")]
    Empty,
    #[error("the block has too many calls; the limit is {MAX_CALLS}")]
    TooManyCalls,
    #[error("the message has too many calls; the limit is {}", super::MAX_CALLS)]
    TooManyCallsInMessage,
    #[error("the block isn't closed: end it with a line of ```")]
    OpenFence,
    #[error("a block of JSON is no call")]
    JsonFence,
    #[error("the line is no call")]
    Line,
    #[error(
        "<tools> has to contain one call and nothing else: {{\"name\": …, \"arguments\": {{…}}}}. \
         Use <tool_call> instead"
    )]
    Tools,
    #[error(
        "attributes of a tag are no call: write a block ```tool_call that contains \
         {{\"name\": …, \"arguments\": {{…}}}}"
    )]
    Attributes,
    #[error("<invoke> has to name its tool: <invoke name=\"…\">")]
    NamelessInvoke,
    #[error("`{0}` is missing")]
    NoTag(&'static str),
    #[error("the call has to be {{\"name\": …, \"arguments\": {{…}}}}, and begins `{0}`")]
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

/// The fault of one call.
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
    #[error("`{tool}` has its arguments under two names: use `arguments` alone")]
    ArgumentsTwice { tool: String },
    #[error("`{0}` is given more than once")]
    RepeatedArgument(String),
}
