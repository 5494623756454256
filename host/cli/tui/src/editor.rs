//! An editor for a text with several lines.

use toolhold_core::text::neutral;
use unicode_segmentation::UnicodeSegmentation;

use crate::layout::columns;

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// The most bytes before and after the cursor that are laid out. More text doesn't fit on a screen.
const NEAR: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Editor {
    text: String,
    /// The cursor's byte offset, always between two visible characters.
    cursor: usize,
}

/// The laid-out rows, and the cursor's position in the rows.
#[derive(Debug, Default)]
pub(crate) struct EditorRows {
    pub(crate) texts: Vec<String>,
    pub(crate) cursor_row: usize,
    pub(crate) cursor_column: usize,
}

impl Editor {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn before(&self) -> &str {
        &self.text[..self.cursor]
    }

    pub(crate) fn set(&mut self, text: &str) {
        self.text = text.to_owned();
        self.cursor = self.text.len();
    }

    /// Returns the text, and empties the editor.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts text at the cursor. Returns `false` if the message is too long.
    pub(crate) fn insert(&mut self, text: &str) -> bool {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text = neutral(&text);
        if self.text.len() + text.len() > MAX_MESSAGE {
            return false;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        true
    }

    /// Replaces the last `bytes` bytes before the cursor.
    pub(crate) fn replace_before(&mut self, bytes: usize, text: &str) {
        let start = self.text.floor_char_boundary(self.cursor.saturating_sub(bytes));
        self.delete_from(start);
        self.insert(text);
    }

    /// Returns the position before the character on the left of the cursor.
    fn previous(&self) -> usize {
        self.before().grapheme_indices(true).next_back().map_or(0, |(index, _)| index)
    }

    /// Returns the position after the character on the right of the cursor.
    fn next(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn word_start(&self) -> usize {
        let word_end = self.before().trim_end().len();
        let before_word = self.text[..word_end].trim_end_matches(|c: char| !c.is_whitespace());
        before_word.len()
    }

    pub(crate) fn backspace(&mut self) {
        self.delete_from(self.previous());
    }

    pub(crate) fn delete_word(&mut self) {
        self.delete_from(self.word_start());
    }

    pub(crate) fn delete_to_line_start(&mut self) {
        self.delete_from(self.line_start());
    }

    fn delete_from(&mut self, start: usize) {
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    pub(crate) fn delete(&mut self) {
        let next = self.next();
        self.text.replace_range(self.cursor..next, "");
    }

    pub(crate) fn delete_to_line_end(&mut self) {
        let end = self.line_end();
        self.text.replace_range(self.cursor..end, "");
    }

    pub(crate) fn left(&mut self) {
        self.cursor = self.previous();
    }

    pub(crate) fn right(&mut self) {
        self.cursor = self.next();
    }

    pub(crate) fn word_left(&mut self) {
        self.cursor = self.word_start();
    }

    pub(crate) fn word_right(&mut self) {
        let after = &self.text[self.cursor..];
        let word = after.trim_start();
        let after_word = word.trim_start_matches(|c: char| !c.is_whitespace());
        self.cursor = self.text.len() - after_word.len();
    }

    fn line_start(&self) -> usize {
        line_start(&self.text, self.cursor)
    }

    fn line_end(&self) -> usize {
        line_end(&self.text, self.cursor)
    }

    pub(crate) fn home(&mut self) {
        self.cursor = self.line_start();
    }

    pub(crate) fn end(&mut self) {
        self.cursor = self.line_end();
    }

    /// Moves the cursor up. Returns `false` if the cursor is in the first line.
    pub(crate) fn up(&mut self) -> bool {
        let start = self.line_start();
        // The line above ends before the line feed.
        let Some(end_above) = start.checked_sub(1) else { return false };
        let start_above = line_start(&self.text, end_above);
        self.cursor = self.position_in(start_above, end_above, self.column());
        true
    }

    /// Moves the cursor down. Returns `false` if the cursor is in the last line.
    pub(crate) fn down(&mut self) -> bool {
        let end = self.line_end();
        if end == self.text.len() {
            return false;
        }
        // The line below starts after the line feed.
        let start_below = end + 1;
        let end_below = line_end(&self.text, start_below);
        self.cursor = self.position_in(start_below, end_below, self.column());
        true
    }

    fn column(&self) -> usize {
        self.text[self.line_start()..self.cursor].graphemes(true).count()
    }

    /// Returns the position of `column` in a line, or the end of a shorter line.
    fn position_in(&self, start: usize, end: usize, column: usize) -> usize {
        let mut graphemes = self.text[start..end].grapheme_indices(true);
        graphemes.nth(column).map_or(end, |(index, _)| start + index)
    }

    /// Lays out the text around the cursor. `mask` replaces each character of a secret.
    pub(crate) fn rows(&self, width: usize, mask: Option<char>) -> EditorRows {
        let width = width.max(2);
        let mut start = self.text.floor_char_boundary(self.cursor.saturating_sub(NEAR));
        if start > 0
            && let Some(index) = self.text[start..self.cursor].find('\n')
        {
            start += index + 1;
        }
        let end = self.text.ceil_char_boundary((self.cursor + NEAR).min(self.text.len()));

        let mut rows = EditorRows::default();
        let mut row = String::new();
        let mut column = 0;
        for (index, grapheme) in self.text[start..end].grapheme_indices(true) {
            let shown = match (grapheme, mask) {
                ("\n", _) => String::new(),
                (_, Some(mask)) => mask.to_string(),
                ("\t", None) => "    ".to_owned(),
                (grapheme, None) => grapheme.to_owned(),
            };
            let shown_columns = columns(&shown);
            if column + shown_columns > width {
                rows.texts.push(std::mem::take(&mut row));
                column = 0;
            }
            if start + index == self.cursor {
                rows.cursor_row = rows.texts.len();
                rows.cursor_column = column;
            }
            if grapheme == "\n" {
                rows.texts.push(std::mem::take(&mut row));
                column = 0;
            }
            row.push_str(&shown);
            column += shown_columns;
        }

        if self.cursor >= end {
            if column >= width {
                rows.texts.push(std::mem::take(&mut row));
                column = 0;
            }
            rows.cursor_row = rows.texts.len();
            rows.cursor_column = column;
        }
        rows.texts.push(row);
        rows
    }
}

fn line_start(text: &str, position: usize) -> usize {
    text[..position].rfind('\n').map_or(0, |index| index + 1)
}

fn line_end(text: &str, position: usize) -> usize {
    text[position..].find('\n').map_or(text.len(), |index| position + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn editor(text: &str) -> Editor {
        let mut editor = Editor::default();
        assert!(editor.insert(text));
        editor
    }

    #[test]
    fn what_looks_like_one_character_is_one() {
        let mut editor = editor("a👩\u{200d}💻e\u{301}");
        editor.left();
        editor.backspace();
        assert_eq!(editor.text(), "ae\u{301}");
        editor.delete();
        assert_eq!(editor.text(), "a");
    }

    #[test]
    fn words_and_lines_are_removed_and_walked_over() {
        let mut editor = editor("one two  three\nfour");
        editor.delete_word();
        assert_eq!(editor.text(), "one two  three\n");
        assert!(editor.up());
        editor.word_right();
        editor.word_right();
        assert_eq!(editor.before(), "one two");
        editor.delete_to_line_start();
        assert_eq!(editor.text(), "  three\n");
        editor.delete_to_line_end();
        assert_eq!(editor.text(), "\n");
        assert!(editor.down() && !editor.down());
    }

    #[test]
    fn pasted_text_is_neutral_and_bounded() {
        let editor_ = editor("a\r\nb\u{1b}[2J\u{202e}");
        assert_eq!(editor_.text(), "a\nb\u{fffd}[2J\u{fffd}");
        assert!(!editor("x").insert(&"y".repeat(MAX_MESSAGE)));
    }

    #[test]
    fn rows_have_the_cursor_where_the_next_character_comes() {
        let rows = editor("字字字\nab").rows(5, None);
        assert_eq!(rows.texts, ["字字", "字", "ab"]);
        assert_eq!((rows.cursor_row, rows.cursor_column), (2, 2));
        let rows = editor("abcd").rows(4, None);
        assert_eq!((rows.cursor_row, rows.cursor_column), (1, 0));
        assert_eq!(editor("ab").rows(9, Some('•')).texts, ["••"]);
        let rows = editor(&"x".repeat(MAX_MESSAGE)).rows(80, None);
        assert!(rows.texts.len() < 100 && rows.cursor_row < 100);
    }
}
