//! Pages that are expensive to process: a megabyte each, through the tools, in the sandbox, within
//! the limits of every call.

use serde_json::json;

use super::{Web, page};
use crate::support::run_alone;
use crate::support::server::Server;

/// Bytes of a page: what `max_body_kib` lets through.
const SIZE: usize = 1 << 20;

/// A page of repeated parts, with a beginning.
fn repeated(beginning: &str, part: &str) -> String {
    let mut page = beginning.to_owned();
    while page.len() + part.len() <= SIZE {
        page.push_str(part);
    }
    page
}

fn pages() -> Vec<(&'static str, String)> {
    let attributes: String = (0..120_000).map(|number| format!(" a{number}")).collect();
    let numbered: String = (0..50_000).map(|number| format!("<p><b a{number}>x")).collect();
    let rules: String = (0..200).map(|number| format!("<i class='a{number} b{number}'>")).collect();
    vec![
        ("deep nesting", repeated("", "<div>a")),
        ("deep lists", repeated("", "<ul><li>a")),
        ("deep tables", repeated("", "<table><tr><td>")),
        ("deep links", repeated("", "<a href=x><b>")),
        ("lines in deep quotes", repeated(&"<blockquote>".repeat(250), "<p>x")),
        ("many attributes on one tag", format!("<p{attributes}>x")),
        (
            "many attributes on every tag",
            repeated("", "<p a b c d e f g h i j k l m n o p q r s t u v w x y z>x"),
        ),
        ("marks that come again in every paragraph", numbered),
        ("tags that never close", repeated("", "<p><font><b>x</p>")),
        ("a tag that never ends", repeated("<p ", "a='b' ")),
        ("a giant table", repeated("<table>", "<tr><td>x<td>y")),
        ("a wide table", repeated("<table><tr>", "<td>x")),
        ("wide spans", repeated("<table>", "<tr><td colspan=9999 rowspan=9999>x")),
        ("text where none may be", repeated("<table>", "<tr>x<p>y")),
        ("entities", repeated("", "&notanentity;&amp;&#0;&#xffffffff;&lt")),
        (
            "a long base",
            repeated("<base href='https://example.com/", "x").split_off(SIZE / 2)
                + &repeated("'>", "<a href=x>y</a>"),
        ),
        ("headers in headers", repeated("", "<header><div class=x>a</div>")),
        ("ends of what never began", repeated("", "</div></p></b></table>")),
        ("names of every kind", repeated("", &rules)),
        ("one word", repeated("<p>", "x")),
        (
            "a feed of many entries",
            repeated("<?xml version='1.0'?><rss><channel>", "<item><title>x</title></item>"),
        ),
        (
            "a feed of deep marks",
            repeated("<?xml version='1.0'?><rss><channel><item><description>", "&lt;div&gt;"),
        ),
    ]
}

#[test]
fn hostile_pages_end_in_an_answer() {
    // Two guests at a time, and all pages.
    run_alone(256, async {
        let pages = pages();
        let server = {
            let pages: Vec<String> = pages.iter().map(|(_, page)| page.clone()).collect();
            Server::plain(move |asked, wire| {
                let number: usize =
                    asked.path().trim_start_matches('/').parse().map_err(std::io::Error::other)?;
                page(wire, "", pages[number].as_bytes())
            })
        };
        let web = Web::new(&[&server], &[]).await;
        for (number, (name, _)) in pages.iter().enumerate() {
            let url = format!("http://{}/{number}", server.address);
            let select = json!({ "all": "*", "some": "b, p :not(.a1)" });
            for (tool, arguments) in [
                ("fetch", json!({ "url": url })),
                (
                    "web_scrape",
                    json!({ "url": url, "select": select, "extract": "html", "limit": 1000 }),
                ),
            ] {
                let answer = web.call(tool, arguments).await;
                let output =
                    answer.outcome.unwrap_or_else(|failure| panic!("{name}, {tool}: {failure:?}"));
                assert!(output.joined_text().len() <= SIZE, "{name}, {tool}");
            }
        }
    });
}
