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
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
            let mut cells = Vec::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let is_number = self.numbers.contains(&column);
                cells.push(if is_number {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:width$}")
                });
            }
            let line = cells.join("  ");
            match index {
                0 => writeln!(out, "{FAINT}{}{FAINT:#}", line.trim_end())?,
                _ => writeln!(out, "{}", line.trim_end())?,
            }
        }
        Ok(())
    }
}
