//! Writes a turn in a provider's format, and decodes the answer. The functions do no I/O.

mod chat;
mod chat_request;
mod delta;
mod messages;
mod messages_request;
mod ollama;
mod responses;
mod responses_request;

use std::collections::HashMap;
use std::fmt;

use toolhold_contract::text::{cut, neutral_line};

use crate::assembly::Assembly;
use crate::body::Writer;
use crate::raw::{Fields, RawJson, readable, string};
use crate::split::{Form, Frame, Splitter};
use crate::turn::{Block, ModelAnswer, ModelEvent, Part, Turn, TurnMessage};
use crate::wire_types::{
    Caching, ServerError, WireCaps, WireError, WireFormat, WireOptions, WireRequest,
};

/// Most bytes of unreadable data in an error message.
const MAX_SHOWN_DATA: usize = 100;

impl WireFormat {
    /// Writes the request for a turn. The same turn always gives the same bytes. Added messages
    /// don't change the bytes of earlier messages, so that servers can cache these bytes.
    pub fn request(self, turn: &Turn, options: &WireOptions) -> WireRequest {
        match self {
            Self::Messages => messages_request::request(turn, options),
            Self::Chat => chat_request::request(turn, options),
            Self::Responses => responses_request::request(turn, options),
            Self::Ollama => ollama::request(turn, options),
        }
    }

    /// Makes the decoder for the answer to a turn.
    pub fn decoder(self, turn: &Turn, provider: &str, caps: WireCaps) -> Decoder {
        let (form, reader): (_, Box<dyn Reader>) = match self {
            Self::Messages => (Form::Events, Box::<messages::Messages>::default()),
            Self::Chat => (Form::Events, Box::<chat::Chat>::default()),
            Self::Responses => (Form::Events, Box::<responses::Responses>::default()),
            Self::Ollama => (Form::Lines, Box::<ollama::Ollama>::default()),
        };
        Decoder {
            format: self,
            provider: provider.to_owned(),
            splitter: Splitter::new(form, caps),
            reader,
            assembly: Assembly::new(turn, caps),
        }
    }
}

/// Decodes an answer from pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    format: WireFormat,
    provider: String,
    splitter: Splitter,
    reader: Box<dyn Reader>,
    assembly: Assembly,
}

impl Decoder {
    /// Decodes bytes, and adds their events to `events`. Bytes after the end of the answer are
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is exceeded, the server reports an error, or the format is
    /// wrong.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), WireError> {
        let Self { splitter, reader, assembly, .. } = self;
        splitter.take(bytes, &mut |frame| read_frame(frame, reader.as_mut(), assembly, events))
    }

    /// Checks whether the answer is complete.
    pub fn is_done(&self) -> bool {
        self.assembly.is_done
    }

    /// Ends the stream and returns the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is incomplete, or any error of [`Self::feed`].
    pub fn finish(mut self, events: &mut Vec<ModelEvent>) -> Result<ModelAnswer, WireError> {
        let Self { splitter, reader, assembly, .. } = &mut self;
        splitter.finish(&mut |frame| read_frame(frame, reader.as_mut(), assembly, events))?;
        let blocks = reader.finish(assembly, events)?;
        let stop = assembly.finish_reason(&blocks);
        events.push(ModelEvent::Usage(assembly.usage));
        events.push(ModelEvent::Finished(stop.clone()));
        Ok(ModelAnswer {
            provider: self.provider,
            format: self.format,
            blocks,
            stop,
            usage: self.assembly.usage,
            model: self.assembly.model(),
        })
    }
}

fn read_frame(
    frame: Frame<'_>,
    reader: &mut dyn Reader,
    assembly: &mut Assembly,
    events: &mut Vec<ModelEvent>,
) -> Result<(), WireError> {
    if assembly.is_done {
        return Ok(());
    }
    if frame.data.trim() == "[DONE]" {
        reader.ended();
        assembly.is_done = true;
        return Ok(());
    }
    let Some(fields) = Fields::parse_first(&frame.data) else {
        let start = neutral_line(cut(&frame.data, MAX_SHOWN_DATA));
        return Err(WireError::Malformed(format!("`{start}` is not a JSON object")));
    };
    reader.read(frame.name, &fields, assembly, events)
}

trait Reader: Send + fmt::Debug {
    fn read(
        &mut self,
        name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError>;

    /// Handles `[DONE]`.
    fn ended(&mut self) {}

    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError>;
}

fn server_error(fields: &Fields<'_>) -> WireError {
    WireError::Server(ServerError::from_fields(fields).unwrap_or_default())
}

/// Returns the arguments as a JSON object, because servers refuse all other values. Other values
/// become the field `INVALID_JSON` of an object.
fn arguments_object(arguments: &str) -> std::borrow::Cow<'_, str> {
    if arguments.trim_ascii().is_empty() {
        return "{}".into();
    }
    match Fields::parse(arguments) {
        Some(_) => readable(arguments),
        None => serde_json::json!({ "INVALID_JSON": arguments }).to_string().into(),
    }
}

/// Returns the arguments in an event: a string with JSON or, from some servers, JSON itself.
fn arguments_of(value: &serde_json::value::RawValue) -> std::borrow::Cow<'_, str> {
    string(value).unwrap_or_else(|| value.get().into())
}

/// Joins the texts with line ends. Images are left out.
fn joined_text(content: &[Part]) -> String {
    let mut joined = String::new();
    for part in content {
        if let Part::Text(text) = part {
            if !joined.is_empty() {
                joined.push('\n');
            }
            joined.push_str(text);
        }
    }
    joined
}

fn has_image(content: &[Part]) -> bool {
    content.iter().any(|part| matches!(part, Part::Image { .. }))
}

/// The parts of an answer that are sent back to a provider.
struct Returned<'t> {
    /// Whether the same provider in the same format made the answer. Only then, opaque parts are
    /// sent.
    is_same_origin: bool,
    drop_thinking: bool,
    answer: &'t ModelAnswer,
}

impl<'t> Returned<'t> {
    fn new(answer: &'t ModelAnswer, format: WireFormat, options: &WireOptions) -> Self {
        let is_same_origin = answer.format == format && answer.provider == options.provider;
        Self { is_same_origin, drop_thinking: options.drop_thinking, answer }
    }

    /// Returns the blocks to send. If a block has JSON that this provider can read, the JSON is
    /// returned with it, and is sent in its place, byte for byte.
    fn blocks(&self) -> impl Iterator<Item = (&'t Block, Option<&'t RawJson>)> {
        let is_same_origin = self.is_same_origin;
        let keeps_thinking = is_same_origin && !self.drop_thinking;
        self.answer.blocks.iter().filter_map(move |block| match block {
            Block::Text { raw, .. } | Block::Call(crate::turn::ModelCall { raw, .. }) => {
                let readable_raw = if is_same_origin { raw.as_ref() } else { None };
                Some((block, readable_raw))
            }
            // Only the provider that made a block of thinking or an opaque block can read it, so no
            // other provider gets it.
            Block::Thinking { raw: Some(raw), .. } if keeps_thinking => Some((block, Some(raw))),
            Block::Opaque(raw) if is_same_origin => Some((block, Some(raw))),
            Block::Thinking { .. } | Block::Opaque(_) => None,
        })
    }
}

/// The most characters of another provider's ID that are kept. With a number, the new ID has at
/// most 40 characters, the limit of providers.
const MAX_KEPT_ID: usize = 32;

/// The IDs of calls in a request. IDs that the provider may refuse are replaced, with numbers in
/// the order of messages. A later message therefore doesn't change earlier bytes.
#[derive(Default)]
struct CallIds<'t> {
    new_ids: HashMap<&'t str, String>,
}

impl<'t> CallIds<'t> {
    /// Makes new IDs for the calls in an answer of another provider, if this provider may refuse
    /// their IDs.
    fn add_message(&mut self, message: &'t TurnMessage, format: WireFormat, options: &WireOptions) {
        let TurnMessage::Model(answer) = message else { return };
        if Returned::new(answer, format, options).is_same_origin {
            return;
        }
        for call in answer.calls().filter(|call| !is_plain(&call.id)) {
            let number = self.new_ids.len();
            self.new_ids.entry(&call.id).or_insert_with(|| {
                let plain_chars = call.id.chars().filter(|c| is_plain_char(*c));
                let start: String = plain_chars.take(MAX_KEPT_ID).collect();
                format!("{start}_{number}")
            });
        }
    }

    fn get<'n>(&'n self, id: &'n str) -> &'n str {
        self.new_ids.get(id).map_or(id, String::as_str)
    }
}

/// Checks whether all providers accept an ID.
fn is_plain(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.chars().all(is_plain_char)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn write_configured_fields(body: &mut Writer<'_>, options: &WireOptions, reserved: &[&str]) {
    for (key, value) in &options.fields {
        if !reserved.contains(&key.as_str()) {
            body.raw(key, value.get());
        }
    }
}
