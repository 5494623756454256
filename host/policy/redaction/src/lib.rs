//! Removes secrets from texts that leave the host. Each secret is replaced with a mark that
//! contains its kind, `[REDACTED:github-token ghp_…]`.
//!
//! A secret is found by its form (`shapes`, `blocks`), by its place (`places`) or by its key
//! (`keys`). The search includes base64 and percent-encoding (`encoded`). The crate has no regular
//! expressions, so nothing is compiled at the start. Each check is limited, so that the time is
//! linear in the text, even for untrusted text.

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

/// Replaces the secrets in `text` by marks. A text without secrets isn't copied. Marks aren't
/// secrets, so a second pass changes nothing.
pub fn text(text: &str, keys: Keys) -> Cow<'_, str> {
    text_where(text, &|_| keys)
}

/// Redacts a text as [`text()`] does, with a kind of place for each key: `keys` gets the offset of
/// each key that is found.
pub fn text_where<'a>(text: &'a str, keys: &dyn Fn(usize) -> Keys) -> Cow<'a, str> {
    let secrets = find(text, keys, 0);
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut passes = Vec::new();
    let mut out = put_marks(text, &secrets, &mut passes);
    for _ in 0..MAX_PASSES {
        let more = find(&out, &|offset| keys(original_offset(&passes, offset)), 0);
        if more.is_empty() {
            return Cow::Owned(out);
        }
        out = put_marks(&out, &more, &mut passes);
    }
    // Only an attack on the redaction needs more passes, so the whole text is removed.
    out.clear();
    mark::write(&mut out, "text", "");
    Cow::Owned(out)
}

/// The range of a mark, and the range of the secret in the text before.
struct PlacedMark {
    start: usize,
    end: usize,
    old_start: usize,
    old_end: usize,
}

/// Returns the offset in the original text for an offset in a text with marks of several passes.
fn original_offset(passes: &[Vec<PlacedMark>], offset: usize) -> usize {
    let mut original = offset;
    for marks in passes.iter().rev() {
        let begun = marks.partition_point(|mark| mark.start <= original);
        if let Some(mark) = marks[..begun].last() {
            original = if original < mark.end {
                mark.old_start
            } else {
                mark.old_end + (original - mark.end)
            };
        }
    }
    original
}

/// Returns the text of a field, redacted as by [`text()`]. If the name of the field says that it is
/// secret, the whole text is replaced.
pub fn field<'a>(name: &str, text: &'a str, keys: Keys) -> Cow<'a, str> {
    if keys != Keys::Unknown
        && let Some(kind) = keys::kind_of(name)
        && keys::is_secret_field(kind, text, Keys::Settings)
    {
        let mut out = String::new();
        mark::write(&mut out, kind.name, text);
        return Cow::Owned(out);
    }
    self::text(text, keys)
}

/// Redacts an owned text as [`text()`] does.
pub fn owned(text: String, keys: Keys) -> String {
    match self::text(&text, keys) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

/// Redacts every text in a JSON value. If a key says that its value is secret, the whole value is
/// replaced.
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
    // The key in `{"name": "DB_PASSWORD", "value": "…"}` is the value of `name`.
    let name = ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str());
    let named_kind = name.and_then(keys::kind_of);
    let mut redacted = Map::new();
    for (key, value) in fields {
        let value = object_value(&key, value, named_kind, keys);
        redacted.insert(owned(key, keys), value);
    }
    redacted
}

/// Redacts the value of the field `key` of an object. `named_kind` is the kind of secret that
/// another field of the object names.
fn object_value(key: &str, value: Value, named_kind: Option<keys::Kind>, keys: Keys) -> Value {
    if keys == Keys::Unknown {
        return json(value, keys);
    }
    if let Some(kind) = keys::kind_of(key) {
        return secret_field(kind, value, keys, Keys::Settings);
    }
    if key == "value"
        && let Some(kind) = named_kind
    {
        return secret_field(kind, value, keys, Keys::Settings);
    }
    if value.is_array()
        && let Some(kind) = keys::kind_of_list(key)
    {
        return secret_field(kind, value, keys, kind.list_place(Keys::Settings));
    }
    json(value, keys)
}

/// Redacts the value of a field whose key says that it is secret. `place` is the kind of the place,
/// which decides what counts as a secret.
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

/// Redacts the text, the link and the meta of a part of an answer. Bytes are redacted if they are
/// text.
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

/// Redacts bytes if all of them are text.
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
    let mut secrets = find(&joined, &|_| keys, 0);
    secrets.retain(|secret| {
        let part = part_at(&ends, secret.start);
        if part != part_at(&ends, secret.end - 1) {
            return true;
        }
        part > 0 && secret.start - ends[part - 1] < NEAR
    });
    if secrets.is_empty() {
        return;
    }

    let mut secrets = secrets.into_iter().peekable();
    let mut start = 0;
    for (text, end) in texts.iter_mut().zip(ends) {
        let mut out = String::new();
        let mut at = start;
        while let Some(secret) = secrets.peek()
            && secret.start < end
        {
            // The mark of a secret that began in an earlier part is in that part.
            if secret.start >= start {
                out.push_str(&joined[at..secret.start]);
                mark::write(&mut out, secret.kind, &joined[secret.start..secret.end]);
            }
            at = secret.end.min(end);
            if secret.end > end {
                break;
            }
            secrets.next();
        }
        out.push_str(&joined[at..end]);
        **text = out;
        start = end;
    }
}

/// Returns the index of the part with the byte at `offset` of the joined text. `ends` are the ends
/// of the parts.
fn part_at(ends: &[usize], offset: usize) -> usize {
    ends.partition_point(|end| *end <= offset)
}

/// Returns the redacted part of a text from `start` to `end`, for a text that is too long to be
/// redacted at once. A secret is also found if it begins before the part or ends after it, or if
/// its key is outside.
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

/// Returns the first line of a private key that goes on at the end of a text. A caller that drops
/// the text before its end has to keep this line, so that the rest of the key is still found.
pub fn open_key(text: &str) -> Option<Range<usize>> {
    blocks::open_block(text)
}

/// Replaces the secrets in a text by marks, and adds these marks to `passes`.
fn put_marks(text: &str, secrets: &[Found], passes: &mut Vec<Vec<PlacedMark>>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = Vec::with_capacity(secrets.len());
    let mut at = 0;
    for secret in secrets {
        out.push_str(&text[at..secret.start]);
        let start = out.len();
        mark::write(&mut out, secret.kind, &text[secret.start..secret.end]);
        let old_start = secret.start;
        let old_end = secret.end;
        marks.push(PlacedMark { start, end: out.len(), old_start, old_end });
        at = secret.end;
    }
    out.push_str(&text[at..]);
    passes.push(marks);
    out
}
