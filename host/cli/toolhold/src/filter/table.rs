//! Prints rows and headings in columns for people.

use std::io::{self, Write};

use crate::style::FAINT;

/// Rows with headings.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    /// Columns of numbers, aligned right.
    numbers: &'static [usize],
}

impl<const N: usize> Table<N> {
    pub(super) fn new(heads: [&str; N], numbers: &'static [usize]) -> Self {
        Self { rows: vec![heads.map(str::to_owned)], numbers }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        let widths: [usize; N] = std::array::from_fn(|column| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        for (at, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                if self.numbers.contains(&column) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:width$}")
                }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            match at {
                0 => writeln!(out, "{FAINT}{}{FAINT:#}", line.trim_end())?,
                _ => writeln!(out, "{}", line.trim_end())?,
            }
        }
        Ok(())
    }
}
