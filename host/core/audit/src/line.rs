//! Formats an entry of the audit log: one JSON object, in which every text is shortened, redacted,
//! and free of characters that control a terminal.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use toolhold_contract::text::{cut, neutral};
use toolhold_redaction::{self as redaction, Keys};

use super::chain::{self, Hash, HashedRecord, Key};
use super::kind::Kind;
use super::time;

/// Maximum length of a text among the arguments, in bytes. Only the beginning of a longer text is
/// recorded.
const LONG: usize = 1024;

/// Bytes of this beginning.
const BEGINNING: usize = 256;

/// Maximum length in bytes of a name that is too short to contain a secret.
const SHORT: usize = 15;

/// Bytes of a text that are searched for secrets.
const LOOKED_AT: usize = 16 * 1024;

/// Bytes of all arguments.
const ARGUMENTS: usize = 8 * 1024;

/// Maximum number of nested arrays and objects in the arguments.
const DEPTH: usize = 64;

/// Maximum number of hashed bytes of arguments. The limit of a call is lower, but a call that
/// exceeds it is also recorded.
const HASHED: usize = 16 * 1024 * 1024;

/// The argument with a model's thoughts before it fills in the arguments. The thoughts are private.
const THINK: &str = "_tafc_think";

/// Checks whether an argument contains thoughts. Models write its name in any case.
fn is_thought(argument: &str) -> bool {
    argument.get(..THINK.len()).is_some_and(|start| start.eq_ignore_ascii_case(THINK))
}

/// An entry without its hash. Empty and `false` fields are omitted.
pub(super) struct Line<'k>(Vec<u8>, &'k Key);

impl<'k> Line<'k> {
    /// Starts an entry of a kind, with the current time. A text that isn't recorded in full is
    /// recorded with a keyed hash. Without a key, a reader could guess the text and check the
    /// guess.
    pub(super) fn new(kind: Kind, key: &'k Key) -> Self {
        let mut line = Self(Vec::with_capacity(1024), key);
        line.0.extend_from_slice(b"{\"ts\":\"");
        time::write(&mut line.0, SystemTime::now());
        line.0.extend_from_slice(b"\",\"kind\":\"");
        line.0.extend_from_slice(kind.as_str().as_bytes());
        line.0.push(b'"');
        line
    }

    /// Writes a word of the host's own.
    pub(super) fn word(&mut self, key: &str, word: &str) {
        self.key(key);
        quoted(&mut self.0, word);
    }

    /// Writes an untrusted text of at most `max` bytes.
    pub(super) fn text(&mut self, key: &str, text: &str, max: usize) {
        self.key(key);
        quoted(&mut self.0, &shown(text, max));
    }

    /// Writes a text that contains no secrets: a name, a place, or a redacted text.
    pub(super) fn plain(&mut self, key: &str, text: &str, max: usize) {
        self.key(key);
        quoted(&mut self.0, &neutral(cut(text, max)));
    }

    pub(super) fn optional(&mut self, key: &str, text: Option<&str>, max: usize) {
        if let Some(text) = text {
            self.plain(key, text, max);
        }
    }

    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        // Writing to a vector never fails.
        let _ = write!(self.0, "{number}");
    }

    /// Writes the exit code of a program.
    pub(super) fn code(&mut self, key: &str, code: i32) {
        self.key(key);
        // Writing to a vector never fails.
        let _ = write!(self.0, "{code}");
    }

    /// Writes a duration in milliseconds with up to three decimals, without zeros at the end.
    pub(super) fn time(&mut self, key: &str, time: Duration) {
        self.key(key);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let whole = micros / 1000;
        let part = micros % 1000;
        let _ = write!(self.0, "{whole}");
        if part > 0 {
            let _ = write!(self.0, ".{part:03}");
            while self.0.last() == Some(&b'0') {
                self.0.pop();
            }
        }
    }

    /// Writes a time since the Unix epoch.
    pub(super) fn moment(&mut self, key: &str, since: Duration) {
        self.key(key);
        self.0.push(b'"');
        time::write(&mut self.0, SystemTime::UNIX_EPOCH + since);
        self.0.push(b'"');
    }

    pub(super) fn flag(&mut self, key: &str, set: bool) {
        if set {
            self.key(key);
            self.0.extend_from_slice(b"true");
        }
    }

    /// Writes a list of the host's own words, unless it is empty.
    pub(super) fn words(&mut self, key: &str, words: &[&str]) {
        if words.is_empty() {
            return;
        }
        self.key(key);
        self.0.push(b'[');
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                self.0.push(b',');
            }
            quoted(&mut self.0, word);
        }
        self.0.push(b']');
    }

    /// Writes a list of objects, unless it is empty. Each object has two words and a text of at
    /// most `max` bytes, under `keys`.
    pub(super) fn list<'a>(
        &mut self,
        key: &str,
        keys: [&str; 3],
        items: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
        max: usize,
    ) {
        let [first_key, second_key, text_key] = keys;
        let mut is_empty = true;
        for (first_word, second_word, text) in items {
            if is_empty {
                self.key(key);
                self.0.push(b'[');
                is_empty = false;
            } else {
                self.0.push(b',');
            }
            self.0.push(b'{');
            quoted(&mut self.0, first_key);
            self.0.push(b':');
            quoted(&mut self.0, first_word);
            self.key(second_key);
            quoted(&mut self.0, second_word);
            self.key(text_key);
            quoted(&mut self.0, &shown(text, max));
            self.0.push(b'}');
        }
        if !is_empty {
            self.0.push(b']');
        }
    }

    /// Writes the arguments of a call. If they are too large, the beginning of their text, its
    /// length and its hash are recorded.
    pub(super) fn arguments(&mut self, key: &str, arguments: &Value) {
        self.key(key);
        let from = self.0.len();
        if value(&mut self.0, self.1, "", arguments, from + ARGUMENTS, DEPTH).is_some() {
            return;
        }
        // The arguments are too large, so their beginning and their hash replace them.
        let beginning = cut(&String::from_utf8_lossy(&self.0[from..]), LONG).to_owned();
        self.0.truncate(from);
        let mut hashing = Hashing { hash: self.1.of_text(), bytes: 0 };
        let is_complete = serde_json::to_writer(&mut hashing, arguments).is_ok();
        let bytes = hashing.bytes;
        let hash = if is_complete { Some(hashing.hash.finish()) } else { None };
        cut_off(&mut self.0, &beginning, bytes, hash);
    }

    /// Returns the bytes of the record.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

/// Writes the value of the field `name`. Returns `None` if `out` would have more than `most` bytes,
/// or the value has more than `depth` levels.
fn value(
    out: &mut Vec<u8>,
    keyed: &Key,
    name: &str,
    value: &Value,
    most: usize,
    depth: usize,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::String(text) if text.len() > LONG => {
            let beginning = redacted(name, cut(text, LOOKED_AT));
            let mut hash = keyed.of_text();
            hash.update(text.as_bytes());
            cut_off(out, cut(&beginning, BEGINNING), text.len(), Some(hash.finish()));
        }
        Value::String(text) => quoted(out, &redacted(name, text)),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                self::value(out, keyed, name, item, most, depth)?;
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            // In `{"name": "DB_PASSWORD", "value": "…"}`, the value belongs to the name in the
            // other field.
            let other_name = ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str());
            out.push(b'{');
            let mut is_first = true;
            for (key, item) in fields {
                if is_thought(key) {
                    continue;
                }
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                // No secret is as short as most names.
                let is_name = key.len() <= SHORT
                    && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if is_name {
                    quoted(out, key);
                } else {
                    quoted(out, &shown(key, LONG));
                }
                out.push(b':');
                let item_name =
                    if key == "value" { other_name.unwrap_or_default() } else { key.as_str() };
                self::value(out, keyed, item_name, item, most, depth)?;
            }
            out.push(b'}');
        }
        // Writing to a vector never fails.
        other => drop(write!(out, "{other}")),
    }
    if out.len() <= most { Some(()) } else { None }
}

/// Writes an object that replaces a text that is too long: the text's beginning, its length in
/// bytes and its hash.
fn cut_off(out: &mut Vec<u8>, beginning: &str, bytes: usize, hash: Option<Hash>) {
    out.extend_from_slice(b"{\"beginning\":");
    quoted(out, beginning);
    let _ = match hash {
        Some(hash) => write!(out, ",\"bytes\":{bytes},\"hmac\":\"{}\"}}", chain::to_hex(&hash)),
        None => write!(out, ",\"more_than_bytes\":{bytes}}}"),
    };
}

/// Returns at most `max` bytes of a text, in the form of the entry.
fn shown(text: &str, max: usize) -> Cow<'_, str> {
    match redacted("", cut(text, LOOKED_AT.max(max))) {
        Cow::Borrowed(text) => Cow::Borrowed(cut(text, max)),
        Cow::Owned(text) => Cow::Owned(cut(&text, max).to_owned()),
    }
}

/// Returns a field's text without secrets and without characters that control a terminal. Every
/// known value is treated as a secret here, because a secret can't be removed from the log later.
fn redacted<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    match neutral(text) {
        Cow::Borrowed(text) => redaction::field(name, text, Keys::Settings),
        Cow::Owned(text) => Cow::Owned(redaction::field(name, &text, Keys::Settings).into_owned()),
    }
}

/// Writes a JSON string.
fn quoted(out: &mut Vec<u8>, text: &str) {
    if is_plain(text.as_bytes()) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to a vector never fails, and a text is always valid JSON.
        let _ = serde_json::to_writer(out, text);
    }
}

/// Checks whether a text needs no escapes in JSON. Without an early return, many bytes are checked
/// at a time.
fn is_plain(text: &[u8]) -> bool {
    text.chunks(64).all(|chunk| chunk.iter().fold(true, |plain, byte| plain & is_plain_byte(*byte)))
}

fn is_plain_byte(byte: u8) -> bool {
    (byte >= b' ') & (byte != b'"') & (byte != b'\\')
}

/// Hashes written bytes up to a limit.
struct Hashing {
    hash: HashedRecord,
    bytes: usize,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes > HASHED {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.hash.update(bytes);
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sha2::{Digest, Sha256};

    use super::*;

    fn key() -> Key {
        Key::new(&[7; 32])
    }

    /// The form in which a record describes a text that it doesn't hold.
    fn hmac(text: &str) -> String {
        let mut hash = key().of_text();
        hash.update(text.as_bytes());
        chain::to_hex(&hash.finish())
    }

    #[track_caller]
    fn recorded(arguments: &Value) -> Value {
        let key = key();
        let mut line = Line::new(Kind::Outcome, &key);
        line.arguments("arguments", arguments);
        let mut bytes = line.into_bytes();
        assert!(bytes.len() < ARGUMENTS + 2 * LONG, "{} bytes", bytes.len());
        bytes.push(b'}');
        serde_json::from_slice::<Value>(&bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bytes)))["arguments"]
            .take()
    }

    #[test]
    fn small_arguments_are_recorded_as_they_are() {
        for arguments in [
            json!({}),
            json!({ "a": [1, -2.5, true, null, "x\"\\\n\t"], "b": { "c": "é" } }),
            json!("text"),
            json!(null),
        ] {
            assert_eq!(recorded(&arguments), arguments);
        }
    }

    #[test]
    fn thoughts_of_a_model_are_not_recorded_at_any_depth() {
        let arguments = json!({ "_tafc_think": "secret", "a": { "_tafc_think_more": 1, "b": [{ "_tafc_think": 2 }] } });
        assert_eq!(recorded(&arguments), json!({ "a": { "b": [{}] } }));
    }

    #[test]
    fn long_text_is_recorded_by_beginning_length_and_hash() {
        let text = "é".repeat(100_000);
        let expected =
            json!({ "beginning": "é".repeat(128), "bytes": 200_000, "hmac": hmac(&text) });
        assert_eq!(
            recorded(&json!({ "content": text, "path": "x" })),
            json!({ "content": expected, "path": "x" })
        );
    }

    #[test]
    fn hash_of_an_unrecorded_text_can_t_be_guessed_without_the_key() {
        let text = format!("{}password = 1234", "x".repeat(2 * LONG));
        let found =
            recorded(&json!({ "content": text, "more": vec!["y".repeat(LONG); 9] })).to_string();
        let many = recorded(&json!(vec![0; 10_000])).to_string();
        let digest = |text: &str| chain::to_hex(&Sha256::digest(text).into());
        assert!(
            !found.contains(&digest(&text))
                && !many.contains(&digest(&json!(vec![0; 10_000]).to_string())),
            "{found} {many}"
        );
        let other = Key::new(&[8; 32]);
        let mut line = Line::new(Kind::Outcome, &other);
        line.arguments("arguments", &json!(text));
        assert!(!String::from_utf8_lossy(&line.into_bytes()).contains(&hmac(&text)));
    }

    #[test]
    fn many_or_deep_arguments_are_recorded_by_their_beginning() {
        let many = json!((0..100_000).collect::<Vec<u32>>());
        let found = recorded(&many);
        assert!(
            found["beginning"]
                .as_str()
                .is_some_and(|text| text.starts_with("[0,1,2,3,") && text.len() <= LONG),
            "{found}"
        );
        assert_eq!(found["hmac"], json!(hmac(&many.to_string())));
        assert_eq!(found["bytes"], json!(many.to_string().len()));
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        assert!(
            recorded(&deep)["beginning"].as_str().is_some_and(|text| text.starts_with("[[[[")),
            "it is cut"
        );
        let keys: serde_json::Map<String, Value> =
            (0..1000).map(|number| (format!("{number}{}", "k".repeat(900)), json!(0))).collect();
        assert!(recorded(&Value::Object(keys))["hmac"].is_string(), "it is cut");
    }

    #[test]
    fn secrets_are_not_recorded_in_any_field() {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        let long = format!("{token}{}", " word".repeat(1000));
        let arguments = json!({
            "command": format!("curl -H 'Authorization: Bearer {token}' https://example.com"),
            "password": "correct-horse-9",
            "env": [{ "name": "DB_PASSWORD", "value": "hunter-222-x" }],
            "tokens": { "api_key": ["zx81-zx81-zx81"] },
            "content": long,
            "deep": [[{ token.as_str(): 1 }]],
        });
        let text = recorded(&arguments).to_string();
        for secret in [&token[4..], "correct-horse-9", "hunter-222-x", "zx81-zx81-zx81"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
        assert!(text.contains("[REDACTED:") && text.contains("https://example.com"), "{text}");
        let key = key();
        let mut line = Line::new(Kind::Outcome, &key);
        line.text("error", &format!("with {token}"), 512);
        line.list(
            "subjects",
            ["kind", "access", "text"],
            [("command", "write", token.as_str())].into_iter(),
            512,
        );
        assert!(!String::from_utf8_lossy(&line.into_bytes()).contains(&token[4..]));
    }

    #[test]
    fn records_never_steer_a_terminal() {
        let found = recorded(&json!({ "a\u{1b}[2J": "\u{202e}\u{9b}x\u{7f}\r" }));
        assert_eq!(found, json!({ "a\u{fffd}[2J": "\u{fffd}\u{fffd}x\u{fffd}\u{fffd}" }));
    }
}
