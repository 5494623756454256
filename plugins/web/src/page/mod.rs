//! Converts the answer of a server (a page or a feed) to text that a model can read.

pub mod charset;
pub mod dom;
mod feed;
mod flat;
mod main_text;
mod markdown;
mod style;
mod visibility;

use url::Url;

use dom::Dom;
use flat::{Flat, What};
use visibility::Visibility;

/// The text of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The text.
    pub text: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Whether the page is longer than the text.
    pub cut: bool,
    /// Whether the text is only the page's title.
    pub bare: bool,
    /// The number of letters that the page's style makes invisible. They are left out.
    pub invisible: usize,
    /// Whether the text is invisible until a script shows it.
    pub faded: bool,
}

/// Converts the page in `html` to Markdown: its main text, or the whole page if the main text isn't
/// found.
pub fn markdown(html: &str, base: &Url) -> Page {
    let dom = Dom::parse(html);
    let flat = Flat::new(&dom.html);
    let visibility = Visibility::new(&dom.html, &flat);
    let kept = main_text::find(&flat, &visibility);
    let (mut text, cut) = markdown::render(&flat, &kept, base);
    if text.trim().is_empty() {
        text = markdown::render(&flat, &main_text::whole(&flat, &visibility), base).0;
    }
    let bare = text.trim().is_empty();
    if let Some(title) = title(&flat, &visibility)
        .map(|title| markdown::line(&title))
        .filter(|title| !has_heading(&text, title))
    {
        text =
            if text.is_empty() { format!("# {title}\n") } else { format!("# {title}\n\n{text}") };
    }
    Page {
        text,
        media_type: "text/markdown",
        cut: cut || dom.cut,
        bare,
        invisible: visibility.invisible,
        faded: visibility.faded,
    }
}

/// Converts the feed in `xml` to Markdown. `None` if it isn't a feed.
pub fn feed(xml: &str, base: &Url) -> Option<Page> {
    feed::render(xml, base)
}

/// The page's title, on one line.
fn title(flat: &Flat<'_>, visibility: &Visibility) -> Option<String> {
    let all = 0..flat.items.len();
    let meta = all
        .clone()
        .find(|&at| flat.attribute(at, "property") == Some("og:title"))
        .and_then(|at| flat.attribute(at, "content"));
    let found = flat
        .find(all.clone(), "h1")
        .filter(|at| !flat.around(*at).any(|around| visibility.gone[around]))
        .map(|at| visible_text(flat, visibility, at))
        .filter(|text| !text.trim().is_empty())
        .or_else(|| meta.map(str::to_owned))
        .or_else(|| flat.find(all, "title").map(|at| flat.text(at)))?;
    let words: Vec<&str> = found.split_whitespace().collect();
    let mut title = words.join(" ");
    title.truncate(title.floor_char_boundary(300));
    (!title.is_empty()).then_some(title)
}

fn visible_text(flat: &Flat<'_>, visibility: &Visibility, index: usize) -> String {
    flat.without_gone(index, &visibility.gone)
        .filter_map(|at| match flat.items[at].what {
            What::Text(text) => Some(text),
            What::Element(_) => None,
        })
        .collect()
}

/// Whether the text already has the title, or a heading of the first level.
fn has_heading(text: &str, title: &str) -> bool {
    text.lines()
        .take(40)
        .any(|line| line.starts_with("# ") || line.trim_start_matches(['#', ' ', '*']) == title)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod survival_tests;
