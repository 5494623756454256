//! Lays out Markdown for the screen.

use std::borrow::Cow;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use ratatui::style::Style;
use ratatui::text::Line;

use crate::layout::{Breaks, Piece, columns, wrap};
use crate::theme::{Role, Theme};

/// The most levels of lists and quotes that are indented. More levels leave no room for text.
const MAX_DEPTH: usize = 6;

/// The most cells of a row that are shown.
const MAX_CELLS: usize = 12;

/// The most columns of a horizontal rule.
const MAX_RULE: usize = 40;

/// The bar between two cells of a table.
const CELL_BAR: &str = " │ ";

/// Lays out Markdown without control characters. If `text` starts inside a code block, `fence` is
/// the opening line of this block.
pub(crate) fn lines(
    text: &str,
    fence: Option<&str>,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let whole_text = match fence {
        Some(fence) => Cow::Owned(format!("{fence}\n{text}")),
        None => Cow::Borrowed(text),
    };
    let mut renderer = Renderer::new(width, theme);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    for event in Parser::new_ext(&whole_text, options) {
        renderer.event(event);
    }
    renderer.flush();
    renderer.lines
}

struct Renderer {
    lines: Vec<Line<'static>>,
    pieces: Vec<Piece>,
    styles: Vec<Style>,
    /// The number of the next item in each open list, or `None` if the list has bullets.
    lists: Vec<Option<u64>>,
    /// The bullet or number for the next line.
    marker: Option<String>,
    quotes: usize,
    link: Option<String>,
    is_code: bool,
    table: Vec<Vec<String>>,
    is_table: bool,
    /// Whether an empty line must precede the next block.
    needs_gap: bool,
    width: usize,
    theme: Theme,
}

impl Renderer {
    fn new(width: usize, theme: Theme) -> Self {
        Self {
            lines: Vec::new(),
            pieces: Vec::new(),
            styles: vec![theme.style(Role::Plain)],
            lists: Vec::new(),
            marker: None,
            quotes: 0,
            link: None,
            is_code: false,
            table: Vec::new(),
            is_table: false,
            needs_gap: false,
            width,
            theme,
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_style(&mut self, role: Role) {
        let style = self.style().patch(self.theme.style(role));
        self.styles.push(style);
    }

    fn pop_style(&mut self) {
        if self.styles.len() > 1 {
            self.styles.pop();
        }
    }

    /// Adds text to the current cell or block.
    fn text(&mut self, text: &str, style: Style) {
        if self.is_table
            && let Some(row) = self.table.last_mut()
            && let Some(cell) = row.last_mut()
        {
            cell.push_str(text);
        } else {
            self.pieces.push((text.to_owned(), style));
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text, self.style()),
            Event::Code(code) => {
                let style = self.style().patch(self.theme.style(Role::Code));
                self.text(&code, style);
            }
            // HTML is shown as it is written.
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html, self.style()),
            Event::SoftBreak => self.text(" ", self.style()),
            Event::HardBreak => self.text("\n", self.style()),
            Event::Rule => {
                self.begin_block();
                let rule = "─".repeat(self.width.min(MAX_RULE));
                self.pieces.push((rule, self.theme.style(Role::Faint)));
                self.end_block();
            }
            Event::TaskListMarker(is_done) => {
                self.text(if is_done { "[x] " } else { "[ ] " }, self.style());
            }
            Event::FootnoteReference(name) => self.text(&format!("[{name}]"), self.style()),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text, self.style()),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.push_style(Role::Strong);
                let marks = "#".repeat(level as usize);
                self.text(&format!("{marks} "), self.style());
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                self.is_code = true;
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.pieces.push((language.to_string(), self.theme.style(Role::Faint)));
                    self.flush();
                }
                self.push_style(Role::Code);
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number = number.saturating_add(1);
                        marker
                    }
                    _ => "• ".to_owned(),
                };
                self.marker = Some(marker);
                self.needs_gap = false;
            }
            Tag::Table(_) => {
                self.begin_block();
                self.is_table = true;
                self.table = Vec::new();
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::TableCell => {
                if let Some(row) = self.table.last_mut() {
                    row.push(String::new());
                }
            }
            Tag::Emphasis => self.push_style(Role::Emphasis),
            Tag::Strong => self.push_style(Role::Strong),
            Tag::Strikethrough => self.push_style(Role::Struck),
            Tag::Link { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.push_style(Role::Link);
            }
            Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.push_style(Role::Link);
                self.text("image: ", self.style());
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.pop_style();
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.quotes = self.quotes.saturating_sub(1);
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => {
                self.end_block();
                self.pop_style();
                self.is_code = false;
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                // An empty item shows only its marker.
                if self.marker.is_some() {
                    self.pieces.push((String::new(), self.style()));
                    self.flush();
                }
                self.needs_gap = false;
            }
            TagEnd::Table => {
                self.is_table = false;
                self.put_table();
                self.needs_gap = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.pop_style(),
            TagEnd::Link | TagEnd::Image => {
                self.pop_style();
                // Show the target, because the person must see it before opening the link.
                let target = self.link.take().unwrap_or_default();
                let is_shown = self.pieces.last().is_some_and(|(text, _)| *text == target);
                if !is_shown && !target.is_empty() {
                    self.text(&format!(" <{target}>"), self.theme.style(Role::Faint));
                }
            }
            _ => {}
        }
    }

    fn gap(&mut self) {
        if self.needs_gap && !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.needs_gap = false;
    }

    fn begin_block(&mut self) {
        self.flush();
        self.gap();
    }

    fn end_block(&mut self) {
        self.flush();
        self.needs_gap = true;
    }

    fn flush(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);

        let quotes = "│ ".repeat(self.quotes.min(MAX_DEPTH));
        let depth = self.lists.len().saturating_sub(1).min(MAX_DEPTH);
        let mut first = format!("{quotes}{}", "  ".repeat(depth));
        let mut indent = first.clone();
        if let Some(marker) = self.marker.take() {
            first += &marker;
            indent += &" ".repeat(columns(&marker));
        } else if !self.lists.is_empty() {
            // All paragraphs of an item have the same indentation.
            first += "  ";
            indent += "  ";
        }

        let mut breaks = Breaks::Words;
        if self.is_code {
            breaks = Breaks::Anywhere;
            first += "  ";
            indent += "  ";
            // Remove the last line end, because it would add an empty line.
            if let Some((last, _)) = pieces.last_mut()
                && last.ends_with('\n')
            {
                last.pop();
            }
        }

        let faint = self.theme.style(Role::Faint);
        self.lines.extend(wrap(&pieces, self.width, &(first, faint), &(indent, faint), breaks));
    }

    /// Lays out the table: in columns, or row by row if the columns don't fit.
    fn put_table(&mut self) {
        let table = std::mem::take(&mut self.table);
        let widths = column_widths(&table);
        let bars = columns(CELL_BAR) * widths.len();
        let fits = widths.iter().sum::<usize>() + bars <= self.width;

        let plain = self.theme.style(Role::Plain);
        let strong = self.theme.style(Role::Strong);
        let faint = self.theme.style(Role::Faint);
        let no_prefix = (String::new(), plain);
        for (number, row) in table.iter().enumerate() {
            let is_head = number == 0;
            let style = if is_head { strong } else { plain };
            let mut pieces = Vec::new();
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if index > 0 {
                    pieces.push((CELL_BAR.to_owned(), faint));
                }
                let padding = if fits { width.saturating_sub(columns(cell)) } else { 0 };
                pieces.push((format!("{cell}{}", " ".repeat(padding)), style));
            }
            self.lines.extend(wrap(&pieces, self.width, &no_prefix, &no_prefix, Breaks::Words));

            if is_head && fits {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                let rule = (rules.join("─┼─"), faint);
                let rule_lines =
                    wrap(&[rule], self.width, &no_prefix, &no_prefix, Breaks::Anywhere);
                self.lines.extend(rule_lines);
            }
        }
    }
}

/// Returns the width of the widest cell of each column.
fn column_widths(table: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in table {
        for (index, cell) in row.iter().take(MAX_CELLS).enumerate() {
            let width = columns(cell);
            match widths.get_mut(index) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize) -> String {
        let lines = lines(text, None, width, Theme::new(true));
        lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
    }

    #[test]
    fn markdown_is_shown_as_text_with_its_structure() {
        let text = "# Title\n\nSome *soft* and **strong** `code`, [a link](https://a.example/x).\n\n\
                    - one\n- two\n  1. inner\n  2. more\n\n> said\n> twice\n\n```rust\nfn a() {\n    1\n}\n```\n\n\
                    | a | bb |\n|---|---|\n| 1 | 2 |\n\n---\nend";
        insta::assert_snapshot!(shown(text, 60));
    }

    #[test]
    fn code_that_began_earlier_goes_on_as_code() {
        let lines = lines("a *b*\n```\nc", Some("```"), 40, Theme::new(false));
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["  a *b*", "", "c"]);
    }

    #[test]
    fn nesting_without_end_leaves_room() {
        let text: String = (0..200).map(|depth| format!("{}- x\n", "  ".repeat(depth))).collect();
        assert!(shown(&text, 40).lines().all(|line| columns(line) <= 40));
        assert!(shown(&format!("{}x", "> ".repeat(500)), 40).lines().all(|it| columns(it) <= 40));
    }
}
