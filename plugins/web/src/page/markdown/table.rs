//! Writes tables of data as tables of Markdown. Of tables that only lay out a page, the content is
//! kept.

use super::Page;
use crate::page::flat::{Flat, What};

/// The greatest number of columns of a table.
const MAX_COLUMNS: usize = 64;

/// The greatest number of cells of a table. Spans turn few cells into many.
const MAX_CELLS: usize = 20_000;

/// The greatest number of bytes of a cell that counts as data.
const MAX_CELL: usize = 1_500;

impl Page<'_> {
    pub(super) fn table(&mut self, index: usize) {
        let rows = self.rows(index);
        if self.out.is_inline() || self.lays_out(index, &rows) {
            return self.block(index, 2);
        }
        let flat = self.flat;
        for caption in flat.children(index).filter(|&child| flat.name(child) == "caption") {
            self.item(caption);
        }
        let mut lines: Vec<Vec<String>> = Vec::new();
        // For each column, the number of next rows that a cell spans.
        let mut reach: Vec<usize> = Vec::new();
        let mut cells_left = MAX_CELLS;
        for row in rows {
            let mut line: Vec<String> = Vec::new();
            for cell in flat.children(row).filter(|&child| matches!(flat.name(child), "td" | "th"))
            {
                if self.gone[cell] {
                    continue;
                }
                skip_reached(&mut line, &mut reach);
                let (text, _) = self.capture(cell);
                let columns = span(flat, cell, "colspan");
                let rows = span(flat, cell, "rowspan");
                for part in 0..columns {
                    if line.len() >= MAX_COLUMNS || cells_left == 0 {
                        break;
                    }
                    cells_left -= 1;
                    if reach.len() <= line.len() {
                        reach.resize(line.len() + 1, 0);
                    }
                    reach[line.len()] = rows - 1;
                    line.push(if part == 0 { text.replace('|', "\\|") } else { String::new() });
                }
            }
            skip_reached(&mut line, &mut reach);
            if line.iter().any(|cell| !cell.is_empty()) {
                lines.push(line);
            }
        }
        if cells_left == 0 {
            self.out.cut();
        }
        self.out.block(2);
        let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let cells = (0..columns).map(|column| line.get(column).map_or("", String::as_str));
            text.push(format!("| {} |", cells.collect::<Vec<_>>().join(" | ")));
            if number == 0 {
                text.push(format!("|{}", " --- |".repeat(columns)));
            }
        }
        self.out.lines(text.iter().map(String::as_str));
        self.out.block(2);
    }

    /// The rows of a table, without those of tables inside it.
    fn rows(&self, index: usize) -> Vec<usize> {
        let flat = self.flat;
        let mut rows = Vec::new();
        for child in flat.children(index).filter(|&child| !self.gone[child]) {
            match flat.name(child) {
                "tr" => rows.push(child),
                "thead" | "tbody" | "tfoot" => rows.extend(
                    flat.children(child).filter(|&row| flat.name(row) == "tr" && !self.gone[row]),
                ),
                _ => {}
            }
        }
        rows
    }

    /// Whether a table only lays out the page: it has one column or row, or contains tables or long
    /// texts.
    fn lays_out(&self, index: usize, rows: &[usize]) -> bool {
        let flat = self.flat;
        if rows.len() < 2 || matches!(flat.attribute(index, "role"), Some("presentation" | "none"))
        {
            return true;
        }
        let within = index + 1..flat.items[index].end;
        if within
            .into_iter()
            .any(|at| matches!(flat.name(at), "table" | "pre" | "h1" | "h2") && !self.gone[at])
        {
            return true;
        }
        if rows.iter().all(|&row| cells(flat, row).count() < 2) {
            return true;
        }
        rows.iter().any(|&row| cells(flat, row).any(|cell| is_long(flat, cell)))
    }
}

/// The number of columns or rows that a cell spans.
fn span(flat: &Flat<'_>, cell: usize, name: &str) -> usize {
    flat.attribute(cell, name)
        .and_then(|span| span.trim().parse::<usize>().ok())
        .unwrap_or(1)
        .clamp(1, MAX_COLUMNS)
}

fn cells(flat: &Flat<'_>, row: usize) -> impl Iterator<Item = usize> {
    flat.children(row).filter(|&cell| matches!(flat.name(cell), "td" | "th"))
}

fn is_long(flat: &Flat<'_>, cell: usize) -> bool {
    let length: usize = (cell..flat.items[cell].end)
        .map(|at| match flat.items[at].what {
            What::Text(text) => text.len(),
            What::Element(_) => 0,
        })
        .sum();
    length > MAX_CELL
}

/// Adds empty cells for cells of earlier rows that span this row.
fn skip_reached(line: &mut Vec<String>, reach: &mut [usize]) {
    while let Some(rows @ 1..) = reach.get(line.len()).copied() {
        reach[line.len()] = rows - 1;
        line.push(String::new());
    }
}
