//! Limits the length of untrusted text, and removes characters that could control a terminal, a log
//! or a model.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub use crate::terminal::shown;

/// Maximum number of bytes of a divided word that are removed. Secrets are shorter.
const MAX_CUT_WORD: usize = 1024;

/// Cuts `text` to at most `max` bytes, at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Cuts like [`cut`], and removes a divided word, because redaction doesn't recognise half a
/// secret. Only the last 1 KiB of a longer word is removed.
pub fn cut_at_word(text: &str, max: usize) -> &str {
    let prefix = cut(text, max);
    let is_whole = prefix.len() == text.len();
    if is_whole || text[prefix.len()..].starts_with(char::is_whitespace) {
        return prefix;
    }
    match prefix.rfind(char::is_whitespace) {
        Some(word_start) if prefix.len() - word_start <= MAX_CUT_WORD => &prefix[..word_start],
        _ => cut(prefix, prefix.len().saturating_sub(MAX_CUT_WORD)),
    }
}

/// Formats a duration in words, rounded up: `1 second`, `59 minutes`.
pub fn in_words(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    let has_fraction = time.subsec_nanos() > 0;
    let seconds = time.as_secs().saturating_add(u64::from(has_fraction));
    // A unit is used from two on: 119 seconds, but 2 minutes.
    if seconds < 2 * MINUTE {
        counted(seconds, "second")
    } else if seconds < 2 * HOUR {
        counted(seconds.div_ceil(MINUTE), "minute")
    } else {
        counted(seconds.div_ceil(HOUR), "hour")
    }
}

/// Formats a count with its noun: `1 tool`, `2 tools`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Formats a number with a comma between each three digits: `7,900`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Replaces control and bidirectional formatting characters with U+FFFD. Line feeds and tabs don't
/// change. A carriage return is replaced unless a line feed follows, because the text after it
/// would overwrite the shown line.
pub fn neutral(text: &str) -> Cow<'_, str> {
    // Almost every text is clean, so nothing is copied before the first replacement.
    let mut out = String::new();
    let mut copied_until = 0;
    let mut offset = 0;
    while let Some(clean_bytes) = find_suspect(&text.as_bytes()[offset..]) {
        offset += clean_bytes;
        let Some(c) = text[offset..].chars().next() else { break };
        let c_end = offset + c.len_utf8();
        let is_line_end = c == '\r' && text[c_end..].starts_with('\n');
        if is_unsafe_to_show(c) && !is_line_end {
            out.push_str(&text[copied_until..offset]);
            out.push(char::REPLACEMENT_CHARACTER);
            copied_until = c_end;
        }
        offset = c_end;
    }
    if copied_until == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied_until..]);
    Cow::Owned(out)
}

/// Returns the index of the first byte that isn't printable ASCII, a line feed or a tab. Large
/// answers rarely contain suspect bytes, so whole chunks are checked at a time.
fn find_suspect(bytes: &[u8]) -> Option<usize> {
    const CHUNK: usize = 64;
    let chunks = bytes.chunks_exact(CHUNK);
    let clean_chunks = chunks.take_while(|chunk| !has_suspect(chunk)).count();
    let clean_bytes = clean_chunks * CHUNK;
    let rest = &bytes[clean_bytes..];
    // If a whole chunk remains, it has a suspect byte, which `position` finds below. Only a shorter
    // `rest` may be clean. A longer `rest` isn't checked, because the check would read all of it
    // again for each suspect byte.
    if rest.len() < CHUNK && !has_suspect(rest) {
        return None;
    }
    let offset = rest.iter().position(|byte| is_suspect(*byte))?;
    Some(clean_bytes + offset)
}

/// Has no early return, so that the compiler can use vector instructions.
fn has_suspect(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |any, byte| any | is_suspect(*byte))
}

fn is_suspect(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

/// Neutralises a text like [`neutral`], without a copy if the text is clean.
pub fn neutral_owned(text: String) -> String {
    match neutral(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(neutral) => neutral,
    }
}

/// Neutralises every string and key in a JSON value.
pub fn neutral_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(neutral_owned(text)),
        Value::Array(items) => Value::Array(items.into_iter().map(neutral_json).collect()),
        Value::Object(fields) => {
            let mut neutral_fields = serde_json::Map::new();
            for (key, value) in fields {
                neutral_fields.insert(neutral_owned(key), neutral_json(value));
            }
            Value::Object(neutral_fields)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Neutralises a text like [`neutral`], and replaces line ends and tabs by spaces.
pub fn neutral_line(text: &str) -> String {
    neutral(text).replace(['\n', '\t', '\r'], " ")
}

/// Quotes a word for a shell.
pub fn shell_word(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain_in_shell) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn is_plain_in_shell(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_./:=@%+,".contains(letter)
}

/// Formats a TOML string on one line, with the escapes of JSON. Characters that could control an
/// editor or a terminal are escaped, so [`neutral`] doesn't change the result.
pub fn toml(text: &str) -> String {
    let json = Value::from(text).to_string();
    let mut quoted = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe_to_show(c) {
            quoted += &format!("\\U{:08X}", u32::from(c));
        } else {
            quoted.push(c);
        }
    }
    quoted
}

/// Checks whether a character can control a terminal or mislead a reader.
///
/// Dangerous characters are controls other than line feed and tab, bidirectional embeddings,
/// overrides and isolates, and line and paragraph separators. The tag block is visible only to
/// models. Zero-width marks can hide words.
fn is_unsafe_to_show(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' => {
            true
        }
        // Invisible marks and variants can hide words. U+FE0F is allowed, because emoji use it.
        '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{206a}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' => {
            true
        }
        '\u{fe00}'..='\u{fe0e}' | '\u{e0100}'..='\u{e01ef}' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{200b}' | '\u{2060}'..='\u{2064}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        // Letters that are drawn as empty space.
        '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{1d173}'..='\u{1d17a}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn cut_leaves_no_part_of_a_word() {
        use super::cut_at_word;
        assert_eq!(cut_at_word("a secret", 20), "a secret");
        assert_eq!(cut_at_word("a secret", 6), "a");
        assert_eq!(cut_at_word("one two", 3), "one");
        assert_eq!(cut_at_word("secret", 3), "");
        let long = "x".repeat(5000);
        assert_eq!(cut_at_word(&long, 4096).len(), 3072);
        assert_eq!(cut_at_word(&format!("a {long}"), 4096).len(), 3072);
    }

    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let shown = [0, 999, 1000, 7900, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "7,900", "1,234,567"]);
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(
            [0_u64, 1, 2].map(|count| counted(count, "tool")),
            ["0 tools", "1 tool", "2 tools"]
        );
        assert_eq!(counted(1_usize, "more line"), "1 more line");
    }

    #[test]
    fn waiting_times_are_in_words() {
        let check =
            |millis, expected| assert_eq!(in_words(Duration::from_millis(millis)), expected);
        check(0, "0 seconds");
        check(1, "1 second");
        check(119_500, "2 minutes");
        check(119_000, "119 seconds");
        check(3_539_985, "59 minutes");
        check(3_600_000, "60 minutes");
        check(86_400_000, "24 hours");
        check(u64::MAX, "5124095576031 hours");
    }

    #[test]
    fn clean_text_is_not_copied() {
        assert!(matches!(neutral("plain\ttext\r\nwith ünïcode — 漢字 👩‍👩‍👧\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_and_direction_marks_are_replaced() {
        assert_eq!(neutral("a\u{1b}[31mred"), "a\u{fffd}[31mred");
        assert_eq!(neutral("x\rsafe"), "x\u{fffd}safe");
        assert_eq!(neutral("user\u{202e}txt.exe"), "user\u{fffd}txt.exe");
        assert_eq!(neutral("\u{9b}2J"), "\u{fffd}2J");
        assert_eq!(neutral("hid\u{e0041}den"), "hid\u{fffd}den");
        assert_eq!(neutral("rm\u{3164}\u{2800}x"), "rm\u{fffd}\u{fffd}x");
        assert_eq!(neutral("\r"), "\u{fffd}");
        for before in 0..200 {
            let clean = "x".repeat(before);
            assert_eq!(
                neutral(&format!("{clean}\u{1b}é\u{7}{clean}")),
                format!("{clean}\u{fffd}é\u{fffd}{clean}")
            );
        }
    }

    #[test]
    fn neutral_line_stays_one_line() {
        assert_eq!(neutral_line("a\nb\r\nc\td"), "a b  c d");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 0), "");
    }
}
