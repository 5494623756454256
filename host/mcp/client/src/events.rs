//! Parses the `text/event-stream` of an upstream server, with a size limit for events.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use sse_stream::{Error, Sse};
use tokio::sync::mpsc;

use crate::gate::{LimitError, MAX_MESSAGE};

/// Longest ID of an event in bytes. Longer IDs are ignored, because IDs are sent back to the
/// server.
const MAX_ID: usize = 1024;

/// Longest pause in milliseconds before a stream is opened again. The server chooses the pause.
const MAX_RETRY_MILLISECONDS: u64 = 60_000;

pub(crate) struct Events(pub(crate) mpsc::Receiver<Sse>);

impl Stream for Events {
    type Item = Result<Sse, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

/// An event without its data, and the data.
type Event = (Sse, Option<Vec<u8>>);

#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a carriage return. A line feed after it doesn't end another line.
    after_return: bool,
    /// Whether a line was read. A byte order mark is only skipped before the first line.
    has_read_line: bool,
    event: Sse,
    data: Vec<u8>,
    has_data: bool,
}

impl Parser {
    /// Parses a piece of a stream. Returns the events that are complete.
    pub(crate) fn parse_piece(&mut self, piece: &[u8]) -> Result<Vec<Event>, LimitError> {
        let mut events = Vec::new();
        let mut rest = piece;
        while !rest.is_empty() {
            // `\r\n` is one line end, even if a piece ends between both bytes.
            let follows_return = std::mem::take(&mut self.after_return);
            if follows_return && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }

            let line_end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece_of_line = match line_end {
                Some(line_end) => &rest[..line_end],
                None => rest,
            };
            self.line.extend_from_slice(piece_of_line);
            if self.line.len() + self.data.len() > MAX_MESSAGE {
                return Err(LimitError::Size);
            }

            let Some(line_end) = line_end else { break };
            self.after_return = rest[line_end] == b'\r';
            rest = &rest[line_end + 1..];
            if let Some(event) = self.end_line() {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Parses a complete line. Returns the event if the line ends an event.
    fn end_line(&mut self) -> Option<Event> {
        let whole_line = std::mem::take(&mut self.line);
        let mut line = whole_line.as_slice();
        // A stream may start with a byte order mark.
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

    /// Ends the event and returns it. Returns `None` for an event without fields.
    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        let has_data = std::mem::take(&mut self.has_data);
        if has_data {
            return Some((event, Some(data)));
        }
        if event == Sse::default() { None } else { Some((event, None)) }
    }

    /// Adds the field in a line to the event. Unknown fields are ignored.
    fn add_field(&mut self, line: &[u8]) {
        let (field, after_colon) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            // The whole line is the name of a field with an empty value.
            None => (line, b"".as_slice()),
        };
        let value = after_colon.strip_prefix(b" ").unwrap_or(after_colon);
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
                let pause = String::from_utf8_lossy(value).parse::<u64>().ok();
                self.event.retry = pause.map(|pause| pause.min(MAX_RETRY_MILLISECONDS));
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
        let events =
            pieces.iter().flat_map(|piece| parser.parse_piece(piece.as_bytes()).expect("small"));
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
        assert_eq!(
            (whole[0].0.retry, whole[0].1.as_deref()),
            (Some(MAX_RETRY_MILLISECONDS), Some(""))
        );
        assert_eq!(whole[1].1.as_deref(), Some("{\"a\":\n1}"));
        assert_eq!((whole[2].0.id.as_deref(), whole[2].1.as_deref()), (None, Some("x")));
    }

    #[test]
    fn large_events_are_refused_however_they_come() {
        let piece = "a".repeat(1 << 20);
        for start in ["data: ", ": ", ""] {
            let mut parser = Parser::default();
            parser.parse_piece(start.as_bytes()).expect("it is small");
            let refused = (0..9).find_map(|_| parser.parse_piece(piece.as_bytes()).err());
            assert_eq!(refused, Some(LimitError::Size));
        }
        let mut parser = Parser::default();
        let line = format!("data: {piece}\n");
        let refused = (0..9).find_map(|_| parser.parse_piece(line.as_bytes()).err());
        assert_eq!(refused, Some(LimitError::Size));
    }
}
