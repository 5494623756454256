//! Tests of `web_scrape`: the values of selectors, and failures without a match.

use serde_json::json;
use toolhold_sdk::{Category, testing};

use super::*;
use crate::test_server::{TestServer, html};

const PAGE: &str = "<title>Shop</title><body><h1>All  <i>things</i></h1><script>no()</script>\
    <ul><li class='thing'><a href='/1'>One</a><span class=price>1 €</span></li>\
    <li class='thing'><a href='2?a=b'>Two</a></li></ul><p id=end>End<style>p{}</style>";

fn scrape(mut arguments: Value) -> Result<Value, Failure> {
    let server = TestServer::answer_once(&html(PAGE));
    arguments["url"] = format!("{}/a/", server.url).into();
    let output = testing::call::<WebScrape>(arguments)?;
    let structured = output.structured.unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(output.content[0].as_text().unwrap()).unwrap(),
        structured
    );
    let url = server.url;
    Ok(serde_json::from_str(&structured.to_string().replace(&url, "http://shop")).unwrap())
}

#[track_caller]
fn check(arguments: Value, results: Value, total: usize, truncated: bool) {
    let expected = json!({ "url": "http://shop/a/", "results": results, "total": total, "truncated": truncated });
    assert_eq!(scrape(arguments).unwrap(), expected);
}

#[test]
fn one_selector_gives_a_list_of_values() {
    check(json!({ "select": "h1" }), json!(["All things"]), 1, false);
    check(
        json!({ "select": "li a", "extract": "attr:href" }),
        json!(["http://shop/1", "http://shop/a/2?a=b"]),
        2,
        false,
    );
    check(
        json!({ "select": "li", "extract": "attr:class", "limit": 1 }),
        json!(["thing"]),
        2,
        true,
    );
    check(
        json!({ "select": ".price", "extract": "html" }),
        json!(["<span class=\"price\">1 €</span>"]),
        1,
        false,
    );
    check(json!({ "select": "#end" }), json!(["End"]), 1, false);
}

#[test]
fn named_fields_give_lists_and_items_give_objects() {
    let fields =
        json!({ "name": "a", "to": { "select": "a", "extract": "attr:href" }, "price": ".price" });
    let lists = json!({ "name": ["One", "Two"], "to": ["http://shop/1", "http://shop/a/2?a=b"], "price": ["1 €"] });
    check(json!({ "select": fields }), lists, 5, false);
    let rows = json!([{ "name": "One", "to": "http://shop/1", "price": "1 €" }, { "name": "Two", "to": "http://shop/a/2?a=b", "price": null }]);
    check(json!({ "select": fields, "items": "li.thing" }), rows, 2, false);
}

#[test]
fn failure_carries_the_text_of_the_server() {
    let server = TestServer::answer_once(
        b"HTTP/1.0 403 No\r\ncontent-type: text/html\r\n\r\n<p>Ask for a key first.",
    );
    let failure =
        testing::call::<WebScrape>(json!({ "url": server.url, "select": "p" })).unwrap_err();
    assert_eq!(
        (failure.code.as_deref(), failure.joined_text().as_str()),
        (Some("http-403"), "Ask for a key first.")
    );
}

#[test]
fn object_written_as_json_text_is_accepted() {
    let text =
        json!({ "name": "a", "price": { "select": ".price", "extract": "html" } }).to_string();
    let rows = json!([{ "name": "One", "price": "<span class=\"price\">1 €</span>" }, { "name": "Two", "price": null }]);
    check(json!({ "select": format!(" {text}"), "items": "li.thing" }), rows, 2, false);
    for (text, words) in
        [("{\"name\": 5}", "an object of named fields"), ("{name: a}", "key must be a string")]
    {
        let failure =
            testing::call::<WebScrape>(json!({ "url": "http://127.0.0.1:1/", "select": text }))
                .unwrap_err();
        assert_eq!(failure.category, Category::InvalidParameters);
        assert!(failure.message.contains(words), "{failure:?}");
    }
}

#[test]
fn missing_attribute_is_reported_with_existing_ones() {
    for arguments in [
        json!({ "select": "li, a", "extract": "attr:nope" }),
        json!({ "select": { "x": { "select": "li, a", "extract": "attr:nope" } } }),
        json!({ "select": { "x": { "select": "a", "extract": "attr:nope" } }, "items": "li" }),
    ] {
        let failure = scrape(arguments.clone()).unwrap_err();
        assert_eq!(
            (failure.category, failure.code.as_deref()),
            (Category::InvalidParameters, Some("no-attribute")),
            "{arguments}"
        );
        assert!(failure.message.contains("has the attribute `nope`"), "{failure:?}");
        let told: Value = serde_json::from_str(&failure.joined_text()).unwrap();
        let names = told["attributes"].as_object().unwrap().values().next().unwrap();
        assert!(names.as_array().unwrap().contains(&json!("href")), "{told}");
    }
    // If other fields have values, the missing attribute is a note.
    let server = TestServer::answer_once(&html(PAGE));
    let select = json!({ "name": "a", "to": { "select": "a", "extract": "attr:nope" }, "kind": { "select": "li, a", "extract": "attr:class" } });
    let output =
        testing::call::<WebScrape>(json!({ "url": server.url, "select": select })).unwrap();
    let structured = output.structured.unwrap();
    assert_eq!(
        structured["results"],
        json!({ "name": ["One", "Two"], "to": [], "kind": ["thing", "thing"] })
    );
    assert_eq!(structured["missing"], "no element that `a` selects has the attribute `nope`");
    let texts: Vec<&str> = output.content.iter().map(|part| part.as_text().unwrap()).collect();
    assert_eq!(texts[1..], ["{\"attributes\":{\"a\":[\"href\"]}}"]);
}

#[test]
fn selector_without_match_lists_names_on_the_page() {
    let failure = scrape(json!({ "select": "div.things > .prices" })).unwrap_err();
    assert_eq!(
        (failure.category, failure.code.as_deref()),
        (Category::InvalidParameters, Some("no-match"))
    );
    assert_eq!(failure.message, "nothing on the page matches `div.things > .prices`");
    let told: Value = serde_json::from_str(&failure.joined_text()).unwrap();
    assert_eq!((&told["classes"], &told["ids"]), (&json!(["thing", "price"]), &json!(["end"])));
    assert!(told["tags"].as_array().unwrap().contains(&json!("li")));
}

#[test]
fn invalid_selector_is_reported_with_its_position() {
    for (selector, place, advice) in [
        ("div[", "after `div`, at `[`", "CSS selector"),
        ("p:contains('x')", "after `p`, at `:contains('x')`", "can't search for words"),
        ("//div[@id]", "at its start", "XPath"),
        ("li:eq(0)", "after `li`, at `:eq(0)`", ":nth-of-type"),
        ("", "at its start", "CSS selector"),
    ] {
        let failure =
            testing::call::<WebScrape>(json!({ "url": "http://127.0.0.1:1/", "select": selector }))
                .unwrap_err();
        assert_eq!(failure.category, Category::InvalidParameters);
        assert_eq!(failure.message, format!("the selector `{selector}` isn't valid {place}"));
        assert!(
            failure.suggestion.as_ref().is_some_and(|told| told.contains(advice)),
            "{failure:?}"
        );
    }
    for arguments in [
        json!({ "select": "a", "extract": "attr:" }),
        json!({ "select": "a", "extract": "words" }),
        json!({ "select": {} }),
        json!({ "select": "a", "items": "li" }),
        json!({ "select": "a".repeat(2_000) }),
    ] {
        let mut arguments = arguments;
        arguments["url"] = "http://127.0.0.1:1/".into();
        assert_eq!(
            testing::call::<WebScrape>(arguments).unwrap_err().category,
            Category::InvalidParameters
        );
    }
}

#[test]
fn size_of_values_is_bounded() {
    let page = format!("<body>{}", "<p>0123456789</p>".repeat(60_000));
    let server = TestServer::answer_once(&html(&page));
    let output = testing::call::<WebScrape>(
        json!({ "url": server.url, "select": "*", "extract": "html", "limit": 1000 }),
    )
    .unwrap();
    let structured = output.structured.unwrap();
    assert_eq!(structured["truncated"], true);
    let lengths =
        structured["results"].as_array().unwrap().iter().map(|value| value.as_str().unwrap().len());
    assert!(lengths.sum::<usize>() <= MAX_ALL);
}
