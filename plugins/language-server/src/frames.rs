//! Splits and writes messages of a language server: headers, an empty line, and as many bytes as
//! `Content-Length` says.

use serde_json::Value;

use crate::LspError;

/// Most bytes of the headers of one message.
const MAX_HEADERS: usize = 4_096;

/// Most bytes of one message.
const MAX_MESSAGE: usize = 16 << 20;

/// Splits the output of a server. The reader of JSON refuses more than 128 levels.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The bytes of the buffer that were taken. They are removed with the next push, so that many
    /// small messages aren't moved for each of them.
    taken: usize,
    /// The length of the message whose headers were read.
    length: Option<usize>,
}

impl Frames {
    /// Adds bytes that were read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next message, if all of it is here.
    ///
    /// # Errors
    ///
    /// [`LspError::Protocol`]: the output isn't a frame, is too large, or isn't JSON.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, LspError> {
        if self.length.is_none() {
            let rest = &self.buffer[self.taken..];
            let Some(end) = find(rest, b"\r\n\r\n") else {
                if rest.len() > MAX_HEADERS {
                    return Err(wrong(format!("the headers have more than {MAX_HEADERS} bytes")));
                }
                return Ok(None);
            };
            self.length = Some(length(&rest[..end])?);
            self.taken += end + 4;
        }
        let rest = &self.buffer[self.taken..];
        let Some(message) = self.length.and_then(|length| rest.get(..length)) else {
            return Ok(None);
        };
        self.length = None;
        self.taken += message.len();
        let message = serde_json::from_slice(message);
        message.map(Some).map_err(|_| wrong("a message isn't JSON".to_owned()))
    }

    /// Whether nothing of a message is here, so that the next one begins with its headers.
    pub(crate) fn is_between(&self) -> bool {
        self.buffer.len() == self.taken && self.length.is_none()
    }
}

/// A message with its headers.
pub(crate) fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    format!("Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

fn length(headers: &[u8]) -> Result<usize, LspError> {
    if headers.len() > MAX_HEADERS {
        return Err(wrong(format!("the headers have more than {MAX_HEADERS} bytes")));
    }
    let headers = String::from_utf8_lossy(headers);
    let mut named = headers.lines().filter_map(|line| line.split_once(':'));
    let length = named
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse::<u64>().ok())
        .ok_or_else(|| wrong("a message has no length".to_owned()))?;
    match usize::try_from(length) {
        Ok(length) if length <= MAX_MESSAGE => Ok(length),
        _ => Err(wrong(format!("a message is {length} bytes; the limit is {MAX_MESSAGE}"))),
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).take(MAX_HEADERS + wanted.len()).position(|part| part == wanted)
}

fn wrong(what: String) -> LspError {
    LspError::Protocol(what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_is_read_in_any_pieces() {
        let messages = [json!({ "id": 1, "text": "é\r\n\r\n" }), json!(2)];
        let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
        for size in [1, 7, bytes.len()] {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for part in bytes.chunks(size) {
                frames.push(part);
                while let Some(message) = frames.next().unwrap() {
                    read.push(message);
                }
            }
            assert!(read == messages && frames.is_between(), "{size}");
        }
    }

    #[track_caller]
    fn check_wrong(bytes: &[u8], what: &str) {
        let mut frames = Frames::default();
        frames.push(bytes);
        let error = frames.next().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }

    #[test]
    fn hostile_frames_are_refused_before_they_cost_anything() {
        check_wrong(b"Content-Length: 1073741824\r\n\r\n", "the limit is");
        check_wrong(b"Content-Length: 99999999999\r\n\r\n", "the limit is");
        check_wrong(b"Content-Length: 99999999999999999999\r\n\r\n", "no length");
        check_wrong(b"Content-Length: -1\r\n\r\n", "no length");
        check_wrong(b"Other: 1\r\n\r\n{}", "no length");
        check_wrong(&[b'a'; MAX_HEADERS + 1], "headers");
        check_wrong(b"Content-Length: 3\r\n\r\n{{{", "isn't JSON");
        let deep = "[".repeat(100_000);
        let deep = format!("Content-Length: {}\r\n\r\n{deep}", deep.len());
        check_wrong(deep.as_bytes(), "isn't JSON");
    }
}
