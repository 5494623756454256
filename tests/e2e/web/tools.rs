//! What the tools make of responses.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use toolhold_core::{Body, Category, Request};

use super::{Web, hello, page, texts};
use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{failure, run};

/// `<title>Packed</title><p>Packed and unpacked again.</p>` in gzip.
const PACKED: &str =
    "H4sIAAAAAAAC/7MpySzJSbULSEzOTk2x0YfwbAqgAgqJeSkKpXkFUE56Ymaeno1+gR0AVSjsdDYAAAA=";

/// A page without content, with the usual parts around it.
const PAGE: &str = "<!doctype html><html><head><title>Site</title></head><body><nav><a href='/'>Home</a> <a href='/all'>All</a></nav>\
    <main><h1>Anchors</h1><p>An anchor holds a ship, and <a href='../chain'>a chain</a> holds the anchor. It has held for a while now.</p>\
    <table><tr><th>Kind<th>Weight<tr><td>Stockless<td>9 t</table><pre><code class='language-sh'>drop --all</code></pre></main>\
    <footer>© Nobody</footer></body></html>";

fn site(asked: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    match asked.path() {
        "/a/page" => page(wire, "text/html; charset=utf-8", PAGE.as_bytes()),
        "/text" => page(wire, "text/plain", b"0123456789"),
        "/json" => page(wire, "application/json", br#"{"a": [1, 2]}"#),
        "/file.pdf" => page(wire, "application/pdf", b"%PDF-1.7 and more"),
        "/cyrillic" => {
            page(wire, "text/html; charset=windows-1251", b"<h1>\xcc\xe8\xf0</h1><p>text")
        }
        "/japanese" => {
            page(wire, "text/html", b"<meta charset=shift_jis><h1>\x93\xfa\x96{</h1><p>text")
        }
        "/marked" => page(wire, "text/plain; charset=iso-8859-1", b"\xef\xbb\xbf\xc3\xa9t\xc3\xa9"),
        "/unsaid" => page(wire, "text/plain", b"caf\xe9"),
        "/feed" => page(
            wire,
            "application/rss+xml",
            b"<rss><channel><title>News</title><item><title>One</title></item></channel></rss>",
        ),
        "/packed" => {
            let body = BASE64_STANDARD.decode(PACKED).expect("it is base64");
            answer(
                wire,
                "200 OK",
                &[("content-type", "text/html"), ("content-encoding", "gzip")],
                &body,
            )
        }
        "/long" => page(wire, "text/plain", &[b'x'; 10_000]),
        "/empty" => page(wire, "text/html", b"<script>draw()</script>"),
        "/first" => answer(wire, "301 Moved", &[("location", "/second?x=1")], b"gone"),
        "/second?x=1" => answer(wire, "307 Elsewhere", &[("location", "text")], b""),
        "/fourth" => answer(wire, "302 Found", &[("location", "/third")], b""),
        "/third" => answer(wire, "302 Found", &[("location", "/first")], b""),
        "/form" => answer(wire, "303 See Other", &[("location", "/text")], b""),
        "/400" => answer(wire, "400 Bad Request", &[], b""),
        "/422" => answer(wire, "422 Unprocessable Content", &[], b""),
        "/401" => answer(wire, "401 Unauthorized", &[], b""),
        "/403" => answer(wire, "403 Forbidden", &[], b""),
        "/429" => answer(wire, "429 Too Many Requests", &[("retry-after", "7")], b""),
        "/500" => answer(wire, "500 Broken", &[], b""),
        "/503" => answer(wire, "503 Busy", &[("retry-after", "9")], b""),
        _ => answer(wire, "404 Not Found", &[("content-type", "text/html")], b"<h1>Not here</h1>"),
    }
}

#[test]
fn fetch_reads_each_content_type() {
    run(async {
        let server = Server::plain(site);
        let (web, at) = (Web::new(&[&server], &[]).await, format!("http://{}", server.address));
        let told = web.fetch(format!("{at}/a/page")).await;
        let expected = format!(
            "# Anchors\n\nAn anchor holds a ship, and [a chain]({at}/chain) holds the anchor. It has held for a while now.\n\n\
             | Kind | Weight |\n| --- | --- |\n| Stockless | 9 t |\n\n```sh\ndrop --all\n```\n"
        );
        assert_eq!(told, [expected]);
        for (path, expected) in [
            ("/text", "0123456789"),
            ("/json", r#"{"a": [1, 2]}"#),
            (
                "/file.pdf",
                "A file of type application/pdf, 17 bytes, named \"file.pdf\". It is not text, so it was not read.\n",
            ),
            ("/cyrillic", "# Мир\n\ntext\n"),
            ("/japanese", "# 日本\n\ntext\n"),
            ("/marked", "été"),
            ("/unsaid", "café"),
            ("/packed", "# Packed\n\nPacked and unpacked again.\n"),
        ] {
            assert_eq!(web.fetch(format!("{at}{path}")).await, [expected], "{path}");
        }
        assert!(web.fetch(format!("{at}/feed")).await.concat().contains("One"));
        assert!(web.fetch(format!("{at}/empty")).await[0].contains("Scripts may create it"));
        let raw = web.call("fetch", json!({ "url": format!("{at}/a/page"), "raw": true })).await;
        assert_eq!(texts(&raw), [PAGE]);
        let asked = server.asked();
        assert!(
            asked.iter().all(|asked| asked.header("accept-encoding") == Some("gzip, br, zstd")),
            "{asked:?}"
        );
        assert!(
            asked.iter().all(|asked| asked
                .header("user-agent")
                .is_some_and(|agent| agent.starts_with("toolhold/"))),
            "{asked:?}"
        );
    });
}

#[test]
fn fetch_continues_at_start_index_and_reports_the_cut() {
    run(async {
        let server = Server::plain(site);
        let (web, at) = (
            Web::new(&[&server], &["tools.web.max_body_kib=4"]).await,
            format!("http://{}", server.address),
        );
        let first = texts(
            &web.call("fetch", json!({ "url": format!("{at}/text"), "max_length": 4 })).await,
        );
        assert_eq!(first, ["Characters 0 to 4 of 10.\nContinue with start_index 4.", "0123"]);
        let next = texts(
            &web.call(
                "fetch",
                json!({ "url": format!("{at}/text"), "max_length": 9, "start_index": 4 }),
            )
            .await,
        );
        assert_eq!(next, ["Characters 4 to 10 of 10.", "456789"]);
        let beyond =
            web.call("fetch", json!({ "url": format!("{at}/text"), "start_index": 10 })).await;
        failure(&beyond, Category::InvalidParameters, None);
        let cut = web.fetch(format!("{at}/long")).await;
        assert_eq!(
            cut,
            ["The page is too long: only its first 4.0 KiB were read.", &"x".repeat(4096)]
        );
        let cut = web
            .call("http_request", json!({ "url": format!("{at}/long") }))
            .await
            .outcome
            .expect("it is answered");
        let structured = cut.structured.expect("it is structured");
        assert_eq!(
            (&structured["truncated"], structured["body"].as_str().map(str::len)),
            (&json!(true), Some(4096))
        );
    });
}

#[test]
fn three_redirects_are_followed_and_the_last_url_is_shown() {
    run(async {
        let server = Server::plain(site);
        let (web, at) = (
            Web::new(&[&server], &["tools.autonomy=full"]).await,
            format!("http://{}", server.address),
        );
        assert_eq!(
            web.fetch(format!("{at}/first")).await,
            [format!("URL: {at}/text"), "0123456789".to_owned()]
        );
        assert_eq!(web.fetch(format!("{at}/third")).await.len(), 2);
        let before = server.asked().len();
        let fourth = web.call("fetch", json!({ "url": format!("{at}/fourth") })).await;
        let told = failure(&fourth, Category::PermanentFailure, Some("redirect"));
        assert!(
            told.message.contains("more than 3 redirects") && told.message.contains("/text"),
            "{told:?}"
        );
        assert_eq!(server.asked().len() - before, 4);

        let sent = json!({ "url": format!("{at}/form"), "method": "POST", "json": { "a": 1 } });
        let answered = web.call("http_request", sent).await.outcome.expect("it is answered");
        assert_eq!(
            answered.structured.expect("it is structured")["url"],
            json!(format!("{at}/text"))
        );
        let last = server.asked().pop().expect("it was asked");
        assert!(
            last.head.starts_with("GET /text ")
                && last.body.is_empty()
                && last.header("content-type").is_none(),
            "{last:?}"
        );
    });
}

#[test]
fn origin_s_headers_go_to_no_other_origin() {
    run(async {
        let other = Server::plain(hello);
        let to = format!("http://{}/", other.address);
        let first =
            Server::plain(move |_, wire| answer(wire, "307 Elsewhere", &[("location", &to)], b""));
        let web = Web::new(&[&first, &other], &["tools.autonomy=full"]).await;
        let headers = json!({ "Authorization": "Basic eA==", "Cookie": "a=b", "X-Mine": "yes" });
        let at = format!("http://{}/", first.address);
        let sent = json!({ "url": at, "headers": headers });
        web.call("http_request", sent).await.outcome.expect("it is answered");
        let of = |asked: &Asked| {
            ["authorization", "cookie", "x-mine"].map(|name| asked.header(name).map(str::to_owned))
        };
        assert_eq!(
            of(&first.asked()[0]),
            [Some("Basic eA==".to_owned()), Some("a=b".to_owned()), Some("yes".to_owned())]
        );
        assert_eq!(of(&other.asked()[0]), [None, None, None]);
        let put =
            web.call("http_request", json!({ "url": at, "method": "PUT", "body": "x" })).await;
        failure(&put, Category::PermanentFailure, Some("redirect"));
        assert_eq!(other.asked().len(), 1);
    });
}

const SHOP: &str = "<ul><li class=product><h2>One</h2><b class=price>1 €</b><a href=/1>more</a>\
    <li class=product><h2> Two <i>and</i>\n half</h2><a href='https://other.example/2'>more</a><li class=product><h2>Three</h2></ul>";

#[test]
fn web_scrape_takes_values_out_of_a_page() {
    run(async {
        let server = Server::plain(|_, wire| page(wire, "text/html", SHOP.as_bytes()));
        let (web, at) = (Web::new(&[&server], &[]).await, format!("http://{}", server.address));
        let scraped = async |mut arguments: Value| {
            arguments["url"] = json!(format!("{at}/list"));
            let output = web.call("web_scrape", arguments).await.outcome.expect("it is answered");
            let structured = output.structured.clone().expect("it is structured");
            assert_eq!(
                serde_json::from_str::<Value>(&output.joined_text()).ok().as_ref(),
                Some(&structured)
            );
            assert_eq!(structured["url"], json!(format!("{at}/list")));
            (
                structured["results"].clone(),
                structured["total"].clone(),
                structured["truncated"].clone(),
            )
        };
        let whole = |results: Value, total: u32| (results, json!(total), json!(false));
        assert_eq!(
            scraped(json!({ "select": "li > h2" })).await,
            whole(json!(["One", "Two and half", "Three"]), 3)
        );
        assert_eq!(
            scraped(json!({ "select": "h2", "limit": 1 })).await,
            (json!(["One"]), json!(3), json!(true))
        );
        assert_eq!(
            scraped(json!({ "select": "h2 i", "extract": "html" })).await,
            whole(json!(["<i>and</i>"]), 1)
        );
        let links = json!([format!("{at}/1"), "https://other.example/2"]);
        assert_eq!(
            scraped(json!({ "select": "a", "extract": "attr:href" })).await,
            whole(links.clone(), 2)
        );
        let fields = json!({ "name": "h2", "link": { "select": "a", "extract": "attr:href" } });
        let named = scraped(json!({ "select": fields })).await;
        assert_eq!(
            named,
            whole(json!({ "link": links, "name": ["One", "Two and half", "Three"] }), 5)
        );
        let items = scraped(json!({ "items": "li.product", "select": { "name": "h2", "price": ".price" }, "limit": 2 })).await;
        let rows =
            json!([{ "name": "One", "price": "1 €" }, { "name": "Two and half", "price": null }]);
        assert_eq!(items, (rows, json!(3), json!(true)));

        let asked = server.asked().len();
        for (arguments, words) in [
            (json!({ "select": "li >" }), "li >"),
            (json!({ "select": "//li" }), "//li"),
            (json!({ "select": "h2", "items": "li" }), "`items` needs named fields"),
            (json!({ "select": {} }), "0 fields"),
        ] {
            let arguments =
                json!({ "url": at, "select": arguments["select"], "items": arguments["items"] });
            let arguments: Value = arguments
                .as_object()
                .expect("it is one")
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let told = web.call("web_scrape", arguments).await;
            let told = failure(&told, Category::InvalidParameters, None);
            assert!(told.message.contains(words), "{told:?}");
        }
        assert_eq!(server.asked().len(), asked, "nobody is asked for what makes no sense");
        let missed = web.call("web_scrape", json!({ "url": at, "select": ".prize" })).await;
        let told = failure(&missed, Category::InvalidParameters, Some("no-match"));
        assert!(
            told.message.contains(".prize")
                && told.content[0].as_text().is_some_and(|names| names.contains("price")),
            "{told:?}"
        );
    });
}

#[test]
fn http_request_sends_its_arguments_and_returns_the_response() {
    run(async {
        let server = Server::plain(|asked, wire| match asked.path() {
            "/picture" => page(wire, "image/png", b"\x89PNG\0"),
            "/gone" => answer(
                wire,
                "404 Not Found",
                &[("content-type", "application/json")],
                b"{\"error\": 1}",
            ),
            _ => {
                let secrets = [
                    ("Set-Cookie", "id=hidden-1"),
                    ("X-Auth-Token", "hidden-2"),
                    ("X-Seen", "a"),
                    ("X-Seen", "b"),
                ];
                answer(
                    wire,
                    "200 OK",
                    &secrets,
                    if asked.head.starts_with("HEAD ") { b"" } else { b"done" },
                )
            }
        });
        let (web, at) = (
            Web::new(&[&server], &["tools.autonomy=full"]).await,
            format!("http://{}", server.address),
        );
        let sent = async |mut arguments: Value| {
            if arguments["url"].is_null() {
                arguments["url"] = json!(at);
            }
            let output = web.call("http_request", arguments).await.outcome.expect("it is answered");
            (
                output.structured.clone().expect("it is structured"),
                output,
                server.asked().pop().expect("it was asked"),
            )
        };
        for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
            let (told, _, asked) = sent(json!({ "method": method })).await;
            assert!(asked.head.starts_with(&format!("{method} / HTTP/1.1\r\n")), "{asked:?}");
            assert_eq!(told["status"], 200);
        }
        let (told, output, asked) =
            sent(json!({ "method": "POST", "json": { "a": [1] }, "headers": { "X-Trace": "7" } }))
                .await;
        assert_eq!(
            (asked.header("content-type"), asked.header("x-trace")),
            (Some("application/json"), Some("7"))
        );
        assert_eq!(asked.body, b"{\"a\":[1]}");
        assert_eq!(told["headers"]["set-cookie"], "[redacted]");
        assert_eq!((&told["headers"]["x-seen"], &told["body"]), (&json!("a, b"), &json!("done")));
        assert!(!format!("{output:?}").contains("hidden"), "{output:?}");
        let (_, _, asked) = sent(
            json!({ "method": "PUT", "body": "a=b", "headers": { "content-type": "text/x" } }),
        )
        .await;
        assert_eq!(
            (asked.body.as_slice(), asked.header("content-type")),
            (&b"a=b"[..], Some("text/x"))
        );
        let (told, ..) = sent(json!({ "url": format!("{at}/gone") })).await;
        assert_eq!((&told["status"], &told["body"]), (&json!(404), &json!("{\"error\": 1}")));
        let (told, output, _) = sent(json!({ "url": format!("{at}/picture") })).await;
        assert_eq!(
            (&told["body"], output.content[1].media_type.as_deref()),
            (&Value::Null, Some("image/png"))
        );
        assert_eq!(output.content[1].body, Body::Bytes(b"\x89PNG\0".to_vec()));
        // Headers of the connection are the host's.
        let headers = json!({ "Host": "other.example", "Accept-Encoding": "identity", "Content-Length": "3" });
        let asked = web.call("http_request", json!({ "url": at, "headers": headers })).await;
        drop(asked);
        let asked = server.asked().pop().expect("it was asked");
        assert_eq!(asked.header("host"), Some(&*server.address.to_string()));
    });
}

#[test]
fn failing_status_says_whether_a_retry_helps() {
    run(async {
        let server = Server::plain(site);
        let (web, at) = (Web::new(&[&server], &[]).await, format!("http://{}", server.address));
        for (status, category, wait) in [
            (400, Category::InvalidParameters, None),
            (401, Category::PermanentFailure, None),
            (403, Category::PermanentFailure, None),
            (404, Category::PermanentFailure, None),
            (429, Category::RateLimited, Some(7)),
            (500, Category::ServerError, None),
            (503, Category::ServerError, Some(9)),
        ] {
            for (tool, select) in [("fetch", None), ("web_scrape", Some("p"))] {
                let mut arguments = json!({ "url": format!("{at}/{status}") });
                if let Some(select) = select {
                    arguments["select"] = json!(select);
                }
                let told = web.call(tool, arguments).await;
                let told = failure(&told, category, Some(&format!("http-{status}")));
                assert_eq!(told.retry_after.map(|time| time.as_secs()), wait, "{status}");
                assert!(told.message.contains(&format!("status {status}")), "{told:?}");
            }
        }
    });
}

#[test]
fn error_body_is_fenced_content() {
    run(async {
        let server = Server::plain(site);
        let web = Web::new(&[&server], &[]).await;
        let arguments = json!({ "url": format!("http://{}/nowhere", server.address) });
        let told = web.call("fetch", arguments.clone()).await;
        let parts = &failure(&told, Category::PermanentFailure, Some("http-404")).content;
        assert_eq!(
            parts.iter().map(|part| part.as_text()).collect::<Vec<_>>(),
            [Some("# Not here")]
        );
        let told = web.host.call(Request::new("fetch", arguments)).await;
        let text = failure(&told, Category::PermanentFailure, Some("http-404")).content[0]
            .as_text()
            .expect("it is a text");
        assert!(
            text.starts_with("<external-data tool=\"fetch\" key=\"") && text.contains("# Not here"),
            "{text}"
        );
    });
}

#[test]
fn busy_server_is_retried_at_its_time_unless_the_call_acts() {
    run(async {
        let count = AtomicUsize::new(0);
        let server = Server::plain(move |_, wire| match count.fetch_add(1, Ordering::SeqCst) {
            0 => answer(wire, "503 Busy", &[("retry-after", "1")], b""),
            1 => page(wire, "text/plain", b"at last"),
            _ => answer(wire, "500 Broken", &[], b""),
        });
        let retries =
            ["tools.retry.max_attempts=1", "tools.retry.base_ms=1", "tools.autonomy=full"];
        let (web, url) =
            (Web::new(&[&server], &retries).await, format!("http://{}/", server.address));
        let began = std::time::Instant::now();
        assert_eq!(web.fetch(url.as_str()).await, ["at last"]);
        assert!(
            began.elapsed() >= std::time::Duration::from_secs(1),
            "it is left alone for as long as it wants"
        );
        assert_eq!(server.asked().len(), 2);
        assert!(web.call("fetch", json!({ "url": url })).await.outcome.is_err());
        assert_eq!(server.asked().len(), 4);
        // Its status is an answer, and an acting request is made once.
        web.call("http_request", json!({ "url": url, "method": "POST" }))
            .await
            .outcome
            .expect("it is answered");
        assert_eq!(server.asked().len(), 5);
    });
}

#[test]
fn web_fetch_is_fetch_for_rules_and_records_and_thoughts_go_nowhere() {
    run(async {
        let server = Server::plain(site);
        let at = format!("http://{}", server.address);
        let web = Web::new(&[&server], &[]).await;
        let arguments =
            json!({ "url": format!("{at}/text"), "_tafc_think": "a-thought", "_tafc_think_2": 1 });
        assert_eq!(texts(&web.call("web_fetch", arguments).await), ["0123456789"]);
        let records = web.records();
        assert!(records.iter().any(|record| record["tool"] == "fetch"), "{records:?}");
        assert!(!format!("{records:?}").contains("a-thought"), "{records:?}");
        for path in ["400", "422"] {
            // `http_request` shows any response as it is.
            for tool in ["web_fetch", "web_scrape"] {
                let mut arguments = json!({ "url": format!("{at}/{path}") });
                if tool == "web_scrape" {
                    arguments["selector"] = json!("p");
                }
                let answer = web.call(tool, arguments).await;
                let refused = answer.outcome.expect_err("the server refuses it");
                assert_eq!(refused.category, Category::InvalidParameters, "{tool} {path}");
            }
        }
        let rule = "tools.permissions.fetch=[{ pattern = \"*\", action = \"deny\" }]";
        let web = Web::new(&[&server], &[rule]).await;
        let answer = web.call("web_fetch", json!({ "url": format!("{at}/text") })).await;
        let refused = answer.outcome.expect_err("the rule denies it");
        assert_eq!(refused.category, Category::PolicyBlocked);
    });
}
