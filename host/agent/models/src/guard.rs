//! Refuses an answer that contains one of the provider's keys, because answers are stored in the
//! session and shown on the screen.

use crate::endpoint::{ModelEndpoint, ModelKey};
use crate::failure::ModelError;
use crate::turn::{ModelAnswer, ModelEvent};

/// The most levels of JSON escapes that are decoded. Arguments are JSON inside JSON, and a model
/// may quote JSON in a text.
const MAX_ESCAPE_LEVELS: usize = 4;

impl ModelEndpoint {
    /// Returns a text without the provider's keys.
    pub fn hide_keys(&self, text: &str) -> String {
        KeyGuards::new(self.keys()).hidden(text)
    }

    /// Removes the provider's keys from an error, because a server may repeat a key in its message.
    pub(crate) fn hide_keys_in(&self, mut error: ModelError) -> ModelError {
        let guards = KeyGuards::new(self.keys());
        error.message = guards.hidden(&error.message);
        // `hidden` replaces only keys without escapes.
        if guards.is_in_text(&error.message) {
            error.message = "the server's message contains the key, so the message isn't \
                             shown"
                .to_owned();
        }
        error
    }
}

/// Searches for all keys of a provider.
pub(crate) struct KeyGuards(Vec<KeyGuard>);

impl KeyGuards {
    pub(crate) fn new(keys: &[ModelKey]) -> Self {
        Self(keys.iter().map(|key| KeyGuard::new(key.value())).collect())
    }

    /// Checks whether the next bytes of an answer contain a key, or the end of a split key.
    pub(crate) fn is_in_bytes(&mut self, bytes: &[u8]) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in_stream(RAW_BYTES, bytes))
    }

    /// Checks whether an event contains a key, or completes a key in earlier events.
    pub(crate) fn is_in_event(&mut self, event: &ModelEvent) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in_event(event))
    }

    pub(crate) fn is_in_answer(&self, answer: &ModelAnswer) -> bool {
        let json = serde_json::to_string(answer);
        json.is_ok_and(|json| self.is_in_text(&json))
    }

    /// Checks whether a text contains a key, plain or with JSON escapes.
    pub(crate) fn is_in_text(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut text = text.as_bytes().to_vec();
        // Each round decodes one level of escapes.
        for _ in 0..MAX_ESCAPE_LEVELS {
            if self.0.iter().any(|guard| guard.is_whole_in(&text)) {
                return true;
            }
            if !text.contains(&b'\\') {
                return false;
            }
            text = unescape(&text);
        }
        self.0.iter().any(|guard| guard.is_whole_in(&text))
    }

    pub(crate) fn hidden(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, guard| guard.hidden(&text))
    }
}

/// Indexes in `tails`: the streams in which a key may be split.
const RAW_BYTES: usize = 0;
const TEXT: usize = 1;
const THINKING: usize = 2;

/// Searches for one key, which isn't empty.
struct KeyGuard {
    key: Vec<u8>,
    /// The last bytes of the raw stream, the text and the thinking. A key may start there.
    tails: [Vec<u8>; 3],
}

impl KeyGuard {
    fn new(key: &str) -> Self {
        Self { key: key.as_bytes().to_vec(), tails: Default::default() }
    }

    fn is_in_event(&mut self, event: &ModelEvent) -> bool {
        match event {
            ModelEvent::Text(text) => self.is_in_stream(TEXT, text.as_bytes()),
            ModelEvent::Thinking(text) => self.is_in_stream(THINKING, text.as_bytes()),
            ModelEvent::CallBegun(name) => self.is_whole_in(name.as_bytes()),
            ModelEvent::Call(call) => {
                let texts = [&call.id, &call.name, &call.arguments];
                texts.iter().any(|text| self.is_whole_in(text.as_bytes()))
            }
            // Other events have no text of the server, or their keys are already hidden.
            _ => false,
        }
    }

    fn hidden(&self, text: &str) -> String {
        match std::str::from_utf8(&self.key) {
            Ok(key) => text.replace(key, "[the key]"),
            Err(_) => text.to_owned(),
        }
    }

    /// Checks whether the next bytes of a stream contain the key, or the end of a split key.
    /// `stream` is the index of the stream in `tails`.
    fn is_in_stream(&mut self, stream: usize, bytes: &[u8]) -> bool {
        // At most this number of bytes of a split key is on either side of the split.
        let max_part = self.key.len() - 1;
        let tail = &mut self.tails[stream];
        tail.extend_from_slice(&bytes[..bytes.len().min(max_part)]);
        let is_split_key = contains(tail, &self.key);

        if bytes.len() > max_part {
            tail.clear();
            tail.extend_from_slice(&bytes[bytes.len() - max_part..]);
        } else {
            let surplus = tail.len().saturating_sub(max_part);
            tail.drain(..surplus);
        }
        is_split_key || self.is_whole_in(bytes)
    }

    fn is_whole_in(&self, bytes: &[u8]) -> bool {
        contains(bytes, &self.key)
    }
}

/// The digits of an escape such as `\u00e9`.
const UNIT_DIGITS: usize = 4;

/// Decodes one level of JSON escapes to search for keys. Keys are ASCII, so other characters may
/// become wrong bytes or be dropped.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [] => return unescaped,
            [b'\\', b'u', after @ ..] => {
                let digits = after.get(..UNIT_DIGITS);
                if let Some(unit) = digits.and_then(parse_unit) {
                    // A unit above 255 can't be a part of a key.
                    unescaped.extend(u8::try_from(unit).ok());
                    rest = &after[UNIT_DIGITS..];
                } else {
                    // An escape without four digits isn't JSON.
                    rest = after;
                }
            }
            [b'\\', escape, after @ ..] => {
                unescaped.push(match escape {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                unescaped.push(*byte);
                rest = after;
            }
        }
    }
}

fn parse_unit(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// Checks whether `bytes` contain a key. `key` must not be empty.
fn contains(bytes: &[u8], key: &[u8]) -> bool {
    // Most bytes differ from the first byte of the key. `position` skips these bytes fast.
    let mut rest = bytes;
    while let Some(start) = rest.iter().position(|byte| *byte == key[0]) {
        rest = &rest[start..];
        if rest.starts_with(key) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_however_it_is_cut() {
        let text = "ssecret-secret-1 and more";
        for size in 1..text.len() {
            let mut guard = KeyGuard::new("secret-1");
            let found = text.as_bytes().chunks(size).any(|piece| guard.is_in_stream(0, piece));
            assert!(found, "{size}");
            let mut guard = KeyGuard::new("secret-2");
            assert!(!text.as_bytes().chunks(size).any(|piece| guard.is_in_stream(0, piece)));
        }
        assert_eq!(KeyGuard::new("secret-1").hidden("a secret-1."), "a [the key].");
    }

    #[test]
    fn key_is_found_behind_escapes() {
        let guards = KeyGuards(vec![KeyGuard::new("se/cret")]);
        for text in [
            "se/cret",
            r"a se\/cret b",
            r"\u0073e/cret",
            r"se\u002Fcret",
            r"\\u0073e\\/cret",
            r"\\\\u0073\\\\u0065/cret",
        ] {
            assert!(guards.is_in_text(text), "{text}");
        }
        for text in ["", "secret", r"\u00", r"se\ncret", "\\", r"\ud83dse"] {
            assert!(!guards.is_in_text(text), "{text}");
        }
    }
}
