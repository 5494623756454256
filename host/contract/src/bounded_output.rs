//! Output of a program, of which a limited part is kept.

use std::collections::VecDeque;

/// Room for the notice of what is left out.
const MARK: usize = 64;

/// Most bytes of a word that is left out at a cut. No secret that is found by its form is longer.
const MAX_WORD: usize = 4096;

/// The new output of one stream. If it is too much, its beginning and its end, where programs
/// report errors.
#[derive(Debug, Default)]
pub struct BoundedOutput {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    /// Bytes between the two that were dropped.
    left_out: u64,
    /// Whether more was written than kept.
    pub truncated: bool,
}

impl BoundedOutput {
    /// Adds output. At most `limit` bytes are kept.
    pub fn push(&mut self, bytes: &[u8], limit: usize) {
        let (beginning, rest) =
            bytes.split_at((limit / 4).saturating_sub(self.beginning.len()).min(bytes.len()));
        self.beginning.extend_from_slice(beginning);
        let room = (limit - limit / 4).saturating_sub(MARK);
        self.end.extend(&rest[rest.len().saturating_sub(room)..]);
        let too_much = self.end.len().saturating_sub(room);
        self.end.drain(..too_much);
        let left_out = rest.len().saturating_sub(room) + too_much;
        self.left_out += u64::try_from(left_out).unwrap_or(u64::MAX);
        self.truncated |= left_out > 0;
    }

    /// Takes the new output. A notice marks what is left out in the middle.
    pub fn take(&mut self) -> Vec<u8> {
        let Self { beginning: mut output, mut end, left_out, truncated } = std::mem::take(self);
        self.truncated = truncated;
        if left_out > 0 {
            // A part of a secret doesn't look like one, so the words at the cut are left out.
            let is_space = |byte: &u8| byte.is_ascii_whitespace();
            let before = output.iter().rev().take(MAX_WORD).position(is_space);
            let after = end.iter().take(MAX_WORD).position(is_space);
            let before = before.unwrap_or(MAX_WORD).min(output.len() / 2);
            let after = after.unwrap_or(MAX_WORD).min(end.len() / 2);
            output.truncate(output.len() - before);
            end.drain(..after);
            let left_out = left_out + u64::try_from(before + after).unwrap_or(u64::MAX);
            // Long words are cut between characters.
            if let Some(back) = output.iter().rev().take(4).position(|byte| *byte >= 0xc0) {
                output.truncate(output.len() - 1 - back);
            }
            let mark = format!("\n[… {left_out} bytes are left out here …]\n");
            output.extend_from_slice(mark.as_bytes());
            let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
            end.drain(..end.iter().take(3).take_while(is_inside).count());
        }
        // The halves are copied as a whole: byte by byte, megabytes take a part of a second.
        let (first, second) = end.as_slices();
        output.extend_from_slice(first);
        output.extend_from_slice(second);
        output
    }

    /// Whether there is no new output.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &[u8], limit: usize) -> String {
        let mut output = BoundedOutput::default();
        text.chunks(7).for_each(|bytes| output.push(bytes, limit));
        String::from_utf8(output.take()).expect("it is cut between characters")
    }

    #[test]
    fn words_at_the_cut_are_left_out() {
        let secret = "ghp_A1b2C3d4E5f6G7h8I9j0";
        // Somewhere, the secret lies on each side of the cut.
        for before in 200..300 {
            let text = format!("{} {secret} {}", "a ".repeat(before / 2), "b ".repeat(2_000));
            let shown = taken(text.as_bytes(), 1_000);
            let parts = shown.matches("ghp_").count();
            assert_eq!(parts, shown.matches(secret).count(), "{before}: {shown}");
            let dropped = shown.split("[… ").nth(1).and_then(|rest| rest.split(' ').next());
            let dropped: usize = dropped.expect("it is said").parse().expect("a number");
            let mark = format!("\n[… {dropped} bytes are left out here …]\n");
            assert_eq!(shown.len() - mark.len() + dropped, text.len(), "{before}");
        }
        // The other way round: the end begins within the secret.
        for after in 600..760 {
            let text = format!("{} {secret} {}", "a ".repeat(2_000), "b".repeat(after));
            let shown = taken(text.as_bytes(), 1_000);
            assert_eq!(shown.contains("G7h8I9j0"), shown.contains(secret), "{after}: {shown}");
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
