//! Writes a turn as a request in the provider's format, and decodes the bytes of the answer. Each
//! format is a pair of functions without I/O: one writes the request, and one turns bytes into
//! events.

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

impl WireFormat {
    /// Writes the request for a turn. The same turn always has the same bytes. If messages are
    /// added to a turn, the first bytes stay the same.
    pub fn request(self, turn: &Turn, options: &WireOptions) -> WireRequest {
        match self {
            Self::Messages => messages_request::request(turn, options),
            Self::Chat => chat_request::request(turn, options),
            Self::Responses => responses_request::request(turn, options),
            Self::Ollama => ollama::request(turn, options),
        }
    }

    /// Makes the decoder of the answer to a turn.
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

/// Decodes an answer. The bytes may arrive in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    format: WireFormat,
    provider: String,
    splitter: Splitter,
    reader: Box<dyn Reader>,
    assembly: Assembly,
}

impl Decoder {
    /// Decodes bytes, and adds their events to `events`. After an error, further bytes are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if a cap is reached, if the server reports an error, or if the bytes don't
    /// have the format.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), WireError> {
        let Self { splitter, reader, assembly, .. } = self;
        splitter.take(bytes, &mut |frame| read_frame(frame, reader.as_mut(), assembly, events))
    }

    /// Checks whether the answer is complete, whatever the server still sends.
    pub fn is_done(&self) -> bool {
        self.assembly.is_done
    }

    /// Ends the stream, and returns the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer isn't complete, and in all cases of [`Self::feed`].
    pub fn finish(mut self, events: &mut Vec<ModelEvent>) -> Result<ModelAnswer, WireError> {
        let Self { splitter, reader, assembly, .. } = &mut self;
        splitter.finish(&mut |frame| read_frame(frame, reader.as_mut(), assembly, events))?;
        let blocks = reader.finish(assembly, events)?;
        let stop = assembly.stop(&blocks);
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
    // The bytes after the end aren't read.
    if assembly.is_done {
        return Ok(());
    }
    if frame.data.trim() == "[DONE]" {
        reader.ended();
        assembly.is_done = true;
        return Ok(());
    }
    let Some(fields) = Fields::parse_first(&frame.data) else {
        let start = neutral_line(cut(&frame.data, 100));
        return Err(WireError::Malformed(format!("`{start}` is not a JSON object")));
    };
    reader.read(frame.name, &fields, assembly, events)
}

/// The part of reading an answer that each format has for itself.
trait Reader: Send + fmt::Debug {
    /// Decodes one event.
    fn read(
        &mut self,
        name: &str,
        fields: &Fields<'_>,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), WireError>;

    /// Takes `[DONE]`.
    fn ended(&mut self) {}

    /// Takes the end, and gives all blocks.
    fn finish(
        &mut self,
        assembly: &mut Assembly,
        events: &mut Vec<ModelEvent>,
    ) -> Result<Vec<Block>, WireError>;
}

/// Returns the error that an event reports.
fn server_error(fields: &Fields<'_>) -> WireError {
    WireError::Server(ServerError::from_fields(fields).unwrap_or_default())
}

/// Returns the arguments of a call as a JSON object. Any other text becomes the field
/// `INVALID_JSON` of an object, because servers refuse a conversation without an object here.
fn arguments_object(arguments: &str) -> std::borrow::Cow<'_, str> {
    if arguments.trim_ascii().is_empty() {
        return "{}".into();
    }
    match Fields::parse(arguments) {
        Some(_) => readable(arguments),
        None => serde_json::json!({ "INVALID_JSON": arguments }).to_string().into(),
    }
}

/// Returns the arguments in an event. Most servers send a string with JSON, and some servers send
/// the JSON itself.
fn arguments_of(value: &serde_json::value::RawValue) -> std::borrow::Cow<'_, str> {
    string(value).unwrap_or_else(|| value.get().into())
}

/// Joins the texts of some content. Images are left out.
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

/// The parts of an answer that go back to a provider, and their form.
struct Returned<'t> {
    /// Whether the same provider gave the answer in the same format. Only then are opaque parts
    /// sent back.
    is_own: bool,
    drop_thinking: bool,
    answer: &'t ModelAnswer,
}

impl<'t> Returned<'t> {
    fn new(answer: &'t ModelAnswer, format: WireFormat, options: &WireOptions) -> Self {
        let is_own = answer.format == format && answer.provider == options.provider;
        Self { is_own, drop_thinking: options.drop_thinking, answer }
    }

    /// Returns the blocks that are sent back. A block that is sent back as its own JSON comes with
    /// this JSON.
    fn blocks(&self) -> impl Iterator<Item = (&'t Block, Option<&'t RawJson>)> {
        let is_own = self.is_own;
        let keeps_thinking = is_own && !self.drop_thinking;
        self.answer.blocks.iter().filter_map(move |block| match block {
            Block::Text { raw, .. } | Block::Call(crate::turn::ModelCall { raw, .. }) => {
                Some((block, if is_own { raw.as_ref() } else { None }))
            }
            // Only the provider that made this part can read it.
            Block::Thinking { raw: Some(raw), .. } if keeps_thinking => Some((block, Some(raw))),
            Block::Opaque(raw) if is_own => Some((block, Some(raw))),
            Block::Thinking { .. } | Block::Opaque(_) => None,
        })
    }
}

/// The IDs of calls in a request. Another provider's IDs may have characters that this provider
/// refuses, so they get new IDs. The new IDs are made in the order of the messages, so that a later
/// message doesn't change an earlier message.
#[derive(Default)]
struct CallNames<'t> {
    foreign: HashMap<&'t str, String>,
}

impl<'t> CallNames<'t> {
    fn learn(&mut self, message: &'t TurnMessage, format: WireFormat, options: &WireOptions) {
        let TurnMessage::Model(answer) = message else { return };
        if Returned::new(answer, format, options).is_own {
            return;
        }
        for call in answer.calls().filter(|call| !is_plain(&call.id)) {
            let number = self.foreign.len();
            self.foreign.entry(&call.id).or_insert_with(|| {
                let plain = call.id.chars().filter(|c| is_plain_char(*c)).take(32);
                format!("{}_{number}", plain.collect::<String>())
            });
        }
    }

    /// Returns the ID that goes to the provider.
    fn get<'n>(&'n self, id: &'n str) -> &'n str {
        self.foreign.get(id).map_or(id, String::as_str)
    }
}

/// Checks whether every provider accepts an ID.
fn is_plain(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.chars().all(is_plain_char)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Writes the fields of the configuration, except the fields that the format sets itself.
fn write_own_fields(body: &mut Writer<'_>, options: &WireOptions, reserved: &[&str]) {
    for (key, value) in &options.fields {
        if !reserved.contains(&key.as_str()) {
            body.raw(key, value.get());
        }
    }
}
