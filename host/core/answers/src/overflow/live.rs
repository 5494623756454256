//! Redacts the output of a job while the job runs.

use super::spool::{AROUND, RedactedText, TextRules, unfinished};
use toolhold_contract::OutputStream;

/// Number of bytes that wait for redaction before they are returned. Redaction reads `AROUND` bytes
/// again for each part, so short parts are slow.
const MIN_PART: usize = 4 * AROUND;

/// Maximum number of buffered bytes of an unfinished line. The beginning of a longer line is passed
/// on.
const MAX_LINE: usize = 64 << 10;

/// Converts both outputs to text, in the order in which their lines end. Only whole lines are
/// passed on, because redaction doesn't recognise half of a secret.
#[derive(Debug)]
pub struct LiveOutput {
    rules: TextRules,
    lines: [Vec<u8>; 2],
    /// Whether the beginning of the unfinished line was already passed on.
    is_split: [bool; 2],
    text: RedactedText,
}

impl LiveOutput {
    pub(crate) fn new(rules: TextRules) -> Self {
        Self {
            rules,
            lines: Default::default(),
            is_split: [false; 2],
            text: RedactedText::default(),
        }
    }

    /// Adds bytes that the command wrote. Returns the text that is ready. The last lines stay in
    /// the buffer, because the next lines can show that a secret has begun.
    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) -> String {
        let index = match stream {
            OutputStream::Stdout => 0,
            OutputStream::Stderr => 1,
        };
        let line = &mut self.lines[index];
        let length_before = line.len();
        line.extend_from_slice(bytes);
        let newline = bytes.iter().rposition(|byte| *byte == b'\n');
        let end = match newline {
            Some(newline) => length_before + newline + 1,
            None if line.len() > MAX_LINE => line.len() - unfinished(line),
            None => return String::new(),
        };
        self.is_split[index] = newline.is_none();
        let ready: Vec<u8> = line.drain(..end).collect();
        self.add(ready);
        if self.text.waiting() < MIN_PART {
            String::new()
        } else {
            self.text.take_ready(self.rules.keys)
        }
    }

    /// Returns the text of all whole lines so far. The end of a long line stays in the buffer.
    pub fn lines(&mut self) -> String {
        let has_split_line = self.is_split.contains(&true);
        if has_split_line {
            self.text.take_ready(self.rules.keys)
        } else {
            self.text.take_all(self.rules.keys)
        }
    }

    /// Returns the remaining text after the command has ended.
    pub fn finish(&mut self) -> String {
        for line in std::mem::take(&mut self.lines) {
            if !line.is_empty() {
                self.add(line);
            }
        }
        self.text.take_all(self.rules.keys)
    }

    fn add(&mut self, bytes: Vec<u8>) {
        let text = self.rules.text(bytes);
        self.text.push(&text);
    }
}

#[cfg(test)]
mod tests {
    use toolhold_redaction::Keys;

    use super::*;
    use crate::terminal::Kind;

    const TOKEN: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";

    fn live() -> LiveOutput {
        LiveOutput::new(TextRules { kind: Kind::Lines, keys: Some(Keys::Text) })
    }

    #[test]
    fn secret_is_hidden_wherever_its_pieces_end() {
        let written = format!("a\ntoken {TOKEN} b\nc\n");
        for at in 0..=written.len() {
            let (first, second) = written.split_at(at);
            let mut live = live();
            let mut text = live.push(OutputStream::Stdout, first.as_bytes());
            text += &live.lines();
            text += &live.push(OutputStream::Stdout, second.as_bytes());
            text += &live.finish();
            assert!(
                !text.contains(&TOKEN[4..12]) && !text.contains(&TOKEN[30..38]),
                "{at}: {text}"
            );
            assert!(text.starts_with("a\n") && text.ends_with("c\n"), "{at}: {text}");
        }
    }

    #[test]
    fn secret_is_hidden_where_a_long_line_is_cut() {
        let (first, second) = TOKEN.split_at(30);
        let mut live = live();
        let mut text = live
            .push(OutputStream::Stdout, (format!("{}{first}", "x ".repeat(MAX_LINE))).as_bytes());
        text += &live.lines();
        text += &live.push(OutputStream::Stdout, format!("{second}\n").as_bytes());
        text += &live.lines();
        assert!(!text.contains(&first[..12]) && text.ends_with("…]\n"), "{text}");
    }

    #[test]
    fn key_is_hidden_to_its_end_however_long_it_is_and_however_it_comes() {
        let line = |number: usize| format!("{number:0>6}{}\n", "QUJDabc0".repeat(8));
        for lines in [3, 1000] {
            let mut live = live();
            let mut text = String::new();
            let begin = "before\n-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n".to_owned();
            let end = "-----END PGP PRIVATE KEY BLOCK-----\nafter\n".to_owned();
            for line in [begin].into_iter().chain((0..lines).map(line)).chain([end]) {
                text += &live.push(OutputStream::Stdout, line.as_bytes());
                text += &live.lines();
            }
            text += &live.finish();
            assert!(!text.contains("QUJD"), "{text}");
            assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"), "{text}");
        }
    }

    #[test]
    fn lines_of_both_outputs_stay_whole_and_unfinished_ones_wait() {
        let mut live = live();
        assert_eq!(live.push(OutputStream::Stdout, b"one "), "");
        assert_eq!(live.push(OutputStream::Stderr, b"error\n"), "");
        assert_eq!(live.lines(), "error\n");
        assert_eq!(live.push(OutputStream::Stdout, b"two\nthree"), "");
        assert_eq!(live.lines(), "one two\n");
        assert_eq!(live.lines(), "");
        assert_eq!(live.finish(), "three");
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut live = live();
        let mut text = String::new();
        for _ in 0..100 {
            text += &live.push(OutputStream::Stdout, &[b'x'; 10_000]);
            assert!(live.lines[0].len() <= MAX_LINE + 10_000);
            assert!(live.text.waiting() <= 4 * AROUND + MAX_LINE + 10_000);
        }
        text += &live.finish();
        assert_eq!(text, "x".repeat(1_000_000));
    }

    #[test]
    fn control_characters_are_removed() {
        let mut live = live();
        live.push(OutputStream::Stdout, b"a\x1b[2Jb\x1b]0;title\x07c\xff\n10%\r20%\n");
        assert_eq!(live.finish(), "abc\u{fffd}\n20%\n");
    }
}
