//! Prints tables.

use std::io::{self, Write};

use anstyle::Style;
use toolhold_core::text::{neutral, neutral_line};

use crate::shown::{MIN_COLUMNS, columns};
use crate::style::{FAINT, STRONG};

/// The space between two columns.
const GAP: &str = "  ";

/// A table with headings. Control characters in cells are removed.
#[derive(Debug)]
pub struct Table<const N: usize> {
    heads: [&'static str; N],
    /// The indexes of right-aligned columns.
    numbers: &'static [usize],
    rows: Vec<Row<N>>,
}

#[derive(Debug)]
struct Row<const N: usize> {
    cells: [String; N],
    /// The index of a column, and its colour.
    colour: Option<(usize, Style)>,
    /// Lines below the row.
    details: Vec<String>,
}

impl<const N: usize> Table<N> {
    /// Makes a table without rows. The columns with the indexes in `numbers` are right-aligned.
    pub fn new(heads: [&'static str; N], numbers: &'static [usize]) -> Self {
        Self { heads, numbers, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: [String; N]) {
        let cells = cells.map(|cell| neutral_line(&cell));
        self.rows.push(Row { cells, colour: None, details: Vec::new() });
    }

    /// Sets the colour of a cell in the last row.
    pub fn colour(&mut self, column: usize, style: Style) {
        if let Some(row) = self.rows.last_mut() {
            row.colour = Some((column, style));
        }
    }

    /// Adds a line below the last row.
    pub fn detail(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.details.push(neutral_line(text));
        }
    }

    /// Adds the lines of a text below the last row. Tabs stay.
    pub fn details(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.details.extend(text.lines().map(|line| neutral(line).into_owned()));
        }
    }

    /// Writes the table. If stdout is a terminal, the last column is cut to fit its width. Writes
    /// nothing if there are no rows.
    ///
    /// # Errors
    ///
    /// Returns an error if the output can't be written.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.print_in(out, columns())
    }

    /// Writes the table. `columns` is the width of the terminal, to which the last column is cut.
    /// If it is `None`, nothing is cut.
    fn print_in(&self, out: &mut impl Write, columns: Option<usize>) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let widths = self.widths(columns);
        let mut heads = Vec::new();
        for (column, head) in self.heads.iter().enumerate() {
            heads.push(self.pad(column, head, widths[column]));
        }
        let head_line = heads.join(GAP);
        writeln!(out, "{FAINT}{}{FAINT:#}", head_line.trim_end())?;
        for row in &self.rows {
            writeln!(out, "{}", self.row_line(row, &widths).trim_end())?;
            for detail in &row.details {
                writeln!(out, "  {FAINT}{detail}{FAINT:#}")?;
            }
        }
        Ok(())
    }

    /// Formats a row. Its first cell is bold, unless the cell has a colour.
    fn row_line(&self, row: &Row<N>, widths: &[usize; N]) -> String {
        let mut line = String::new();
        for (column, cell) in row.cells.iter().enumerate() {
            let padded = self.pad(column, cell, widths[column]);
            let is_last = column + 1 == N;
            let text = if is_last { padded.trim_end() } else { &*padded };
            line += &match row.colour {
                Some((coloured, style)) if coloured == column => format!("{style}{text}{style:#}"),
                _ if column == 0 => format!("{STRONG}{text}{STRONG:#}"),
                _ => text.to_owned(),
            };
            if !is_last {
                line += GAP;
            }
        }
        line
    }

    /// Returns the widths of the columns: the width of the longest cell. In a terminal with
    /// `columns`, the last column gets only the remaining space.
    fn widths(&self, columns: Option<usize>) -> [usize; N] {
        let mut widths = self.heads.map(|head| head.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = cell.chars().count().max(*width);
            }
        }

        if let Some(columns) = columns
            && let Some((last, others)) = widths.split_last_mut()
        {
            let mut used_columns = 0;
            for width in others.iter() {
                used_columns += width + GAP.len();
            }
            let remaining_columns = columns.saturating_sub(used_columns).max(MIN_COLUMNS);
            *last = remaining_columns.min(*last);
        }
        widths
    }

    /// Pads or cuts `text` to the width of its column. Numbers are right-aligned.
    fn pad(&self, column: usize, text: &str, width: usize) -> String {
        if text.chars().count() > width {
            let cut: String = text.chars().take(width.saturating_sub(1)).collect();
            return format!("{}…", cut.trim_end());
        }
        if self.numbers.contains(&column) {
            format!("{text:>width$}")
        } else {
            format!("{text:width$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(columns: Option<usize>) -> String {
        let mut table = Table::new(["NAME", "CALLS", "ABOUT"], &[1]);
        table.row(["a".to_owned(), "12".to_owned(), "\u{1b}[2J short".to_owned()]);
        table.detail("below\nit");
        table.row(["longer".to_owned(), "3".to_owned(), "word ".repeat(10)]);
        table.details("one\n\ttwo\u{7}\n");
        let mut out = Vec::new();
        table.print_in(&mut out, columns).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("it is UTF-8");
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn columns_are_aligned_and_no_cell_steers_the_terminal() {
        let text = printed(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "NAME    CALLS  ABOUT");
        assert_eq!(lines[1], "a          12  \u{fffd}[2J short");
        assert_eq!(lines[2], "  below it");
        assert_eq!(lines[3], format!("longer      3  {}", "word ".repeat(10).trim_end()));
        assert_eq!(lines[4..], ["  one", "  \ttwo\u{fffd}"]);
    }

    #[test]
    fn last_column_fits_the_terminal() {
        for columns in [40, 60] {
            let text = printed(Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
        assert!(
            printed(Some(40)).contains("  3  word word word word word…\n"),
            "{}",
            printed(Some(40))
        );
        // A narrow terminal breaks lines: the text stays long enough to be read.
        assert!(printed(Some(10)).contains("word word word word wor…"));
    }
}
