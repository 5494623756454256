//! Writes the lines of the Markdown with their prefixes, marks and white space.

use std::borrow::Cow;

/// Escapes a word of a page, so that it can't look like a link. Only the page's own links become
/// links.
pub(super) fn plain(word: &str) -> Cow<'_, str> {
    if !word.contains("](")
        && !word.contains("]:")
        && !word.match_indices('<').any(|(at, _)| is_tag(word, at))
    {
        return Cow::Borrowed(word);
    }
    let mut out = String::with_capacity(word.len() + 2);
    for (at, character) in word.char_indices() {
        if matches!(character, '(' | ':') && word[..at].ends_with(']')
            || character == '<' && is_tag(word, at)
        {
            out.push('\\');
        }
        out.push(character);
    }
    Cow::Owned(out)
}

/// Whether the `<` at this place could start a tag.
fn is_tag(word: &str, at: usize) -> bool {
    let after = &word.as_bytes()[at + 1..];
    after.first().is_some_and(|letter| letter.eq_ignore_ascii_case(&b'a'))
        && after.get(1).is_none_or(|byte| *byte == b'/')
}

/// The output. White space is written only before the next text, so that lines and marks don't end
/// with it.
pub(super) struct Writer {
    out: String,
    limit: usize,
    full: bool,
    /// Whether something was left out.
    cut: bool,
    /// The prefixes of lines: marks of quotes, and the indentation of items.
    prefixes: Vec<Prefix>,
    /// The number of line ends before the next text: 1 for a new line, 2 for a blank line.
    breaks: u8,
    space: bool,
    /// Opened marks that are written before the next text.
    due: Vec<&'static str>,
    /// Opened marks that were written.
    written: Vec<&'static str>,
    /// Whether everything goes on one line.
    inline: bool,
    /// Whether there was white space before the first word.
    led: bool,
    /// Whether any text was written.
    started: bool,
}

struct Prefix {
    /// The prefix of the first line. `None` after the first line.
    first: Option<String>,
    rest: String,
}

/// The writer that a capture replaced.
pub(super) struct Outer(Writer);

impl Writer {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            out: String::new(),
            limit,
            full: false,
            cut: false,
            prefixes: Vec::new(),
            breaks: 0,
            space: false,
            due: Vec::new(),
            written: Vec::new(),
            inline: false,
            led: false,
            started: false,
        }
    }

    pub(super) fn finish(mut self) -> (String, bool) {
        if self.started {
            self.out.push('\n');
        }
        (self.out, self.full || self.cut)
    }

    /// Notes that something is left out.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn is_inline(&self) -> bool {
        self.inline
    }

    pub(super) fn has_text(&self) -> bool {
        self.started
    }

    /// Writes text of the page. A run of white space becomes one space.
    pub(super) fn text(&mut self, text: &str) {
        // Invisible characters that split words.
        const UNSEEN: [char; 4] = ['\u{ad}', '\u{200b}', '\u{feff}', '\u{2060}'];
        if text.starts_with(char::is_whitespace) {
            self.space = true;
        }
        for word in text.split_whitespace() {
            if word.contains(UNSEEN) {
                self.put(&plain(&word.replace(UNSEEN, "")));
            } else {
                self.put(&plain(word));
            }
            self.space = true;
        }
        if !text.is_empty() && !text.ends_with(char::is_whitespace) {
            self.space = false;
        }
    }

    /// Writes text unchanged on the line.
    pub(super) fn put(&mut self, text: &str) {
        if text.is_empty() || self.full {
            return;
        }
        if !self.started {
            self.led = self.space;
            self.prefix();
        } else if self.breaks > 0 {
            for count in 0..self.breaks {
                if count > 0 {
                    self.blank_prefix();
                }
                self.out.push('\n');
            }
            self.prefix();
        } else if self.space {
            self.out.push(' ');
        }
        (self.started, self.breaks, self.space) = (true, 0, false);
        for mark in self.due.drain(..) {
            if mark == "(" && self.out.ends_with(']') {
                self.out.push('\\');
            }
            self.out.push_str(mark);
            self.written.push(mark);
        }
        // Texts of two elements could look like one link.
        if text.starts_with(['(', ':']) && self.out.ends_with(']') {
            self.out.push('\\');
        }
        self.out.push_str(text);
        self.full |= self.out.len() > self.limit;
    }

    /// Writes lines unchanged, starting on a new line.
    pub(super) fn lines<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let mut first = true;
        for line in lines {
            if self.full {
                return;
            }
            if line.is_empty() {
                if !first {
                    self.out.push('\n');
                    self.blank_prefix();
                }
                continue;
            }
            if !first {
                self.breaks = 1;
            }
            self.put(line);
            first = false;
        }
    }

    /// Separates the next text: 1 for a new line, 2 for a blank line.
    pub(super) fn block(&mut self, breaks: u8) {
        self.space = true;
        if !self.inline {
            // The mark of an item is on the line of its first paragraph.
            let most =
                if self.prefixes.iter().any(|prefix| prefix.first.is_some()) { 1 } else { 2 };
            self.breaks = self.breaks.max(breaks.min(most));
        }
    }

    /// Starts the next item of a list: on a new line, without a blank line before it.
    pub(super) fn item(&mut self) {
        let after = self.breaks;
        self.block(1);
        let in_item = self
            .prefixes
            .last()
            .is_some_and(|prefix| prefix.first.is_none() && prefix.rest.trim().is_empty());
        if after == 2 && (in_item || self.after_item()) {
            self.breaks = 1;
        }
    }

    pub(super) fn line_break(&mut self) {
        self.space = true;
        if !self.inline && self.started {
            self.breaks = (self.breaks + 1).min(2);
        }
    }

    pub(super) fn space(&mut self, is_due: bool) {
        self.space |= is_due;
    }

    /// Opens a mark, which is written before the next word.
    pub(super) fn open(&mut self, mark: &'static str) {
        self.due.push(mark);
    }

    /// Closes a mark, if it was written.
    pub(super) fn close(&mut self, mark: &'static str, end: &str) {
        if self.due.last() == Some(&mark) {
            self.due.pop();
        } else if let Some(at) = self.written.iter().rposition(|written| *written == mark) {
            self.written.remove(at);
            self.out.push_str(end);
        }
    }

    pub(super) fn is_marked(&self, mark: &str) -> bool {
        self.due.contains(&mark) || self.written.contains(&mark)
    }

    /// Adds a prefix: `first` for the next line, then `rest`.
    pub(super) fn begin(&mut self, first: &str, rest: &str) {
        if !self.inline {
            self.prefixes.push(Prefix { first: Some(first.to_owned()), rest: rest.to_owned() });
        }
    }

    pub(super) fn end(&mut self) {
        if !self.inline {
            self.prefixes.pop();
        }
    }

    /// Starts to write into a separate output, on one line.
    pub(super) fn capture(&mut self) -> Outer {
        let inner = Self { inline: true, ..Self::new(self.limit) };
        Outer(std::mem::replace(self, inner))
    }

    /// Ends a capture. Returns its text, and whether there was white space before and after it.
    pub(super) fn release(&mut self, outer: Outer) -> (String, (bool, bool)) {
        let inner = std::mem::replace(self, outer.0);
        self.full |= inner.full;
        let spaces = (inner.led, inner.space);
        // If nothing was written, its white space still counts.
        self.space |= !inner.started && inner.space;
        (inner.out, spaces)
    }

    fn after_item(&self) -> bool {
        let start = self.out.rfind('\n').map_or(0, |at| at + 1);
        let line = self.out[start..].trim_start_matches([' ', '>']);
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
    }

    fn prefix(&mut self) {
        for prefix in &mut self.prefixes {
            match prefix.first.take() {
                Some(first) => self.out.push_str(&first),
                None => self.out.push_str(&prefix.rest),
            }
        }
    }

    /// Writes the prefix of a blank line: marks of quotes stay, indentation is dropped.
    fn blank_prefix(&mut self) {
        let all: String = self
            .prefixes
            .iter()
            .filter(|prefix| prefix.first.is_none())
            .map(|prefix| prefix.rest.as_str())
            .collect();
        self.out.push_str(all.trim_end());
    }
}
