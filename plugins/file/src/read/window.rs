//! Takes the requested lines from a file for `read`, without reading more of it than needed.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter};

use crate::cut::without_unfinished;

/// The greatest and the smallest number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;
const SMALL: usize = 4 * 1024;

/// The size of the buffer for a file of a length. A small file doesn't need more memory than an
/// instance has at its start. The length may be unknown, as in /proc, where the system reports 0.
pub(super) fn buffer(length: u64) -> usize {
    match usize::try_from(length) {
        Ok(0) | Err(_) => CHUNK,
        Ok(length) => length.clamp(SMALL, CHUNK),
    }
}

/// The default number of lines that are shown.
const DEFAULT_LINES: u64 = 2_000;

/// The greatest number of characters that are shown of a line.
const MAX_LINE: usize = 2_000;

/// The greatest number of bytes that are kept of a line: enough for [`MAX_LINE`] characters.
const MAX_LINE_BYTES: usize = MAX_LINE * 4;

/// The number of bytes of text after which no further line is shown, if a call has no limit of
/// lines.
const MAX_TEXT: usize = 256 * 1024;

/// The number of bytes of text after which no further line is shown, if a call has a limit of
/// lines. It is about the size that an answer can hold.
const MAX_TEXT_ON_REQUEST: usize = 4 << 20;

/// The greatest number of bytes after the window in which lines are counted. So the cost of a large
/// file is that of its window.
const MAX_COUNTED: u64 = 4 << 20;

/// The lines to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The first line, from 1.
    pub(super) offset: u64,
    /// The greatest number of lines.
    limit: u64,
    /// The number of bytes of text after which no further line is shown.
    max_text: usize,
}

impl Range {
    /// The range for the arguments of a call.
    pub(super) fn new(offset: Option<u64>, limit: Option<u64>) -> Self {
        let offset = offset.unwrap_or(1).max(1);
        match limit {
            Some(limit) => Self { offset, limit: limit.max(1), max_text: MAX_TEXT_ON_REQUEST },
            None => Self { offset, limit: DEFAULT_LINES, max_text: MAX_TEXT },
        }
    }
}

/// The requested lines.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The lines, each with its number, a tab and a line end.
    pub(super) text: String,
    /// The number of lines in `text`.
    pub(super) lines: u64,
    /// The number of lines in the file. `None` if they weren't counted.
    pub(super) total_lines: Option<u64>,
    /// The size of the file.
    pub(super) bytes: u64,
    /// Whether some bytes weren't UTF-8.
    pub(super) lossy: bool,
    /// Whether a line ended in CRLF.
    pub(super) crlf: bool,
}

/// Reads a window. `buffer` starts with the first `filled` bytes of the file. `source` has the
/// rest. `length` is the size of the file as the system reports it.
pub(super) fn read(
    buffer: &mut [u8],
    filled: usize,
    source: &mut impl Read,
    length: u64,
    range: Range,
) -> io::Result<Window> {
    let mut lines = Lines::new(range, length);
    let mut filled = filled;
    let mut taken = 0;
    while filled > 0 {
        taken += filled as u64;
        lines.take(&buffer[..filled]);
        if lines.is_full() && length.saturating_sub(taken) > MAX_COUNTED {
            return Ok(lines.finish(None, length));
        }
        // This saves one read for most files. For files of unknown length, as in /proc, the system
        // reports 0.
        if taken == length {
            break;
        }
        filled = loop {
            match source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
    }
    let total = lines.end();
    Ok(lines.finish(Some(total), taken))
}

/// Processes a file chunk by chunk: skips, numbers and counts lines.
struct Lines {
    range: Range,
    window: Window,
    /// The text of the window. UTF-8 is checked once at the end, which is much faster than line by
    /// line.
    text: Vec<u8>,
    number: Decimal,
    /// The number of line ends so far.
    ends: u64,
    /// Whether the last byte so far was not a line end.
    open: bool,
    /// The kept bytes of a line that continues in the next chunk.
    partial: Vec<u8>,
    /// The number of bytes of that line that were dropped.
    dropped: usize,
}

impl Lines {
    fn new(range: Range, length: u64) -> Self {
        // One allocation for the text with its numbers.
        let room = usize::try_from(length).unwrap_or(usize::MAX).min(range.max_text) * 5 / 4;
        Self {
            range,
            window: Window::default(),
            text: Vec::with_capacity(room),
            number: Decimal::new(range.offset),
            ends: 0,
            open: false,
            partial: Vec::new(),
            dropped: 0,
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        let mut rest = self.skip(chunk);
        while !rest.is_empty() && !self.is_full() {
            let Some(end) = memchr(b'\n', rest) else {
                self.keep(rest);
                rest = &[];
                break;
            };
            if self.partial.is_empty() && self.dropped == 0 {
                self.show(&rest[..end], 0);
            } else {
                self.keep(&rest[..end]);
                self.show_partial();
            }
            self.ends += 1;
            rest = &rest[end + 1..];
        }
        self.ends += memchr_iter(b'\n', rest).count() as u64;
        self.open = chunk.last().is_some_and(|&byte| byte != b'\n');
    }

    /// The part of a chunk after the lines that come before the window.
    fn skip<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let missing = (self.range.offset - 1).saturating_sub(self.ends);
        if missing == 0 {
            return chunk;
        }
        let mut passed = 0;
        for end in memchr_iter(b'\n', chunk) {
            passed += 1;
            if passed == missing {
                self.ends += passed;
                return &chunk[end + 1..];
            }
        }
        self.ends += passed;
        &[]
    }

    fn is_full(&self) -> bool {
        self.window.lines >= self.range.limit || self.text.len() >= self.range.max_text
    }

    /// Keeps a part of an unfinished line, up to the bytes that can be shown.
    fn keep(&mut self, part: &[u8]) {
        let kept = part.len().min((MAX_LINE_BYTES + 1).saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(&part[..kept]);
        self.dropped += part.len() - kept;
    }

    fn show_partial(&mut self) {
        let line = std::mem::take(&mut self.partial);
        self.show(&line, self.dropped);
        self.partial = line;
        self.partial.clear();
        self.dropped = 0;
    }

    /// Appends a line. `dropped` is the number of its bytes that aren't in `line`.
    fn show(&mut self, line: &[u8], dropped: usize) {
        let line = match line {
            [line @ .., b'\r'] if dropped == 0 => {
                self.window.crlf = true;
                line
            }
            line => line,
        };
        let line = if self.window.lines == 0 && self.range.offset == 1 {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        self.text.extend_from_slice(self.number.padded());
        self.number.increment();
        self.text.push(b'\t');
        self.window.lines += 1;
        if line.len() <= MAX_LINE && dropped == 0 {
            self.text.extend_from_slice(line);
        } else {
            self.show_cut(line, dropped);
        }
        self.text.push(b'\n');
    }

    /// Appends the first part of a long line, with a mark.
    #[cold]
    fn show_cut(&mut self, line: &[u8], dropped: usize) {
        let mut left = MAX_LINE;
        let mut shown = 0;
        for chunk in line.utf8_chunks() {
            let valid = chunk.valid();
            let (end, characters) = match valid.char_indices().nth(left) {
                Some((at, _)) => (at, left),
                None => (valid.len(), valid.chars().count()),
            };
            shown += end;
            left -= characters;
            // Invalid bytes count as one character, since they are shown as one.
            if left == 0 || chunk.invalid().is_empty() {
                break;
            }
            shown += chunk.invalid().len();
            left -= 1;
        }
        if shown < line.len() || dropped > 0 {
            shown = without_unfinished(&line[..shown], &line[shown..]);
        }
        self.text.extend_from_slice(&line[..shown]);
        let more = line.len() - shown + dropped;
        if more > 0 {
            let mark = format!(" [... {more} more bytes in this line: see `cut -c` of bash]");
            self.text.extend_from_slice(mark.as_bytes());
        }
    }

    /// Shows a last line without a line end. Returns the number of lines.
    fn end(&mut self) -> u64 {
        if self.open && !self.is_full() && self.ends + 1 >= self.range.offset {
            self.show_partial();
        }
        self.ends + u64::from(self.open)
    }

    fn finish(self, total_lines: Option<u64>, bytes: u64) -> Window {
        let (text, lossy) = match String::from_utf8(self.text) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        };
        Window { text, lossy, total_lines, bytes, ..self.window }
    }
}

/// A counter in text form. Formatting each number took a third of the time of a read.
struct Decimal {
    /// The digits at the end, and blanks before them.
    text: [u8; 20],
    first: usize,
}

impl Decimal {
    /// The width that numbers are padded to.
    const WIDTH: usize = 4;

    fn new(value: u64) -> Self {
        let mut text = [b' '; 20];
        let digits = value.to_string();
        let first = text.len() - digits.len();
        text[first..].copy_from_slice(digits.as_bytes());
        Self { text, first }
    }

    fn padded(&self) -> &[u8] {
        &self.text[self.first.min(self.text.len() - Self::WIDTH)..]
    }

    fn increment(&mut self) {
        for index in (0..self.text.len()).rev() {
            match self.text[index] {
                b'9' => self.text[index] = b'0',
                b' ' => {
                    self.text[index] = b'1';
                    self.first = index;
                    return;
                }
                digit => {
                    self.text[index] = digit + 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range = Range { offset: 1, limit: DEFAULT_LINES, max_text: MAX_TEXT };

    fn range(offset: u64, limit: u64) -> Range {
        Range::new(Some(offset), Some(limit))
    }

    /// Reads `bytes` in chunks of `chunk`.
    fn window(bytes: &[u8], chunk: usize, range: Range) -> Window {
        let mut buffer = vec![0; chunk];
        let filled = bytes.len().min(chunk);
        buffer[..filled].copy_from_slice(&bytes[..filled]);
        read(&mut buffer, filled, &mut &bytes[filled..], bytes.len() as u64, range).unwrap()
    }

    #[test]
    fn buffer_is_no_larger_than_a_small_file_needs() {
        assert_eq!([0, 1, 5000, 1 << 40].map(buffer), [CHUNK, SMALL, 5000, CHUNK]);
    }

    #[test]
    fn chunk_size_does_not_change_the_window() {
        let text = "one\r\n\nthrée\nfour\n\nsix";
        for range in [ALL, range(3, 2), range(6, 9), range(7, 1)] {
            let whole = window(text.as_bytes(), 100, range);
            assert_eq!(whole.total_lines, Some(6));
            for chunk in 1..text.len() {
                let parts = window(text.as_bytes(), chunk, range);
                assert_eq!(
                    (&parts.text, parts.lines, parts.total_lines),
                    (&whole.text, whole.lines, whole.total_lines),
                    "{range:?} {chunk}"
                );
            }
        }
        assert_eq!(window(text.as_bytes(), 3, range(3, 2)).text, "   3\tthrée\n   4\tfour\n");
        assert_eq!(window(text.as_bytes(), 3, range(6, 2)).text, "   6\tsix\n");
    }

    #[test]
    fn last_line_needs_no_line_end() {
        for (text, total) in [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("\n", 1)] {
            let window = window(text.as_bytes(), 8, ALL);
            assert_eq!((window.total_lines, window.lines), (Some(total), total), "{text:?}");
        }
    }

    #[test]
    fn long_line_is_cut_with_a_mark() {
        for character in ["a", "é", "\u{1f600}"] {
            let line = format!("{}\nnext\n", character.repeat(3000));
            for chunk in [1000, 1 << 20] {
                let text = window(line.as_bytes(), chunk, ALL).text;
                let mark = format!(
                    " [... {} more bytes in this line: see `cut -c` of bash]\n   2\tnext\n",
                    1000 * character.len()
                );
                assert_eq!(text, format!("   1\t{}{mark}", character.repeat(2000)), "{chunk}");
            }
        }
        let exact = "a".repeat(MAX_LINE);
        assert_eq!(window(exact.as_bytes(), 1 << 20, ALL).text, format!("   1\t{exact}\n"));
    }

    #[test]
    fn invalid_bytes_are_replaced_in_cut_lines() {
        let line = [vec![0xff; 3000], b"\n".to_vec()].concat();
        let window = window(&line, 500, ALL);
        assert!(window.lossy);
        assert!(
            window.text.starts_with(&format!("   1\t{} [... 1000 more", "\u{fffd}".repeat(2000))),
            "{}",
            window.text
        );
    }

    #[test]
    fn endless_line_needs_little_memory() {
        let line = vec![b'x'; 4 << 20];
        let window = window(&line, CHUNK, ALL);
        assert!(window.text.len() < 2100);
        assert!(window.text.ends_with(&format!(
            "[... {} more bytes in this line: see `cut -c` of bash]\n",
            (4 << 20) - 2000
        )));
    }

    #[test]
    fn text_limit_ends_the_window() {
        let text = format!("{}\n", "y".repeat(1000)).repeat(1000);
        let cut = window(text.as_bytes(), CHUNK, ALL);
        assert!(cut.text.len() < MAX_TEXT + 2 * MAX_LINE);
        assert_eq!((cut.lines, cut.total_lines), (261, Some(1000)));
        assert_eq!(window(text.as_bytes(), CHUNK, range(1, 5000)).lines, 1000);
    }

    #[test]
    fn large_file_is_not_read_after_the_window() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'\n');
                self.0 += buffer.len() as u64;
                Ok(buffer.len())
            }
        }
        let mut source = Endless(0);
        let window = read(&mut vec![b'\n'; CHUNK], CHUNK, &mut source, 1 << 40, ALL).unwrap();
        assert_eq!(
            (window.lines, window.total_lines, window.bytes, source.0),
            (2000, None, 1 << 40, 0)
        );
    }

    #[test]
    fn numbers_count_up_and_stay_aligned() {
        let mut number = Decimal::new(8);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(String::from_utf8_lossy(number.padded()).into_owned());
            number.increment();
        }
        assert_eq!(seen, ["   8", "   9", "  10"]);
        let mut wide = Decimal::new(9_999);
        wide.increment();
        assert_eq!(wide.padded(), b"10000");
    }

    #[test]
    fn byte_order_mark_is_not_shown() {
        assert_eq!(window(b"\xef\xbb\xbfa\n", 9, ALL).text, "   1\ta\n");
    }
}
