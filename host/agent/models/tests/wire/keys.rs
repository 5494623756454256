//! The key goes to its provider and is shown nowhere.

use http::{HeaderName, HeaderValue};
use toolhold_contract::CancellationToken;
use toolhold_models::{ModelEndpoint, ModelErrorKind as Kind, ModelKey};

use super::faults::{client, endpoint, run};
use super::server::{Server, answer as respond};
use super::*;

const KEY: &str = "sk-secret-key-1";

fn key() -> ModelKey {
    ModelKey::new("MY_KEY", KEY).expect("it can be a key")
}

/// What an ask shows: the events, the answer or the error, and the records.
async fn shown(
    endpoint: &ModelEndpoint,
) -> (String, Result<ModelAnswer, toolhold_models::ModelError>) {
    let (client, records) = client();
    let mut events = Vec::new();
    let mut given = |event| events.push(event);
    let asked = client.ask(endpoint, &turn(), &mut given, &CancellationToken::new()).await;
    let listed = client.list(endpoint, &CancellationToken::new()).await;
    let error = asked.as_ref().err().map(ToString::to_string);
    let shown =
        format!("{events:?}{asked:?}{error:?}{listed:?}{:?}{client:?}{endpoint:?}", records.all());
    (shown, asked)
}

#[test]
fn key_is_in_the_header_of_its_format() {
    run(async {
        for format in FORMATS {
            let server = Server::plain(|_, wire| respond(wire, "400 No", &[], b""));
            let headers = |asked: &server::Asked| {
                ["x-api-key", "authorization", "x-other", "x-team"]
                    .map(|name| asked.header(name).map(str::to_owned))
            };
            let bearer = Some(format!("Bearer {KEY}"));
            let usual = match format {
                WireFormat::Messages => [Some(KEY.to_owned()), None, None, None],
                _ => [None, bearer.clone(), None, None],
            };
            assert!(shown(&endpoint(format, &server).key(key())).await.1.is_err());
            assert!(
                shown(
                    &endpoint(format, &server)
                        .key(key().in_header(HeaderName::from_static("x-other"), "")),
                )
                .await
                .1
                .is_err()
            );
            let second = ModelKey::new("OTHER", "another-secret").expect("it can be a key");
            let both = endpoint(format, &server)
                .key(key().in_header(HeaderName::from_static("authorization"), "Bearer "))
                .key(second.in_header(HeaderName::from_static("x-other"), "Token "))
                .header(HeaderName::from_static("x-team"), HeaderValue::from_static("blue"));
            assert!(shown(&both).await.1.is_err());
            assert!(shown(&endpoint(format, &server)).await.1.is_err());
            let own = Some(KEY.to_owned());
            let team = Some("blue".to_owned());
            let expected = [
                usual,
                [None, None, own, None],
                [None, bearer, Some("Token another-secret".to_owned()), team],
                [None, None, None, None],
            ];
            // Each time a question and a list.
            for (asked, expected) in server.asked().chunks(2).zip(expected) {
                assert_eq!(headers(&asked[0]), expected, "{format:?}");
                assert_eq!(headers(&asked[1]), expected, "{format:?}");
            }
        }
    });
}

#[test]
fn key_follows_no_redirect() {
    run(async {
        for format in FORMATS {
            for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
                let other = Server::plain(|_, wire| respond(wire, "200 OK", &[], b"{}"));
                let to = format!("http://127.0.0.1:{}/", other.port());
                let server =
                    Server::plain(move |_, wire| respond(wire, status, &[("location", &to)], b""));
                let endpoint = endpoint(format, &server).key(key());
                let (shown, asked) = shown(&endpoint).await;
                assert_eq!(asked.expect_err("it isn't followed").kind, Kind::Malformed);
                assert_eq!((other.connections(), server.asked().len()), (0, 2));
                assert!(!shown.contains(KEY), "{shown}");
            }
        }
    });
}

#[test]
fn refused_key_is_named_and_not_shown() {
    run(async {
        for format in FORMATS {
            let body = format!(
                r#"{{"error":{{"message":"Incorrect API key provided: {KEY}. {}{KEY}","code":"{KEY}"}}}}"#,
                "x".repeat(440)
            );
            for body in [body, format!("No: {KEY}")] {
                let server =
                    Server::plain(move |_, wire| respond(wire, "401 No", &[], body.as_bytes()));
                let (shown, asked) = shown(&endpoint(format, &server).key(key())).await;
                let error = asked.expect_err("it is refused");
                assert_eq!(error.kind, Kind::Key);
                let text = error.to_string();
                assert!(
                    text.starts_with(
                        "home: the provider refuses the key of the secret `MY_KEY` (401)"
                    ),
                    "{text}"
                );
                assert!(text.contains("[the key]"), "{text}");
                assert!(!shown.contains("sk-secret"), "{shown}");
            }
            let server = Server::plain(|_, wire| respond(wire, "401 No", &[], b""));
            let (_, asked) = shown(&endpoint(format, &server)).await;
            let text = asked.expect_err("it is refused").to_string();
            assert!(
                text.contains("the provider needs a key, but no key is configured (401)"),
                "{text}"
            );
        }
    });
}

#[test]
fn errors_show_no_key_behind_escapes() {
    run(async {
        let escaped = KEY.replace('-', "\\u002d");
        let stream = data(&[&format!(r#"{{"error":{{"message":"{escaped}","code":"x"}}}}"#)]);
        let error = format!(r#"{{"error":{{"message":"wrong: {escaped}","code":"{escaped}"}}}}"#);
        let list = format!(r#"{{"data":[{{"id":"{escaped}"}}]}}"#);
        let page = format!("text/x-{KEY}");
        for (status, kind, body) in [
            ("400 No", "application/json", error.as_str()),
            ("401 No", "application/json", error.as_str()),
            ("200 OK", "text/event-stream", stream.as_str()),
            ("200 OK", "application/json", list.as_str()),
            ("200 OK", page.as_str(), "<p>a page</p>"),
        ] {
            for format in FORMATS {
                let (kind, body) = (kind.to_owned(), body.to_owned());
                let server = Server::plain(move |_, wire| {
                    respond(wire, status, &[("content-type", &kind)], body.as_bytes())
                });
                let (shown, asked) = shown(&endpoint(format, &server).key(key())).await;
                asked.expect_err("it is no answer");
                assert!(!shown.contains("sk-secret"), "{shown}");
            }
        }
    });
}

#[test]
fn answer_with_the_key_is_not_used() {
    run(async {
        let (one, two) = KEY.split_at(6);
        let chunk = |delta: &str| format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
        let escaped = KEY.replace('-', "\\u002d");
        // JSON within JSON, as arguments are.
        let twice = KEY.replace('-', "\\\\u002d");
        let streams: Vec<Vec<String>> = vec![
            vec![chunk(&format!(r#"{{"content":"It is {KEY}."}}"#))],
            vec![
                chunk(&format!(r#"{{"content":"It is {one}"}}"#)),
                chunk(&format!(r#"{{"content":"{two}."}}"#)),
            ],
            vec![
                chunk(&format!(r#"{{"reasoning":"{one}"}}"#)),
                chunk(&format!(r#"{{"reasoning":"{two}"}}"#)),
            ],
            vec![chunk(&format!(r#"{{"content":"{escaped}"}}"#))],
            vec![chunk(&format!(r#"{{"unknown":"{KEY}"}}"#))],
            vec![chunk(&format!(
                r#"{{"tool_calls":[{{"index":0,"id":"{escaped}","function":{{"name":"read"}}}}]}}"#
            ))],
            vec![
                chunk(&format!(
                    r#"{{"tool_calls":[{{"index":0,"function":{{"name":"read","arguments":"{{\"a\":\"{one}"}}}}]}}"#
                )),
                chunk(&format!(
                    r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{two}\"}}"}}}}]}}"#
                )),
            ],
            vec![chunk(&format!(
                r#"{{"tool_calls":[{{"index":0,"function":{{"name":"read","arguments":"{{\"a\":\"{twice}\"}}"}}}}]}}"#
            ))],
            vec![format!(r#"{{"model":"{escaped}","choices":[{{"delta":{{"content":"a"}}}}]}}"#)],
            vec![format!(r#"{{"error":{{"message":"{KEY}"}}}}"#)],
            vec![format!("not JSON: {KEY}")],
        ];
        for mut stream in streams {
            stream.push(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned());
            let stream = data(&stream.iter().map(String::as_str).collect::<Vec<_>>());
            let sent = stream.clone();
            let server =
                Server::plain(move |_, wire| respond(wire, "200 OK", &[], sent.as_bytes()));
            let (shown, asked) = shown(&endpoint(WireFormat::Chat, &server).key(key())).await;
            let error = asked.expect_err(&stream);
            assert!(
                error.kind == Kind::Malformed && error.message.contains("sent the key back"),
                "{error}"
            );
            assert!(!shown.contains(KEY) && !shown.contains(two), "{shown}");
            // Without the key, it is what it is.
            let (shown_to_others, _) = self::shown(&endpoint(WireFormat::Chat, &server)).await;
            assert!(shown_to_others.contains(two) || shown_to_others.contains("u002d"), "{stream}");
        }
    });
}

#[test]
fn texts_that_are_no_keys_are_refused_without_showing_them() {
    for invalid in ["", "brief", "with space-1", "line\nend-12", "caf\u{e9}-secret"] {
        let error = ModelKey::new("MY_KEY", invalid).expect_err("it is none").to_string();
        assert!(error.contains("`MY_KEY`"), "{error}");
        assert!(invalid.is_empty() || !error.contains(invalid), "{error}");
    }
    // A file ends with a line end.
    assert!(ModelKey::new("MY_KEY", "sk-secret-1\n").is_ok());
    assert!(!format!("{:?}", key()).contains("sk-secret"));
}

#[test]
fn base_urls_are_taken_as_their_documents_write_them() {
    let paths = |format, url: &str| {
        let endpoint =
            ModelEndpoint::new(PROVIDER, format, url).unwrap_or_else(|error| panic!("{error}"));
        endpoint.base_url().to_string()
    };
    for (format, url, expected) in [
        (WireFormat::Messages, "https://api.anthropic.com", "https://api.anthropic.com/v1"),
        (WireFormat::Messages, "https://api.anthropic.com/v1/", "https://api.anthropic.com/v1"),
        (WireFormat::Messages, "https://x.example/anthropic", "https://x.example/anthropic/v1"),
        (WireFormat::Chat, "http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        (WireFormat::Chat, "https://x.example/api/paas/v4/", "https://x.example/api/paas/v4"),
        (WireFormat::Responses, "https://api.openai.com/v1", "https://api.openai.com/v1"),
        (WireFormat::Ollama, "http://localhost:11434/api/", "http://localhost:11434/"),
        (WireFormat::Ollama, "http://localhost:11434", "http://localhost:11434/"),
    ] {
        assert_eq!(paths(format, url), expected);
    }
    for (url, is_local) in [
        ("http://localhost:1", true),
        ("http://127.0.0.2:1", true),
        ("http://[::1]:1", true),
        ("https://localhost.example", false),
        ("https://10.0.0.1", false),
    ] {
        let endpoint = ModelEndpoint::new(PROVIDER, WireFormat::Chat, url).expect("it can be used");
        assert_eq!(endpoint.is_local(), is_local, "{url}");
    }
    let openai = ModelEndpoint::new(PROVIDER, WireFormat::Chat, "https://api.openai.com/v1");
    assert!(openai.expect("it can be used").options().completion_tokens);
    for url in ["http://api.example.com", "https://user:pw@api.example.com", "ftp://x", "x"] {
        let error = ModelEndpoint::new(PROVIDER, WireFormat::Chat, url).expect_err(url);
        assert!(error.to_string().contains("the base URL can't be used"), "{error}");
    }
}
