//! Finds secret values by their keys: `password=…`, `"api_key": "…"`, `Authorization: …`.

use super::found::{Found, count_examined};
use super::mark;
use super::multiline::{self, FindSecret, Span, closing_quote};
use super::stand_ins::{is_placeholder, is_reference};

/// Bytes of a key that are examined on each side of its word.
const MAX_KEY: usize = 64;

/// Bytes of a value that decide whether the value is a secret. The rest of the value is read only
/// if it is a secret.
const SAMPLE: usize = 128;

/// The kind of place of keys and values. The kind decides which values are secrets. With later
/// variants, more values are secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// Source code. No value is a secret, because code has many lines such as `password = input`.
    Unknown,
    /// Output of any kind. Values are secrets if they aren't names or words.
    Text,
    /// A settings file. Every value is a secret.
    Settings,
    /// A file of a private key. Every value is a secret, and so is every line of base64, because a
    /// single line of a key has no other mark.
    PrivateKey,
}

/// The kind of secret that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Characters that a secret has at least.
    min_length: usize,
    /// Whether the value ends at the end of the line, as in a header.
    to_line_end: bool,
}

impl Kind {
    /// Returns the kind of place for the entries of a list. A list of tokens may be a list of
    /// words, so only clear secrets are secrets in such a list.
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

/// Words in the keys of credentials. The scanner stops at the first three letters of these words,
/// in any case.
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

/// Words before `token` that show that it isn't a secret, but a place in a list or a result of a
/// parser.
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

/// Words before `key` that show that it is secret.
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
/// `None` if the name isn't a name for secrets.
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

/// The last significant word of a name, and the word before it.
struct LastWords<'a> {
    last: &'a str,
    before: &'a str,
}

impl<'a> LastWords<'a> {
    /// Splits a key into words. Returns `None` if there is no significant word.
    fn of_key(key: &'a str) -> Option<Self> {
        let mut words = [""; 24];
        let mut count = 0;
        let mut start = 0;
        let bytes = key.as_bytes();
        for at in 0..=bytes.len() {
            let is_separator = bytes.get(at).is_none_or(|byte| !byte.is_ascii_alphanumeric());
            if !is_separator && !begins_hump(bytes, start, at) {
                continue;
            }
            if at > start && key.is_char_boundary(start) && key.is_char_boundary(at) {
                // Only the last words of a long key are used.
                if count == words.len() {
                    words.rotate_left(1);
                    count -= 1;
                }
                words[count] = &key[start..at];
                count += 1;
            }
            start = if is_separator { at + 1 } else { at };
        }

        let mut words = &words[..count];
        while let [before @ .., last] = words {
            if !is_ignored_ending(last) {
                break;
            }
            words = before;
        }
        let (last, before) = words.split_last()?;
        Some(Self {
            last: last.trim_end_matches(|c: char| c.is_ascii_digit()),
            before: before.last().copied().unwrap_or(""),
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

/// Checks whether the byte at `at` starts a word of a key without a separator before it. `apiKey`
/// has two words, and so has `APIKey`. The previous word starts at `start`.
fn begins_hump(bytes: &[u8], start: usize, at: usize) -> bool {
    if at <= start || !bytes.get(at).is_some_and(u8::is_ascii_uppercase) {
        return false;
    }
    bytes[at - 1].is_ascii_lowercase() || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase)
}

/// Checks whether the last word of a key doesn't matter, as in `API_KEY_2` and `SECRET_KEY_BASE`.
fn is_ignored_ending(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        || ["base", "value", "plain", "text", "prod", "dev", "staging", "live"]
            .iter()
            .any(|ending| word.eq_ignore_ascii_case(ending))
}

/// Returns the kind of secret for each entry of a list with this name, such as `passwords`.
pub(super) fn kind_of_list(key: &str) -> Option<Kind> {
    kind_of(key.strip_suffix(['s', 'S'])?)
}

/// Returns the secret whose key has its word at `at`. `keys` returns the kind of place for the
/// offset of a key.
pub(super) fn pair(text: &str, at: usize, keys: &dyn Fn(usize) -> Keys) -> Option<Found> {
    let bytes = text.as_bytes();
    let end = at + bytes[at..].iter().take(MAX_KEY).take_while(|byte| is_key_byte(**byte)).count();
    // In source code, only exact keys are accepted. This check comes first because most texts are
    // source code.
    if keys(at) == Keys::Unknown && !is_exact(&bytes[..end]) {
        return None;
    }
    let separator = Separator::after(bytes, end)?;
    let start = key_start(bytes, at);
    value_of(bytes, &text[start..end], start, &separator, keys)
}

/// Returns the start of the key around `at`.
fn key_start(bytes: &[u8], at: usize) -> usize {
    at - bytes[..at].iter().rev().take(MAX_KEY).take_while(|byte| is_key_byte(**byte)).count()
}

/// Returns the secret whose key contains a JSON escape: `"pass\u0077ord"`. The first escape is at
/// `at`.
pub(super) fn escaped(text: &str, at: usize, keys: &dyn Fn(usize) -> Keys) -> Option<Found> {
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
        end += if escaped_byte.is_some() { 6 } else { 1 };
    }
    count_examined(end - start);
    let separator = Separator::after(bytes, end)?;
    value_of(bytes, &key, start, &separator, keys)
}

/// Returns the byte that the JSON escape at `at` represents: `w` for `\u0077`.
fn json_escape(text: &str, at: usize) -> Option<u8> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u00")?;
    u8::from_str_radix(digits, 16).ok()
}

/// Checks whether a key ends with the name of a secret that is known by its length. Such names are
/// accepted even in source code.
fn is_exact(key: &[u8]) -> bool {
    const EXACT: &[u8] = b"secret_access_key";
    key.len() >= EXACT.len() && key[key.len() - EXACT.len()..].eq_ignore_ascii_case(EXACT)
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the secret value of the key that starts at `start`. Returns `None` if the value isn't a
/// secret.
fn value_of(
    bytes: &[u8],
    key: &str,
    start: usize,
    separator: &Separator,
    keys: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let before = start.checked_sub(1).map(|before| bytes[before]);
    let is_tag = before == Some(b'<');
    let is_flag = key.starts_with("--");
    // Most words stop here, before the longer search for the kind.
    match separator.sign {
        b'>' if !is_tag => return None,
        b' ' if !is_flag => return None,
        _ => {}
    }
    let (kind, is_list) = match kind_of(key) {
        Some(kind) => (kind, false),
        None => (kind_of_list(key)?, true),
    };
    let place = keys(start);
    let entry_place = if is_list { kind.list_place(place) } else { place };
    let find_secret = |start: usize, end: usize, quoted: bool| {
        first_secret(bytes, (start, end), quoted, kind, entry_place, true)
    };
    let is_delimited = is_tag || before == Some(b'"');
    if let Some(span) =
        over_lines(bytes, start, separator, is_delimited, is_list, place, &find_secret)
    {
        return Some(Found { start: span.start, end: span.end, kind: kind.name });
    }
    if is_list {
        return None;
    }
    // A mark has a space in it, so the value must not end there.
    let value = Value::at(bytes, separator.end, kind, start)?;
    if without_comma(value.sample).eq_ignore_ascii_case(key.as_bytes()) {
        // `password=password`, in a list of arguments.
        return None;
    }
    let is_known = is_exact(key.as_bytes()) && value.sample.len() == 40;
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
fn over_lines(
    bytes: &[u8],
    key: usize,
    separator: &Separator,
    is_delimited: bool,
    is_list: bool,
    place: Keys,
    find_secret: FindSecret,
) -> Option<Span> {
    let at = separator.end;
    let first = *bytes.get(at)?;
    let is_assigned = matches!(separator.sign, b':' | b'=' | b'>');
    let in_settings = is_assigned && place >= Keys::Settings;
    match first {
        b'[' if separator.sign != b'>' && is_assigned && place != Keys::Unknown => {
            multiline::list(bytes, at, find_secret)
        }
        b'"' | b'\'' if in_settings && !is_list => multiline::triple_quoted(bytes, at, find_secret)
            .or_else(|| multiline::quoted_lines(bytes, at, find_secret)),
        b'|' | b'>' | b'\n' | b'\r' if separator.sign != b'=' && in_settings => {
            multiline::below(bytes, key, at, is_delimited && first != b'|', is_list, find_secret)
        }
        _ => None,
    }
}

/// Returns the start of the first secret between two offsets, without marks. If `is_entry`, the
/// value is an entry of a list, where the name of a secret isn't a secret.
fn first_secret(
    bytes: &[u8],
    within: (usize, usize),
    quoted: bool,
    kind: Kind,
    place: Keys,
    is_entry: bool,
) -> Option<usize> {
    for (start, end) in mark::around(bytes, within.0, within.1) {
        let sample = &bytes[start..end.min(start + SAMPLE)];
        if is_entry
            && let Ok(name) = std::str::from_utf8(sample)
            && kind_of(name.trim()).is_some()
        {
            continue;
        }
        let value = Value {
            start,
            sample,
            quoted: quoted.then_some(end),
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

/// The separator between a key and its value.
struct Separator {
    sign: u8,
    end: usize,
}

impl Separator {
    /// Reads the separator after a key that ends at `key_end`.
    fn after(bytes: &[u8], key_end: usize) -> Option<Self> {
        let mut at = key_end;
        at += bytes[at..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        at += usize::from(bytes.get(at).is_some_and(|byte| matches!(byte, b'"' | b'\'' | b'`')));
        at += usize::from(bytes.get(at) == Some(&b']'));
        let sign_at = after_spaces(bytes, at);
        let sign = *bytes.get(sign_at)?;
        let next = bytes.get(sign_at + 1).copied().unwrap_or(b'\n');
        let end = match sign {
            b'=' if next == b'>' => sign_at + 2,
            b'=' if next != b'=' && next != b'~' => sign_at + 1,
            b':' if next == b'=' => sign_at + 2,
            b':' if next != b':' => sign_at + 1,
            b'>' => sign_at + 1,
            _ => {
                if let Some(separator) = value_word(bytes, at) {
                    return Some(separator);
                }
                let has_space = sign_at > at;
                return has_space.then_some(Self { sign: b' ', end: sign_at });
            }
        };

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

/// Returns the separator after the word `value` if the key is itself a value: `key="Password"
/// value="…"`, `"name": "PASSWORD", "value": "…"`.
fn value_word(bytes: &[u8], at: usize) -> Option<Separator> {
    if !matches!(bytes.get(at)?, b' ' | b',' | b'\n' | b'\r') {
        return None;
    }
    let mut at = after_blanks(bytes, at);
    if bytes[..at].ends_with(b"\n") || bytes[..at].ends_with(b" ") {
        let line = &bytes[at..bytes.len().min(at + 16)];
        at = after_blanks(bytes, at + multiline::numbered(line));
    }
    at += usize::from(bytes.get(at) == Some(&b'"'));
    if !bytes.get(at..at + 5)?.eq_ignore_ascii_case(b"value") {
        return None;
    }
    at += 5;
    at += usize::from(bytes.get(at) == Some(&b'"'));
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
    at + bytes[at..].iter().take(8).take_while(|byte| **byte == b' ').count()
}

/// Returns the start of a string literal after its type: `password: &str = "…"`.
fn after_type(bytes: &[u8], at: usize) -> Option<usize> {
    let type_bytes = bytes[at..].iter().take(MAX_KEY).take_while(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'&' | b'\'' | b'<' | b'>' | b'[' | b']' | b':' | b'?' | b' ')
    });
    let sign = at + type_bytes.count();
    let has_type = sign > at;
    let after_sign = bytes[sign..].strip_prefix(b"=")?;
    let spaces = after_sign.iter().take(8).take_while(|byte| **byte == b' ').count();
    let is_literal = matches!(after_sign.get(spaces), Some(b'"' | b'\''));
    (has_type && is_literal).then_some(sign + 1 + spaces)
}

/// The properties of a value that decide whether it is a secret.
struct Value<'a> {
    start: usize,
    sample: &'a [u8],
    /// Offset of the closing quote, if the value has quotes.
    quoted: Option<usize>,
    /// Whether the line has only the key and the value.
    whole_line: bool,
    /// Whether the value is written as in a shell or a `.env` file: `KEY=value`.
    assigned: bool,
    /// Whether the line ends after the value.
    ends_line: bool,
}

impl<'a> Value<'a> {
    /// Reads the value at `at`. Its key starts at `key`. Returns `None` if the value is empty.
    fn at(bytes: &'a [u8], at: usize, kind: Kind, key: usize) -> Option<Self> {
        // `b"…"`, `r'…'`.
        let prefix = bytes[at..]
            .iter()
            .take(2)
            .take_while(|byte| matches!(byte, b'b' | b'r' | b'f' | b'u' | b'@'))
            .count();
        let mut start = at;
        let slashes = bytes[at..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        let quote_at = if bytes.get(at + prefix).is_some_and(|byte| matches!(byte, b'"' | b'\'')) {
            at + prefix
        } else {
            at + slashes
        };
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
        // Line numbers, `export`, the dash of a list, the sign of a comment.
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
            .take_while(|(at, byte)| {
                !ends_value(**byte, kind.to_line_end, whole_line) && !is_mark(bytes, start + at)
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

    /// Returns the end of the value. Only a secret is read to its end.
    fn end(&self, bytes: &[u8], kind: Kind, place: Keys) -> usize {
        if let Some(end) = self.quoted {
            return end;
        }
        let is_setting_line = place >= Keys::Settings && self.whole_line;
        let to_the_end = kind.to_line_end || is_setting_line;
        let length = bytes[self.start..]
            .iter()
            .enumerate()
            .take_while(|(at, byte)| {
                // The text after a mark was examined before.
                !ends_value(**byte, to_the_end, self.whole_line) && !is_mark(bytes, self.start + at)
            })
            .count();
        count_examined(length);
        let end = self.start + length;
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
            // Without a digit, the text may be only a scheme, or a sentence about headers.
            return place >= Keys::Settings || text.bytes().any(|byte| byte.is_ascii_digit());
        }

        let value = without_comma(trimmed);
        let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
        // `colon2_token` is a name.
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
            // A message about a password has spaces.
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

/// Checks whether a byte ends a value without quotes. If `to_line_end`, the value goes to the end
/// of the line.
fn ends_value(byte: u8, to_line_end: bool, whole_line: bool) -> bool {
    if to_line_end { ends_line_value(byte) } else { ends_bare_value(byte, whole_line) }
}

fn is_mark(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'[' && mark::length(&bytes[at..]) > 0
}

fn ends_line_value(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`')
}

/// Checks whether a byte ends a value without quotes. If the line contains only the key and the
/// value, only white space, quotes and angle brackets end the value.
fn ends_bare_value(byte: u8, whole_line: bool) -> bool {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'<' | b'>' => true,
        b',' | b';' | b'&' | b')' | b']' | b'}' | b'|' | b'\\' => !whole_line,
        _ => false,
    }
}

/// Checks whether the value of a field is a secret of this kind.
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
