//! Writes code of a page as Markdown, in a line and in blocks.

use super::Page;
use crate::page::flat::What;

impl Page<'_> {
    pub(super) fn code(&mut self, index: usize) {
        let text = self.source(index);
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        if text.is_empty() {
            return;
        }
        // One tick more than the longest run of ticks in the text.
        let ticks = "`".repeat(longest_run(&text) + 1);
        let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
        self.out.put(&format!("{ticks}{pad}{text}{pad}{ticks}"));
    }

    pub(super) fn code_block(&mut self, index: usize) {
        if self.out.is_inline() {
            return self.code(index);
        }
        let source = self.source(index);
        let text = source.trim_end().trim_start_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return;
        }
        let fence = "`".repeat(longest_run(text).max(2) + 1);
        let opening = format!("{fence}{}", self.language(index).unwrap_or_default());
        self.out.block(2);
        self.out.lines([opening.as_str()].into_iter().chain(text.lines()).chain([fence.as_str()]));
        self.out.block(2);
    }

    /// The text of code, with its line ends.
    fn source(&self, index: usize) -> String {
        let mut text = String::new();
        for at in self.flat.without_gone(index, self.gone) {
            match self.flat.items[at].what {
                What::Text(more) => text.push_str(more),
                What::Element(element) if element.name() == "br" => text.push('\n'),
                What::Element(element) => {
                    // Some pages have a `div` or `li` for each line.
                    let apart = matches!(element.name(), "div" | "li" | "p" | "tr") && at != index;
                    if apart && !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                }
            }
        }
        text
    }

    /// The language of the code, from the classes that highlighters set on the code, inside it or
    /// around it.
    fn language(&self, index: usize) -> Option<&str> {
        let flat = self.flat;
        let inside = flat.children(index).filter(|&child| flat.name(child) == "code").take(1);
        std::iter::once(index).chain(inside).chain(flat.around(index).take(3)).find_map(|at| {
            let named = ["data-lang", "data-language"]
                .into_iter()
                .find_map(|name| flat.attribute(at, name));
            named.filter(|name| is_language(name)).or_else(|| {
                flat.attribute(at, "class")?
                    .split_ascii_whitespace()
                    .take(32)
                    .find_map(language_of_class)
            })
        })
    }
}

fn language_of_class(class: &str) -> Option<&str> {
    const BEFORE: [&str; 6] =
        ["language-", "lang-", "highlight-source-", "highlight-text-", "highlight-", "sourceCode-"];
    let name = BEFORE.iter().find_map(|before| class.strip_prefix(before))?;
    (is_language(name)
        && !matches!(name, "none" | "default" | "plaintext" | "text" | "notranslate"))
    .then_some(name)
}

fn is_language(name: &str) -> bool {
    (1..=20).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+#-_".contains(&byte))
}

fn longest_run(text: &str) -> usize {
    let mut runs = text.split(|c| c != '`').map(str::len).collect::<Vec<_>>();
    runs.push(0);
    runs.into_iter().max().unwrap_or(0)
}
