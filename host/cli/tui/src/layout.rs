//! Breaks text into lines.

use std::borrow::Cow;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The columns between two tab stops.
const TAB: usize = 4;

/// A text with one style and without line ends.
pub(crate) type Piece = (String, Style);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Between words.
    Words,
    /// At any character, with all spaces.
    Anywhere,
}

/// Returns the columns of a text on the screen.
pub(crate) fn columns(text: &str) -> usize {
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

struct Breaker<'a> {
    lines: Vec<Line<'static>>,
    /// The current line. The first span is the prefix.
    spans: Vec<Piece>,
    column: usize,
    /// The last gap between words in the current line.
    gap: Option<Gap>,
    width: usize,
    /// The prefix of lines after the first.
    indent: &'a Piece,
}

/// A gap between words.
struct Gap {
    /// The number of spans up to the gap.
    spans: usize,
    /// The bytes of the last of these spans.
    bytes: usize,
}

/// Breaks text into lines. The first line gets the prefix `first`, and later lines get the prefix
/// `indent`.
pub(crate) fn wrap(
    pieces: &[Piece],
    width: usize,
    first: &Piece,
    indent: &Piece,
    breaks: Breaks,
) -> Vec<Line<'static>> {
    let first_columns = columns(&first.0);
    let prefix_columns = first_columns.max(columns(&indent.0));
    let mut breaker = Breaker {
        lines: Vec::new(),
        spans: vec![first.clone()],
        column: first_columns,
        gap: None,
        // Besides the prefix, a line needs at least the two columns of a wide character.
        width: width.max(prefix_columns + 2),
        indent,
    };
    for (text, style) in pieces {
        for grapheme in text.graphemes(true) {
            breaker.push(grapheme, *style, breaks);
        }
    }
    breaker.end_line();
    breaker.lines
}

impl Breaker<'_> {
    /// Adds a grapheme to the line, or to a new line if the line is full.
    fn push(&mut self, grapheme: &str, style: Style, breaks: Breaks) {
        if grapheme == "\n" || grapheme == "\r\n" {
            self.end_line();
            self.begin_line();
            return;
        }
        let text = match grapheme {
            // A tab fills the line up to the next tab stop.
            "\t" => Cow::Owned(" ".repeat(TAB - self.column % TAB)),
            grapheme => Cow::Borrowed(grapheme),
        };
        let text_columns = text.width();
        if self.column + text_columns > self.width {
            if text.trim().is_empty() && breaks == Breaks::Words {
                // The line end stands for the space.
                self.end_line();
                self.begin_line();
                return;
            }
            self.break_line();
        }

        self.push_text(&text, style);
        self.column += text_columns;
        if text == " " && breaks == Breaks::Words {
            let bytes = self.spans.last().map_or(0, |(last, _)| last.len());
            self.gap = Some(Gap { spans: self.spans.len(), bytes });
        }
    }

    /// Adds text to the last span, or to a new span if the style differs.
    fn push_text(&mut self, text: &str, style: Style) {
        // Don't add text to the prefix, which stays a separate span.
        let has_only_prefix = self.spans.len() <= 1;
        match self.spans.last_mut() {
            Some((last, last_style)) if *last_style == style && !has_only_prefix => {
                last.push_str(text);
            }
            _ => self.spans.push((text.to_owned(), style)),
        }
    }

    /// Breaks the line at its last gap, or at its end if there is no gap.
    fn break_line(&mut self) {
        let Some(gap) = self.gap.take() else {
            self.end_line();
            self.begin_line();
            return;
        };
        let mut after_gap = self.spans.split_off(gap.spans);
        if let Some((last, style)) = self.spans.last_mut() {
            let tail = last.split_off(gap.bytes);
            if !tail.is_empty() {
                after_gap.insert(0, (tail, *style));
            }
        }
        self.end_line();
        self.begin_line();
        for (text, style) in after_gap {
            self.column += columns(&text);
            self.spans.push((text, style));
        }
    }

    fn end_line(&mut self) {
        let mut line = Line::default();
        for (text, style) in self.spans.drain(..) {
            if !text.is_empty() {
                line.push_span(Span::styled(text, style));
            }
        }
        self.lines.push(line);
        self.gap = None;
    }

    fn begin_line(&mut self) {
        self.spans.push(self.indent.clone());
        self.column = columns(&self.indent.0);
    }
}

/// Lays out a text with its line ends, in one style. All lines get the prefix `indent`.
pub(crate) fn text(
    text: &str,
    style: Style,
    width: usize,
    indent: &str,
    breaks: Breaks,
) -> Vec<Line<'static>> {
    let prefix = (indent.to_owned(), style);
    let mut lines = Vec::new();
    for line in text.lines() {
        let piece = (line.to_owned(), style);
        lines.extend(wrap(&[piece], width, &prefix, &prefix, breaks));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize, breaks: Breaks) -> Vec<String> {
        let none = (String::new(), Style::new());
        let hang = ("  ".to_owned(), Style::new());
        let lines = wrap(&[(text.to_owned(), Style::new())], width, &none, &hang, breaks);
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        assert_eq!(shown("one two three", 8, Breaks::Words), ["one two ", "  three"]);
        assert_eq!(shown("abcdefghij", 6, Breaks::Words), ["abcdef", "  ghij"]);
        assert_eq!(shown("a  b c", 4, Breaks::Anywhere), ["a  b", "   c"]);
        assert_eq!(shown("a\tb", 10, Breaks::Anywhere), ["a   b"]);
        assert_eq!(shown("a\nb", 10, Breaks::Words), ["a", "  b"]);
    }

    #[test]
    fn wide_and_combined_characters_take_their_columns() {
        assert_eq!(columns("字e\u{301}👩\u{200d}💻"), 5);
        assert_eq!(shown("字字字字", 6, Breaks::Anywhere), ["字字字", "  字"]);
        for line in shown(&"👩\u{200d}💻e\u{301}字 ".repeat(20), 11, Breaks::Words) {
            assert!(columns(line.trim_end()) <= 11, "{line}");
        }
    }
}
