//! The search engines: what they are asked, and how they answer.

use serde::Deserialize;
use toolhold_sdk::Failure;
use url::Url;

use crate::SearchResult;
use crate::html;

/// Characters of each part of a result. A longer URL isn't one that anybody would open.
const MAX_TITLE: usize = 200;
const MAX_SNIPPET: usize = 500;
const MAX_URL: usize = 2000;

/// Results that are read of an answer.
const MAX_RESULTS: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Engine {
    /// Its page for browsers without scripts.
    DuckDuckGo,
    /// A server that the operator names, with its JSON switched on.
    SearXng,
    /// Its interface for programs.
    Brave,
}

#[derive(Deserialize)]
struct SearXngAnswer {
    results: Vec<Item>,
}

#[derive(Deserialize)]
struct BraveAnswer {
    /// Missing if nothing was found.
    web: Option<BraveResults>,
}

#[derive(Deserialize)]
struct BraveResults {
    #[serde(default)]
    results: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    title: Option<String>,
    url: Option<String>,
    #[serde(alias = "description")]
    content: Option<String>,
}

impl Engine {
    /// The engine of the setting `engine`.
    pub(crate) fn from_name(name: &str) -> Result<Self, Failure> {
        match name {
            "" | "duckduckgo" => Ok(Self::DuckDuckGo),
            "searxng" => Ok(Self::SearXng),
            "brave" => Ok(Self::Brave),
            other => Err(setting(format!("engine is {other:?}, which isn't known"))),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DuckDuckGo => "DuckDuckGo",
            Self::SearXng => "SearXNG",
            Self::Brave => "Brave",
        }
    }

    /// The name of the secret that the host has to add.
    pub(crate) fn secret(self) -> Option<&'static str> {
        (self == Self::Brave).then_some("brave")
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::DuckDuckGo => "text/html",
            Self::SearXng | Self::Brave => "application/json",
        }
    }

    /// The URL that asks a query. `server`: the setting, or nothing.
    pub(crate) fn url(self, server: &str, query: &str) -> Result<String, Failure> {
        let (own, path) = match self {
            Self::DuckDuckGo => ("https://html.duckduckgo.com", "/html/"),
            Self::Brave => ("https://api.search.brave.com", "/res/v1/web/search"),
            Self::SearXng if server.is_empty() => {
                return Err(setting(
                    "server is missing: searxng has no server of its own".to_owned(),
                ));
            }
            Self::SearXng => ("", "/search"),
        };
        let server = if server.is_empty() { own } else { server };
        let mut url = Url::parse(server)
            .map_err(|error| setting(format!("server is {server:?}, which is no URL: {error}")))?;
        let path = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.query_pairs_mut().clear().append_pair("q", query);
        if self == Self::SearXng {
            url.query_pairs_mut().append_pair("format", "json");
        }
        Ok(url.into())
    }

    /// The results in an answer. `None`: it isn't an answer of this engine.
    pub(crate) fn results(self, body: &str) -> Option<Vec<SearchResult>> {
        let items = match self {
            Self::SearXng => serde_json::from_str::<SearXngAnswer>(body).ok()?.results,
            Self::Brave => {
                let answer: BraveAnswer = serde_json::from_str(body).ok()?;
                answer.web.map(|web| web.results).unwrap_or_default()
            }
            Self::DuckDuckGo => duckduckgo(body)?,
        };
        Some(items.into_iter().filter_map(Item::checked).take(MAX_RESULTS).collect())
    }
}

/// A setting that the operator has to change.
fn setting(message: String) -> Failure {
    Failure::permanent("setting", message).with_suggestion("set it in [plugins.web-search.config]")
}

impl Item {
    /// The result in plain text, if it has a URL that a tool could read.
    fn checked(self) -> Option<SearchResult> {
        let url = Url::parse(self.url?.trim()).ok()?;
        if !matches!(url.scheme(), "http" | "https") || url.as_str().len() > MAX_URL {
            return None;
        }
        Some(SearchResult {
            title: html::text(&self.title.unwrap_or_default(), MAX_TITLE),
            url: url.into(),
            snippet: html::text(&self.content.unwrap_or_default(), MAX_SNIPPET),
        })
    }
}

/// The results of DuckDuckGo's page: links of the class `result__a`, each with a snippet behind it.
fn duckduckgo(page: &str) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    for link in html::links(page) {
        if link.has_class("result__a") {
            if items.len() == MAX_RESULTS {
                break;
            }
            items.push(Item {
                title: Some(link.inner.to_owned()),
                url: target(&link.attribute("href").unwrap_or_default()),
                content: None,
            });
        } else if link.has_class("result__snippet")
            && let Some(item) = items.last_mut()
        {
            item.content.get_or_insert_with(|| link.inner.to_owned());
        }
    }
    (!items.is_empty() || page.contains("class=\"no-results")).then_some(items)
}

/// Where a link of that page leads: its own parameter says it. What leads to the engine itself is
/// an advertisement.
fn target(href: &str) -> Option<String> {
    let base = Url::parse("https://duckduckgo.com/").ok()?;
    let url = base.join(href).ok()?;
    if url.host_str() != Some("duckduckgo.com") {
        return Some(url.into());
    }
    url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(title: &str, url: &str, snippet: &str) -> SearchResult {
        SearchResult { title: title.to_owned(), url: url.to_owned(), snippet: snippet.to_owned() }
    }

    #[test]
    fn page_of_duckduckgo_is_read() {
        let page = r#"<div class="results">
            <h2 class="result__title"><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.com%2Fa%3Fb%3D1&amp;rut=0f">A <b>bold</b> &amp; short title</a></h2>
            <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">It&#x27;s   a
            <b>snippet</b></a>
            <a rel="nofollow" class="large result__a" href="https://duckduckgo.com/y.js?ad_domain=shop">Buy</a>
            <a class="result__snippet" href="x">now</a>
            <a class='result__a' href='https://example.org/'>Direct</a>
            <a class="result__a" href="javascript:alert(1)">No page</a>"#;
        assert_eq!(
            Engine::DuckDuckGo.results(page).unwrap(),
            [
                result("A bold & short title", "https://example.com/a?b=1", "It's a snippet"),
                result("Direct", "https://example.org/", ""),
            ]
        );
        assert_eq!(
            Engine::DuckDuckGo.results("<div class=\"no-results\">No results</div>"),
            Some(Vec::new())
        );
        assert_eq!(Engine::DuckDuckGo.results("<p>Are you a robot?</p>"), None);
    }

    #[test]
    fn answers_in_json_are_read() {
        let item = json!({ "title": "T <script>x</script>", "url": "https://example.com", "description": "a <strong>b</strong>", "age": 1 });
        let brave = json!({ "web": { "results": [item, { "title": "no URL" }, { "url": "file:///etc/passwd" }] } });
        assert_eq!(
            Engine::Brave.results(&brave.to_string()).unwrap(),
            [result("T x", "https://example.com/", "a b")]
        );
        assert_eq!(Engine::Brave.results("{}"), Some(Vec::new()));
        assert_eq!(Engine::SearXng.results(r#"{"results":[]}"#), Some(Vec::new()));
        for other in ["", "<html>", "{}", r#"{"results":{}}"#, r#"{"results":[{"title":7}]}"#] {
            assert_eq!(Engine::SearXng.results(other), None, "{other}");
        }
    }

    #[test]
    fn long_parts_are_cut_and_results_counted() {
        let item = json!({ "title": "t".repeat(10_000), "url": "https://example.com", "content": "ü".repeat(10_000) });
        let long = json!({ "url": format!("https://example.com/{}", "x".repeat(5000)) });
        let mut items = vec![long];
        items.extend(vec![item; 100]);
        let results = Engine::SearXng.results(&json!({ "results": items }).to_string()).unwrap();
        assert_eq!(results.len(), MAX_RESULTS);
        assert_eq!(results[0].title.chars().count(), MAX_TITLE + 1);
        assert_eq!(results[0].snippet.chars().count(), MAX_SNIPPET + 1);
    }

    #[test]
    fn hostile_pages_end_soon() {
        let started = std::time::Instant::now();
        for part in [
            "<a class=\"result__a\" href=\"https://example.com\">",
            "<a class=\"result__a\" href=\"https://example.com\">x</a>",
            "<a class=result__snippet></a>",
            "<a class='",
            "<",
            "<!--",
            "<!-- -->",
            "<a",
            "<a ",
            "&",
            "&#x110000;",
            "</a>",
            "<a href=a=b ' \" >",
        ] {
            let page = part.repeat((1 << 20) / part.len());
            let results = Engine::DuckDuckGo.results(&page).unwrap_or_default();
            assert!(results.len() <= MAX_RESULTS, "{part}");
            html::text(&page, MAX_SNIPPET);
        }
        assert!(started.elapsed().as_secs() < 20);
    }
}
