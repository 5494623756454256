//! Lists of models, in the words of each server.

use toolhold_contract::CancellationToken;
use toolhold_models::{ListedModel, ModelError, ModelErrorKind as Kind};

use super::faults::{client, endpoint, run};
use super::server::{Server, answer as respond};
use super::*;

fn listing(body: impl Into<Vec<u8>>) -> Server {
    let body = body.into();
    Server::plain(move |_, wire| respond(wire, "200 OK", &[], &body))
}

async fn list(format: WireFormat, server: &Server) -> Result<Vec<ListedModel>, ModelError> {
    client().0.list(&endpoint(format, server), &CancellationToken::new()).await
}

async fn window(
    format: WireFormat,
    server: &Server,
    model: &str,
) -> Result<Option<u64>, ModelError> {
    client().0.context_window(&endpoint(format, server), model, &CancellationToken::new()).await
}

fn model(name: &str, context: Option<u64>, max_output: Option<u64>) -> ListedModel {
    ListedModel { name: name.to_owned(), context, max_output }
}

#[test]
fn models_are_listed_in_each_format() {
    run(async {
        let messages = listing(
            r#"{"data":[{"type":"model","id":"c-1","display_name":"C","max_input_tokens":200000,"max_tokens":64000},{"id":"c-2"}],"has_more":false}"#,
        );
        assert_eq!(
            list(WireFormat::Messages, &messages).await,
            Ok(vec![model("c-1", Some(200_000), Some(64_000)), model("c-2", None, None)])
        );
        let asked = &messages.asked()[0];
        assert_eq!(asked.path(), "/v1/models?limit=1000");
        assert!(asked.head.starts_with("GET ") && asked.header("anthropic-version").is_some());
        for format in [WireFormat::Chat, WireFormat::Responses] {
            let server = listing(
                r#"{"object":"list","data":[
                {"id":"openrouter","context_length":1000000,"top_provider":{"context_length":200000,"max_completion_tokens":32000}},
                {"id":"vllm","max_model_len":8192},
                {"id":"llama.cpp","meta":{"n_ctx_train":32768}},
                {"id":"llama.cpp-2","meta":{"n_ctx":4096,"n_ctx_train":32768}},
                {"id":"groq","context_window":131072,"max_completion_tokens":65536},
                {"id":"plain","context_length":null},
                {"id":"bad\u001b"}, {"id":""}, {}, 7]}"#,
            );
            assert_eq!(
                list(format, &server).await,
                Ok(vec![
                    model("openrouter", Some(200_000), Some(32_000)),
                    model("vllm", Some(8192), None),
                    model("llama.cpp", Some(32_768), None),
                    model("llama.cpp-2", Some(4096), None),
                    model("groq", Some(131_072), Some(65_536)),
                    model("plain", None, None),
                ])
            );
            assert_eq!(server.asked()[0].path(), "/v1/models");
            assert_eq!(window(format, &server, "vllm").await, Ok(Some(8192)));
            assert_eq!(window(format, &server, "other").await, Ok(None));
        }
        let bare = listing(r#"[{"id":"a"}]"#);
        assert_eq!(list(WireFormat::Chat, &bare).await, Ok(vec![model("a", None, None)]));
    });
}

#[test]
fn window_of_ollama_is_that_of_the_running_model() {
    run(async {
        let server = Server::plain(|asked, wire| {
            let body = match asked.path() {
                "/api/tags" => {
                    r#"{"models":[{"name":"a:latest","model":"a:latest","size":1},{"name":"b"}]}"#
                }
                "/api/ps" => r#"{"models":[{"name":"a:latest","context_length":4096}]}"#,
                "/api/show" => {
                    r#"{"model_info":{"general.architecture":"x","x.context_length":131072}}"#
                }
                path => panic!("{path} was asked"),
            };
            respond(wire, "200 OK", &[], body.as_bytes())
        });
        let listed = list(WireFormat::Ollama, &server).await;
        assert_eq!(listed, Ok(vec![model("a:latest", None, None), model("b", None, None)]));
        assert_eq!(window(WireFormat::Ollama, &server, "a:latest").await, Ok(Some(4096)));
        assert_eq!(window(WireFormat::Ollama, &server, "b").await, Ok(Some(131_072)));
        assert_eq!(
            server.asked().last().map(|it| it.body.clone()),
            Some(br#"{"model":"b"}"#.to_vec())
        );
        let set = endpoint(WireFormat::Ollama, &server).context(Some(65_536));
        let asked = client().0.context_window(&set, "b", &CancellationToken::new()).await;
        assert_eq!(asked, Ok(Some(65_536)));
    });
}

#[test]
fn lists_of_hostile_servers_are_refused() {
    run(async {
        for body in ["", "<html>", "{}", r#"{"models":"x"}"#, "\"x\""] {
            let failed = list(WireFormat::Chat, &listing(body)).await;
            match body {
                // No list is an empty one.
                r#"{"models":"x"}"# => assert_eq!(failed, Ok(Vec::new())),
                _ => {
                    let failed = failed.expect_err(body);
                    assert_eq!(failed.kind, Kind::Malformed);
                    assert!(
                        failed.message.contains("Check the base URL http://127.0.0.1"),
                        "{failed}"
                    );
                }
            }
        }
        let many = format!(r#"{{"data":[{}{{}}]}}"#, r#"{"id":"a"},"#.repeat(10_001));
        let failed = list(WireFormat::Chat, &listing(many)).await.expect_err("there are too many");
        assert!(
            failed.kind == Kind::Cap && failed.message.contains("more than 10000 models"),
            "{failed}"
        );
        let large = listing(vec![b' '; 17 << 20]);
        let failed = list(WireFormat::Ollama, &large).await.expect_err("it is too large");
        assert!(
            failed.kind == Kind::Cap && failed.message.contains("more than 16 MiB"),
            "{failed}"
        );
        let refused = Server::plain(|_, wire| respond(wire, "404 Not Found", &[], b"nothing here"));
        let failed = list(WireFormat::Responses, &refused).await.expect_err("it is refused");
        assert!(
            failed.kind == Kind::Model && failed.message.contains("doesn't exist ("),
            "{failed}"
        );
        assert_eq!(refused.asked().len(), 1);
    });
}
