//! Finds secret values by their keys: `password=…`, `"api_key": "…"`, `Authorization: …`.

use super::found::{Found, count_examined};
use super::mark;
use super::multiline::{self, FindSecret, Span, closing_quote};
use super::stand_ins::{is_placeholder, is_reference};

/// Bytes of a key on each side of a word in it. The rest of a longer key is ignored.
const MAX_KEY: usize = 64;

/// Most spaces or backslashes in a row in a key and its separator.
const MAX_SPACES: usize = 8;

/// Bytes of a line number between a key and the word `value`.
const MAX_LINE_NUMBER: usize = 16;

/// Words of a key. Only the last words of a longer key are used.
const MAX_WORDS: usize = 24;

/// Bytes that decide whether a value is a secret. Only a secret is read to its end.
const SAMPLE: usize = 128;

/// Bytes of a secret key of AWS.
const AWS_SECRET_LENGTH: usize = 40;

/// The kind of a text that contains keys and values. The kind decides which values are secrets.
/// Each variant finds more secrets than the variants before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// Source code. No value is a secret, because code has many lines such as `password = input`.
    Unknown,
    /// Output of any kind. Values are secrets if they aren't names or words.
    Text,
    /// A settings file. Every value is a secret.
    Settings,
    /// The file of a private key. Every value is a secret. Every line of base64 is also a secret,
    /// because a single line of a key has no other sign of a key.
    PrivateKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    min_length: usize,
    /// Whether the value goes on to the end of the line, as in a header.
    to_line_end: bool,
}

impl Kind {
    /// Returns the [`Keys`] for the entries of a list. A list of tokens may be a list of ordinary
    /// words, so at most [`Keys::Text`] applies to it.
    pub(super) fn list_place(self, place: Keys) -> Keys {
        if self == TOKEN { place.min(Keys::Text) } else { place }
    }
}

const fn kind(name: &'static str, min_length: usize) -> Kind {
    Kind { name, min_length, to_line_end: false }
}

const PASSWORD: Kind = kind("password", 6);
const SECRET: Kind = kind("secret", 8);
const TOKEN: Kind = kind("token", 8);
const KEY: Kind = kind("key", 8);
const CREDENTIAL: Kind = kind("credential", 8);
const AUTHORIZATION: Kind = Kind { name: "authorization", min_length: 8, to_line_end: true };
const COOKIE: Kind = Kind { name: "cookie", min_length: 8, to_line_end: true };

/// Words in the keys of credentials. The scanner stops at the first three letters of each word, in
/// any case.
pub(super) const WORDS: [&str; 9] = [
    "password",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "cookie",
    "session",
];

/// Words before `token` for a position in a list, or for a part of parsed text.
const NOT_SECRET_TOKENS: [&str; 12] = [
    "next",
    "page",
    "continuation",
    "cancellation",
    "start",
    "end",
    "stop",
    "last",
    "first",
    "pad",
    "eos",
    "bos",
];

/// Words before `key` for a secret key.
const SECRET_KEYS: [&str; 21] = [
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "auth",
    "account",
    "master",
    "service",
    "user",
    "app",
    "application",
    "client",
    "deploy",
    "license",
    "ssh",
    "admin",
    "shared",
    "hmac",
    "session",
];

/// Returns the kind of secret for the name of a setting, a field, a header or a variable. Returns
/// `None` for other names.
pub(super) fn kind_of(key: &str) -> Option<Kind> {
    let name = LastWords::of_key(key)?;
    if name.is_any(&["password", "passwd", "passphrase", "pwd", "passwort"]) {
        return Some(PASSWORD);
    }
    if name.is("pass") && !name.before.is_empty() {
        return Some(PASSWORD);
    }
    if name.is("phrase") && name.is_after(&["pass"]) {
        return Some(PASSWORD);
    }
    if name.last.len() > 8 && name.last.to_ascii_lowercase().ends_with("password") {
        return Some(PASSWORD);
    }

    if name.is_any(&["secret", "secrets"]) {
        return Some(SECRET);
    }

    if name.is("token") && !name.is_after(&NOT_SECRET_TOKENS) {
        return Some(TOKEN);
    }
    if name.is_any(&["accesstoken", "authtoken", "refreshtoken", "apitoken", "bearer"]) {
        return Some(TOKEN);
    }

    if name.is("key") && name.is_after(&SECRET_KEYS) {
        return Some(KEY);
    }
    if name.is_any(&[
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "accountkey",
        "userkey",
        "authkey",
    ]) {
        return Some(KEY);
    }

    if name.is_any(&["credential", "credentials"]) {
        return Some(CREDENTIAL);
    }
    if name.is("authorization") {
        return Some(AUTHORIZATION);
    }
    let is_http_auth = key.starts_with('_') || name.is_after(&["proxy", "basic", "http"]);
    if name.is("auth") && is_http_auth {
        return Some(AUTHORIZATION);
    }
    if name.is("cookie") {
        return Some(COOKIE);
    }
    if name.is("sessionid") {
        return Some(TOKEN);
    }
    if name.is("id") && name.is_after(&["session"]) {
        return Some(TOKEN);
    }
    if name.is("string") && name.is_after(&["connection"]) {
        return Some(CREDENTIAL);
    }
    None
}

struct LastWords<'a> {
    last: &'a str,
    before: &'a str,
}

impl<'a> LastWords<'a> {
    /// Returns the last two words of a key, such as `API` and `KEY` of `MY_API_KEY_2`. Returns
    /// `None` if the key has no words. A key of one word has an empty word before it.
    fn of_key(key: &'a str) -> Option<Self> {
        let mut words = [""; MAX_WORDS];
        let count = split_words(key, &mut words);
        let mut kept_words = &words[..count];
        while let [before @ .., last] = kept_words {
            if !is_ignored_ending(last) {
                break;
            }
            kept_words = before;
        }
        let (last, before) = kept_words.split_last()?;
        Some(Self {
            last: last.trim_end_matches(|c: char| c.is_ascii_digit()),
            before: before.last().copied().unwrap_or_default(),
        })
    }

    fn is(&self, word: &str) -> bool {
        self.last.eq_ignore_ascii_case(word)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    fn is_after(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.before.eq_ignore_ascii_case(word))
    }
}

/// Writes the words of a key into `words`, and returns their number. If the key has too many words,
/// only the last words are kept.
fn split_words<'a>(key: &'a str, words: &mut [&'a str; MAX_WORDS]) -> usize {
    let bytes = key.as_bytes();
    let mut count = 0;
    let mut start = 0;
    for at in 0..=bytes.len() {
        let is_separator = bytes.get(at).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        if !is_separator && !begins_camel_case_word(bytes, start, at) {
            continue;
        }
        let has_word = at > start && key.is_char_boundary(start) && key.is_char_boundary(at);
        if has_word {
            if count == words.len() {
                words.rotate_left(1);
                count -= 1;
            }
            words[count] = &key[start..at];
            count += 1;
        }
        start = if is_separator { at + 1 } else { at };
    }
    count
}

/// Checks whether a word of a key starts at `at` without a separator: `apiKey` and `APIKey` have
/// two words. The previous word starts at `start`.
fn begins_camel_case_word(bytes: &[u8], start: usize, at: usize) -> bool {
    if at <= start || !bytes.get(at).is_some_and(u8::is_ascii_uppercase) {
        return false;
    }
    let is_after_lower_case = bytes[at - 1].is_ascii_lowercase();
    let is_before_lower_case = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
    is_after_lower_case || is_before_lower_case
}

/// Checks whether the last word of a key is ignored: `API_KEY_2`, `SECRET_KEY_BASE`.
fn is_ignored_ending(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let endings = ["base", "value", "plain", "text", "prod", "dev", "staging", "live"];
    is_number || endings.iter().any(|ending| word.eq_ignore_ascii_case(ending))
}

/// Returns the kind of the secrets in a list, whose key is a plural such as `passwords`.
pub(super) fn kind_of_list(key: &str) -> Option<Kind> {
    kind_of(key.strip_suffix(['s', 'S'])?)
}

/// Returns the secret after the key that contains the offset `at`: `password=…`.
pub(super) fn secret_of_key(
    text: &str,
    at: usize,
    keys_at: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let bytes = text.as_bytes();
    let rest_of_key = bytes[at..].iter().take(MAX_KEY).take_while(|byte| is_key_byte(**byte));
    let key_end = at + rest_of_key.count();
    // In source code, only keys of AWS are searched. This check is first, because most texts are
    // source code.
    if keys_at(at) == Keys::Unknown && !is_aws_secret_key(&bytes[..key_end]) {
        return None;
    }
    let separator = Separator::after(bytes, key_end)?;
    let key_start = key_start(bytes, at);
    value_of(bytes, &text[key_start..key_end], key_start, &separator, keys_at)
}

fn key_start(bytes: &[u8], at: usize) -> usize {
    at - bytes[..at].iter().rev().take(MAX_KEY).take_while(|byte| is_key_byte(**byte)).count()
}

/// Returns the secret whose key contains a JSON escape, as in `"pass\u0077ord"`. The first escape
/// is at `at`.
pub(super) fn secret_of_escaped_key(
    text: &str,
    at: usize,
    keys_at: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let bytes = text.as_bytes();
    let start = key_start(bytes, at);
    if !bytes[..start].ends_with(b"\"") {
        return None;
    }
    let mut key = String::new();
    let mut end = start;
    while key.len() < MAX_KEY {
        let plain_byte = *bytes.get(end)?;
        let escaped_byte = json_escape(text, end);
        let byte = escaped_byte.unwrap_or(plain_byte);
        if !is_key_byte(byte) {
            break;
        }
        key.push(char::from(byte));
        end += if escaped_byte.is_some() { r"\u0077".len() } else { 1 };
    }
    count_examined(end - start);
    let separator = Separator::after(bytes, end)?;
    value_of(bytes, &key, start, &separator, keys_at)
}

fn json_escape(text: &str, at: usize) -> Option<u8> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u00")?;
    u8::from_str_radix(digits, 16).ok()
}

/// Checks whether a key ends with `secret_access_key`. The length of its value is known, so the
/// value is searched even in source code.
fn is_aws_secret_key(key: &[u8]) -> bool {
    const ENDING: &[u8] = b"secret_access_key";
    key.len() >= ENDING.len() && key[key.len() - ENDING.len()..].eq_ignore_ascii_case(ENDING)
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the secret in the value of `key`, which starts at `start`.
fn value_of(
    bytes: &[u8],
    key: &str,
    start: usize,
    separator: &Separator,
    keys_at: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let before = start.checked_sub(1).map(|before| bytes[before]);
    let is_tag = before == Some(b'<');
    let is_flag = key.starts_with("--");
    // Most words end here, before the slower search for the kind.
    match separator.sign {
        b'>' if !is_tag => return None,
        b' ' if !is_flag => return None,
        _ => {}
    }
    let (kind, is_list) = match kind_of(key) {
        Some(kind) => (kind, false),
        None => (kind_of_list(key)?, true),
    };
    let place = keys_at(start);
    let entry_place = if is_list { kind.list_place(place) } else { place };
    let find_secret = |start: usize, end: usize, quoted: bool| {
        first_secret(bytes, (start, end), quoted, kind, entry_place, true)
    };
    let is_delimited = is_tag || before == Some(b'"');
    if let Some(span) =
        multiline_value(bytes, start, separator, is_delimited, is_list, place, &find_secret)
    {
        return Some(Found { start: span.start, end: span.end, kind: kind.name });
    }
    if is_list {
        return None;
    }
    let value = Value::at(bytes, separator.end, kind, start)?;
    if without_comma(value.sample).eq_ignore_ascii_case(key.as_bytes()) {
        // A value that is the same as its key isn't a secret, as in `password=password` in a list
        // of arguments.
        return None;
    }
    let is_known = is_aws_secret_key(key.as_bytes()) && value.sample.len() == AWS_SECRET_LENGTH;
    let value_place = if is_known { Keys::Settings } else { place };
    let start = if let Some(end) = value.quoted {
        first_secret(bytes, (value.start, end), true, kind, value_place, false)?
    } else if value.is_secret(kind, value_place) {
        value.start
    } else {
        return None;
    };
    Some(Found { start, end: value.end(bytes, kind, place), kind: kind.name })
}

/// Returns a value that is a list, a block, or a text of several lines. `is_delimited` means that
/// the key has quotes or is a tag. `is_list` means that only a list is accepted.
fn multiline_value(
    bytes: &[u8],
    key_start: usize,
    separator: &Separator,
    is_delimited: bool,
    is_list: bool,
    place: Keys,
    find_secret: FindSecret,
) -> Option<Span> {
    let at = separator.end;
    let first = *bytes.get(at)?;
    let in_settings = place >= Keys::Settings;
    match (separator.sign, first) {
        (b':' | b'=', b'[') if place != Keys::Unknown => multiline::list(bytes, at, find_secret),
        (b':' | b'=' | b'>', b'"' | b'\'') if in_settings && !is_list => {
            multiline::triple_quoted(bytes, at, find_secret)
                .or_else(|| multiline::quoted_lines(bytes, at, find_secret))
        }
        (b':' | b'>', b'|' | b'>' | b'\n' | b'\r') if in_settings => {
            // After `|`, the indentation ends the value.
            let ends_at_delimiter = is_delimited && first != b'|';
            multiline::below(bytes, key_start, at, ends_at_delimiter, is_list, find_secret)
        }
        _ => None,
    }
}

/// Returns the start of the first secret in the range `within`, without marks. `is_entry` means
/// that the range is an entry of a list. In a list, the name of a secret isn't a secret.
fn first_secret(
    bytes: &[u8],
    within: (usize, usize),
    quoted: bool,
    kind: Kind,
    place: Keys,
    is_entry: bool,
) -> Option<usize> {
    let (range_start, range_end) = within;
    for (start, end) in mark::unmarked_ranges(bytes, range_start, range_end) {
        let sample = &bytes[start..end.min(start + SAMPLE)];
        if is_entry
            && let Ok(name) = std::str::from_utf8(sample)
            && kind_of(name.trim()).is_some()
        {
            continue;
        }
        let quote_end = if quoted { Some(end) } else { None };
        let value = Value {
            start,
            sample,
            quoted: quote_end,
            whole_line: false,
            assigned: false,
            ends_line: false,
        };
        if value.is_secret(kind, place) {
            return Some(start);
        }
    }
    None
}

struct Separator {
    sign: u8,
    end: usize,
}

impl Separator {
    /// Returns the separator after the key that ends at `key_end`: `: `, ` = `, `=>` or spaces.
    fn after(bytes: &[u8], key_end: usize) -> Option<Self> {
        let at = after_closing_quote(bytes, key_end);
        let sign_at = after_spaces(bytes, at);
        let sign = *bytes.get(sign_at)?;
        let next = bytes.get(sign_at + 1);
        let sign_length = match (sign, next) {
            (b'=', Some(b'>')) | (b':', Some(b'=')) => 2,
            // A comparison, such as `==` or `=~`, and a path, such as `a::b`, have no separator.
            (b'=', Some(b'=' | b'~')) | (b':', Some(b':')) => 0,
            (b'=' | b':' | b'>', _) => 1,
            _ => 0,
        };
        if sign_length == 0 {
            if let Some(separator) = value_word(bytes, at) {
                return Some(separator);
            }
            let has_space = sign_at > at;
            return if has_space { Some(Self { sign: b' ', end: sign_at }) } else { None };
        }

        let end = sign_at + sign_length;
        let value_start = after_spaces(bytes, end);
        if sign == b':'
            && let Some(literal_start) = after_type(bytes, value_start)
        {
            return Some(Self { sign, end: literal_start });
        }
        Some(Self { sign, end: value_start })
    }
}

fn after_spaces(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take(32).take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Returns the offset after the signs that close a key: a quote, an escaped quote, or the bracket
/// of an index.
fn after_closing_quote(bytes: &[u8], key_end: usize) -> usize {
    let mut at = key_end;
    at += bytes[at..].iter().take(MAX_SPACES).take_while(|byte| **byte == b'\\').count();
    if matches!(bytes.get(at), Some(b'"' | b'\'' | b'`')) {
        at += 1;
    }
    if bytes.get(at) == Some(&b']') {
        at += 1;
    }
    at
}

/// Returns the separator after the word `value`, if the key is itself a value. Examples are
/// `key="Password" value="…"` and `"name": "PASSWORD", "value": "…"`. The key ends at `key_end`.
fn value_word(bytes: &[u8], key_end: usize) -> Option<Separator> {
    if !matches!(bytes.get(key_end)?, b' ' | b',' | b'\n' | b'\r') {
        return None;
    }
    let mut at = after_blanks(bytes, key_end);
    // The word may be on the next line, after a line number.
    if bytes[..at].ends_with(b"\n") || bytes[..at].ends_with(b" ") {
        let line_start = &bytes[at..bytes.len().min(at + MAX_LINE_NUMBER)];
        at = after_blanks(bytes, at + multiline::line_number_length(line_start));
    }
    if bytes.get(at) == Some(&b'"') {
        at += 1;
    }
    let word_end = at + b"value".len();
    if !bytes.get(at..word_end)?.eq_ignore_ascii_case(b"value") {
        return None;
    }
    at = word_end;
    if bytes.get(at) == Some(&b'"') {
        at += 1;
    }
    let sign_at = after_few_spaces(bytes, at);
    let sign = *bytes.get(sign_at)?;
    if !matches!(sign, b'=' | b':') {
        return None;
    }
    Some(Separator { sign, end: after_few_spaces(bytes, sign_at + 1) })
}

fn after_blanks(bytes: &[u8], at: usize) -> usize {
    let blanks = bytes[at..]
        .iter()
        .take(64)
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b','));
    at + blanks.count()
}

fn after_few_spaces(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take(MAX_SPACES).take_while(|byte| **byte == b' ').count()
}

/// Returns the start of a string literal after its type: `password: &str = "…"`.
fn after_type(bytes: &[u8], at: usize) -> Option<usize> {
    let type_bytes = bytes[at..].iter().take(MAX_KEY).take_while(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'&' | b'\'' | b'<' | b'>' | b'[' | b']' | b':' | b'?' | b' ')
    });
    let type_length = type_bytes.count();
    if type_length == 0 {
        return None;
    }
    let sign = at + type_length;
    let after_sign = bytes[sign..].strip_prefix(b"=")?;
    let spaces = after_sign.iter().take(MAX_SPACES).take_while(|byte| **byte == b' ').count();
    let is_literal = matches!(after_sign.get(spaces), Some(b'"' | b'\''));
    if is_literal { Some(sign + b"=".len() + spaces) } else { None }
}

/// A value and the facts that decide whether it is a secret.
struct Value<'a> {
    start: usize,
    /// The first bytes of the value, at most [`SAMPLE`].
    sample: &'a [u8],
    /// The offset of the closing quote. `None` for a value without quotes.
    quoted: Option<usize>,
    /// Whether the line contains only the key and the value.
    whole_line: bool,
    /// Whether the form is `KEY=value`, as in a shell or a `.env` file.
    assigned: bool,
    /// Whether the value goes to the end of its line, and doesn't end with a comma or a semicolon.
    ends_line: bool,
}

impl<'a> Value<'a> {
    /// Reads the value at `at`, after the separator. `key` is the offset of its key. Returns `None`
    /// if the value is empty.
    fn at(bytes: &'a [u8], at: usize, kind: Kind, key: usize) -> Option<Self> {
        let prefix = bytes[at..]
            .iter()
            .take(2)
            .take_while(|byte| matches!(byte, b'b' | b'r' | b'f' | b'u' | b'@'))
            .count();
        let mut start = at;
        let slashes =
            bytes[at..].iter().take(MAX_SPACES).take_while(|byte| **byte == b'\\').count();
        let after_prefix = bytes.get(at + prefix);
        let has_literal = matches!(after_prefix, Some(b'"' | b'\''));
        let quote_at = if has_literal { at + prefix } else { at + slashes };
        if let Some(quote @ (b'"' | b'\'' | b'`')) = bytes.get(quote_at) {
            start = quote_at + 1;
            let escaped = if quote_at == at + slashes { slashes } else { 0 };
            if let Some(end) = closing_quote(bytes, start, *quote, escaped) {
                let sample = &bytes[start..end.min(start + SAMPLE)];
                return Some(Self {
                    start,
                    sample,
                    quoted: Some(end),
                    whole_line: false,
                    assigned: false,
                    ends_line: false,
                });
            }
        }

        let before_length =
            bytes[..key].iter().rev().take(MAX_KEY).take_while(|byte| **byte != b'\n').count();
        let before = &bytes[key - before_length..key];
        // A line that contains only the key and the value may also have a line number, `export` or
        // `set`, the dash of a list, or the sign of a comment before the key.
        let leading =
            before.strip_suffix(b"export ").or(before.strip_suffix(b"set ")).unwrap_or(before);
        let whole_line = leading.iter().all(|byte| {
            byte.is_ascii_digit()
                || matches!(byte, b' ' | b'\t' | b'-' | b'#' | b';' | b':' | b'"' | b'\'')
        });
        let length = bytes[start..]
            .iter()
            .enumerate()
            .take(SAMPLE)
            .take_while(|(offset, byte)| {
                !ends_value(**byte, kind.to_line_end, whole_line) && !is_mark(bytes, start + offset)
            })
            .count();
        if length == 0 {
            return None;
        }

        let assigned = at == start && bytes[..start].ends_with(b"=");
        let sample = &bytes[start..start + length];
        let has_comma = sample.ends_with(b",") || sample.ends_with(b";");
        let ends_line = !has_comma
            && bytes.get(start + length).is_none_or(|byte| matches!(byte, b'\n' | b'\r'));
        Some(Self { start, sample, quoted: None, whole_line, assigned, ends_line })
    }

    /// Returns the end of the value. Must be called only for a secret, because it reads the whole
    /// value.
    fn end(&self, bytes: &[u8], kind: Kind, place: Keys) -> usize {
        if let Some(end) = self.quoted {
            return end;
        }
        let is_setting_line = place >= Keys::Settings && self.whole_line;
        let to_line_end = kind.to_line_end || is_setting_line;
        let length = bytes[self.start..]
            .iter()
            .enumerate()
            .take_while(|(offset, byte)| {
                // A mark ends the value, because the text after the mark was already examined.
                !ends_value(**byte, to_line_end, self.whole_line)
                    && !is_mark(bytes, self.start + offset)
            })
            .count();
        count_examined(length);
        let end = self.start + length;
        // White space and separators at the end aren't part of the value.
        let trailing = bytes[self.start..end].iter().rev().take_while(|byte| match byte {
            b' ' | b'\t' | b'\r' => true,
            b',' | b';' => self.whole_line,
            _ => false,
        });
        end - trailing.count()
    }

    fn is_secret(&self, kind: Kind, place: Keys) -> bool {
        let trimmed = self.sample.trim_ascii();
        let text = String::from_utf8_lossy(trimmed);
        if text.chars().count() < kind.min_length {
            return false;
        }
        let quoted = self.quoted.is_some();
        if is_reference(&text, quoted) || is_placeholder(&text) {
            return false;
        }
        if kind.to_line_end {
            let has_pairs = text.contains('=') && !text.contains(" = ");
            if kind == COOKIE && !has_pairs {
                return false;
            }
            // A text without a digit may be only the scheme, or a sentence about headers.
            return place >= Keys::Settings || text.bytes().any(|byte| byte.is_ascii_digit());
        }

        let value = without_comma(trimmed);
        let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
        // A value such as `colon2_token` is a name in code, and not a secret.
        let is_name = value.contains(&b'_')
            && digits <= 2
            && value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        let has_sign = value
            .iter()
            .any(|byte| byte.is_ascii_punctuation() && !matches!(byte, b'_' | b'-' | b'.' | b':'));
        let looks_secret = !is_name && (digits > 0 || has_sign);
        match place {
            Keys::Unknown => false,
            Keys::Settings | Keys::PrivateKey => true,
            // A quoted text with spaces is a message about a password, and not a password.
            Keys::Text if quoted && text.contains(' ') => false,
            Keys::Text if quoted => looks_secret || kind != TOKEN || text.len() >= 16,
            Keys::Text if looks_secret => true,
            Keys::Text => {
                let is_setting = self.assigned || kind == PASSWORD || kind == SECRET;
                self.whole_line && self.ends_line && is_setting
            }
        }
    }
}

fn without_comma(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    value.strip_suffix(b",").or(value.strip_suffix(b";")).unwrap_or(value)
}

fn ends_value(byte: u8, to_line_end: bool, whole_line: bool) -> bool {
    if to_line_end { ends_line_value(byte) } else { ends_bare_value(byte, whole_line) }
}

fn is_mark(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'[' && mark::length(&bytes[at..]) > 0
}

fn ends_line_value(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`')
}

/// Checks whether a byte ends a value without quotes. White space, quotes and angle brackets always
/// end the value. Other signs end the value unless the line contains only the key and the value.
fn ends_bare_value(byte: u8, whole_line: bool) -> bool {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'<' | b'>' => true,
        b',' | b';' | b'&' | b')' | b']' | b'}' | b'|' | b'\\' => !whole_line,
        _ => false,
    }
}

pub(super) fn is_secret_field(kind: Kind, value: &str, place: Keys) -> bool {
    first_secret(value.as_bytes(), (0, value.len()), true, kind, place, false).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_key_is_found() {
        for (key, name) in [
            ("password", "password"),
            ("DB_PASSWORD", "password"),
            ("spring.datasource.password", "password"),
            ("MYSQL_PASS", "password"),
            ("PGPASSWORD", "password"),
            ("PASS_PHRASE", "password"),
            ("userPassword", "password"),
            ("client_secret", "secret"),
            ("clientSecret", "secret"),
            ("access_token", "token"),
            ("accessToken", "token"),
            ("_authToken", "token"),
            ("api-key", "key"),
            ("apikey", "key"),
            ("X-Api-Key", "key"),
            ("APIKey", "key"),
            ("API_KEY_2", "key"),
            ("aws_secret_access_key", "key"),
            ("AccountKey", "key"),
            ("SECRET_KEY_BASE", "key"),
            ("user-key", "key"),
            ("credentials", "credential"),
            ("connectionString", "credential"),
            ("Authorization", "authorization"),
            ("Proxy-Authorization", "authorization"),
            ("_auth", "authorization"),
            ("Set-Cookie", "cookie"),
            ("sessionid", "token"),
        ] {
            assert_eq!(kind_of(key).map(|kind| kind.name), Some(name), "{key}");
        }
        for key in [
            "",
            "key",
            "pass",
            "primary_key",
            "public_key",
            "tokens",
            "max_tokens",
            "token_count",
            "next_page_token",
            "password_hash_algorithm",
            "keyboard",
            "passenger",
            "secretary",
            "author",
            "bypass",
            "compass",
            "monkey",
            "tokenizer",
            "access_key_id",
            "auth",
            "é",
            "_",
        ] {
            assert_eq!(kind_of(key), None, "{key}");
        }
    }
}
