//! Keeps the beginning and the end of a program's output if the whole output is too long.

use std::collections::VecDeque;

/// Bytes reserved for the notice about dropped bytes.
const NOTICE_LENGTH: usize = 64;

/// Maximum number of bytes removed from a cut line. Recognisable secrets are shorter.
const MAX_LINE: usize = 4096;

/// Most bytes of a character in UTF-8.
const MAX_CHARACTER_BYTES: usize = 4;

/// The unread output of one stream. The middle of a long output is dropped, because programs report
/// errors at the beginning and at the end.
#[derive(Debug, Default)]
pub struct BoundedOutput {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    /// Number of bytes dropped between `beginning` and `end`.
    left_out: u64,
    /// Whether bytes were dropped.
    pub truncated: bool,
}

impl BoundedOutput {
    /// Adds output. At most `limit` bytes are stored, and the middle is dropped.
    pub fn push(&mut self, bytes: &[u8], limit: usize) {
        let beginning_limit = limit / 4;
        let beginning_room = beginning_limit.saturating_sub(self.beginning.len());
        let (beginning, rest) = bytes.split_at(beginning_room.min(bytes.len()));
        self.beginning.extend_from_slice(beginning);

        // The notice about dropped bytes also needs room.
        let end_limit = (limit - beginning_limit).saturating_sub(NOTICE_LENGTH);
        let skipped = rest.len().saturating_sub(end_limit);
        self.end.extend(&rest[skipped..]);
        let excess = self.end.len().saturating_sub(end_limit);
        self.end.drain(..excess);

        let dropped = skipped + excess;
        if dropped > 0 {
            self.left_out += dropped as u64;
            self.truncated = true;
        }
    }

    /// Takes the output. A notice replaces dropped bytes.
    pub fn take(&mut self) -> Vec<u8> {
        let Self { beginning, mut end, left_out, truncated } = std::mem::take(self);
        // `truncated` describes the whole output, so taking a part of the output doesn't reset it.
        self.truncated = truncated;
        let mut output = beginning;
        if left_out > 0 {
            let removed = remove_partial_line_at_end(&mut output) + remove_partial_line(&mut end);
            let left_out_in_all = left_out + removed as u64;
            let notice = format!("\n[… {left_out_in_all} bytes are left out here …]\n");
            output.extend_from_slice(notice.as_bytes());
        }
        // Copying whole slices is faster than copying megabytes byte by byte.
        let (first, second) = end.as_slices();
        output.extend_from_slice(first);
        output.extend_from_slice(second);
        output
    }

    /// Checks whether there is no unread output.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }
}

/// Removes the partial line or character at the end. Returns the number of removed bytes.
fn remove_partial_line_at_end(beginning: &mut Vec<u8>) -> usize {
    let length = beginning.len();
    beginning.truncate(length - partial_line_length(beginning.iter().rev(), length));

    // A byte from 0xc0 on starts a character of several bytes, which may be incomplete.
    let mut last_bytes = beginning.iter().rev().take(MAX_CHARACTER_BYTES);
    if let Some(bytes_after_start) = last_bytes.position(|byte| *byte >= 0xc0) {
        beginning.truncate(beginning.len() - bytes_after_start - 1);
    }
    length - beginning.len()
}

/// Removes the partial line or character at the start. Returns the number of removed bytes.
fn remove_partial_line(end: &mut VecDeque<u8>) -> usize {
    let length = end.len();
    end.drain(..partial_line_length(end.iter(), length));

    // UTF-8 characters continue with bytes of the form 0b10xx_xxxx.
    let first_bytes = end.iter().take(MAX_CHARACTER_BYTES - 1);
    let continuation_bytes = first_bytes.take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000);
    let count = continuation_bytes.count();
    end.drain(..count);
    length - end.len()
}

/// Returns the length of the partial line at the cut, up to its line end. `bytes` are the bytes on
/// one side of the cut, in order from the cut, and `length` is their number.
///
/// The whole line is removed, because redaction recognises only complete secrets with their names.
/// In a very long line, only a limited part and the cut word are removed.
fn partial_line_length<'b>(bytes: impl Iterator<Item = &'b u8> + Clone, length: usize) -> usize {
    // At most half of the bytes and a quarter for the cut word are removed, so a quarter stays.
    let line_limit = MAX_LINE.min(length / 2);
    let line_end = bytes.clone().take(line_limit).position(|byte| *byte == b'\n');
    if let Some(line_end) = line_end {
        return line_end;
    }

    let word_limit = MAX_LINE.min(length / 4);
    let word = bytes.skip(line_limit).take(word_limit).take_while(|byte| is_of_word(**byte));
    line_limit + word.count()
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-+/=.~%:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &[u8], limit: usize) -> String {
        let mut output = BoundedOutput::default();
        text.chunks(7).for_each(|bytes| output.push(bytes, limit));
        String::from_utf8(output.take()).expect("it is cut between characters")
    }

    /// A secret lies on each side of each cut, once with its name and once without spaces.
    #[test]
    fn secret_at_the_cut_is_left_out_with_its_name() {
        let secret = "A1b2C3d4E5f6G7h8I9j0";
        for (filler, line) in
            [("a b\n", format!("token = {secret}\n")), ("\"ab\",", format!("\"ghp_{secret}\","))]
        {
            let filled = |bytes: usize| filler.repeat(bytes / filler.len());
            for shift in 0..line.len() {
                let text = [
                    &"z".repeat(shift),
                    &filled(10_000 - line.len()),
                    &*line.repeat(4),
                    &filled(40_000),
                    &line.repeat(400),
                    &filled(24_000),
                ]
                .concat();
                let shown = taken(text.as_bytes(), 40_000);
                assert_eq!(shown.matches(secret).count(), shown.matches(&line).count(), "{shift}");
                assert_eq!(shown.matches("A1b2").count(), shown.matches(&line).count(), "{shift}");
                assert_eq!(shown.matches("9j0").count(), shown.matches(&line).count(), "{shift}");
                let dropped = shown.split("[… ").nth(1).and_then(|rest| rest.split(' ').next());
                let dropped: usize = dropped.expect("it is said").parse().expect("a number");
                let mark = format!("\n[… {dropped} bytes are left out here …]\n");
                assert_eq!(shown.len() - mark.len() + dropped, text.len(), "{shift}");
            }
        }
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        for shift in 0..4 {
            let text = format!("{}{}", "x".repeat(shift), "ä€😀".repeat(5_000));
            assert!(taken(text.as_bytes(), 10_000).len() <= 10_000);
        }
        assert_eq!(taken(b"short", 1_000), "short");
    }
}
