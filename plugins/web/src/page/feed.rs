//! Converts feeds (RSS and Atom) to a list of their entries.

use std::time::{Duration, Instant};

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};
use url::Url;

use super::dom::Dom;
use super::flat::Flat;
use super::visibility::Visibility;
use super::{Page, main_text, markdown};

/// The greatest number of entries that are read.
const MAX_ENTRIES: usize = 100;

/// The greatest number of bytes of an entry's text.
const MAX_TEXT: usize = 8_000;

/// The number of bytes of output after which entries are left out.
const MAX_OUTPUT: usize = 1 << 20;

/// The time after which the texts of entries are left out.
const MAX_TIME: Duration = Duration::from_secs(3);

/// The fields of a feed and of each entry that are shown.
#[derive(Default)]
struct Entry {
    title: String,
    link: String,
    date: String,
    author: String,
    summary: String,
    content: String,
}

pub(super) fn render(xml: &str, base: &Url) -> Option<Page> {
    let (feed, entries) = read(xml)?;
    let began = Instant::now();
    let mut text = String::new();
    let title = one_line(&feed.title);
    if !title.is_empty() {
        text.push_str(&format!("# {}\n\n", markdown::line(&title)));
    }
    push_text(&mut text, &feed.summary, base);
    let mut cut = entries.len() >= MAX_ENTRIES;
    for entry in &entries {
        if text.len() > MAX_OUTPUT {
            cut = true;
            break;
        }
        let title = Some(one_line(&entry.title))
            .filter(|title| !title.is_empty())
            .unwrap_or_else(|| "(no title)".to_owned());
        let link = base.join(entry.link.trim()).ok().filter(|link| {
            matches!(link.scheme(), "http" | "https") && !entry.link.trim().is_empty()
        });
        text.push_str(&match link {
            Some(link) => {
                format!(
                    "## [{}]({})\n",
                    markdown::in_brackets(&title),
                    String::from(link).replace('(', "%28").replace(')', "%29")
                )
            }
            None => format!("## {}\n", markdown::line(&title)),
        });
        let details: Vec<String> = [&entry.date, &entry.author]
            .into_iter()
            .map(|detail| markdown::line(&one_line(detail)))
            .filter(|detail| !detail.is_empty())
            .collect();
        if !details.is_empty() {
            text.push_str(&format!("{}\n", details.join(", ")));
        }
        text.push('\n');
        if began.elapsed() < MAX_TIME {
            // The longer one is the entry's text, the other is its summary.
            let longer = if entry.content.len() > entry.summary.len() {
                &entry.content
            } else {
                &entry.summary
            };
            push_text(&mut text, longer, base);
        } else {
            cut = true;
        }
    }
    Some(Page { text, media_type: "text/markdown", cut, bare: false, invisible: 0, faded: false })
}

/// The feed itself and its entries. `None` if it isn't a feed.
fn read(xml: &str) -> Option<(Entry, Vec<Entry>)> {
    let mut reader = Reader::from_str(xml);
    let config = reader.config_mut();
    (config.check_end_names, config.allow_unmatched_ends, config.allow_dangling_amp) =
        (false, true, true);
    let (mut feed, mut entries, mut entry): (Entry, Vec<Entry>, Option<Entry>) = Default::default();
    let mut is_feed = false;
    // The element whose text is read, the depth in it, and its text. Elements inside it, as in
    // XHTML, belong to it.
    let mut field = Vec::new();
    let mut depth = 0_usize;
    let mut text = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let name = start.local_name().as_ref().to_vec();
                if !is_feed {
                    is_feed = matches!(name.as_slice(), b"rss" | b"feed" | b"RDF");
                    if !is_feed {
                        return None;
                    }
                } else if matches!(name.as_slice(), b"item" | b"entry") {
                    entry = Some(Entry::default());
                    field.clear();
                } else if !field.is_empty() {
                    depth += 1;
                    text.push(' ');
                } else if is_field(&name) {
                    note_link(&start, entry.as_mut().unwrap_or(&mut feed));
                    (field, depth) = (name, 0);
                    text.clear();
                }
            }
            Ok(Event::Empty(start)) if is_feed => {
                note_link(&start, entry.as_mut().unwrap_or(&mut feed));
            }
            Ok(Event::Empty(_)) => return None,
            Ok(Event::End(end)) => {
                let name = end.local_name();
                if matches!(name.as_ref(), b"item" | b"entry") {
                    entries.extend(entry.take());
                    field.clear();
                    if entries.len() >= MAX_ENTRIES {
                        break;
                    }
                } else if !field.is_empty() && depth > 0 {
                    depth -= 1;
                } else if !field.is_empty() {
                    note(entry.as_mut().unwrap_or(&mut feed), &field, &text);
                    field.clear();
                }
            }
            Ok(Event::Text(more)) if !field.is_empty() => {
                text.push_str(&String::from_utf8_lossy(&more));
            }
            Ok(Event::CData(more)) if !field.is_empty() => {
                text.push_str(&String::from_utf8_lossy(&more));
            }
            Ok(Event::GeneralRef(name)) if !field.is_empty() => push_reference(&mut text, &name),
            // After an error, the part before it is still used.
            Ok(Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
        text.truncate(text.floor_char_boundary(4 * MAX_TEXT));
    }
    is_feed.then_some((feed, entries))
}

fn is_field(name: &[u8]) -> bool {
    const FIELDS: [&[u8]; 13] = [
        b"title",
        b"link",
        b"pubDate",
        b"published",
        b"updated",
        b"date",
        b"creator",
        b"author",
        b"description",
        b"subtitle",
        b"summary",
        b"content",
        b"encoded",
    ];
    FIELDS.contains(&name)
}

fn note(entry: &mut Entry, field: &[u8], text: &str) {
    let place = match field {
        b"title" => &mut entry.title,
        b"link" => &mut entry.link,
        b"pubDate" | b"published" | b"updated" | b"date" => &mut entry.date,
        b"creator" | b"author" => &mut entry.author,
        b"description" | b"subtitle" | b"summary" => &mut entry.summary,
        _ => &mut entry.content,
    };
    // Later fields of the same name belong to something else, such as a picture's title.
    if place.trim().is_empty() {
        text.clone_into(place);
    }
}

/// Takes the link of an Atom entry from its attribute, if it leads to the page of the entry.
fn note_link(start: &BytesStart<'_>, entry: &mut Entry) {
    if start.local_name().as_ref() != b"link" {
        return;
    }
    if attribute(start, "rel").is_none_or(|rel| rel == "alternate")
        && let Some(href) = attribute(start, "href")
    {
        note(entry, b"link", &href);
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = start.try_get_attribute(name).ok()??;
    Some(attribute.unescape_value().ok()?.into_owned())
}

fn push_reference(text: &mut String, name: &BytesRef<'_>) {
    if let Ok(Some(character)) = name.resolve_char_ref() {
        text.push(character);
        return;
    }
    let known = quick_xml::escape::resolve_predefined_entity(&String::from_utf8_lossy(name));
    text.push_str(known.unwrap_or(" "));
}

/// Adds a text of the feed, which may be HTML.
fn push_text(text: &mut String, html: &str, base: &Url) {
    let html = &html[..html.floor_char_boundary(MAX_TEXT)];
    if html.trim().is_empty() {
        return;
    }
    let dom = Dom::parse(html);
    let flat = Flat::new(&dom.html);
    let (rendered, _) =
        markdown::render(&flat, &main_text::whole(&flat, &Visibility::new(&dom.html, &flat)), base);
    if !rendered.is_empty() {
        text.push_str(&rendered);
        text.push('\n');
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    line.truncate(line.floor_char_boundary(300));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(xml: &str, expected: &str) {
        let base = Url::parse("https://example.com/feed").unwrap();
        assert_eq!(render(xml, &base).map(|page| page.text).as_deref(), Some(expected));
    }

    #[test]
    fn rss_becomes_markdown() {
        let item = "<item><title>One &amp; two</title><link>/1</link><pubDate>Mon</pubDate>\
                    <description><![CDATA[<p>Says <b>this</b></p>]]></description><image><title>no</title></image></item>";
        let channel = format!(
            "<?xml version=\"1.0\"?><rss><channel><title>News</title><description>All &lt;i&gt;of&lt;/i&gt; it</description>{item}</channel></rss>"
        );
        check(
            &channel,
            "# News\n\nAll *of* it\n\n## [One & two](https://example.com/1)\nMon\n\nSays **this**\n\n",
        );
    }

    #[test]
    fn atom_becomes_markdown() {
        let entry = "<entry><title type=\"html\">A&#33;</title><link rel=\"self\" href=\"x\"/><link href=\"b?c&amp;d\"/>\
                     <author><name>Ann</name></author><updated>2020</updated><summary>s</summary>\
                     <content type=\"xhtml\"><div>much more</div></content></entry>";
        check(
            &format!("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>F</title>{entry}</feed>"),
            "# F\n\n## [A!](https://example.com/b?c&d)\n2020, Ann\n\nmuch more\n\n",
        );
    }

    #[test]
    fn broken_feed_is_read_up_to_the_error() {
        check("<rss><item><title>a</title></item><item><title>b</titl", "## a\n\n");
        let base = Url::parse("https://example.com/").unwrap();
        for none in ["", "<html><body>x</body></html>", "text", "<?xml version='1.0'?><svg/>"] {
            assert_eq!(render(none, &base), None, "{none}");
        }
        assert!(render(&format!("<rss>{}", "<item>".repeat(100_000)), &base).is_some());
    }
}
