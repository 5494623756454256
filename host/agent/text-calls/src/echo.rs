//! Checks whether a call in a model's text repeats an earlier text, such as a file, a page or a
//! result. The call may then be injected, or be part of a quotation, and needs approval if it acts.
//!
//! The comparison uses only letters and digits of the tool's name, of argument names and of values.
//! It ignores the form of a call, such as white space, the order of keys, escapes, fences, tags and
//! line numbers. A text contains a call if the longest values are close together in the text, and
//! each value follows the name of its argument.

use serde_json::Value;

use super::{CallForm, TextCall};

/// The most values of a call that are compared, the longest first.
const MAX_PARTS: usize = 32;

/// The most bytes between a value and the name of its argument.
const MAX_GAP: usize = 48;

/// The most bytes of other text between the parts of a call.
const MAX_OTHER_TEXT: usize = 400;

/// Words before a tool's name in the forms of a call.
const NAME_WORDS: [&str; 7] =
    ["name", "tool", "toolid", "toolcall", "function", "invoke", "functionname"];

/// A value of a call, and the words before it.
struct Part {
    /// The name of the argument, and the tag of the call. One of them precedes the value in a text.
    words_before: Vec<String>,
    /// The forms in which the value may be written.
    spellings: Vec<String>,
}

/// The most bytes of an HTML character reference.
const MAX_ENTITY: usize = 10;

/// The most bytes of stored earlier texts.
const MAX_EARLIER: usize = 32 * 1024 * 1024;

/// The earlier texts of a session that the model may repeat: results, files, pages and messages of
/// the user. Texts that were pruned from the context are still compared.
#[derive(Clone, Debug)]
pub struct EarlierTexts {
    /// The texts in normal form, each with whether it is a message of the user.
    texts: Vec<(String, bool)>,
    /// The number of bytes that can still be added.
    bytes_left: usize,
    /// Whether a text didn't fit. Every call is then treated as an echo.
    is_full: bool,
}

impl Default for EarlierTexts {
    fn default() -> Self {
        Self::with_room(MAX_EARLIER)
    }
}

impl EarlierTexts {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self { texts: Vec::new(), bytes_left: bytes, is_full: false }
    }

    /// Treats every call as an echo from now on, because some earlier texts are unknown.
    pub fn lose(&mut self) {
        self.is_full = true;
    }

    /// Adds a message of the user. Only calls in the form [`CallForm::Json`] are compared with
    /// messages.
    pub fn add_message(&mut self, text: &str) {
        let is_message = true;
        self.add_from(text, is_message);
    }

    /// Adds a result, a file or a page.
    ///
    /// Above 32 MiB of letters and digits, every call is treated as an echo.
    pub fn add(&mut self, text: &str) {
        let is_message = false;
        self.add_from(text, is_message);
    }

    /// Adds a text, which is a message of the user if `is_message` is set.
    fn add_from(&mut self, text: &str, is_message: bool) {
        if self.is_full {
            return;
        }
        let normalized = normalize(text);
        match self.bytes_left.checked_sub(normalized.len()) {
            Some(bytes_left) => {
                self.bytes_left = bytes_left;
                self.texts.push((normalized, is_message));
            }
            // From now on, every call is an echo, because a text is missing. So the stored texts
            // aren't needed any more.
            None => *self = Self { is_full: true, ..Self::with_room(0) },
        }
    }

    /// Checks whether a text contains the letters and digits of a path. Returns `true` if some
    /// earlier texts are unknown.
    pub fn contain_path(&self, path: &str) -> bool {
        let path = normalize(path);
        self.is_full || self.texts.iter().any(|(text, _)| text.contains(&path))
    }

    /// Checks whether an earlier text contains a call. Returns `true` if some earlier texts are
    /// unknown.
    ///
    /// If no field or attribute names the tool, `tag` is the word that starts the call. Only calls
    /// in the form [`CallForm::Json`] are compared with messages of the user, because a user may
    /// ask for a call.
    pub fn contain(&self, call: &TextCall, tag: Option<&str>) -> bool {
        if self.is_full {
            return true;
        }
        if self.texts.is_empty() {
            return false;
        }

        let parts = compared_parts(call, tag);
        // A copy of the call has all parts within a window of this length. The length is doubled,
        // because there may be small arguments between the parts that aren't compared.
        let length: usize = parts.iter().map(|part| part.length() + MAX_GAP).sum();
        let window = 2 * length + MAX_OTHER_TEXT;
        for (text, is_message) in &self.texts {
            if *is_message && call.form != CallForm::Json {
                continue;
            }
            if has_all(text, &parts, window) {
                return true;
            }
        }
        false
    }
}

/// Returns the compared parts of a call: its longest values, and the tool's name if there is no
/// `tag`.
fn compared_parts(call: &TextCall, tag: Option<&str>) -> Vec<Part> {
    let mut parts = Vec::new();
    add_parts(&mut parts, "", tag, &call.arguments);
    parts.sort_by_key(|part| std::cmp::Reverse(part.length()));
    parts.truncate(MAX_PARTS);
    drop_short_parts(&mut parts);
    if tag.is_none() {
        let words_before = NAME_WORDS.map(str::to_owned).to_vec();
        parts.push(Part { words_before, spellings: vec![normalize(&call.name)] });
    }
    parts
}

/// Removes the shortest parts, up to a third of the total length, so that a copied call is found
/// although a small argument was changed. `parts` is sorted, the longest part first.
fn drop_short_parts(parts: &mut Vec<Part>) {
    let total: usize = parts.iter().map(Part::length).sum();
    let mut kept_length = 0;
    parts.retain(|part| {
        // Two thirds of the length are kept. If all parts are empty, all are kept.
        let is_needed = kept_length * 3 < total * 2 || total == 0;
        kept_length += part.length();
        is_needed
    });
}

/// Adds each value inside `value` as a part. `name` is the name of the argument or field. It is
/// empty for items of a list. [`EarlierTexts::contain`] explains `tag`.
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
            // An earlier text may have a string with escapes, or without escapes on several lines.
            let mut spellings = vec![normalize(&value.to_string())];
            spellings.extend(value.as_str().map(normalize));
            spellings.dedup();
            let mut words_before = vec![normalize(name)];
            words_before.extend(tag.map(normalize));
            parts.push(Part { words_before, spellings });
        }
    }
}

/// Checks whether a section of the text, two windows long, contains all parts.
fn has_all(text: &str, parts: &[Part], window: usize) -> bool {
    // Begin with a fast test, because most texts lack a part.
    if !parts.iter().all(|part| part.has_spelling_in(text)) {
        return false;
    }

    // Sections overlap by one window, so that every window is inside a section.
    let mut start = 0;
    loop {
        let section_end = text.len().min(start + 2 * window);
        let end = text.ceil_char_boundary(section_end);
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

    fn has_spelling_in(&self, text: &str) -> bool {
        self.spellings.iter().any(|spelling| text.contains(spelling))
    }

    /// Checks whether one of `words_before` is in a text, soon followed by a spelling of the value.
    fn is_in(&self, text: &str) -> bool {
        for spelling in &self.spellings {
            for word in &self.words_before {
                let is_match = if spelling.is_empty() {
                    // A value without letters and digits is found by the word before it.
                    text.contains(word)
                } else {
                    is_soon_after(text, spelling, word)
                };
                if is_match {
                    return true;
                }
            }
        }
        false
    }
}

/// Checks whether a text has `value` at most [`MAX_GAP`] bytes after `word`.
fn is_soon_after(text: &str, value: &str, word: &str) -> bool {
    let mut word_ends = text.match_indices(word).map(|(at, _)| at + word.len()).peekable();
    let mut last_word_end = None;
    for (value_start, _) in text.match_indices(value) {
        while let Some(end) = word_ends.next_if(|end| *end <= value_start) {
            last_word_end = Some(end);
        }
        if last_word_end.is_some_and(|end| value_start - end <= MAX_GAP) {
            return true;
        }
    }
    false
}

pub(super) fn normalize(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    for line in text.split('\n') {
        add_line(&mut normalized, without_number(line));
    }
    normalized
}

/// Adds the letters and digits of a line in lower case. Escapes of JSON and HTML are decoded.
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

fn add_char(normalized: &mut String, c: char) {
    if c.is_alphanumeric() {
        normalized.extend(c.to_lowercase());
    }
}

/// Removes the line number that tools such as `read` put before a line, but not the separator after
/// the number.
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

/// Adds the character of a JSON escape at the start of `text`, but no control character such as
/// `\n`. JSON inside JSON has several backslashes, which count as one. Returns the length of the
/// escape.
fn add_escape(normalized: &mut String, text: &str) -> usize {
    let escaped = text.trim_start_matches('\\');
    let backslashes = text.len() - escaped.len();
    match escaped.bytes().next() {
        Some(b'n' | b'r' | b't' | b'b' | b'f') => backslashes + "n".len(),
        Some(b'u') => {
            let digits = escaped.get("u".len().."uXXXX".len());
            let Some(c) = digits.and_then(hexadecimal_char) else { return backslashes };
            add_char(normalized, c);
            backslashes + "uXXXX".len()
        }
        _ => backslashes,
    }
}

fn hexadecimal_char(digits: &str) -> Option<char> {
    let number = u32::from_str_radix(digits, 16).ok()?;
    char::from_u32(number)
}

/// Adds the letter or digit of an HTML character reference such as `&#65;`. Returns the length of
/// the reference, or the length of `&` if there is no reference.
fn add_entity(normalized: &mut String, text: &str) -> usize {
    let mut start = text.bytes().take(MAX_ENTITY);
    let Some(end) = start.position(|byte| byte == b';') else { return "&".len() };
    let length = end + ";".len();
    let name = &text["&".len()..end];
    if let Some(number) = name.strip_prefix('#')
        && let Some(c) = numbered_char(number)
    {
        add_char(normalized, c);
        return length;
    }
    // These names stand for characters that aren't letters or digits.
    if ["quot", "amp", "lt", "gt", "apos", "nbsp"].contains(&name) { length } else { "&".len() }
}

fn numbered_char(number: &str) -> Option<char> {
    match number.strip_prefix(['x', 'X']) {
        Some(digits) => hexadecimal_char(digits),
        None => char::from_u32(number.parse().ok()?),
    }
}
