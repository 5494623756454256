//! Bounds untrusted text and removes characters that could steer a terminal, a log or a model
//! (invariant 6).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub use crate::terminal::shown;

/// Cuts `text` to at most `max` bytes, at a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Cuts like [`cut`], and removes a word that the cut would divide, since half a secret isn't
/// recognised as a secret. Of a word that is longer than 1 KiB, removes the last 1 KiB.
pub fn cut_at_word(text: &str, max: usize) -> &str {
    let prefix = cut(text, max);
    let is_whole = prefix.len() == text.len();
    if is_whole || text[prefix.len()..].starts_with(char::is_whitespace) {
        return prefix;
    }
    match prefix.rfind(char::is_whitespace) {
        Some(word_start) if prefix.len() - word_start <= 1024 => &prefix[..word_start],
        _ => cut(prefix, prefix.len().saturating_sub(1024)),
    }
}

/// Formats a duration in words, rounded up: `1 second`, `59 minutes`.
pub fn in_words(time: Duration) -> String {
    let has_fraction = time.subsec_nanos() > 0;
    let seconds = time.as_secs().saturating_add(u64::from(has_fraction));
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds.div_ceil(60), "minute"),
        _ => (seconds.div_ceil(3600), "hour"),
    };
    counted(count, unit)
}

/// Formats a count with its noun, which gets a plural `s`: `1 tool`, `2 tools`.
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
/// change. A carriage return without a line feed is replaced, too: the text after it would
/// overwrite the shown line.
pub fn neutral(text: &str) -> Cow<'_, str> {
    // Almost every text is clean, so the text isn't copied before the first replacement.
    let mut out = String::new();
    let mut clean_until = 0;
    let mut at = 0;
    while let Some(clean_bytes) = find_suspect(&text.as_bytes()[at..]) {
        at += clean_bytes;
        let Some(c) = text[at..].chars().next() else { break };
        let next = at + c.len_utf8();
        let is_line_end = c == '\r' && text[next..].starts_with('\n');
        if steers(c) && !is_line_end {
            out.push_str(&text[clean_until..at]);
            out.push(char::REPLACEMENT_CHARACTER);
            clean_until = next;
        }
        at = next;
    }
    if clean_until == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[clean_until..]);
    Cow::Owned(out)
}

/// Returns the index of the first byte that isn't printable ASCII, a line feed or a tab. Large
/// answers rarely contain other bytes, so the function checks whole chunks at a time.
fn find_suspect(bytes: &[u8]) -> Option<usize> {
    let mut chunks = bytes.chunks_exact(64);
    let clean = chunks.by_ref().take_while(|chunk| !has_suspect(chunk)).count() * 64;
    // If `rest` has at least one chunk, its first chunk contains a suspect byte. Checking all of
    // `rest` would read the bytes after it again for each suspect byte.
    let rest = &bytes[clean..];
    if rest.len() < 64 && !has_suspect(rest) {
        return None;
    }
    rest.iter().position(|byte| is_suspect(*byte)).map(|offset| clean + offset)
}

/// Checks whether any byte is suspect. Without an early return, the compiler checks many bytes at a
/// time.
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

/// Neutralises every string in a JSON value, also the keys.
pub fn neutral_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(neutral_owned(text)),
        Value::Array(items) => Value::Array(items.into_iter().map(neutral_json).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, value)| (neutral_owned(key), neutral_json(value))).collect()
        }
        other => other,
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

/// Formats a TOML string on one line. JSON's escapes are valid in TOML. Characters that could
/// control an editor or a terminal are also escaped, so that [`neutral`] doesn't change the text.
pub fn toml(text: &str) -> String {
    let json = Value::from(text).to_string();
    let mut quoted = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            quoted += &format!("\\U{:08X}", u32::from(c));
        } else {
            quoted.push(c);
        }
    }
    quoted
}

/// Checks whether a character can control a terminal or mislead a reader.
///
/// These are controls other than line feed and tab, bidirectional embeddings, overrides and
/// isolates, line and paragraph separators, the tag block, which only models see, and zero-width
/// marks, which hide words.
fn steers(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' => {
            true
        }
        // These invisible marks and variants of characters can hide words. U+FE0F is allowed
        // because emoji use it.
        '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{206a}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' => {
            true
        }
        '\u{fe00}'..='\u{fe0e}' | '\u{e0100}'..='\u{e01ef}' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{200b}' | '\u{2060}'..='\u{2064}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        // Letters that are drawn as nothing.
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
