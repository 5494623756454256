//! The input line of the screen: its text, its cursor, and its editing. It can have several lines.

use toolhold_core::text::neutral;
use unicode_segmentation::UnicodeSegmentation;

use crate::layout::columns;

/// Bytes of a message.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// Bytes before and after the cursor that are laid out.
const NEAR: usize = 4096;

/// A text and a cursor in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Editor {
    text: String,
    /// A boundary of characters as a person sees them.
    cursor: usize,
}

impl Editor {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text before the cursor.
    pub(crate) fn before(&self) -> &str {
        &self.text[..self.cursor]
    }

    pub(crate) fn set(&mut self, text: &str) {
        self.text = text.to_owned();
        self.cursor = self.text.len();
    }

    /// Takes the text out.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Adds a text at the cursor. `false`: the text doesn't fit.
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

    /// Puts a text into the place of the last bytes before the cursor.
    pub(crate) fn replace_before(&mut self, bytes: usize, text: &str) {
        let from = self.text.floor_char_boundary(self.cursor.saturating_sub(bytes));
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
        self.insert(text);
    }

    fn previous(&self) -> usize {
        self.before().grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn next(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    /// The start of the word before the cursor.
    fn word(&self) -> usize {
        let before = self.before().trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
    }

    pub(crate) fn backspace(&mut self) {
        self.remove(self.previous());
    }

    pub(crate) fn delete_word(&mut self) {
        self.remove(self.word());
    }

    pub(crate) fn delete_to_begin(&mut self) {
        self.remove(self.line_begin());
    }

    fn remove(&mut self, from: usize) {
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }

    pub(crate) fn delete(&mut self) {
        let next = self.next();
        self.text.replace_range(self.cursor..next, "");
    }

    pub(crate) fn delete_to_end(&mut self) {
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
        self.cursor = self.word();
    }

    pub(crate) fn word_right(&mut self) {
        let after = &self.text[self.cursor..];
        let spaces = after.len() - after.trim_start().len();
        let word = after[spaces..].find(char::is_whitespace);
        self.cursor = word.map_or(self.text.len(), |end| self.cursor + spaces + end);
    }

    fn line_begin(&self) -> usize {
        self.before().rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    pub(crate) fn home(&mut self) {
        self.cursor = self.line_begin();
    }

    pub(crate) fn end(&mut self) {
        self.cursor = self.line_end();
    }

    /// Moves a line up. `false`: the cursor is in the first line.
    pub(crate) fn up(&mut self) -> bool {
        let begin = self.line_begin();
        let Some(above) = begin.checked_sub(1) else { return false };
        let column = self.text[begin..self.cursor].graphemes(true).count();
        let first = self.text[..above].rfind('\n').map_or(0, |at| at + 1);
        self.cursor = self.column(first, above, column);
        true
    }

    /// Moves a line down. `false`: the cursor is in the last line.
    pub(crate) fn down(&mut self) -> bool {
        let end = self.line_end();
        if end == self.text.len() {
            return false;
        }
        let column = self.text[self.line_begin()..self.cursor].graphemes(true).count();
        let last = self.text[end + 1..].find('\n').map_or(self.text.len(), |at| end + 1 + at);
        self.cursor = self.column(end + 1, last, column);
        true
    }

    fn column(&self, from: usize, to: usize, column: usize) -> usize {
        let mut graphemes = self.text[from..to].grapheme_indices(true);
        graphemes.nth(column).map_or(to, |(at, _)| from + at)
    }

    /// The rows of a width around the cursor, and the cursor's row and column in them. `mask`:
    /// replaces each character.
    pub(crate) fn rows(&self, width: usize, mask: Option<char>) -> (Vec<String>, (usize, usize)) {
        let from = self.text.floor_char_boundary(self.cursor.saturating_sub(NEAR));
        let from = match from {
            0 => 0,
            from => self.text[from..self.cursor].find('\n').map_or(from, |at| from + at + 1),
        };
        let to = self.text.ceil_char_boundary((self.cursor + NEAR).min(self.text.len()));
        let mut rows = Vec::new();
        let mut row = String::new();
        let mut column = 0;
        let mut cursor = (0, 0);
        for (at, grapheme) in self.text[from..to].grapheme_indices(true) {
            let is_end = grapheme == "\n";
            let shown = match (grapheme, mask) {
                ("\n", _) => String::new(),
                (_, Some(mask)) => mask.to_string(),
                ("\t", None) => "    ".to_owned(),
                (grapheme, None) => grapheme.to_owned(),
            };
            let wide = columns(&shown);
            if column + wide > width.max(2) {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            if from + at == self.cursor {
                cursor = (rows.len(), column);
            }
            if is_end {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            row.push_str(&shown);
            column += wide;
        }
        if self.cursor >= to {
            if column >= width.max(2) {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            cursor = (rows.len(), column);
        }
        rows.push(row);
        (rows, cursor)
    }
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
        editor.delete_to_begin();
        assert_eq!(editor.text(), "  three\n");
        editor.delete_to_end();
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
        let editor_ = editor("字字字\nab");
        assert_eq!(editor_.rows(5, None), (vec!["字字".into(), "字".into(), "ab".into()], (2, 2)));
        assert_eq!(editor("abcd").rows(4, None).1, (1, 0));
        assert_eq!(editor("ab").rows(9, Some('•')).0, ["••"]);
        let (rows, cursor) = editor(&"x".repeat(MAX_MESSAGE)).rows(80, None);
        assert!(rows.len() < 100 && cursor.0 < 100);
    }
}
