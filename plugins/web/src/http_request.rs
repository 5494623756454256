//! `http_request`: sends a request with a method, headers and a body, and shows the server's
//! answer.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhold_sdk::http::Response;
use toolhold_sdk::{Access, Call, Content, Failure, Output, Promises, Subject, SubjectKind, Tool};

use crate::page::charset;
use crate::request::{self, Kind};

/// The greatest number of bytes of a text body in an answer, which contains it twice.
const MAX_TEXT: usize = 1 << 20;

pub(crate) struct HttpRequest;

// `Serialize` is needed for the default in the schema. It tells that a call without a method only
// reads.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    #[default]
    Get,
    Head,
    Options,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    url: String,
    /// GET and HEAD only read, the others act.
    #[serde(default)]
    method: Method,
    /// By name, without credentials.
    headers: Option<BTreeMap<String, String>>,
    /// As text. Give a content-type header with it.
    body: Option<String>,
    /// The body as JSON, instead of body.
    json: Option<Map<String, Value>>,
}

/// The answer of the server, for programs. It is stable: fields may be added, but never change.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Envelope {
    /// The status, such as 200.
    status: u16,
    /// The URL of the answer, after redirects.
    url: String,
    /// The headers by their names in lower case. Several headers of one name are joined by a comma.
    /// Secrets are redacted.
    headers: BTreeMap<String, String>,
    /// The body, if it is text.
    body: Option<String>,
    /// Whether the body was cut.
    truncated: bool,
}

impl Tool for HttpRequest {
    const NAME: &str = "http_request";
    const TITLE: Option<&str> = Some("HTTP request");
    const DESCRIPTION: &str = "\
        Sends one request to a web service, and returns status, headers and body. Use it for APIs. \
        A status other than 200 is not a failure here: check it. Credentials are added by the \
        operator's configuration, never by you. Use fetch to read a page.";
    const PROMISES: Promises = Promises::NONE;
    const SUBJECTS: &[Subject] = &[Subject::new("/url", SubjectKind::Url, Access::Write)];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("url", &["uri"]), ("body", &["data"])];
    const READS_WITH: &[(&str, &[&str])] = &[("method", &["GET", "HEAD"])];
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(toolhold_sdk::schema::for_type::<Envelope>())
    }

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let mut request = request::build(arguments.method.name(), &arguments.url);
        for (name, value) in arguments.headers.unwrap_or_default() {
            // The header may be a credential, so it must not follow a redirect to another server.
            request = request.private_header(name, value);
        }
        let request = match (arguments.body, arguments.json) {
            (Some(_), Some(_)) => {
                return Err(Failure::invalid("`body` and `json` are both set")
                    .with_suggestion("Set only one of them."));
            }
            (Some(body), None) => request.body(body),
            (None, Some(value)) => request.json(&value)?,
            (None, None) => request,
        };
        output(&request.send()?)
    }
}

fn output(answer: &Response) -> Result<Output, Failure> {
    let media_type = answer.media_type();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &answer.headers {
        let value = if is_secret(name) { "[redacted]" } else { value };
        headers
            .entry(name.clone())
            .and_modify(|known| known.extend([", ", value]))
            .or_insert_with(|| value.to_owned());
    }
    let is_text = request::body_kind(&media_type, &answer.body) != Kind::Binary
        || media_type == "image/svg+xml";
    let mut truncated = answer.cut;
    let body = is_text.then(|| {
        let mut text =
            charset::decode(&answer.body, answer.header("content-type").unwrap_or_default());
        truncated |= text.len() > MAX_TEXT;
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text
    });
    let mut head = format!("{} {}\n", answer.status, answer.url);
    for (name, value) in &headers {
        head.push_str(&format!("{name}: {value}\n"));
    }
    if truncated {
        head.push_str("\nThe body is cut.\n");
    }
    let mut content = vec![Content::text(head)];
    match &body {
        Some(text) if text.is_empty() => {}
        Some(text) => {
            let media_type =
                if media_type.contains("json") { "application/json" } else { "text/plain" };
            content.push(Content {
                media_type: Some(media_type.to_owned()),
                ..Content::text(text.as_str())
            });
        }
        None if answer.body.is_empty() => {}
        None => {
            let media_type =
                if media_type.is_empty() { "application/octet-stream" } else { &media_type };
            content.push(Content::bytes(answer.body.as_slice(), media_type));
        }
    }
    let envelope =
        Envelope { status: answer.status, url: answer.url.clone(), headers, body, truncated };
    Output { content, ..Output::default() }.with_structured(&envelope)
}

/// Whether the value of a header can be used to act as another user.
fn is_secret(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "set-cookie",
        "set-cookie2",
        "cookie",
        "authorization",
        "proxy-authorization",
        "authentication-info",
        "proxy-authentication-info",
    ];
    const PARTS: [&str; 6] = ["token", "secret", "api-key", "apikey", "password", "session"];
    NAMES.contains(&name) || PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::{Category, testing};

    use super::*;
    use crate::test_server::TestServer;

    #[test]
    fn error_status_is_an_answer() {
        let server =
            TestServer::answer_once(b"HTTP/1.0 404 No\r\nContent-Type: application/json\r\nX-A: 1\r\nX-A: 2\r\n\r\n{\"error\": 1}");
        let url = format!("{}/x", server.url);
        let output = testing::call::<HttpRequest>(json!({ "url": url })).unwrap();
        let headers = json!({ "content-type": "application/json", "x-a": "1, 2" });
        let expected = json!({ "status": 404, "url": url, "headers": headers, "body": "{\"error\": 1}", "truncated": false });
        assert_eq!(output.structured, Some(expected));
        assert_eq!(
            output.content[0].as_text(),
            Some(format!("404 {url}\ncontent-type: application/json\nx-a: 1, 2\n").as_str())
        );
        assert_eq!(output.content[1].as_text(), Some("{\"error\": 1}"));
        assert!(server.request().starts_with("GET /x HTTP/1.0\r\n"));
    }

    #[test]
    fn request_body_is_sent() {
        let server = TestServer::answer_once(b"HTTP/1.0 201 Made\r\n\r\n");
        let arguments = json!({ "url": server.url, "method": "POST", "json": { "a": 1 }, "headers": { "X-Trace": "7" } });
        assert_eq!(
            testing::call::<HttpRequest>(arguments).unwrap().structured.unwrap()["status"],
            201
        );
        let asked = server.request();
        assert!(
            asked.starts_with("POST / HTTP/1.0\r\n") && asked.ends_with("\r\n\r\n{\"a\":1}"),
            "{asked}"
        );
        assert!(
            asked.contains("\r\ncontent-type: application/json\r\n")
                && asked.contains("\r\nx-trace: 7\r\n"),
            "{asked}"
        );
        let both = testing::call::<HttpRequest>(
            json!({ "url": "http://127.0.0.1:1/", "json": {}, "body": "1" }),
        )
        .unwrap_err();
        assert_eq!(both.category, Category::InvalidParameters);
    }

    #[test]
    fn secret_headers_are_redacted() {
        let server = TestServer::answer_once(
            b"HTTP/1.0 200 OK\r\nSet-Cookie: id=s3cr3t\r\nX-Auth-Token: s3cr3t\r\n\r\nok",
        );
        let output = testing::call::<HttpRequest>(json!({ "url": server.url })).unwrap();
        assert_eq!(output.structured.as_ref().unwrap()["headers"]["set-cookie"], "[redacted]");
        assert!(!format!("{output:?}").contains("s3cr3t"));
    }

    #[test]
    fn binary_body_is_returned_as_bytes() {
        let server =
            TestServer::answer_once(b"HTTP/1.0 200 OK\r\ncontent-type: image/png\r\n\r\n\x89PNG\0");
        let output = testing::call::<HttpRequest>(json!({ "url": server.url })).unwrap();
        assert_eq!(output.content[1], Content::bytes(b"\x89PNG\0".as_slice(), "image/png"));
        assert_eq!(output.structured.unwrap()["body"], Value::Null);
    }

    #[test]
    fn get_and_head_are_declared_read_only() {
        let definition = testing::definition::<HttpRequest>();
        assert_eq!(definition["promises"], json!([]));
        let arguments = definition["arguments"].as_array().unwrap().iter();
        let method = arguments.clone().find(|argument| argument["name"] == "method").unwrap();
        assert_eq!(method["reads_with"], json!(["GET", "HEAD"]));
        assert_eq!(definition["input_schema"]["properties"]["method"]["default"], "GET");
        let refused =
            testing::call::<HttpRequest>(json!({ "url": "http://127.0.0.1:1/", "method": "get" }))
                .unwrap_err();
        assert_eq!(refused.category, Category::InvalidParameters);
    }
}
