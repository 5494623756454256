//! Secrets are taken out of what leaves the host: each is replaced by a mark that says what it was,
//! `[REDACTED:github-token ghp_…]`.
//!
//! What a secret is, is told by its own form (`shapes`, `blocks`), by where it stands (`places`),
//! or by its key (`keys`); also in base64 and with percent signs (`encoded`). There are no regular
//! expressions: nothing is compiled at start, and every look is bounded, so that the time is linear
//! in the text, whatever a stranger writes.

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

use berth_contract::{Body, Content};
use serde_json::{Map, Value};

use find::find;
use found::Found;
pub use keys::Keys;
pub use mark::first as first_mark;

/// How often a text is looked at again where marks were put into it: they may show what was hidden
/// by what they stand for.
const LOOKS: usize = 8;

/// Bytes behind the beginning of a part within which a value begins whose key ends the part before.
const NEAR: usize = 256;

/// `text` with marks instead of secrets. It is not copied where it holds none. A mark is never
/// taken for a secret, and doing it twice changes nothing.
pub fn text(text: &str, keys: Keys) -> Cow<'_, str> {
    text_where(text, &|_| keys)
}

/// As [`text()`], where it depends on the place which keys count: `keys` gets the offset of each
/// key that is found.
pub fn text_where<'a>(text: &'a str, keys: &dyn Fn(usize) -> Keys) -> Cow<'a, str> {
    let found = find(text, keys, 0);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut moved = Vec::new();
    let mut out = marked(text, &found, &mut moved);
    for _ in 0..LOOKS {
        let more = find(&out, &|offset| keys(before(&moved, offset)), 0);
        if more.is_empty() {
            return Cow::Owned(out);
        }
        out = marked(&out, &more, &mut moved);
    }
    // Nobody writes this but to have something found behind something else.
    out.clear();
    mark::write(&mut out, "text", "");
    Cow::Owned(out)
}

/// A mark, where it stands in a text, and where in the text before it what it stands for.
struct Moved {
    start: usize,
    end: usize,
    old_start: usize,
    old_end: usize,
}

/// Where an offset was before marks were put in, so many times.
fn before(moved: &[Vec<Moved>], offset: usize) -> usize {
    moved.iter().rev().fold(offset, |offset, marks| {
        match marks[..marks.partition_point(|mark| mark.start <= offset)].last() {
            Some(mark) if offset < mark.end => mark.old_start,
            Some(mark) => mark.old_end + (offset - mark.end),
            None => offset,
        }
    })
}

/// The text of a field: as [`text()`], and the whole of it where the field's name says that it is
/// secret.
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

/// [`text()`] of a text that is no longer needed as it was.
pub fn owned(text: String, keys: Keys) -> String {
    match self::text(&text, keys) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

/// A JSON value with every text in it redacted, and the whole of a value whose key says that it is
/// secret.
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
                Some(kind) => secret_field(kind, value, keys, kind.of_list(Keys::Settings)),
                None => json(value, keys),
            },
        };
        (owned(key, keys), value)
    };
    fields.into_iter().map(field).collect()
}

/// The value of a field with a telling key. `place`: what counts as a value.
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

/// A part of an answer, redacted: its text, its link, its meta. Bytes stay, unless they are text.
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

/// Bytes with marks in what is text of them: all, or nothing.
fn bytes(bytes: Vec<u8>, keys: Keys) -> Vec<u8> {
    match String::from_utf8(bytes) {
        Ok(text) => owned(text, keys).into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// The same for the texts of several parts, where a secret may begin in one and end in a later one,
/// or its key end the one before: its mark stands where it begins.
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

fn marked(text: &str, found: &[Found], moved: &mut Vec<Vec<Moved>>) -> String {
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
