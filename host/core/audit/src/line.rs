//! Formats an entry of the audit log as a JSON object. Every string is shortened and redacted, and
//! its control characters are replaced.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use toolhold_contract::text::{cut, neutral};
use toolhold_redaction::{self as redaction, Keys};

use super::chain::{self, Hash, HashedRecord, Key};
use super::kind::Kind;
use super::time;

/// Maximum length of a string among the arguments in bytes. Longer strings are recorded as a
/// beginning.
const MAX_STRING: usize = 1024;

/// Length of a recorded beginning in bytes.
const BEGINNING: usize = 256;

/// Field names up to this number of bytes aren't redacted, because secrets are longer.
const MAX_PLAIN_NAME: usize = 15;

/// Number of bytes of a string that are redacted. Later bytes are dropped.
const MAX_REDACTED: usize = 16 * 1024;

/// Maximum length of all arguments in bytes. Longer arguments are recorded as a beginning.
const MAX_ARGUMENTS: usize = 8 * 1024;

/// Maximum number of nested arrays and objects in the arguments.
const MAX_DEPTH: usize = 64;

/// Maximum number of hashed bytes of arguments. Allowed calls have fewer bytes, but refused calls
/// are also recorded.
const MAX_HASHED: usize = 16 * 1024 * 1024;

const MICROS_PER_MILLI: u64 = 1000;

/// Usual length of an entry in bytes.
const USUAL_BYTES: usize = 1024;

/// The argument with a model's private thoughts about the other arguments.
const THINK: &str = "_tafc_think";

/// Checks whether an argument contains thoughts. Models write the name in upper or lower case, so
/// the case is ignored.
fn is_thought(argument: &str) -> bool {
    argument.get(..THINK.len()).is_some_and(|start| start.eq_ignore_ascii_case(THINK))
}

/// An entry without its hash. Empty and `false` fields are omitted.
pub(super) struct Line<'k> {
    bytes: Vec<u8>,
    hash_key: &'k Key,
}

impl<'k> Line<'k> {
    /// Starts an entry with the current time. `key` is for hashes of strings that aren't recorded
    /// in full: a reader can't guess such a string and compare the hash without the key.
    pub(super) fn new(kind: Kind, key: &'k Key) -> Self {
        let mut line = Self { bytes: Vec::with_capacity(USUAL_BYTES), hash_key: key };
        line.bytes.extend_from_slice(b"{\"ts\":\"");
        time::write(&mut line.bytes, SystemTime::now());
        line.bytes.extend_from_slice(b"\",\"kind\":\"");
        line.bytes.extend_from_slice(kind.as_str().as_bytes());
        line.bytes.push(b'"');
        line
    }

    pub(super) fn word(&mut self, key: &str, word: &str) {
        self.key(key);
        quoted(&mut self.bytes, word);
    }

    /// Writes an untrusted string of at most `max` bytes. A longer string is cut.
    pub(super) fn text(&mut self, key: &str, text: &str, max: usize) {
        self.key(key);
        quoted(&mut self.bytes, &shown(text, max));
    }

    /// Writes a string that contains no secrets.
    pub(super) fn plain(&mut self, key: &str, text: &str, max: usize) {
        self.key(key);
        quoted(&mut self.bytes, &neutral(cut(text, max)));
    }

    pub(super) fn optional(&mut self, key: &str, text: Option<&str>, max: usize) {
        if let Some(text) = text {
            self.plain(key, text, max);
        }
    }

    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        let _ = write!(self.bytes, "{number}");
    }

    pub(super) fn code(&mut self, key: &str, code: i32) {
        self.key(key);
        let _ = write!(self.bytes, "{code}");
    }

    /// Writes a duration in milliseconds, with up to three decimals and without trailing zeros.
    pub(super) fn time(&mut self, key: &str, time: Duration) {
        self.key(key);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let whole = micros / MICROS_PER_MILLI;
        let part = micros % MICROS_PER_MILLI;
        let _ = write!(self.bytes, "{whole}");
        if part > 0 {
            let _ = write!(self.bytes, ".{part:03}");
            while self.bytes.last() == Some(&b'0') {
                self.bytes.pop();
            }
        }
    }

    pub(super) fn moment(&mut self, key: &str, since: Duration) {
        self.key(key);
        self.bytes.push(b'"');
        time::write(&mut self.bytes, SystemTime::UNIX_EPOCH + since);
        self.bytes.push(b'"');
    }

    pub(super) fn flag(&mut self, key: &str, set: bool) {
        if set {
            self.key(key);
            self.bytes.extend_from_slice(b"true");
        }
    }

    /// Writes a list of strings that contain no secrets, unless the list is empty.
    pub(super) fn words<'a>(
        &mut self,
        key: &str,
        words: impl Iterator<Item = &'a str>,
        max: usize,
    ) {
        let mut is_empty = true;
        for word in words {
            if is_empty {
                self.key(key);
                self.bytes.push(b'[');
                is_empty = false;
            } else {
                self.bytes.push(b',');
            }
            quoted(&mut self.bytes, &neutral(cut(word, max)));
        }
        if !is_empty {
            self.bytes.push(b']');
        }
    }

    /// Writes a list of objects, unless the list is empty. Each object has two words and a string
    /// of at most `max` bytes, under the names in `keys`.
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
                self.bytes.push(b'[');
                is_empty = false;
            } else {
                self.bytes.push(b',');
            }
            self.bytes.push(b'{');
            quoted(&mut self.bytes, first_key);
            self.bytes.push(b':');
            quoted(&mut self.bytes, first_word);
            self.key(second_key);
            quoted(&mut self.bytes, second_word);
            self.key(text_key);
            quoted(&mut self.bytes, &shown(text, max));
            self.bytes.push(b'}');
        }
        if !is_empty {
            self.bytes.push(b']');
        }
    }

    /// Writes the arguments of a call. Large arguments are written as their beginning, length and
    /// hash.
    pub(super) fn arguments(&mut self, key: &str, arguments: &Value) {
        self.key(key);
        let from = self.bytes.len();
        let max_end = from + MAX_ARGUMENTS;
        let no_name = "";
        let written = value(&mut self.bytes, self.hash_key, no_name, arguments, max_end, MAX_DEPTH);
        if written.is_some() {
            return;
        }
        let beginning = cut(&String::from_utf8_lossy(&self.bytes[from..]), MAX_STRING).to_owned();
        self.bytes.truncate(from);
        let mut hashing = Hashing { hash: self.hash_key.of_text(), bytes: 0 };
        let is_complete = serde_json::to_writer(&mut hashing, arguments).is_ok();
        let bytes = hashing.bytes;
        let hash = if is_complete { Some(hashing.hash.finish()) } else { None };
        cut_off(&mut self.bytes, &beginning, bytes, hash);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn key(&mut self, key: &str) {
        self.bytes.extend_from_slice(b",\"");
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(b"\":");
    }
}

/// Writes the value of the field `name`. Returns `None` if `out` gets longer than `most` bytes, or
/// if the value has more than `depth` levels.
fn value(
    out: &mut Vec<u8>,
    hash_key: &Key,
    name: &str,
    value: &Value,
    most: usize,
    depth: usize,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::String(text) if text.len() > MAX_STRING => {
            let beginning = redacted(name, cut(text, MAX_REDACTED));
            let mut hash = hash_key.of_text();
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
                self::value(out, hash_key, name, item, most, depth)?;
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            // In `{"name": "DB_PASSWORD", "value": "…"}`, the field `name` says that the value is a
            // secret.
            let stated_name = ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str());
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
                // Short plain names are no secrets.
                let is_plain_name = key.len() <= MAX_PLAIN_NAME
                    && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if is_plain_name {
                    quoted(out, key);
                } else {
                    quoted(out, &shown(key, MAX_STRING));
                }
                out.push(b':');
                let item_name =
                    if key == "value" { stated_name.unwrap_or_default() } else { key.as_str() };
                self::value(out, hash_key, item_name, item, most, depth)?;
            }
            out.push(b'}');
        }
        other => drop(write!(out, "{other}")),
    }
    if out.len() <= most { Some(()) } else { None }
}

/// Writes an object in place of a long string or of long arguments. `hash` is `None` if only the
/// first `bytes` bytes were read.
fn cut_off(out: &mut Vec<u8>, beginning: &str, bytes: usize, hash: Option<Hash>) {
    out.extend_from_slice(b"{\"beginning\":");
    quoted(out, beginning);
    let _ = match hash {
        Some(hash) => write!(out, ",\"bytes\":{bytes},\"hmac\":\"{}\"}}", chain::to_hex(&hash)),
        None => write!(out, ",\"more_than_bytes\":{bytes}}}"),
    };
}

/// Returns at most `max` bytes of a redacted string.
fn shown(text: &str, max: usize) -> Cow<'_, str> {
    match redacted("", cut(text, MAX_REDACTED.max(max))) {
        Cow::Borrowed(text) => Cow::Borrowed(cut(text, max)),
        Cow::Owned(text) => Cow::Owned(cut(&text, max).to_owned()),
    }
}

/// Redacts a field, and replaces characters that control a terminal. The field is redacted as
/// strictly as a settings file, because the log can't be corrected later.
fn redacted<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    match neutral(text) {
        Cow::Borrowed(text) => redaction::field(name, text, Keys::Settings),
        Cow::Owned(text) => Cow::Owned(redaction::field(name, &text, Keys::Settings).into_owned()),
    }
}

fn quoted(out: &mut Vec<u8>, text: &str) {
    if is_plain(text.as_bytes()) {
        out.reserve("\"\"".len() + text.len());
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        let _ = serde_json::to_writer(out, text);
    }
}

/// Checks whether a string needs no escapes in JSON. Each chunk is checked without an early return,
/// so that the compiler can use vector instructions.
fn is_plain(text: &[u8]) -> bool {
    text.chunks(64).all(|chunk| chunk.iter().fold(true, |plain, byte| plain & is_plain_byte(*byte)))
}

fn is_plain_byte(byte: u8) -> bool {
    (byte >= b' ') & (byte != b'"') & (byte != b'\\')
}

/// Hashes written bytes. More than [`MAX_HASHED`] bytes are an error.
struct Hashing {
    hash: HashedRecord,
    bytes: usize,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The error stops the conversion of very long arguments to JSON.
        if self.bytes > MAX_HASHED {
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
        assert!(bytes.len() < MAX_ARGUMENTS + 2 * MAX_STRING, "{} bytes", bytes.len());
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
        let text = format!("{}password = 1234", "x".repeat(2 * MAX_STRING));
        let found = recorded(&json!({ "content": text, "more": vec!["y".repeat(MAX_STRING); 9] }))
            .to_string();
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
                .is_some_and(|text| text.starts_with("[0,1,2,3,") && text.len() <= MAX_STRING),
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
