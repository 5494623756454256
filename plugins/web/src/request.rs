//! Builds the requests of all three web tools, and decides which kind of body an answer has.

use std::time::Duration;

use toolhold_sdk::http::Request;

/// The name of the client. Many servers refuse clients without a name.
const USER_AGENT: &str = concat!("toolhold/", env!("CARGO_PKG_VERSION"));

/// The time limit of each step of a request. It is at least the longest `timeout` that
/// `[tools.web]` allows.
const TIME: Duration = Duration::from_secs(3600);

/// The greatest number of bytes that are read, even if the operator allows more. Reading more would
/// use up the time of the call.
pub(crate) const MAX_BODY: usize = 4 << 20;

pub(crate) fn build(method: &str, url: &str) -> Request {
    Request::new(method, url).header("user-agent", USER_AGENT).timeout(TIME).max_body(MAX_BODY)
}

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    /// RSS, Atom or other XML.
    Xml,
    Text,
    Binary,
}

/// The kind of a body, by the server's media type, or by the first bytes if the type is missing or
/// too general.
pub(crate) fn body_kind(media_type: &str, body: &[u8]) -> Kind {
    let (top, sub) = media_type.split_once('/').unwrap_or((media_type, ""));
    match (top, sub) {
        ("text", "html") | ("application", "xhtml+xml") => Kind::Html,
        ("text" | "application", "xml") => Kind::Xml,
        ("application", sub) if sub.ends_with("+xml") => Kind::Xml,
        ("text", "plain" | "*") | ("", "") | ("application", "octet-stream" | "unknown" | "") => {
            sniff(body)
        }
        ("text", _) => Kind::Text,
        (
            "application",
            "json"
            | "javascript"
            | "ecmascript"
            | "x-javascript"
            | "x-ndjson"
            | "jsonl"
            | "graphql"
            | "sql"
            | "toml"
            | "yaml"
            | "x-yaml"
            | "x-sh"
            | "x-www-form-urlencoded",
        ) => Kind::Text,
        (_, sub) if sub.ends_with("+json") || sub.ends_with("+yaml") => Kind::Text,
        _ => Kind::Binary,
    }
}

fn sniff(body: &[u8]) -> Kind {
    let head = &body[..body.len().min(1024)];
    // UTF-16 is text although it has zero bytes.
    if !head.starts_with(&[0xff, 0xfe])
        && !head.starts_with(&[0xfe, 0xff])
        && (head.contains(&0) || head.starts_with(b"%PDF-"))
    {
        return Kind::Binary;
    }
    let start = String::from_utf8_lossy(head)
        .trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n'])
        .to_ascii_lowercase();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        Kind::Html
    } else if start.starts_with("<?xml") || start.starts_with("<rss") || start.starts_with("<feed")
    {
        Kind::Xml
    } else {
        Kind::Text
    }
}

/// A size in a unit for people.
pub(crate) fn size(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only one decimal is shown")]
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_from_type_and_first_bytes() {
        for (media_type, body, expected) in [
            ("text/html", "", Kind::Html),
            ("application/xhtml+xml", "", Kind::Html),
            ("application/rss+xml", "", Kind::Xml),
            ("image/svg+xml", "<svg/>", Kind::Binary),
            ("text/csv", "a,b", Kind::Text),
            ("application/json", "{}", Kind::Text),
            ("application/vnd.api+json", "{}", Kind::Text),
            ("application/pdf", "%PDF-1.7", Kind::Binary),
            ("image/png", "", Kind::Binary),
            ("", " \n<!DOCTYPE HTML><p>", Kind::Html),
            ("text/plain", "\u{feff}<html>", Kind::Html),
            ("application/octet-stream", "%PDF-1.7", Kind::Binary),
            ("application/octet-stream", "a\0b", Kind::Binary),
            ("text/plain", "words", Kind::Text),
            ("", "<?xml version='1.0'?>", Kind::Xml),
        ] {
            assert_eq!(body_kind(media_type, body.as_bytes()), expected, "{media_type} {body:?}");
        }
    }
}
