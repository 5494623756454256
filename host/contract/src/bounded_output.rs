//! Keeps the beginning and the end of a program's output that is too long.

use std::collections::VecDeque;

/// Bytes for the notice about the omitted part.
const MARK: usize = 64;

/// Maximum number of bytes that are removed from a line next to the omitted part. A secret that is
/// recognised by its form is never longer.
const MAX_LINE: usize = 4096;

/// The new output of one stream. If the output is too long, only its beginning and its end are
/// stored, since programs report errors there.
#[derive(Debug, Default)]
pub struct BoundedOutput {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    /// Number of dropped bytes between the beginning and the end.
    left_out: u64,
    /// Whether bytes were dropped.
    pub truncated: bool,
}

impl BoundedOutput {
    /// Adds output, and stores at most `limit` bytes.
    pub fn push(&mut self, bytes: &[u8], limit: usize) {
        let beginning_limit = limit / 4;
        let beginning_room = beginning_limit.saturating_sub(self.beginning.len());
        let (beginning, rest) = bytes.split_at(beginning_room.min(bytes.len()));
        self.beginning.extend_from_slice(beginning);

        let end_limit = (limit - beginning_limit).saturating_sub(MARK);
        let skipped = rest.len().saturating_sub(end_limit);
        self.end.extend(&rest[skipped..]);
        let excess = self.end.len().saturating_sub(end_limit);
        self.end.drain(..excess);

        let dropped = skipped + excess;
        if dropped > 0 {
            self.left_out += u64::try_from(dropped).unwrap_or(u64::MAX);
            self.truncated = true;
        }
    }

    /// Takes the new output. A notice marks the place of the omitted part.
    pub fn take(&mut self) -> Vec<u8> {
        let Self { beginning: mut output, mut end, left_out, truncated } = std::mem::take(self);
        self.truncated = truncated;
        if left_out > 0 {
            let removed = remove_partial_line_at_end(&mut output) + remove_partial_line(&mut end);
            let left_out = left_out + u64::try_from(removed).unwrap_or(u64::MAX);
            let mark = format!("\n[… {left_out} bytes are left out here …]\n");
            output.extend_from_slice(mark.as_bytes());
        }
        // Both halves are copied as a whole. Copying megabytes byte by byte takes a noticeable
        // time.
        let (first, second) = end.as_slices();
        output.extend_from_slice(first);
        output.extend_from_slice(second);
        output
    }

    /// Checks whether there is no new output.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }
}

/// Removes the partial line at the end of `beginning`, and a character that the cut may have
/// divided. Returns the number of removed bytes.
fn remove_partial_line_at_end(beginning: &mut Vec<u8>) -> usize {
    let length = beginning.len();
    beginning.truncate(length - partial_line_length(beginning.iter().rev(), length));

    // A character has at most four bytes, and its first byte is at least 0xc0.
    let character_start = beginning.iter().rev().take(4).position(|byte| *byte >= 0xc0);
    if let Some(back) = character_start {
        beginning.truncate(beginning.len() - 1 - back);
    }
    length - beginning.len()
}

/// Removes the partial line at the start of `end`, and the last bytes of a divided character.
/// Returns the number of removed bytes.
fn remove_partial_line(end: &mut VecDeque<u8>) -> usize {
    let length = end.len();
    end.drain(..partial_line_length(end.iter(), length));

    let continuation_bytes = end.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    end.drain(..continuation_bytes);
    length - end.len()
}

/// Returns the number of bytes from the cut to the next line end.
///
/// The whole line is removed, because a part of a secret, or a secret without its name, isn't
/// recognised. In a very long line, only the rest of the current word is removed.
fn partial_line_length<'b>(bytes: impl Iterator<Item = &'b u8> + Clone, length: usize) -> usize {
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
