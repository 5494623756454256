//! Removes secrets from texts that leave the host. Each secret is replaced by a mark with its kind,
//! `[REDACTED:github-token ghp_…]`.
//!
//! A secret is found by its form (`shapes`, `blocks`), by its place (`places`) or by its key
//! (`keys`), also in base64 and percent-encoding (`encoded`). There are no regular expressions, so
//! nothing is compiled at the start. Each check is bounded, so that the time is linear in the text,
//! also for untrusted text.

mod blocks;
mod encoded;
mod find;
mod found;
mod keys;
mod mark;
mod multiline;
mod places;
mod shapes;
mod stand_ins;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};
use toolhold_contract::{Body, Content};

use find::find;
use found::Found;
pub use keys::Keys;
pub use mark::first as first_mark;

/// How often a text with new marks is searched again. A mark may uncover a secret that the replaced
/// text had hidden.
const MAX_PASSES: usize = 8;

/// Bytes at the start of a part in which a value may begin whose key is in the part before.
const NEAR: usize = 256;

/// `text` with marks instead of secrets. A text without secrets isn't copied. Marks aren't secrets,
/// so a second pass changes nothing.
pub fn text(text: &str, keys: Keys) -> Cow<'_, str> {
    text_where(text, &|_| keys)
}

/// As [`text()`], with a kind of place for each key: `keys` gets the offset of each key that is
/// found.
pub fn text_where<'a>(text: &'a str, keys: &dyn Fn(usize) -> Keys) -> Cow<'a, str> {
    let found = find(text, keys, 0);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut moved = Vec::new();
    let mut out = put_marks(text, &found, &mut moved);
    for _ in 0..MAX_PASSES {
        let more = find(&out, &|offset| keys(original_offset(&moved, offset)), 0);
        if more.is_empty() {
            return Cow::Owned(out);
        }
        out = put_marks(&out, &more, &mut moved);
    }
    // Only an attack on the redaction needs more passes, so the whole text is removed.
    out.clear();
    mark::write(&mut out, "text", "");
    Cow::Owned(out)
}

/// The range of a mark, and the range of the secret in the text before.
struct Moved {
    start: usize,
    end: usize,
    old_start: usize,
    old_end: usize,
}

/// The offset in the original text for an offset in a text with marks of several passes.
fn original_offset(moved: &[Vec<Moved>], offset: usize) -> usize {
    moved.iter().rev().fold(offset, |offset, marks| {
        match marks[..marks.partition_point(|mark| mark.start <= offset)].last() {
            Some(mark) if offset < mark.end => mark.old_start,
            Some(mark) => mark.old_end + (offset - mark.end),
            None => offset,
        }
    })
}

/// The text of a field, redacted as by [`text()`]. If the name of the field says that it is secret,
/// the whole text is replaced.
pub fn field<'a>(name: &str, text: &'a str, keys: Keys) -> Cow<'a, str> {
    match keys::kind_of(name).filter(|_| keys != Keys::Unknown) {
        Some(kind) if keys::is_secret_field(kind, text, Keys::Settings) => {
            let mut out = String::new();
            mark::write(&mut out, kind.name, text);
            Cow::Owned(out)
        }
        _ => self::text(text, keys),
    }
}

/// As [`text()`], for an owned text.
pub fn owned(text: String, keys: Keys) -> String {
    match self::text(&text, keys) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

/// A JSON value with every text in it redacted. If a key says that its value is secret, the whole
/// value is replaced.
pub fn json(value: Value, keys: Keys) -> Value {
    match value {
        Value::String(text) => Value::String(owned(text, keys)),
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| json(item, keys)).collect())
        }
        Value::Object(fields) => Value::Object(object(fields, keys)),
        other => other,
    }
}

fn object(fields: Map<String, Value>, keys: Keys) -> Map<String, Value> {
    // `{"name": "DB_PASSWORD", "value": "…"}`.
    let named =
        ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str()).and_then(keys::kind_of);
    let field = |(key, value): (String, Value)| {
        let kind = keys::kind_of(&key)
            .or(named.filter(|_| key == "value"))
            .filter(|_| keys != Keys::Unknown);
        let list =
            || keys::kind_of_list(&key).filter(|_| keys != Keys::Unknown && value.is_array());
        let value = match kind {
            Some(kind) => secret_field(kind, value, keys, Keys::Settings),
            None => match list() {
                Some(kind) => secret_field(kind, value, keys, kind.list_place(Keys::Settings)),
                None => json(value, keys),
            },
        };
        (owned(key, keys), value)
    };
    fields.into_iter().map(field).collect()
}

/// The value of a field whose key says that it is secret. `place`: kind of the place, which decides
/// what counts as a secret.
fn secret_field(kind: keys::Kind, value: Value, keys: Keys, place: Keys) -> Value {
    match value {
        Value::String(text) if keys::is_secret_field(kind, &text, place) => {
            let mut out = String::new();
            mark::write(&mut out, kind.name, &text);
            Value::String(out)
        }
        Value::Array(items) => Value::Array(
            items.into_iter().map(|item| secret_field(kind, item, keys, place)).collect(),
        ),
        other => json(other, keys),
    }
}

/// A part of an answer with its text, link and meta redacted. Bytes are redacted if they are text.
pub fn content(part: Content, keys: Keys) -> Content {
    let body = match part.body {
        Body::Text(text) => Body::Text(owned(text, keys)),
        Body::Link(uri) => Body::Link(owned(uri, keys)),
        Body::Bytes(bytes) => Body::Bytes(self::bytes(bytes, keys)),
    };
    Content {
        body,
        media_type: part.media_type.map(|name| owned(name, keys)),
        meta: part.meta.map(|meta| json(meta, keys)),
    }
}

/// Bytes, redacted if all of them are text.
fn bytes(bytes: Vec<u8>, keys: Keys) -> Vec<u8> {
    match String::from_utf8(bytes) {
        Ok(text) => owned(text, keys).into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Redacts secrets over several parts: a secret that begins in one part and ends in a later one, or
/// that has its key in the part before. The mark is put where the secret begins.
pub fn across(texts: &mut [&mut String], keys: Keys) {
    if texts.len() < 2 {
        return;
    }
    let joined: String = texts.iter().map(|text| text.as_str()).collect();
    let mut ends = Vec::with_capacity(texts.len());
    let mut end = 0;
    for text in texts.iter() {
        end += text.len();
        ends.push(end);
    }
    let part_of = |offset: usize| ends.partition_point(|end| *end <= offset);
    let mut found = find(&joined, &|_| keys, 0);
    found.retain(|found| {
        let part = part_of(found.start);
        part != part_of(found.end - 1) || part > 0 && found.start - ends[part - 1] < NEAR
    });
    if found.is_empty() {
        return;
    }
    let mut found = found.into_iter().peekable();
    let mut start = 0;
    for (text, end) in texts.iter_mut().zip(&ends) {
        let mut out = String::new();
        let mut at = start;
        while let Some(secret) = found.peek().filter(|secret| secret.start < *end) {
            if secret.start >= start {
                out.push_str(&joined[at..secret.start]);
                mark::write(&mut out, secret.kind, &joined[secret.start..secret.end]);
            }
            at = secret.end.min(*end);
            if secret.end > *end {
                break;
            }
            found.next();
        }
        out.push_str(&joined[at..*end]);
        **text = out;
        start = *end;
    }
}

/// The part of a text from `start` to `end`, redacted with the whole text around it in view: a
/// secret is also found that begins before the part or ends behind it, or has its key outside. For
/// a text that is too long to be redacted at once.
pub fn part(text: &str, start: usize, end: usize, keys: Keys) -> String {
    let mut out = String::with_capacity(end - start);
    let mut at = start;
    for secret in find(text, &|_| keys, 0) {
        if secret.end <= at || secret.start >= end {
            continue;
        }
        if secret.start >= at {
            out.push_str(&text[at..secret.start]);
            mark::write(&mut out, secret.kind, &text[secret.start..secret.end]);
        }
        at = secret.end.min(end);
    }
    out.push_str(&text[at..end]);
    // A mark may uncover a secret that the replaced text had hidden.
    owned(out, keys)
}

/// The first line of a private key that goes on at the end of a text. A caller that drops the text
/// before its end has to keep this line, so that the rest of the key is still found.
pub fn open_key(text: &str) -> Option<Range<usize>> {
    blocks::open_block(text)
}

fn put_marks(text: &str, found: &[Found], moved: &mut Vec<Vec<Moved>>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = Vec::with_capacity(found.len());
    let mut at = 0;
    for found in found {
        out.push_str(&text[at..found.start]);
        let start = out.len();
        mark::write(&mut out, found.kind, &text[found.start..found.end]);
        marks.push(Moved { start, end: out.len(), old_start: found.start, old_end: found.end });
        at = found.end;
    }
    out.push_str(&text[at..]);
    moved.push(marks);
    out
}
