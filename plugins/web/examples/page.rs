//! Converts HTML from standard input to Markdown on standard output, as `fetch` does, but without a
//! sandbox. The bench compares the tool with it.
//!
//! ```sh
//! curl -s https://example.com/ | cargo run --release --example page -- https://example.com/
//! ```

use std::io::{self, Read, Write};

use url::Url;

fn main() -> io::Result<()> {
    let base = std::env::args().nth(1).unwrap_or_else(|| "https://example.com/".to_owned());
    let base =
        Url::parse(&base).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let html = web::page::charset::decode(&bytes, "text/html");
    io::stdout().write_all(web::page::markdown(&html, &base).text.as_bytes())
}
