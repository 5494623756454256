//! Refuses an answer in which a server sends back one of the provider's keys: a session would keep
//! the key, and a screen would show it.

use crate::endpoint::{ModelEndpoint, ModelKey};
use crate::failure::ModelError;
use crate::turn::{ModelAnswer, ModelEvent};

/// How often the escapes of a JSON string are undone: arguments are JSON within JSON, and a model
/// may write them into its text.
const ROUNDS: usize = 4;

impl ModelEndpoint {
    /// A text without its keys.
    pub fn hide_keys(&self, text: &str) -> String {
        KeyGuards::new(self.keys()).hidden(text)
    }

    /// An error without its keys, which a server may repeat.
    pub(crate) fn hide_keys_in(&self, error: ModelError) -> ModelError {
        let guards = KeyGuards::new(self.keys());
        let message = match guards.hidden(&error.message) {
            message if guards.is_in_text(&message) => {
                "its message contains the key, and isn't shown".to_owned()
            }
            message => message,
        };
        ModelError { message, ..error }
    }
}

/// Looks for all keys of a provider.
pub(crate) struct KeyGuards(Vec<KeyGuard>);

impl KeyGuards {
    pub(crate) fn new(keys: &[ModelKey]) -> Self {
        Self(keys.iter().map(|key| KeyGuard::new(key.value())).collect())
    }

    /// Whether the bytes of the answer have a key, with these at their end.
    pub(crate) fn is_in_bytes(&mut self, bytes: &[u8]) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in(0, bytes))
    }

    /// Whether the texts of the events have a key, however the key was cut.
    pub(crate) fn is_in_event(&mut self, event: &ModelEvent) -> bool {
        self.0.iter_mut().any(|guard| guard.is_in_event(event))
    }

    /// Whether a whole answer has a key, also with escapes of JSON.
    pub(crate) fn is_in_answer(&self, answer: &ModelAnswer) -> bool {
        let answer = serde_json::to_string(answer);
        answer.is_ok_and(|answer| self.is_in_text(&answer))
    }

    /// Whether a text has a key, also with escapes of JSON.
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
            text = unescaped(&text);
        }
        self.0.iter().any(|guard| guard.is_whole_in(&text))
    }

    /// A text of a server without the keys.
    pub(crate) fn hidden(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, guard| guard.hidden(&text))
    }
}

/// Looks for one key, which isn't empty.
struct KeyGuard {
    key: Vec<u8>,
    /// The end of what came, in which the key may have begun: of the bytes, the text, the thinking.
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
            // The texts of these events come from this program, or from an error without the keys.
            _ => false,
        }
    }

    fn hidden(&self, text: &str) -> String {
        std::str::from_utf8(&self.key)
            .map_or_else(|_| text.to_owned(), |key| text.replace(key, "[the key]"))
    }

    fn is_in(&mut self, kind: usize, bytes: &[u8]) -> bool {
        // First the bytes across the border, then the bytes inside.
        let tail = &mut self.tails[kind];
        tail.extend_from_slice(&bytes[..bytes.len().min(self.key.len() - 1)]);
        let is_across = find(tail, &self.key);
        if bytes.len() >= self.key.len() {
            tail.clear();
            tail.extend_from_slice(&bytes[bytes.len() - (self.key.len() - 1)..]);
        } else {
            let too_much = tail.len().saturating_sub(self.key.len() - 1);
            tail.drain(..too_much);
        }
        is_across || self.is_whole_in(bytes)
    }

    fn is_whole_in(&self, bytes: &[u8]) -> bool {
        find(bytes, &self.key)
    }
}

/// The bytes with the escapes of JSON strings undone once. A character that isn't in ASCII becomes
/// nothing or a byte that no key has.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = if byte == b'\\' { after.split_first() } else { None };
        let Some((&escape, after)) = escaped else {
            out.push(byte);
            continue;
        };
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'u' => {
                let digits = after.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                if let Some(unit) = unit {
                    out.extend(u8::try_from(unit).ok());
                    rest = &after[4..];
                }
            }
            other => out.push(other),
        }
    }
    out
}

fn find(bytes: &[u8], key: &[u8]) -> bool {
    // The first byte is found fast, and seldom.
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
