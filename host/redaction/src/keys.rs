//! Values whose keys say that they are secret: `password=…`, `"api_key": "…"`, `Authorization: …`.

use super::found::{Found, looked_at};
use super::mark;
use super::multiline::{self, Judge, Span, closed};
use super::stand_ins::{is_placeholder, is_reference};

/// Bytes of a key that are looked at, on each side of its telling word.
const MAX_KEY: usize = 64;

/// Bytes of a value by which it is judged. What follows belongs to it, and costs nothing if it is
/// none.
const JUDGED: usize = 128;

/// Where keys and values stand, which decides what counts as a secret.
///
/// The later, the more of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// In source code, where `password = input` says nothing: no value counts.
    Unknown,
    /// In output of any kind: values count that can't be names or words.
    Text,
    /// In a file of settings: every value counts.
    Settings,
    /// In a file of a private key: every line of base64 counts too, since nothing else tells of one
    /// what it is.
    PrivateKey,
}

/// What a key says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Characters that a secret has at least.
    least: usize,
    /// Whether the value goes on to the end of the line: a header's.
    line: bool,
}

impl Kind {
    /// The place by which the entries of a list are judged whose name is one of many: a list of
    /// tokens may be one of words.
    pub(super) fn of_list(self, place: Keys) -> Keys {
        if self == TOKEN { place.min(Keys::Text) } else { place }
    }
}

const fn kind(name: &'static str, least: usize) -> Kind {
    Kind { name, least, line: false }
}

const PASSWORD: Kind = kind("password", 6);
const SECRET: Kind = kind("secret", 8);
const TOKEN: Kind = kind("token", 8);
const KEY: Kind = kind("key", 8);
const CREDENTIAL: Kind = kind("credential", 8);
const AUTHORIZATION: Kind = Kind { name: "authorization", least: 8, line: true };
const COOKIE: Kind = Kind { name: "cookie", least: 8, line: true };

/// The words by which a credential's key is found; the scanner stops at their first three letters,
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

/// What the name of a setting, a field, a header or a variable says. None: nothing secret.
pub(super) fn kind_of(key: &str) -> Option<Kind> {
    let mut words = [""; 24];
    let mut count = 0;
    let mut start = 0;
    let bytes = key.as_bytes();
    for at in 0..=bytes.len() {
        let apart = bytes.get(at).is_none_or(|byte| !byte.is_ascii_alphanumeric());
        // `apiKey` is two words, and so is `APIKey`.
        let hump = at > start
            && bytes.get(at).is_some_and(u8::is_ascii_uppercase)
            && (bytes[at - 1].is_ascii_lowercase()
                || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase));
        if apart || hump {
            if at > start && key.is_char_boundary(start) && key.is_char_boundary(at) {
                // Of a long key its end counts.
                if count == words.len() {
                    words.rotate_left(1);
                    count -= 1;
                }
                words[count] = &key[start..at];
                count += 1;
            }
            start = if apart { at + 1 } else { at };
        }
    }
    let mut words = &words[..count];
    // `API_KEY_2` and `SECRET_KEY_BASE` are what they are without their last word.
    while let [rest @ .., last] = words {
        let numbered = last.bytes().all(|byte| byte.is_ascii_digit());
        if !numbered
            && !["base", "value", "plain", "text", "prod", "dev", "staging", "live"]
                .iter()
                .any(|word| last.eq_ignore_ascii_case(word))
        {
            break;
        }
        words = rest;
    }
    let (last, before) = words.split_last()?;
    let before = before.last().copied().unwrap_or("");
    let last = last.trim_end_matches(|c: char| c.is_ascii_digit());
    let is = |word: &str| last.eq_ignore_ascii_case(word);
    let after = |known: &[&str]| known.iter().any(|word| before.eq_ignore_ascii_case(word));
    if ["password", "passwd", "passphrase", "pwd", "passwort"].into_iter().any(is)
        || is("pass") && !before.is_empty()
        || is("phrase") && after(&["pass"])
    {
        return Some(PASSWORD);
    }
    if last.len() > 8 && last.to_ascii_lowercase().ends_with("password") {
        return Some(PASSWORD);
    }
    if is("secret") || is("secrets") {
        return Some(SECRET);
    }
    // A place in a list, and what a parser makes, are called so too.
    if is("token")
        && !after(&[
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
        ])
        || ["accesstoken", "authtoken", "authtoken", "refreshtoken", "apitoken", "bearer"]
            .into_iter()
            .any(is)
    {
        return Some(TOKEN);
    }
    let keys = [
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
    if is("key") && after(&keys)
        || ["apikey", "accesskey", "secretkey", "privatekey", "accountkey", "userkey", "authkey"]
            .into_iter()
            .any(is)
    {
        return Some(KEY);
    }
    if is("credential") || is("credentials") {
        return Some(CREDENTIAL);
    }
    if is("authorization")
        || is("auth") && (key.starts_with('_') || after(&["proxy", "basic", "http"]))
    {
        return Some(AUTHORIZATION);
    }
    if is("cookie") {
        return Some(COOKIE);
    }
    if is("sessionid") || is("id") && after(&["session"]) {
        return Some(TOKEN);
    }
    (is("string") && after(&["connection"])).then_some(CREDENTIAL)
}

/// What the name of a list says of each entry: `passwords`.
pub(super) fn kind_of_list(key: &str) -> Option<Kind> {
    kind_of(key.strip_suffix(['s', 'S'])?)
}

/// The secret whose key has its telling word at `at`. `keys` says for the offset of a key what
/// counts there.
pub(super) fn pair(text: &str, at: usize, keys: &dyn Fn(usize) -> Keys) -> Option<Found> {
    let bytes = text.as_bytes();
    let end = at + bytes[at..].iter().take(MAX_KEY).take_while(|byte| is_of_key(**byte)).count();
    // In source code there is only one key that counts, and most texts are source code.
    if keys(at) == Keys::Unknown && !is_exact(&bytes[..end]) {
        return None;
    }
    let separator = Separator::behind(bytes, end)?;
    let start =
        at - bytes[..at].iter().rev().take(MAX_KEY).take_while(|byte| is_of_key(**byte)).count();
    value_of(bytes, &text[start..end], start, &separator, keys)
}

/// The secret whose key is written with an escape of JSON, the first of which is at `at`:
/// `"pass\u0077ord"`.
pub(super) fn escaped(text: &str, at: usize, keys: &dyn Fn(usize) -> Keys) -> Option<Found> {
    let bytes = text.as_bytes();
    let start =
        at - bytes[..at].iter().rev().take(MAX_KEY).take_while(|byte| is_of_key(**byte)).count();
    if start.checked_sub(1).map(|before| bytes[before]) != Some(b'"') {
        return None;
    }
    let (mut key, mut end) = (String::new(), start);
    while key.len() < MAX_KEY {
        let code = text
            .get(end..end + 6)
            .and_then(|code| code.strip_prefix("\\u00"))
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        let (byte, length) = code.map_or((*bytes.get(end)?, 1), |byte| (byte, 6));
        if !is_of_key(byte) {
            break;
        }
        key.push(char::from(byte));
        end += length;
    }
    looked_at(end - start);
    value_of(bytes, &key, start, &Separator::behind(bytes, end)?, keys)
}

/// Whether a key ends as the one whose value has a length of its own, by which it is told
/// everywhere.
fn is_exact(key: &[u8]) -> bool {
    const EXACT: &[u8] = b"secret_access_key";
    key.len() >= EXACT.len() && key[key.len() - EXACT.len()..].eq_ignore_ascii_case(EXACT)
}

fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// The value of a key that begins at `start`, where it is a secret.
fn value_of(
    bytes: &[u8],
    key: &str,
    start: usize,
    separator: &Separator,
    keys: &dyn Fn(usize) -> Keys,
) -> Option<Found> {
    let (kind, many) = match kind_of(key) {
        Some(kind) => (kind, false),
        None => (kind_of_list(key)?, true),
    };
    let before = start.checked_sub(1).map(|before| bytes[before]);
    let tag = before == Some(b'<');
    let flag = key.starts_with("--");
    match separator.sign {
        b'>' if !tag => return None,
        b' ' if !flag => return None,
        _ => {}
    }
    let place = keys(start);
    let judged = if many { kind.of_list(place) } else { place };
    let judge = |start: usize, end: usize, quoted: bool| {
        first_secret(bytes, (start, end), quoted, kind, judged, true)
    };
    let apart = tag || before == Some(b'"');
    if let Some(span) = over_lines(bytes, start, separator, apart, many, place, &judge) {
        return Some(Found { start: span.start, end: span.end, kind: kind.name });
    }
    if many {
        return None;
    }
    // A mark has a space in it, so it is looked for where it may begin.
    let value = Value::at(bytes, separator.end, kind, start)?;
    if without_comma(value.judged).eq_ignore_ascii_case(key.as_bytes()) {
        // `password=password`, in a list of arguments.
        return None;
    }
    let exact = is_exact(key.as_bytes()) && value.judged.len() == 40;
    let judged = if exact { Keys::Settings } else { place };
    let start = match value.quoted {
        Some(end) => first_secret(bytes, (value.start, end), true, kind, judged, false)?,
        None => value.is_secret(kind, judged).then_some(value.start)?,
    };
    Some(Found { start, end: value.end(bytes, kind, place), kind: kind.name })
}

/// A value that doesn't stand behind its key as one piece: a list, a block, a text of several
/// lines. `many`: only a list.
fn over_lines(
    bytes: &[u8],
    key: usize,
    separator: &Separator,
    apart: bool,
    many: bool,
    place: Keys,
    judge: Judge,
) -> Option<Span> {
    let at = separator.end;
    let begins = *bytes.get(at)?;
    let named = matches!(separator.sign, b':' | b'=' | b'>');
    let in_settings = named && place >= Keys::Settings;
    match begins {
        b'[' if separator.sign != b'>' && named && place != Keys::Unknown => {
            multiline::list(bytes, at, judge)
        }
        b'"' | b'\'' if in_settings && !many => {
            multiline::tripled(bytes, at, judge).or_else(|| multiline::open(bytes, at, judge))
        }
        b'|' | b'>' | b'\n' | b'\r' if separator.sign != b'=' && in_settings => {
            multiline::below(bytes, key, at, apart && begins != b'|', many, judge)
        }
        _ => None,
    }
}

/// Where the first secret begins in what stands between two offsets, marks apart.
/// `listed`: it is one of several, and a list of the names of secrets is none of secrets.
fn first_secret(
    bytes: &[u8],
    within: (usize, usize),
    quoted: bool,
    kind: Kind,
    place: Keys,
    listed: bool,
) -> Option<usize> {
    mark::around(bytes, within.0, within.1).find_map(|(start, end)| {
        let judged = &bytes[start..end.min(start + JUDGED)];
        let value = Value {
            start,
            judged,
            quoted: quoted.then_some(end),
            whole_line: false,
            assigned: false,
            last: false,
        };
        let name = listed
            && std::str::from_utf8(judged).ok().is_some_and(|name| kind_of(name.trim()).is_some());
        (!name && value.is_secret(kind, place)).then_some(start)
    })
}

/// What stands between a key and its value.
struct Separator {
    sign: u8,
    end: usize,
}

impl Separator {
    fn behind(bytes: &[u8], key_end: usize) -> Option<Self> {
        let spaces = |at: usize| {
            at + bytes[at..].iter().take(32).take_while(|byte| matches!(byte, b' ' | b'\t')).count()
        };
        let mut at = key_end;
        at += bytes[at..].iter().take(8).take_while(|byte| **byte == b'\\').count();
        at += usize::from(bytes.get(at).is_some_and(|byte| matches!(byte, b'"' | b'\'' | b'`')));
        at += usize::from(bytes.get(at) == Some(&b']'));
        let behind = spaces(at);
        let sign = *bytes.get(behind)?;
        let next = bytes.get(behind + 1).copied().unwrap_or(b'\n');
        let end = match sign {
            b'=' if next == b'>' => behind + 2,
            b'=' if next != b'=' && next != b'~' => behind + 1,
            b':' if next == b'=' => behind + 2,
            b':' if next != b':' => behind + 1,
            b'>' => behind + 1,
            _ => {
                return named(bytes, at)
                    .or_else(|| (behind > at).then_some(Self { sign: b' ', end: behind }));
            }
        };
        let end = spaces(end);
        Some(Self { sign, end: if sign == b':' { typed(bytes, end).unwrap_or(end) } else { end } })
    }
}

/// The sign behind the word for a value, where the key itself is one: `key="Password" value="…"`,
/// `"name": "PASSWORD", "value": "…"`.
fn named(bytes: &[u8], at: usize) -> Option<Separator> {
    if !matches!(bytes.get(at)?, b' ' | b',' | b'\n' | b'\r') {
        return None;
    }
    let blank = |at: usize| {
        at + bytes[at..]
            .iter()
            .take(64)
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b','))
            .count()
    };
    let mut at = blank(at);
    if bytes[..at].ends_with(b"\n") || bytes[..at].ends_with(b" ") {
        let line = &bytes[at..bytes.len().min(at + 16)];
        at = blank(at + multiline::numbered(line));
    }
    at += usize::from(bytes.get(at) == Some(&b'"'));
    at += bytes.get(at..at + 5).filter(|word| word.eq_ignore_ascii_case(b"value"))?.len();
    at += usize::from(bytes.get(at) == Some(&b'"'));
    let space =
        |at: usize| at + bytes[at..].iter().take(8).take_while(|byte| **byte == b' ').count();
    let sign = space(at);
    matches!(bytes.get(sign)?, b'=' | b':')
        .then(|| Separator { sign: bytes[sign], end: space(sign + 1) })
}

/// Where a text literal begins behind the type that stands before it: `password: &str = "…"`.
fn typed(bytes: &[u8], at: usize) -> Option<usize> {
    let part = |byte: &&u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'&' | b'\'' | b'<' | b'>' | b'[' | b']' | b':' | b'?' | b' ')
    };
    let sign = at + bytes[at..].iter().take(MAX_KEY).take_while(part).count();
    let value = bytes[sign..].strip_prefix(b"=")?;
    let spaces = value.iter().take(8).take_while(|byte| **byte == b' ').count();
    (sign > at && matches!(value.get(spaces), Some(b'"' | b'\''))).then_some(sign + 1 + spaces)
}

/// A value, as far as it is needed to judge it.
struct Value<'a> {
    start: usize,
    judged: &'a [u8],
    quoted: Option<usize>,
    /// Whether key and value are all that the line holds.
    whole_line: bool,
    /// Whether it is written as a shell or a `.env` file has it: `KEY=value`.
    assigned: bool,
    /// Whether the line ends behind it.
    last: bool,
}

impl<'a> Value<'a> {
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
        let quote = bytes.get(quote_at).copied().filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
        if let Some(quote) = quote {
            start = quote_at + 1;
            let escaped = if quote_at == at + slashes { slashes } else { 0 };
            if let Some(end) = closed(bytes, start, quote, escaped) {
                let judged = &bytes[start..end.min(start + JUDGED)];
                return Some(Self {
                    start,
                    judged,
                    quoted: Some(end),
                    whole_line: false,
                    assigned: false,
                    last: false,
                });
            }
        }
        let line_start =
            bytes[..key].iter().rev().take(MAX_KEY).take_while(|byte| **byte != b'\n').count();
        let before = &bytes[key - line_start..key];
        // Numbers of lines, `export`, the dash of a list, a comment's sign.
        let leading =
            before.strip_suffix(b"export ").or(before.strip_suffix(b"set ")).unwrap_or(before);
        let whole_line = leading.iter().all(|byte| {
            byte.is_ascii_digit()
                || matches!(byte, b' ' | b'\t' | b'-' | b'#' | b';' | b':' | b'"' | b'\'')
        });
        let stops =
            |byte: u8| if kind.line { line_stop(byte) } else { bare_stop(byte, whole_line) };
        let mark = |at: usize, byte: u8| byte == b'[' && mark::length(&bytes[start + at..]) > 0;
        let length = bytes[start..]
            .iter()
            .enumerate()
            .take(JUDGED)
            .take_while(|(at, byte)| !stops(**byte) && !mark(*at, **byte))
            .count();
        let assigned = start.checked_sub(1).is_some_and(|sign| bytes[sign] == b'=') && at == start;
        let judged = &bytes[start..start + length];
        let last = bytes.get(start + length).is_none_or(|byte| matches!(byte, b'\n' | b'\r'))
            && !judged.ends_with(b",")
            && !judged.ends_with(b";");
        let value = Self { start, judged, quoted: None, whole_line, assigned, last };
        (length > 0).then_some(value)
    }

    fn end(&self, bytes: &[u8], kind: Kind, place: Keys) -> usize {
        if let Some(end) = self.quoted {
            return end;
        }
        let to_the_end = kind.line || place >= Keys::Settings && self.whole_line;
        let stops =
            |byte: u8| if to_the_end { line_stop(byte) } else { bare_stop(byte, self.whole_line) };
        // Behind a mark, everything was looked at before.
        let mark =
            |at: usize, byte: u8| byte == b'[' && mark::length(&bytes[self.start + at..]) > 0;
        let length = bytes[self.start..]
            .iter()
            .enumerate()
            .take_while(|(at, byte)| !stops(**byte) && !mark(*at, **byte))
            .count();
        looked_at(length);
        let end = self.start + length;
        let trailing = |byte: &&u8| {
            matches!(byte, b' ' | b'\t' | b'\r') || self.whole_line && matches!(byte, b',' | b';')
        };
        end - bytes[self.start..end].iter().rev().take_while(trailing).count()
    }

    fn is_secret(&self, kind: Kind, place: Keys) -> bool {
        let trimmed = self.judged.trim_ascii();
        let text = String::from_utf8_lossy(trimmed);
        if text.chars().count() < kind.least {
            return false;
        }
        let quoted = self.quoted.is_some();
        if is_reference(&text, quoted) || is_placeholder(&text) {
            return false;
        }
        if kind.line {
            // A scheme alone, or a sentence about headers.
            let pairs = kind != COOKIE || text.contains('=') && !text.contains(" = ");
            return pairs
                && (place >= Keys::Settings || text.bytes().any(|byte| byte.is_ascii_digit()));
        }
        let spaced = text.contains(' ');
        let value = without_comma(trimmed);
        let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
        // `colon2_token` is a name still.
        let name = value.contains(&b'_')
            && digits <= 2
            && value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        let marked =
            |byte: &u8| byte.is_ascii_punctuation() && !matches!(byte, b'_' | b'-' | b'.' | b':');
        let telling = !name && (digits > 0 || value.iter().any(marked));
        match place {
            Keys::Unknown => false,
            Keys::Settings | Keys::PrivateKey => true,
            // A message about a password is none.
            Keys::Text if quoted => !spaced && (telling || kind != TOKEN || text.len() >= 16),
            Keys::Text => {
                telling
                    || self.whole_line
                        && self.last
                        && (self.assigned || kind == PASSWORD || kind == SECRET)
            }
        }
    }
}

fn without_comma(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    value.strip_suffix(b",").or(value.strip_suffix(b";")).unwrap_or(value)
}

fn line_stop(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'"' | b'\'' | b'`')
}

/// What ends a value without quotes. Where it has the line for itself, only white space does.
fn bare_stop(byte: u8, whole_line: bool) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'<' | b'>')
        || !whole_line && matches!(byte, b',' | b';' | b'&' | b')' | b']' | b'}' | b'|' | b'\\')
}

/// Whether the value of a JSON field with a telling key is a secret.
pub(super) fn is_secret_field(kind: Kind, value: &str, place: Keys) -> bool {
    first_secret(value.as_bytes(), (0, value.len()), true, kind, place, false).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_their_values_are() {
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
