//! Parses the `text/event-stream` of an upstream server. The size of each event is checked before
//! the event is parsed.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use sse_stream::{Error, Sse};
use tokio::sync::mpsc;

use crate::gate::{LimitError, MAX_MESSAGE};

/// Most bytes of an event's ID, which is sent back to the server.
const MAX_ID: usize = 1024;

/// The longest pause that a server can request before a stream is opened again, in milliseconds.
const MAX_PAUSE: u64 = 60_000;

/// The events that a task reads.
pub(crate) struct Events(pub(crate) mpsc::Receiver<Sse>);

impl Stream for Events {
    type Item = Result<Sse, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

/// The fields of an event, and its data.
type Event = (Sse, Option<Vec<u8>>);

/// Parses events from the pieces of a stream.
#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a carriage return. A line feed after a carriage return ends the
    /// same line.
    after_return: bool,
    /// Whether the first line was read. A byte order mark may come before the first line.
    has_read_line: bool,
    event: Sse,
    data: Vec<u8>,
    has_data: bool,
}

impl Parser {
    /// Parses a piece. Returns the fields and the data of each event that ends in the piece.
    ///
    /// # Errors
    ///
    /// Returns an error if an event is too large.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<Vec<Event>, LimitError> {
        let mut events = Vec::new();
        let mut rest = piece;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.line.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if self.line.len() + self.data.len() > MAX_MESSAGE {
                return Err(LimitError::Size);
            }
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    /// Parses the line that is complete now. Returns the event that the line ends.
    fn end_line(&mut self) -> Option<Event> {
        let whole_line = std::mem::take(&mut self.line);
        let mut line = whole_line.as_slice();
        if !self.has_read_line {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
            self.has_read_line = true;
        }
        if line.is_empty() {
            return self.end_event();
        }
        self.add_field(line);
        None
    }

    /// Returns the event that an empty line ends. Returns `None` if the event has no fields.
    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            return Some((event, Some(data)));
        }
        if event == Sse::default() { None } else { Some((event, None)) }
    }

    /// Adds the field of a line to the event.
    fn add_field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let field = &line[..colon];
        let rest = line.get(colon + 1..).unwrap_or_default();
        let value = rest.strip_prefix(b" ").unwrap_or(rest);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.event.event = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" => {
                let is_printable = value.iter().all(|byte| (b' '..=b'~').contains(byte));
                if is_printable && value.len() <= MAX_ID {
                    self.event.id = Some(String::from_utf8_lossy(value).into_owned());
                }
            }
            b"retry" => {
                let pause = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                self.event.retry = pause.map(|pause: u64| pause.min(MAX_PAUSE));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pieces: &[&str]) -> Vec<(Sse, Option<String>)> {
        let mut parser = Parser::default();
        let events = pieces.iter().flat_map(|piece| parser.take(piece.as_bytes()).expect("small"));
        events
            .map(|(event, data)| (event, data.map(|data| String::from_utf8(data).expect("text"))))
            .collect()
    }

    #[test]
    fn events_are_read_in_every_form_and_cut() {
        let text = "\u{feff}: hello\r\nid: 7\r\nretry: 9999999\r\ndata:\r\n\r\nevent: message\ndata: {\"a\":\ndata: 1}\n\n\r\rdata: x\rid: \u{1b}\r\r";
        let whole = parsed(&[text]);
        let pieces: Vec<&str> = text.split_inclusive(|_| true).collect();
        assert_eq!(whole, parsed(&pieces));
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0].0.id.as_deref(), Some("7"));
        assert_eq!((whole[0].0.retry, whole[0].1.as_deref()), (Some(MAX_PAUSE), Some("")));
        assert_eq!(whole[1].1.as_deref(), Some("{\"a\":\n1}"));
        assert_eq!((whole[2].0.id.as_deref(), whole[2].1.as_deref()), (None, Some("x")));
    }

    #[test]
    fn large_events_are_refused_however_they_come() {
        let piece = "a".repeat(1 << 20);
        for start in ["data: ", ": ", ""] {
            let mut parser = Parser::default();
            parser.take(start.as_bytes()).expect("it is small");
            let refused = (0..9).find_map(|_| parser.take(piece.as_bytes()).err());
            assert_eq!(refused, Some(LimitError::Size));
        }
        let mut parser = Parser::default();
        let line = format!("data: {piece}\n");
        let refused = (0..9).find_map(|_| parser.take(line.as_bytes()).err());
        assert_eq!(refused, Some(LimitError::Size));
    }
}
