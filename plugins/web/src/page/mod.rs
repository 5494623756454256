//! Converts the answer of a server to text that a model can read.

pub mod charset;
pub mod dom;
mod feed;
mod flat;
mod main_text;
mod markdown;

use url::Url;

use dom::Dom;
use flat::Flat;

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
}

/// Converts the page in `html` to Markdown: its main text, or the whole page if the main text isn't
/// found.
pub fn markdown(html: &str, base: &Url) -> Page {
    let dom = Dom::parse(html);
    let flat = Flat::new(&dom.html);
    let kept = main_text::find(&flat);
    let (mut text, cut) = markdown::render(&flat, &kept, base);
    if text.trim().is_empty() {
        text = markdown::render(&flat, &main_text::whole(&flat), base).0;
    }
    let bare = text.trim().is_empty();
    if let Some(title) =
        title(&flat).map(|title| markdown::line(&title)).filter(|title| !has_heading(&text, title))
    {
        text =
            if text.is_empty() { format!("# {title}\n") } else { format!("# {title}\n\n{text}") };
    }
    Page { text, media_type: "text/markdown", cut: cut || dom.cut, bare }
}

/// Converts the feed in `xml` to Markdown. `None` if it isn't a feed.
pub fn feed(xml: &str, base: &Url) -> Option<Page> {
    feed::render(xml, base)
}

/// The page's title, on one line.
fn title(flat: &Flat<'_>) -> Option<String> {
    let all = 0..flat.items.len();
    let meta = all
        .clone()
        .find(|&at| flat.attribute(at, "property") == Some("og:title"))
        .and_then(|at| flat.attribute(at, "content"));
    let in_head = || flat.find(all.clone(), "title").map(|at| flat.text(at));
    let title =
        flat.find(all.clone(), "h1").map(|at| flat.text(at)).filter(|text| !text.trim().is_empty());
    let title = title.or_else(|| meta.map(str::to_owned)).or_else(in_head)?;
    let words: Vec<&str> = title.split_whitespace().collect();
    let mut title = words.join(" ");
    title.truncate(title.floor_char_boundary(300));
    (!title.is_empty()).then_some(title)
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
