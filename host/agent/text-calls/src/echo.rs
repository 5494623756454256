//! Finds out whether a call in a model's text repeats a file, page or result that the model read,
//! so that the call needs approval if it acts.
//!
//! A page or a file can contain a call, so that a model repeats it: as an answer to "what does the
//! page say", or because the page asks for it. The comparison uses the parts that stay the same
//! when a call is written in another way: the letters and digits of its tool, of its arguments and
//! their values. White space, the order of keys, escapes, quotation marks, fences, tags and line
//! numbers don't count. A text has a call if it has the longest of these parts close together, each
//! value behind its argument.

use serde_json::Value;

use super::{CallForm, TextCall};

/// Most values of one call that are looked for: the longest.
const MAX_PARTS: usize = 32;

/// Bytes that may be between the name of an argument and its value.
const GAP: usize = 48;

/// Bytes of other text that may be between the parts of a call.
const SLACK: usize = 400;

/// Words before a tool's name in the written forms of a call.
const NAME_MARKS: [&str; 7] =
    ["name", "tool", "toolid", "toolcall", "function", "invoke", "functionname"];

/// A part of a call: a text in one of its spellings, behind one of the texts in `before`.
struct Part {
    before: Vec<String>,
    texts: Vec<String>,
}

/// Most bytes of earlier texts that are kept, in the form that is compared.
const MAX_EARLIER: usize = 32 * 1024 * 1024;

/// The texts of a session that its model didn't write: results, files, pages, messages of the
/// person. They stay here when they are pruned from the context: a model may repeat what it read
/// before.
#[derive(Clone, Debug)]
pub struct EarlierTexts {
    /// In the form that is compared, each with whether the person wrote it.
    texts: Vec<(String, bool)>,
    /// Bytes that may be added.
    room: usize,
    /// Whether there was no room for a text. If so, each call counts as one that an earlier text
    /// has.
    is_full: bool,
}

impl Default for EarlierTexts {
    fn default() -> Self {
        Self::with_room(MAX_EARLIER)
    }
}

impl EarlierTexts {
    pub(super) fn with_room(room: usize) -> Self {
        Self { texts: Vec::new(), room, is_full: false }
    }

    /// Makes every call count as one that an earlier text has, because some texts are unknown.
    pub fn lose(&mut self) {
        self.is_full = true;
    }

    /// Adds a message of the person. Only a block of JSON without a mark may not repeat it.
    pub fn add_message(&mut self, text: &str) {
        self.add_from(text, true);
    }

    /// Adds any other text: a result, a file, a page.
    ///
    /// Beyond 32 MiB of letters and digits, there is no room. From then on every call is an echo,
    /// because it can't be compared.
    pub fn add(&mut self, text: &str) {
        self.add_from(text, false);
    }

    fn add_from(&mut self, text: &str, is_message: bool) {
        if self.is_full {
            return;
        }
        let text = normalize(text);
        match self.room.checked_sub(text.len()) {
            Some(room) => {
                self.room = room;
                self.texts.push((text, is_message));
            }
            None => *self = Self { is_full: true, ..Self::with_room(0) },
        }
    }

    /// Whether one of the texts names a path, by its letters and digits. Also true if some texts
    /// are unknown.
    pub fn name_path(&self, path: &str) -> bool {
        let path = normalize(path);
        self.is_full || self.texts.iter().any(|(text, _)| text.contains(&path))
    }

    /// Whether one of the texts has a call. `tag`: the word that marks its form if its tool isn't
    /// named by a field or an attribute. A person may ask for a call in a marked form.
    pub fn have(&self, call: &TextCall, tag: Option<&str>) -> bool {
        if self.is_full || self.texts.is_empty() {
            return self.is_full;
        }
        let mut parts = Vec::new();
        add_parts(&mut parts, "", tag, &call.arguments);
        parts.sort_by_key(|part| std::cmp::Reverse(part.length()));
        parts.truncate(MAX_PARTS);
        keep_most(&mut parts);
        if tag.is_none() {
            let before = NAME_MARKS.map(str::to_owned).to_vec();
            parts.push(Part { before, texts: vec![normalize(&call.name)] });
        }
        let length: usize = parts.iter().map(|part| part.length() + GAP).sum();
        let window = 2 * length + SLACK;
        let is_marked = call.form != CallForm::Json;
        let compared = self.texts.iter().filter(|(_, is_message)| !(is_marked && *is_message));
        compared.into_iter().any(|(text, _)| has_all(text, &parts, window))
    }
}

/// Leaves the longest parts, which together are two thirds of all: a call is still the same call if
/// a small argument differs.
fn keep_most(parts: &mut Vec<Part>) {
    let all: usize = parts.iter().map(Part::length).sum();
    let mut kept = 0;
    parts.retain(|part| {
        let is_kept = kept * 3 < all * 2 || all == 0;
        kept += part.length();
        is_kept
    });
}

/// Adds each value of the arguments, with the name of its argument before it.
fn add_parts(parts: &mut Vec<Part>, name: &str, tag: Option<&str>, value: &Value) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| add_parts(parts, name, tag, value));
        }
        Value::Array(items) => items.iter().for_each(|item| add_parts(parts, "", tag, item)),
        Value::Null => {}
        value => {
            // A text is on one line with escapes, or on lines that may have numbers.
            let mut texts = vec![normalize(&value.to_string())];
            texts.extend(value.as_str().map(normalize));
            texts.dedup();
            let before = [Some(name), tag].into_iter().flatten().map(normalize).collect();
            parts.push(Part { before, texts });
        }
    }
}

/// Whether a part of the text of about this length has all parts.
fn has_all(text: &str, parts: &[Part], window: usize) -> bool {
    // Most texts lack the longest part.
    if !parts.iter().all(|part| part.texts.iter().any(|one| text.contains(one))) {
        return false;
    }
    let mut start = 0;
    loop {
        let end = text.ceil_char_boundary((start + 2 * window).min(text.len()));
        if parts.iter().all(|part| part.stands_in(&text[start..end])) {
            return true;
        }
        if end == text.len() {
            return false;
        }
        start = text.floor_char_boundary(start + window);
    }
}

impl Part {
    fn length(&self) -> usize {
        self.texts.iter().map(String::len).max().unwrap_or(0)
    }

    fn stands_in(&self, text: &str) -> bool {
        self.texts.iter().any(|one| {
            self.before.iter().any(|before| {
                if one.is_empty() {
                    // A value without letters and digits is where its argument is.
                    text.contains(before)
                } else {
                    stands_behind(text, one, before)
                }
            })
        })
    }
}

/// Whether a part of the text is closely behind another part.
fn stands_behind(text: &str, part: &str, before: &str) -> bool {
    let mut ends = text.match_indices(before).map(|(at, _)| at + before.len()).peekable();
    let mut last = None;
    text.match_indices(part).any(|(at, _)| {
        while let Some(end) = ends.next_if(|end| *end <= at) {
            last = Some(end);
        }
        last.is_some_and(|end| at - end <= GAP)
    })
}

/// The letters and digits of a text in lower case, without escapes and line numbers.
pub(super) fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split('\n') {
        add_line(&mut out, without_number(line));
    }
    out
}

fn add_line(out: &mut String, line: &str) {
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\\' => add_escape(out, rest),
            '&' => add_entity(out, rest),
            _ => {
                if c.is_alphanumeric() {
                    out.extend(c.to_lowercase());
                }
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
}

/// A line without the number that `read` and others put before it.
fn without_number(line: &str) -> &str {
    let trimmed = line.trim_start();
    let rest = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = rest.len() < trimmed.len() && rest.starts_with(['\t', ':', '|', '→']);
    if is_numbered { rest } else { line }
}

/// Any number of backslashes, and what they escape: a control character is dropped, a code point is
/// resolved. Returns the length.
fn add_escape(out: &mut String, text: &str) -> usize {
    let escaped = text.trim_start_matches('\\');
    let slashes = text.len() - escaped.len();
    match escaped.bytes().next() {
        Some(b'n' | b'r' | b't' | b'b' | b'f') => slashes + 1,
        Some(b'u') if let Some(c) = code_point(escaped.get(1..5)) => {
            if c.is_alphanumeric() {
                out.extend(c.to_lowercase());
            }
            slashes + 5
        }
        _ => slashes,
    }
}

fn code_point(digits: Option<&str>) -> Option<char> {
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32)
}

/// A character reference of HTML. Returns the length.
fn add_entity(out: &mut String, text: &str) -> usize {
    let Some(end) = text.bytes().take(10).position(|byte| byte == b';') else { return 1 };
    let name = &text[1..end];
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        if let Some(c) = code.ok().and_then(char::from_u32) {
            if c.is_alphanumeric() {
                out.extend(c.to_lowercase());
            }
            return end + 1;
        }
    }
    if ["quot", "amp", "lt", "gt", "apos", "nbsp"].contains(&name) { end + 1 } else { 1 }
}
