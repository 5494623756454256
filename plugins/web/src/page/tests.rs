//! Tests of pages as Markdown: what is kept, what is left out, and the main text.

use super::*;

/// Renders `html` in an article, since a page of a few words has no main text.
#[track_caller]
fn check(html: &str, expected: &str) {
    let base = Url::parse("https://example.com/a/b?c#d").unwrap();
    let page = markdown(&format!("<title>T</title><body><h1>T</h1>{html}"), &base);
    assert_eq!(
        page.text.strip_prefix("# T\n").unwrap_or(&page.text).trim_matches('\n'),
        expected,
        "{html}"
    );
}

#[test]
fn texts_and_marks_are_kept() {
    check("<p>One  \n two</p><p>three<br>four</p>", "One two\n\nthree\nfour");
    check("a<b> b </b>c <i>d</i><b></b><em> </em>e", "a **b** c *d* e");
    check("<b>a<strong>b</strong></b> <b><p>c</p></b>", "**ab**\n\nc");
    check("10<sup>-6</sup> m, 1<sup>st</sup>, H<sub>2</sub>O", "10^-6 m, 1st, H2O");
    check(
        "<del>a</del> <q>b</q> <ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby>",
        "~~a~~ “b” 漢(かん)",
    );
    check("a&shy;b&nbsp;c &amp; d", "ab c & d");
    check("<h2>A <a href=#x>¶</a></h2><h3></h3>b", "## A\n\nb");
    check("a<hr>b", "a\n\n---\n\nb");
    check("<img alt='a  chart' src=x.png><img src=y.png>", "[image: a chart]");
    check("<math alttext='x^2'><mi>x</mi></math>", "$x^2$");
}

#[test]
fn links_are_absolute() {
    check("see<a href='../x?y=1#z'> this </a>too", "see [this](https://example.com/x?y=1#z) too");
    check("<a href='https://other.org/(a)'>b</a>", "[b](https://other.org/%28a%29)");
    check(
        "<a href='#d'>a</a> <a href='javascript:x()'>b</a> <a name=c>c</a> <a href='data:text/plain,x'>d</a>",
        "a b c d",
    );
    check(
        "<a href=/x><div><h2>Title</h2><p>Words</p></div></a>",
        "[Title Words](https://example.com/x)",
    );
    check("<a href=https://example.com/x>https://example.com/x</a>", "<https://example.com/x>");
    check("<a href=/x><img alt=logo src=l></a><a href=/y></a>", "[logo](https://example.com/x)");
    check("<p><a href=/x><code>f()</code></a>", "[`f()`](https://example.com/x)");
}

#[test]
fn lists_nest() {
    check("<ul><li>a<li>b<ul><li>c<li>d</ul><li>e</ul>f", "- a\n- b\n  - c\n  - d\n- e\n\nf");
    check("<ol start=9><li>a<li><p>b</p><p>c</p></ol>", "9. a\n10. b\n\n    c");
    check("<ul><li><input type=checkbox checked> done</ul>", "- [x] done");
    check("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "- a\n  b\n- c\n  d");
    check("<blockquote><p>a</p><p>b</p><ul><li>c</ul></blockquote>d", "> a\n>\n> b\n>\n> - c\n\nd");
}

#[test]
fn code_keeps_its_lines_and_language() {
    check(
        "<pre><code class='language-rust hljs'>fn a() {\n\n    b(\"```\");\n}\n</code></pre>",
        "````rust\nfn a() {\n\n    b(\"```\");\n}\n````",
    );
    check(
        "<div class='highlight-python notranslate'><div class=highlight><pre>x = 1</pre></div></div>",
        "```python\nx = 1\n```",
    );
    check("<pre data-lang=c>a<br>b</pre>", "```c\na\nb\n```");
    check("<ul><li>a<pre>b\nc</pre></ul>", "- a\n\n  ```\n  b\n  c\n  ```");
    check("use <code>a `b`</code>", "use `` a `b` ``");
    check("<pre> \n</pre>a", "a");
}

#[test]
fn data_tables_stay_tables() {
    check(
        "<table><caption>N</caption><tr><th>a<th>b|c</tr><tr><td>1<br>2<td><a href=/x>3</a></tr><tr><td colspan=2>4</table>",
        "N\n\n| a | b\\|c |\n| --- | --- |\n| 1 2 | [3](https://example.com/x) |\n| 4 |  |",
    );
    check("<table><tr><td rowspan=2>a<td>b<tr><td>c</table>", "| a | b |\n| --- | --- |\n|  | c |");
    check("<table><tr><td><p>a</p><td><p>b</p></table>", "a\n\nb");
    check("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>", "a\nb\nc\nd");
}

#[test]
fn table_with_too_many_cells_is_cut() {
    let base = Url::parse("https://example.com/").unwrap();
    let table = |rows| format!("<table>{}</table>", "<tr><td>x<td>y".repeat(rows));
    assert!(!markdown(&table(9_000), &base).cut);
    assert!(markdown(&table(11_000), &base).cut);
}

#[test]
fn invisible_elements_are_left_out() {
    check(
        "<script>a</script><style>b</style><noscript>c</noscript><template>d</template><p hidden>e</p>f",
        "f",
    );
    check(
        "<p style='color:red; DISPLAY : none'>a</p><p aria-hidden=true>b</p><svg><text>c</text></svg><button>d</button>e",
        "e",
    );
    check("<!-- a --><iframe>b</iframe><select><option>c</select><textarea>d</textarea>e", "e");
}

#[test]
fn main_text_is_found() {
    let paragraph =
        "<p>Some words of the article, which go on for a while, as they do.</p>".repeat(8);
    let text = ["Some words of the article, which go on for a while, as they do."; 8].join("\n\n");
    let menu = "<ul><li><a href=/1>Home</a><li><a href=/2>World news</a><li><a href=/3>Sports news</a><li><a href=/4>About</a></ul>";
    let cookies = "<div class='cookie-banner'>We use cookies to make this page better for you. <a href=/c>Accept</a></div>";
    for page in [
        format!("<nav>{menu}</nav><main>{paragraph}</main><footer>© Somebody</footer>"),
        format!(
            "{cookies}<div>{menu}</div><div><div>{paragraph}</div></div><div class=sidebar>More words beside it, for no good.</div>"
        ),
        format!(
            "<header><div>{menu}</div></header><article>{paragraph}</article><aside>Read this as well, it is better.</aside>{cookies}"
        ),
        format!("<table><tr><td>{menu}<td>{paragraph}</table>"),
    ] {
        check(&page, &text);
    }
    // A page that is only a list of links is kept.
    check(
        menu,
        "- [Home](https://example.com/1)\n- [World news](https://example.com/2)\n- [Sports news](https://example.com/3)\n- [About](https://example.com/4)",
    );
}

#[test]
fn page_gets_a_title() {
    let base = Url::parse("https://example.com/").unwrap();
    assert_eq!(markdown("<title> The\n title </title><p>a", &base).text, "# The title\n\na\n");
    assert_eq!(
        markdown("<meta property=og:title content=Og><title>T</title><p>a", &base).text,
        "# Og\n\na\n"
    );
    assert_eq!(markdown("<title>T</title><h1>H</h1><p>a", &base).text, "# H\n\na\n");
    assert_eq!(markdown("", &base).text, "");
}

/// A page that starts with `beginning` and repeats `part`. It is deep and wide enough to reach each
/// bound except size and time. End-to-end tests reach those in the sandbox.
fn hostile(beginning: &str, part: &str) -> String {
    let mut page = beginning.to_owned();
    while page.len() < 1 << 13 {
        page.push_str(part);
    }
    page
}

/// These pages are made to take much time or memory. None may stop the tool, and the size of each
/// answer is bounded.
#[test]
fn hostile_pages_are_read() {
    let base = Url::parse("https://example.com/").unwrap();
    let mut numbered = String::from("<b a0>");
    for number in 0..500 {
        numbered.push_str(&format!("<p><b a{number}>x"));
    }
    let mut attributes = String::from("<p ");
    for number in 0..1_000 {
        attributes.push_str(&format!("a{number} "));
    }
    attributes.push('>');
    for (name, page) in [
        ("deep", hostile("", "<div>")),
        ("deep with text", hostile("", "<div>a")),
        ("deep quotes", hostile("", "<blockquote><p>a")),
        ("deep lists", hostile("", "<ul><li>a")),
        ("deep tables", hostile("", "<table><tr><td>")),
        ("deep links", hostile("", "<a href=x><b>")),
        ("deep marks", hostile("", "<b><i>x")),
        ("deep svg", hostile("<svg>", "<g>")),
        ("lines in deep quotes", hostile(&"<blockquote>".repeat(250), "<p>x")),
        ("new marks in every paragraph", numbered),
        ("one tag of many attributes", attributes),
        (
            "many attributes",
            hostile("", "<p a b c d e f g h i j k l m n o p q r s t u v w x y z>x"),
        ),
        ("unclosed", hostile("", "<p><font><b>x</p>")),
        ("one tag that never ends", hostile("<p ", "a='b' ")),
        ("one comment", hostile("<!--", "<p>")),
        ("one script", hostile("<script>", "</scrip")),
        ("a wide table", hostile("<table><tr>", "<td>x")),
        ("a long table", hostile("<table>", "<tr><td>x<td>y")),
        ("wide spans", hostile("<table>", "<tr><td colspan=9999 rowspan=9999>x")),
        ("outside of a table", hostile("<table>", "<tr>x<p>y")),
        ("entities", hostile("", "&notanentity;&amp;&#0;&#xffffffff;&lt")),
        ("zeros", hostile("", "\0<p\0>\0")),
        (
            "a long base",
            hostile("<base href='https://example.com/", "x")
                + "'>"
                + &"<a href=x>y</a>".repeat(1_000),
        ),
        ("ends of what never began", hostile("", "</div></p></b></table>")),
        ("headers", hostile("", "<header><div class=x>a</div>")),
        ("ticks", hostile("<pre>", "`")),
        ("no spaces", hostile("<p>", "x")),
        ("spaces", hostile("<p>", " \n\t")),
        ("marks that are never closed", hostile("", "<q>x<rt>")),
        ("select", hostile("<select>", "<option>x")),
        ("templates", hostile("", "<template><p>x")),
    ] {
        let page = markdown(&page, &base);
        assert!(page.text.len() <= 5 << 20, "{name}: {}", page.text.len());
    }
}
