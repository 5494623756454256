//! Tests of parts that the main text of a page must keep.

use super::*;

const WORDS: &str = "Some words of the article, which go on for a while, as they do, until they have said what there is to say.";

fn read(html: &str) -> String {
    markdown(html, &Url::parse("https://example.com/a").unwrap()).text
}

/// Names of parts of a text that are also usual names of noise.
const SUBJECTS: [&str; 14] = [
    "search",
    "actions",
    "reference",
    "pagination",
    "tools",
    "copyright",
    "print",
    "metadata",
    "related-work",
    "footer-styles",
    "navigation-api",
    "http-cookies",
    "social-contract",
    "subscribe",
];

#[test]
fn links_in_the_text_are_kept_despite_their_class() {
    let links = "<p><a class='reference external' href=/404>PEP 404</a> states it, see <a class='reference internal' href=/s><span \
        class='std std-ref print'>the rules</span></a><sup class=reference><a href=#1>[1]</a></sup>.</p>";
    for page in [
        format!("<main><h1>T</h1>{links}<p>{WORDS}</p></main>"),
        format!("<h1>T</h1><div>{links}<p>{WORDS}</p></div>"),
    ] {
        assert!(
            read(&page).contains("[PEP 404](https://example.com/404) states it, see [the rules](https://example.com/s).\n"),
            "{}",
            read(&page)
        );
    }
}

#[test]
fn sections_are_kept_despite_their_id() {
    let sections: String = SUBJECTS
        .map(|id| format!("<section id={id}><h2>About {id}</h2><p>{WORDS}</p></section>"))
        .concat();
    let divs: String = SUBJECTS
        .map(|id| format!("<div class=section id={id}><h2>About {id}</h2><p>{WORDS}</p></div>"))
        .concat();
    let flat: String =
        SUBJECTS.map(|id| format!("<h2 id={id} class={id}>About {id}</h2><p>{WORDS}</p>")).concat();
    for parts in [sections, divs, flat] {
        for page in [
            format!("<main><h1>T</h1>{parts}</main>"),
            format!("<h1>T</h1>{parts}"),
            format!("<h1>T</h1><div>{parts}</div>"),
        ] {
            let text = read(&page);
            for id in SUBJECTS {
                assert!(text.contains(&format!("## About {id}\n\n{WORDS}")), "{id}: {text}");
            }
        }
    }
}

#[test]
fn long_section_does_not_replace_its_siblings() {
    let long = format!("<h2>Long</h2>{}", format!("<p>{WORDS}</p>").repeat(40));
    let short = format!("<h2>Short</h2><p>{WORDS}</p>");
    for parts in [
        format!("<section id=long>{long}</section><section id=short>{short}</section>"),
        format!("<div class=section id=long>{long}</div><div class=section id=short>{short}</div>"),
        format!("<div class=intro>{long}</div>{short}"),
    ] {
        for page in [
            format!("<main><h1>T</h1>{parts}</main>"),
            format!("<h1>T</h1>{parts}"),
            format!("<h1>T</h1><article><div>{parts}</div></article>"),
        ] {
            let text = read(&page);
            assert!(
                text.contains("## Long") && text.ends_with(&format!("## Short\n\n{WORDS}\n")),
                "{page}: {text}"
            );
        }
    }
}

#[test]
fn text_does_not_become_a_link() {
    let said = |html: &str| {
        read(&format!("<h1>T</h1><p>{html}</p>"))
            .strip_prefix("# T\n\n")
            .unwrap()
            .trim_end()
            .to_owned()
    };
    assert_eq!(said("[a](b) [x](javascript:y) [z]: w"), r"[a]\(b) [x]\(javascript:y) [z]\: w");
    assert_eq!(
        said("[a]<span>(b)</span> [a]<rt>b</rt> [1]<span>:</span>"),
        r"[a]\(b) [a]\(b) [1]\:"
    );
    assert_eq!(
        said(r"<a href=/x>y](https://evil.org) [z\](a</a>"),
        r"[y\]\(https://evil.org) \[z\\\]\(a](https://example.com/x)"
    );
    assert_eq!(
        said("<a href=/x><img alt='y](b) ['></a> <img alt='y](b)'>"),
        r"[y\]\(b) \[](https://example.com/x) [image: y]\(b)]"
    );
    assert_eq!(
        said("&lt;a href=b> &lt;A/href=b> Vec&lt;a> [1] a[0] (b)"),
        r"\<a href=b> \<A/href=b> Vec<a> [1] a[0] (b)"
    );
    assert_eq!(read("<title>[a](b)</title><p>c"), "# [a]\\(b)\n\nc\n");
}

#[test]
fn titles_of_feeds_do_not_become_links() {
    let feed = |item: &str| {
        feed(
            &format!("<rss><item>{item}</item></rss>"),
            &Url::parse("https://example.com/").unwrap(),
        )
        .unwrap()
        .text
    };
    assert_eq!(
        feed("<title>a](b) [c</title><link>/x</link>"),
        "## [a\\](b) \\[c](https://example.com/x)\n\n"
    );
    assert_eq!(feed("<title>[a](b)</title>"), "## [a]\\(b)\n\n");
}
