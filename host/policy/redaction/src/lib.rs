//! Replaces secrets in texts that leave the host with marks: `[REDACTED:github-token ghp_…]`.
//!
//! A secret is found by its form (`shapes`, `blocks`), by the text around it (`places`) or by its
//! key (`keys`), also in base64 and percent-encoded words (`encoded`). The time is linear in the
//! text, even for hostile text. No regular expression has to be compiled at the start.

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

/// Most searches of a text. Each search marks secrets, and a mark may uncover another secret.
const MAX_PASSES: usize = 8;

/// Bytes at the start of a part that may continue a value whose key is in the part before.
const NEAR: usize = 256;

/// Replaces the secrets in `text` with marks. A text without secrets isn't copied. A second pass
/// changes nothing.
pub fn text(text: &str, keys: Keys) -> Cow<'_, str> {
    text_where(text, &|_| keys)
}

/// Redacts like [`text()`]. `keys_at` returns the kind of text at the offset of a key.
pub fn text_where<'a>(text: &'a str, keys_at: &dyn Fn(usize) -> Keys) -> Cow<'a, str> {
    let secrets = find(text, keys_at, 0);
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut passes = Vec::new();
    let mut out = put_marks(text, &secrets, &mut passes);
    for _ in 0..MAX_PASSES {
        let more = find(&out, &|offset| keys_at(original_offset(&passes, offset)), 0);
        if more.is_empty() {
            return Cow::Owned(out);
        }
        out = put_marks(&out, &more, &mut passes);
    }
    // Only an attack needs more passes, so the whole text is removed.
    out.clear();
    mark::write(&mut out, "text", "");
    Cow::Owned(out)
}

/// The range of a mark, and the range of the replaced text before the replacement.
struct PlacedMark {
    start: usize,
    end: usize,
    old_start: usize,
    old_end: usize,
}

/// Converts an offset in a redacted text to the offset in the original text. `passes` contains the
/// marks of each pass of the redaction. An offset in a mark becomes the start of the replaced text.
fn original_offset(passes: &[Vec<PlacedMark>], mut offset: usize) -> usize {
    // Undo the last pass first. Each step results in the offset in the text before that pass.
    for marks in passes.iter().rev() {
        let started_count = marks.partition_point(|mark| mark.start <= offset);
        // A text before the first mark hasn't moved.
        let Some(nearest_mark) = marks[..started_count].last() else { continue };
        let is_in_mark = offset < nearest_mark.end;
        offset = if is_in_mark {
            nearest_mark.old_start
        } else {
            let distance = offset - nearest_mark.end;
            nearest_mark.old_end + distance
        };
    }
    offset
}

/// Redacts the text of a field like [`text()`]. If `name` is a name for secrets, the whole text is
/// replaced.
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

/// Redacts an owned text like [`text()`].
pub fn owned(text: String, keys: Keys) -> String {
    match self::text(&text, keys) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

/// Redacts every text in a JSON value. If a key is a name for secrets, its whole value is replaced.
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
    // In `{"name": "DB_PASSWORD", "value": "…"}`, the key of the secret is a value.
    let name = ["name", "key"].iter().find_map(|key| fields.get(*key)?.as_str());
    let named_kind = name.and_then(keys::kind_of);
    let mut redacted = Map::new();
    for (key, value) in fields {
        let value = object_value(&key, value, named_kind, keys);
        redacted.insert(owned(key, keys), value);
    }
    redacted
}

/// Redacts the value of the field `key`. `named_kind` is the kind of secret that another field of
/// the same object names.
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

/// Redacts the value of a field whose key is a name for secrets. `place` decides which values are
/// secrets.
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

/// Redacts a part of an answer. Bytes are redacted only if they are text.
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

fn bytes(bytes: Vec<u8>, keys: Keys) -> Vec<u8> {
    match String::from_utf8(bytes) {
        Ok(text) => owned(text, keys).into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Redacts secrets that span several parts. A secret may start in one part and end in a later part,
/// or have its key in the part before. The mark is in the part in which the secret starts.
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
    // Keep the secrets that span several parts, or whose key may be in the part before. The other
    // secrets are found when their part is redacted alone.
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

fn part_at(ends: &[usize], offset: usize) -> usize {
    ends.partition_point(|end| *end <= offset)
}

/// Redacts the range from `start` to `end` of a text that is too long to be redacted at once. Finds
/// secrets that start or end outside of the range, or have their key outside.
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
    owned(out, keys)
}

/// Returns the first line of a private key that has no end in the text. A caller that drops a part
/// of the key must keep this line, because only this line shows that the rest is a key.
pub fn open_key(text: &str) -> Option<Range<usize>> {
    blocks::open_block(text)
}

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
