//! Checks whether a call in a model's text repeats a file, page or result that the model read. Such
//! a call needs approval if it acts.
//!
//! A page or file can contain a call. A model may repeat this call because a person asks for the
//! content of the page, or because the page tells it to.
//!
//! The comparison uses only the parts that stay the same in every form of a call. These parts are
//! the letters and digits of the tool's name, of the argument names and of the values. White space,
//! the order of keys, escapes, quotation marks, fences, tags and line numbers are ignored. A text
//! contains a call if the longest of these parts are close together in the text, and each value is
//! after the name of its argument.

use serde_json::Value;

use super::{CallForm, TextCall};

/// The most values of one call that are compared. The longest values are used.
const MAX_PARTS: usize = 32;

/// The most bytes between the name of an argument and its value.
const GAP: usize = 48;

/// Most bytes of other text between the parts of a call.
const SLACK: usize = 400;

/// Words before a tool's name in the written forms of a call.
const NAME_MARKS: [&str; 7] =
    ["name", "tool", "toolid", "toolcall", "function", "invoke", "functionname"];

/// A part of a call: a value after a mark.
struct Part {
    /// The possible marks before the value: the name of its argument, or the tag of the call.
    marks: Vec<String>,
    /// The spellings of the value.
    spellings: Vec<String>,
}

/// The most bytes of earlier texts that are stored, in normalised form.
const MAX_EARLIER: usize = 32 * 1024 * 1024;

/// The texts of a session that its model didn't write: results, files, pages and messages of the
/// person. A text stays here after it is pruned from the context, because the model may repeat a
/// text that it read before.
#[derive(Clone, Debug)]
pub struct EarlierTexts {
    /// The texts in normalised form. The flag is true if the person wrote the text.
    texts: Vec<(String, bool)>,
    /// The number of bytes that can still be added.
    room: usize,
    /// Whether a text was too large for the remaining room. If so, every call is treated as an
    /// echo.
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

    /// Treats every call as an echo from now on, because some texts are unknown.
    pub fn lose(&mut self) {
        self.is_full = true;
    }

    /// Adds a message of the person. Only a block of JSON without a mark is compared with messages.
    pub fn add_message(&mut self, text: &str) {
        self.add_from(text, true);
    }

    /// Adds any other text: a result, a file or a page.
    ///
    /// The limit is 32 MiB of letters and digits. Above it, every call is treated as an echo,
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

    /// Checks whether one of the texts contains a path. Only letters and digits are compared. Also
    /// returns true if some texts are unknown.
    pub fn name_path(&self, path: &str) -> bool {
        let path = normalize(path);
        self.is_full || self.texts.iter().any(|(text, _)| text.contains(&path))
    }

    /// Checks whether one of the texts contains a call. Also returns true if some texts are
    /// unknown.
    ///
    /// `tag`: the word that marks the form of the call, if no field or attribute names the tool. If
    /// the form is marked, messages of the person are ignored, because a person may ask for a call.
    pub fn have(&self, call: &TextCall, tag: Option<&str>) -> bool {
        if self.is_full {
            return true;
        }
        if self.texts.is_empty() {
            return false;
        }

        let mut parts = Vec::new();
        add_parts(&mut parts, "", tag, &call.arguments);
        parts.sort_by_key(|part| std::cmp::Reverse(part.length()));
        parts.truncate(MAX_PARTS);
        drop_short_parts(&mut parts);
        if tag.is_none() {
            let marks = NAME_MARKS.map(str::to_owned).to_vec();
            parts.push(Part { marks, spellings: vec![normalize(&call.name)] });
        }

        let length: usize = parts.iter().map(|part| part.length() + GAP).sum();
        let window = 2 * length + SLACK;
        let is_marked = call.form != CallForm::Json;
        for (text, is_message) in &self.texts {
            let is_exempt = is_marked && *is_message;
            if !is_exempt && has_all(text, &parts, window) {
                return true;
            }
        }
        false
    }
}

/// Removes the shortest parts, so that about two thirds of the total length remain. A call with a
/// different small argument is then still found. The parts are sorted, the longest first.
fn drop_short_parts(parts: &mut Vec<Part>) {
    let total: usize = parts.iter().map(Part::length).sum();
    let mut length_before = 0;
    parts.retain(|part| {
        let is_needed = length_before * 3 < total * 2 || total == 0;
        length_before += part.length();
        is_needed
    });
}

/// Adds each value of the arguments, with the name of its argument as the mark.
fn add_parts(parts: &mut Vec<Part>, name: &str, tag: Option<&str>, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_parts(parts, name, tag, value);
            }
        }
        Value::Array(items) => {
            for item in items {
                add_parts(parts, "", tag, item);
            }
        }
        Value::Null => {}
        value => {
            // A text may have the string on one line with escapes, or on several lines with line
            // numbers.
            let mut spellings = vec![normalize(&value.to_string())];
            spellings.extend(value.as_str().map(normalize));
            spellings.dedup();
            let mut marks = vec![normalize(name)];
            marks.extend(tag.map(normalize));
            parts.push(Part { marks, spellings });
        }
    }
}

/// Checks whether the text has all parts close together, within about `window` bytes.
fn has_all(text: &str, parts: &[Part], window: usize) -> bool {
    // Most texts lack a part, and this test is fast.
    if !parts.iter().all(|part| part.has_spelling_in(text)) {
        return false;
    }

    // Neighbouring sections overlap by the length of a window, so every window is inside one
    // section.
    let mut start = 0;
    loop {
        let end = text.ceil_char_boundary((start + 2 * window).min(text.len()));
        let section = &text[start..end];
        if parts.iter().all(|part| part.is_in(section)) {
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
        self.spellings.iter().map(String::len).max().unwrap_or(0)
    }

    /// Checks whether the text has the value, with or without a mark.
    fn has_spelling_in(&self, text: &str) -> bool {
        self.spellings.iter().any(|spelling| text.contains(spelling))
    }

    /// Checks whether the text has the value after one of its marks.
    fn is_in(&self, text: &str) -> bool {
        for spelling in &self.spellings {
            for mark in &self.marks {
                let is_match = if spelling.is_empty() {
                    // If a value has no letters or digits, only its mark is compared.
                    text.contains(mark)
                } else {
                    is_behind(text, spelling, mark)
                };
                if is_match {
                    return true;
                }
            }
        }
        false
    }
}

/// Checks whether the text has `value` at most [`GAP`] bytes behind `mark`.
fn is_behind(text: &str, value: &str, mark: &str) -> bool {
    let mut mark_ends = text.match_indices(mark).map(|(at, _)| at + mark.len()).peekable();
    let mut last_mark_end = None;
    for (at, _) in text.match_indices(value) {
        while let Some(end) = mark_ends.next_if(|end| *end <= at) {
            last_mark_end = Some(end);
        }
        if last_mark_end.is_some_and(|end| at - end <= GAP) {
            return true;
        }
    }
    false
}

/// Returns the letters and digits of a text in lower case, without escapes and line numbers.
pub(super) fn normalize(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    for line in text.split('\n') {
        add_line(&mut normalized, without_number(line));
    }
    normalized
}

fn add_line(normalized: &mut String, line: &str) {
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\\' => add_escape(normalized, rest),
            '&' => add_entity(normalized, rest),
            _ => {
                add_char(normalized, c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
}

/// Adds a letter or a digit. Drops any other character.
fn add_char(normalized: &mut String, c: char) {
    if c.is_alphanumeric() {
        normalized.extend(c.to_lowercase());
    }
}

/// Removes the line number that `read` and other tools put before a line.
fn without_number(line: &str) -> &str {
    let trimmed = line.trim_start();
    let after_digits = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let has_digits = after_digits.len() < trimmed.len();
    if has_digits && after_digits.starts_with(['\t', ':', '|', '→']) {
        after_digits
    } else {
        line
    }
}

/// Adds the character of an escape, which may have several backslashes. Control characters are
/// dropped. Returns the length of the escape.
fn add_escape(normalized: &mut String, text: &str) -> usize {
    let escaped = text.trim_start_matches('\\');
    let slashes = text.len() - escaped.len();
    match escaped.bytes().next() {
        Some(b'n' | b'r' | b't' | b'b' | b'f') => slashes + 1,
        Some(b'u') if let Some(c) = escaped.get(1..5).and_then(hexadecimal_char) => {
            add_char(normalized, c);
            // A `u` and four digits.
            slashes + 5
        }
        _ => slashes,
    }
}

fn hexadecimal_char(digits: &str) -> Option<char> {
    let number = u32::from_str_radix(digits, 16).ok()?;
    char::from_u32(number)
}

/// Adds the character of an HTML character reference. Returns the length of the reference, or 1 if
/// the `&` isn't the start of a reference.
fn add_entity(normalized: &mut String, text: &str) -> usize {
    let Some(end) = text.bytes().take(10).position(|byte| byte == b';') else { return 1 };
    let name = &text[1..end];
    if let Some(number) = name.strip_prefix('#')
        && let Some(c) = numbered_char(number)
    {
        add_char(normalized, c);
        return end + 1;
    }
    if ["quot", "amp", "lt", "gt", "apos", "nbsp"].contains(&name) { end + 1 } else { 1 }
}

/// Returns the character with this number. A number after an `x` is hexadecimal.
fn numbered_char(number: &str) -> Option<char> {
    match number.strip_prefix(['x', 'X']) {
        Some(digits) => hexadecimal_char(digits),
        None => char::from_u32(number.parse().ok()?),
    }
}
