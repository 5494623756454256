//! Keeps the beginning and the end of a program's output that is too long.

use std::collections::VecDeque;

/// Room for the notice of what is left out.
const MARK: usize = 64;

/// Most bytes of a line that are left out at a cut. No secret that is found by its form is longer.
const MAX_LINE: usize = 4096;

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
            let before = output.len();
            let after = end.len();
            output.truncate(before - cut_off(output.iter().rev(), before));
            // Cut between characters on both sides.
            if let Some(back) = output.iter().rev().take(4).position(|byte| *byte >= 0xc0) {
                output.truncate(output.len() - 1 - back);
            }
            end.drain(..cut_off(end.iter(), after));
            let inside = end.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            end.drain(..inside);
            let more = before - output.len() + after - end.len();
            let left_out = left_out + u64::try_from(more).unwrap_or(u64::MAX);
            let mark = format!("\n[… {left_out} bytes are left out here …]\n");
            output.extend_from_slice(mark.as_bytes());
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

/// Returns how many bytes are left out from the cut on: the rest of the line, since a secret isn't
/// recognised by a part of it, or without its name. Of a very long line, the rest of the word.
fn cut_off<'b>(bytes: impl Iterator<Item = &'b u8> + Clone, length: usize) -> usize {
    let most = MAX_LINE.min(length / 2);
    let end = bytes.clone().take(most).position(|byte| *byte == b'\n');
    end.unwrap_or_else(|| {
        let rest = bytes.skip(most).take(MAX_LINE.min(length / 4));
        most + rest.take_while(|byte| is_of_word(**byte)).count()
    })
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
