//! Refuses an answer in which a server repeats one of the provider's keys. Otherwise the session
//! would store the key, and the screen would show it.

use crate::endpoint::{ModelEndpoint, ModelKey};
use crate::failure::ModelError;
use crate::turn::{ModelAnswer, ModelEvent};

/// How often JSON escapes are decoded. Arguments are JSON inside JSON, and a model may write
/// arguments in its text.
const ROUNDS: usize = 4;

impl ModelEndpoint {
    /// Returns a text without the provider's keys.
    pub fn hide_keys(&self, text: &str) -> String {
        KeyGuards::new(self.keys()).hidden(text)
    }

    /// Removes the provider's keys from an error, because a server may repeat a key in the error.
    pub(crate) fn hide_keys_in(&self, mut error: ModelError) -> ModelError {
        let guards = KeyGuards::new(self.keys());
        error.message = guards.hidden(&error.message);
        if guards.is_in_text(&error.message) {
            error.message = "its message contains the key, and isn't shown".to_owned();
        }
        error
    }
}

/// The search for all keys of a provider.
pub(crate) struct KeyGuards(Vec<KeyGuard>);

impl KeyGuards {
    pub(crate) fn new(keys: &[ModelKey]) -> Self {
        Self(keys.iter().map(|key| KeyGuard::new(key.value())).collect())
    }

    /// Checks whether the answer so far contains a key. `bytes`: the next bytes.
    pub(crate) fn is_in_bytes(&mut self, bytes: &[u8]) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in(0, bytes))
    }

    /// Checks whether the text of the events so far contains a key, even if the key is split
    /// between events.
    pub(crate) fn is_in_event(&mut self, event: &ModelEvent) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in_event(event))
    }

    /// Checks whether a whole answer has a key, also with escapes of JSON.
    pub(crate) fn is_in_answer(&self, answer: &ModelAnswer) -> bool {
        let json = serde_json::to_string(answer);
        json.is_ok_and(|json| self.is_in_text(&json))
    }

    /// Checks whether a text has a key, also with escapes of JSON.
    pub(crate) fn is_in_text(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut text = text.as_bytes().to_vec();
        for _ in 0..ROUNDS {
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

    /// Returns a text of a server without the keys.
    pub(crate) fn hidden(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, guard| guard.hidden(&text))
    }
}

/// The search for one key. The key isn't empty.
struct KeyGuard {
    key: Vec<u8>,
    /// The last bytes of the raw bytes, the text and the thinking. A key may begin in them.
    tails: [Vec<u8>; 3],
}

impl KeyGuard {
    fn new(key: &str) -> Self {
        Self { key: key.as_bytes().to_vec(), tails: Default::default() }
    }

    fn is_in_event(&mut self, event: &ModelEvent) -> bool {
        match event {
            ModelEvent::Text(text) => self.is_in(1, text.as_bytes()),
            ModelEvent::Thinking(text) => self.is_in(2, text.as_bytes()),
            ModelEvent::CallBegun(name) => self.is_whole_in(name.as_bytes()),
            ModelEvent::Call(call) => [&call.id, &call.name, &call.arguments]
                .iter()
                .any(|text| self.is_whole_in(text.as_bytes())),
            // The text of these events comes from this program, or from an error without the keys.
            _ => false,
        }
    }

    fn hidden(&self, text: &str) -> String {
        match std::str::from_utf8(&self.key) {
            Ok(key) => text.replace(key, "[the key]"),
            Err(_) => text.to_owned(),
        }
    }

    /// Checks whether a stream so far contains the key. `stream`: the index of the stream's tail.
    fn is_in(&mut self, stream: usize, bytes: &[u8]) -> bool {
        // A key that is split has at most this many bytes before or after the split.
        let most_before_end = self.key.len() - 1;
        let tail = &mut self.tails[stream];
        tail.extend_from_slice(&bytes[..bytes.len().min(most_before_end)]);
        let is_across_border = contains(tail, &self.key);

        if bytes.len() > most_before_end {
            tail.clear();
            tail.extend_from_slice(&bytes[bytes.len() - most_before_end..]);
        } else {
            let surplus = tail.len().saturating_sub(most_before_end);
            tail.drain(..surplus);
        }
        is_across_border || self.is_whole_in(bytes)
    }

    fn is_whole_in(&self, bytes: &[u8]) -> bool {
        contains(bytes, &self.key)
    }
}

/// Undoes the escapes of JSON strings once. A character outside ASCII becomes nothing or a byte
/// that no key has.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [] => return unescaped,
            [b'\\', b'u', after @ ..] => {
                // Without four digits, the text isn't JSON, and the `u` is dropped.
                if let Some(unit) = after.get(..4).and_then(parse_unit) {
                    unescaped.extend(u8::try_from(unit).ok());
                    rest = &after[4..];
                } else {
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

/// Parses the four digits of an escape such as `\u0041`.
fn parse_unit(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

fn contains(bytes: &[u8], key: &[u8]) -> bool {
    // Finding a single byte is fast, and the first byte of the key is rare.
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == key[0]) {
        rest = &rest[at..];
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
            let found = text.as_bytes().chunks(size).any(|piece| guard.is_in(0, piece));
            assert!(found, "{size}");
            let mut guard = KeyGuard::new("secret-2");
            assert!(!text.as_bytes().chunks(size).any(|piece| guard.is_in(0, piece)));
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
