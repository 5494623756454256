//! Splits the stream of a model's answer into events. The size of an event is checked before the
//! event is parsed.

use std::borrow::Cow;

use crate::wire_types::{WireCaps, WireError};

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Events,
    /// One JSON value per line.
    Lines,
}

/// One event. The name may be empty.
pub(crate) struct Frame<'s> {
    pub(crate) name: &'s str,
    pub(crate) data: Cow<'s, str>,
}

/// Splits bytes into events. The bytes arrive in pieces of any size.
#[derive(Debug)]
pub(crate) struct Splitter {
    form: Form,
    caps: WireCaps,
    total: u64,
    line: Vec<u8>,
    /// Whether the last byte was a carriage return. `\r\n` is one line end.
    after_return: bool,
    start: Start,
    name: String,
    data: Vec<u8>,
    has_data: bool,
}

/// The kind of a stream, as its first bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Unknown,
    Stream,
    /// One JSON value. The server doesn't stream, or reports an error with status 200.
    Whole,
}

impl Splitter {
    pub(crate) fn new(form: Form, caps: WireCaps) -> Self {
        Self {
            form,
            caps,
            total: 0,
            line: Vec::new(),
            after_return: false,
            start: Start::Unknown,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    /// Calls `on_frame` with each event that ends in this piece. Fails if `on_frame` fails, or if a
    /// limit is exceeded.
    pub(crate) fn take(
        &mut self,
        piece: &[u8],
        on_frame: &mut dyn FnMut(Frame<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut rest = piece;
        while !rest.is_empty() {
            let is_second_half = self.after_return && rest[0] == b'\n';
            self.after_return = false;
            if is_second_half {
                self.count(1)?;
                rest = &rest[1..];
                continue;
            }

            let line_end = match self.start {
                Start::Whole => None,
                _ => rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')),
            };
            let text = &rest[..line_end.unwrap_or(rest.len())];
            // Count bytes only up to the first byte above the limit, so that the error is at the
            // same byte however the stream is divided into pieces.
            let free_bytes = self.caps.event.saturating_sub(self.line.len() + self.data.len());
            self.count(text.len().min(free_bytes + 1))?;
            if text.len() > free_bytes {
                return Err(WireError::cap(
                    "an event of the model's answer",
                    self.caps.event as u64,
                ));
            }
            self.line.extend_from_slice(text);
            self.detect_start();

            let Some(line_end) = line_end else { break };
            if self.start == Start::Whole {
                // Line ends mean nothing in one JSON value.
                rest = &rest[line_end..];
                continue;
            }
            self.count(1)?;
            self.after_return = rest[line_end] == b'\r';
            rest = &rest[line_end + 1..];
            self.end_line(on_frame)?;
        }
        Ok(())
    }

    /// Ends the stream. If only line ends are missing after the last event, passes the event to
    /// `on_frame`. An incomplete event is dropped. Fails if `on_frame` fails.
    pub(crate) fn finish(
        &mut self,
        on_frame: &mut dyn FnMut(Frame<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if self.start == Start::Whole {
            let line = std::mem::take(&mut self.line);
            if is_whole(&line) {
                on_frame(Frame { name: "", data: String::from_utf8_lossy(&line) })?;
            }
            return Ok(());
        }
        match self.form {
            Form::Lines => {
                if is_whole(&self.line) {
                    self.end_line(on_frame)?;
                }
            }
            Form::Events => {
                if !self.line.is_empty() {
                    // No event is complete yet, because only an empty line completes an event.
                    self.end_line(&mut |_| Ok(()))?;
                }
                // In OpenAI's formats, `[DONE]` ends an answer, although it isn't JSON.
                if is_whole(&self.data) || self.data.trim_ascii() == b"[DONE]" {
                    self.end_event(on_frame)?;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), WireError> {
        self.total += bytes as u64;
        if self.total > self.caps.stream {
            return Err(WireError::cap("the model's answer", self.caps.stream));
        }
        Ok(())
    }

    /// Decides from the first bytes whether the body is a stream or one JSON value, as soon as the
    /// bytes show this. Removes a byte order mark.
    fn detect_start(&mut self) {
        if self.start != Start::Unknown {
            return;
        }
        let is_part_of_mark =
            BYTE_ORDER_MARK.starts_with(&self.line) && self.line != BYTE_ORDER_MARK;
        if is_part_of_mark {
            return;
        }
        let unmarked = self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line);
        let content = unmarked.trim_ascii_start();
        match content.first() {
            // White space can precede both kinds.
            None => {}
            Some(b'{' | b'[') if self.form == Form::Events => {
                self.line = content.to_vec();
                self.start = Start::Whole;
            }
            Some(_) => {
                self.line = unmarked.to_vec();
                self.start = Start::Stream;
            }
        }
    }

    /// Handles a complete line. `on_frame` gets the event that this line completes.
    fn end_line(
        &mut self,
        on_frame: &mut dyn FnMut(Frame<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let line = std::mem::take(&mut self.line);
        if self.start == Start::Unknown {
            // The line has only a byte order mark, and the stream starts after the mark.
            if line.starts_with(BYTE_ORDER_MARK) {
                self.start = Start::Stream;
            }
            return Ok(());
        }
        if self.form == Form::Lines {
            return match line.trim_ascii() {
                b"" => Ok(()),
                line => on_frame(Frame { name: "", data: String::from_utf8_lossy(line) }),
            };
        }
        if line.is_empty() {
            return self.end_event(on_frame);
        }

        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let field = &line[..colon];
        let after_colon = line.get(colon + 1..).unwrap_or_default();
        let value = after_colon.strip_prefix(b" ").unwrap_or(after_colon);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // Comments keep the connection alive. `id` and `retry` are for resuming a stream.
            _ => {}
        }
        Ok(())
    }

    /// Passes the complete event to `on_frame`. An event without data is dropped.
    fn end_event(
        &mut self,
        on_frame: &mut dyn FnMut(Frame<'_>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        self.has_data = false;
        if data.trim_ascii().is_empty() {
            return Ok(());
        }
        on_frame(Frame { name: &name, data: String::from_utf8_lossy(&data) })
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(form: Form, pieces: &[&[u8]]) -> Result<Vec<(String, String)>, WireError> {
        let caps = WireCaps { event: 100, stream: 1000, ..WireCaps::default() };
        let mut splitter = Splitter::new(form, caps);
        let mut found = Vec::new();
        let mut on = |frame: Frame<'_>| {
            found.push((frame.name.to_owned(), frame.data.into_owned()));
            Ok(())
        };
        for piece in pieces {
            splitter.take(piece, &mut on)?;
        }
        splitter.finish(&mut on)?;
        Ok(found)
    }

    /// The events, which are the same for every cut into two and for single bytes.
    #[track_caller]
    fn every_cut(form: Form, text: &str) -> Vec<(String, String)> {
        let whole = split(form, &[text.as_bytes()]).expect("it is small");
        for at in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(at);
            assert_eq!(split(form, &[one, two]).as_ref(), Ok(&whole), "cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(split(form, &bytes).as_ref(), Ok(&whole));
        whole
    }

    fn named(events: &[(&str, &str)]) -> Vec<(String, String)> {
        events.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    #[test]
    fn events_are_found_in_every_form() {
        let text = "\u{feff}: hello\r\nid: 7\r\nretry: 9\r\ndata:\r\n\r\nevent: a\ndata: {\"x\":\ndata: 1}\n\n\r\rdata:y\r\r: ping\n\ndata: [DONE]\n\n";
        let events = [("a", "{\"x\":\n1}"), ("", "y"), ("", "[DONE]")];
        assert_eq!(every_cut(Form::Events, text), named(&events));
    }

    #[test]
    fn last_event_needs_no_line_end_if_it_is_whole() {
        assert_eq!(every_cut(Form::Events, "data: {}"), named(&[("", "{}")]));
        assert_eq!(every_cut(Form::Events, "data: [DONE]\n"), named(&[("", "[DONE]")]));
        assert_eq!(every_cut(Form::Events, "data: {\"a\":"), []);
        assert_eq!(
            every_cut(Form::Lines, "{\"a\":1}\n\r\n{}"),
            named(&[("", "{\"a\":1}"), ("", "{}")])
        );
        assert_eq!(every_cut(Form::Lines, "{\"a\":1}\n{\"a"), named(&[("", "{\"a\":1}")]));
    }

    #[test]
    fn answer_that_is_no_stream_is_one_event() {
        for text in ["{\n \"error\": 1\n}\n", " \r\n\u{a}{\n \"error\": 1\n}\n"] {
            assert_eq!(every_cut(Form::Events, text), named(&[("", "{\n \"error\": 1\n}\n")]));
        }
        assert_eq!(every_cut(Form::Events, "\u{feff}{}"), named(&[("", "{}")]));
        assert_eq!(every_cut(Form::Events, "<html>\n\n"), []);
    }

    #[test]
    fn caps_end_a_stream_at_the_same_place_for_every_cut() {
        let lines = ["data: ", ": ", "", "data: x\ndata: "]
            .map(|start| start.to_owned() + &"a".repeat(101));
        for text in lines {
            for size in [1, 7, 1000] {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
                let refused = split(Form::Events, &pieces).expect_err("it is too long");
                assert_eq!(refused, WireError::cap("an event of the model's answer", 100));
            }
        }
        let endless = ": keep-alive\n\n".repeat(100);
        for size in [1, 7, 10_000] {
            let pieces: Vec<&[u8]> = endless.as_bytes().chunks(size).collect();
            let refused = split(Form::Events, &pieces).expect_err("it is too long");
            assert_eq!(refused, WireError::cap("the model's answer", 1000));
        }
    }
}
