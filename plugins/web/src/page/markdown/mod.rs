//! Converts the main text to Markdown. Headings, lists, links, tables, code and quotes are kept,
//! everything else becomes text.

mod code;
mod table;
mod writer;

use url::Url;

use super::flat::{Flat, What};
use super::main_text::{MainText, is_block, is_vote_count};
use writer::Writer;

/// The greatest size of the output in bytes. Prefixes of nested quotes and absolute addresses can
/// make the output longer than the page.
const MAX_OUTPUT: usize = 4 << 20;

/// The greatest depth at which the structure is kept. Below it, only the text is kept.
const MAX_LEVELS: usize = 200;

/// The longest address that a link keeps.
const MAX_HREF: usize = 2_048;

/// The Markdown of the main text, and whether it was cut.
pub(super) fn render(flat: &Flat<'_>, kept: &MainText, base: &Url) -> (String, bool) {
    let mut base = base.clone();
    let named =
        flat.find(0..flat.items.len(), "base").and_then(|index| flat.attribute(index, "href"));
    if let Some(named) =
        named.filter(|href| href.len() <= MAX_HREF).and_then(|href| base.join(href).ok())
    {
        base = named;
    }
    base.set_fragment(None);
    let mut page = Page {
        flat,
        gone: &kept.gone,
        base,
        out: Writer::new(MAX_OUTPUT),
        level: 0,
        in_link: false,
        lists: Vec::new(),
    };
    page.element(kept.root);
    page.out.finish()
}

/// A text on one line, such as a title, without links.
pub(super) fn line(text: &str) -> String {
    let mut out = Writer::new(MAX_OUTPUT);
    out.text(text);
    let mut line = out.finish().0;
    line.truncate(line.trim_end().len());
    line
}

/// Escapes a text for the brackets of a link.
pub(super) fn in_brackets(text: &str) -> String {
    text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]")
}

struct Page<'a> {
    flat: &'a Flat<'a>,
    gone: &'a [bool],
    base: Url,
    out: Writer,
    level: usize,
    in_link: bool,
    /// The open lists, each with the number of its next item. `None` for a list without numbers.
    lists: Vec<Option<u64>>,
}

impl Page<'_> {
    fn item(&mut self, index: usize) {
        if self.gone[index] || self.out.is_full() {
            return;
        }
        match self.flat.items[index].what {
            What::Text(text) => self.text(text),
            What::Element(_) if self.level >= MAX_LEVELS => self.flatten(index),
            What::Element(_) => {
                self.level += 1;
                self.element(index);
                self.level -= 1;
            }
        }
    }

    /// Writes text of the page. In a link it must not close the link's brackets.
    fn text(&mut self, text: &str) {
        const ENDS: [char; 3] = ['[', ']', '\\'];
        if self.in_link && text.contains(ENDS) {
            self.out.text(&in_brackets(text));
        } else {
            self.out.text(text);
        }
    }

    fn children(&mut self, index: usize) {
        let flat = self.flat;
        for child in flat.children(index) {
            self.item(child);
        }
    }

    /// Writes all text in an element without recursion.
    fn flatten(&mut self, index: usize) {
        let flat = self.flat;
        let gone = self.gone;
        for at in flat.without_gone(index, gone) {
            match flat.items[at].what {
                What::Text(text) => self.text(text),
                What::Element(element) if is_block(element.name()) => self.out.block(1),
                What::Element(_) => {}
            }
        }
    }

    fn element(&mut self, index: usize) {
        let name = self.flat.name(index);
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.heading(index, usize::from(name.as_bytes()[1] - b'0'));
            }
            "p" | "figure" | "details" | "address" | "form" => self.block(index, 2),
            "summary" | "caption" | "figcaption" | "legend" => self.block(index, 2),
            "br" => self.out.line_break(),
            "hr" => self.rule(),
            "ul" | "menu" | "dir" => self.list(index, None),
            "ol" => {
                let start =
                    self.flat.attribute(index, "start").and_then(|start| start.trim().parse().ok());
                self.list(index, Some(start.unwrap_or(1)));
            }
            "li" => self.list_item(index),
            "dl" => self.block(index, 2),
            "dt" => self.prefixed_block(index, "- ", "  "),
            "dd" => self.prefixed_block(index, "  ", "  "),
            "blockquote" => {
                self.out.block(2);
                self.prefixed_block(index, "> ", "> ");
                self.out.block(2);
            }
            "pre" | "listing" | "xmp" => self.code_block(index),
            "code" | "kbd" | "samp" | "tt" if !self.holds_block(index) => self.code(index),
            "b" | "strong" if !self.holds_block(index) => self.emphasis(index, "**"),
            "i" | "em" | "var" | "cite" | "dfn" if !self.holds_block(index) => {
                self.emphasis(index, "*");
            }
            "del" | "s" | "strike" if !self.holds_block(index) => self.emphasis(index, "~~"),
            "q" => {
                self.out.open("“");
                self.children(index);
                self.out.close("“", "”");
            }
            "sup" => self.superscript(index),
            "rt" => {
                self.out.open("(");
                self.children(index);
                self.out.close("(", ")");
            }
            "rp" | "head" => {}
            "a" => self.link(index),
            "img" => self.image(index),
            "math" => self.formula(index),
            "input" => {
                let mark =
                    if self.flat.attribute(index, "checked").is_some() { "[x] " } else { "[ ] " };
                self.out.text(mark);
            }
            "table" => self.table(index),
            "tr" => self.block(index, 1),
            "td" | "th" => self.block(index, 1),
            "div" | "span" if self.is_bare_vote_count(index) => self.vote_count(index, name),
            _ if is_block(name) => self.block(index, 2),
            _ => self.children(index),
        }
    }

    /// Whether an element shows a number of votes without a word that says so.
    fn is_bare_vote_count(&self, index: usize) -> bool {
        is_vote_count(self.flat, index) && !self.flat.text(index).contains(char::is_alphabetic)
    }

    fn vote_count(&mut self, index: usize, name: &str) {
        let breaks = if is_block(name) { 2 } else { 0 };
        if breaks > 0 {
            self.out.block(breaks);
        }
        self.out.text("Votes: ");
        self.children(index);
        if breaks > 0 {
            self.out.block(breaks);
        }
    }

    /// Writes an element that is separated from the text around it.
    fn block(&mut self, index: usize, breaks: u8) {
        // `breaks` is 1 for a new line and 2 for a blank line. Texts in two `div`s are two
        // paragraphs.
        self.out.block(breaks);
        self.children(index);
        self.out.block(breaks);
    }

    fn heading(&mut self, index: usize, level: usize) {
        if self.out.is_inline() {
            return self.block(index, 2);
        }
        let (text, _) = self.capture(index);
        if !text.is_empty() {
            self.out.block(2);
            self.out.put(&format!("{} {text}", "#".repeat(level)));
            self.out.block(2);
        }
    }

    fn rule(&mut self) {
        self.out.block(2);
        if self.out.has_text() && !self.out.is_inline() {
            self.out.put("---");
            self.out.block(2);
        }
    }

    fn list(&mut self, index: usize, number: Option<u64>) {
        let nested = !self.lists.is_empty();
        self.out.block(if nested { 1 } else { 2 });
        self.lists.push(number);
        self.children(index);
        self.lists.pop();
        self.out.block(if nested { 1 } else { 2 });
    }

    fn list_item(&mut self, index: usize) {
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        let indent = " ".repeat(marker.len());
        self.prefixed_block(index, &marker, &indent);
    }

    /// Writes a block whose first line starts with `first`, and the others with `rest`.
    fn prefixed_block(&mut self, index: usize, first: &str, rest: &str) {
        self.out.item();
        self.out.begin(first, rest);
        self.children(index);
        self.out.end();
        self.out.block(1);
    }

    fn emphasis(&mut self, index: usize, mark: &'static str) {
        if self.out.is_marked(mark) {
            self.children(index);
        } else {
            self.out.open(mark);
            self.children(index);
            self.out.close(mark, mark);
        }
    }

    /// Writes a superscript. An exponent gets `^`, so that it doesn't become a part of its number.
    fn superscript(&mut self, index: usize) {
        let text = self.flat.text(index);
        let is_power = !text.is_empty()
            && text.len() <= 8
            && text.chars().all(|c| c.is_ascii_digit() || "+-−".contains(c));
        if is_power {
            self.out.put(&format!("^{text}"));
        } else {
            self.children(index);
        }
    }

    fn link(&mut self, index: usize) {
        // These texts mean "link to this heading".
        let href = self.flat.attribute(index, "href");
        if href.is_some()
            && matches!(self.flat.text(index).trim(), "¶" | "#" | "§" | "🔗" | "\u{f0c1}")
        {
            return;
        }
        let target = href.and_then(|href| self.address(href));
        let Some(target) = target else { return self.children(index) };
        if self.in_link {
            return self.children(index);
        }
        self.in_link = true;
        let (text, spaces) = self.capture(index);
        self.in_link = false;
        if text.is_empty() {
            return;
        }
        self.out.space(spaces.0);
        if text == target {
            self.out.put(&format!("<{target}>"));
        } else {
            self.out.put(&format!("[{text}]({target})"));
        }
        self.out.space(spaces.1);
    }

    /// The target of a link, if it is another page.
    fn address(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.len() > MAX_HREF {
            return None;
        }
        let mut to = self
            .base
            .join(href)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"))?;
        let fragment = to.fragment().map(str::to_owned);
        to.set_fragment(None);
        if to == self.base && fragment.is_some() {
            return None;
        }
        to.set_fragment(fragment.as_deref());
        Some(String::from(to).replace('(', "%28").replace(')', "%29"))
    }

    fn image(&mut self, index: usize) {
        let alt = self.flat.attribute(index, "alt").unwrap_or_default();
        let words: Vec<&str> = alt.split_whitespace().collect();
        if words.is_empty() {
            return;
        }
        let alt = words.join(" ");
        if self.in_link {
            self.text(&alt);
        } else {
            self.out.text(&format!("[image: {alt}]"));
        }
    }

    /// Writes a formula as its TeX source, if the page has it, else as text.
    fn formula(&mut self, index: usize) {
        let flat = self.flat;
        let range = index..flat.items[index].end;
        let source = flat.attribute(index, "alttext").map(str::to_owned).or_else(|| {
            let annotation = range
                .clone()
                .find(|&at| flat.attribute(at, "encoding") == Some("application/x-tex"));
            annotation.map(|at| flat.text(at))
        });
        match source {
            Some(source) => self.text(&format!("${}$", source.trim())),
            None => self.flatten(index),
        }
    }

    /// The content of an element on one line, and whether there is white space before and after it.
    fn capture(&mut self, index: usize) -> (String, (bool, bool)) {
        let outer = self.out.capture();
        self.children(index);
        self.out.release(outer)
    }

    fn holds_block(&self, index: usize) -> bool {
        (index + 1..self.flat.items[index].end).any(|at| is_block(self.flat.name(at)))
    }
}
