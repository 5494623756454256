//! The built-in plugin of the web tools.

mod fetch;
mod http_request;
pub mod page;
mod request;
#[cfg(test)]
mod test_server;
mod web_scrape;

toolhold_sdk::plugin! {
    name: "web",
    description: "Reads web pages and asks web services",
    capabilities: [http = "to ask the servers that calls name"],
    tools: [fetch::Fetch, web_scrape::WebScrape, http_request::HttpRequest],
}
