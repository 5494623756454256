//! What a hostile plugin can do with vectors, and a hostile server.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use toolhold_core::{Host, Request};

use super::{Does, Vectors, host, texts_of};
use crate::support::{loot, plugin, run};

const NAME: &str = "hostile-embeddings";

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

async fn scene(folder: &Path, server: &Vectors, settings: &[&str]) -> Host {
    let mut all = server.settings("local");
    all.push(format!("plugins.{NAME}.path={:?}", plugin(NAME)));
    all.push(format!("plugins.{NAME}.reload=trust"));
    all.extend(settings.iter().map(|setting| (*setting).to_owned()));
    host(folder, &[], &all).await
}

const GRANT: &str = "plugins.hostile-embeddings.embeddings=local";

async fn call(host: &Host, tool: &str, text: &str, count: usize) -> String {
    let arguments = json!({ "text": text, "count": count });
    loot(&host.call(Request::new(format!("{NAME}__{tool}"), arguments)).await)
}

#[test]
fn plugin_without_the_grant_sends_nothing() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        // Another tool's grant is none of its own.
        let host = scene(folder.path(), &server, &["tools.memory.embeddings=local"]).await;
        let request = Request::new(format!("{NAME}__embed"), json!({ "text": "a", "count": 1 }));
        let failure = host.call(request).await.outcome.expect_err("it doesn't load");
        let said = format!("{} {:?}", failure.message, failure.suggestion);
        assert!(
            said.contains("toolhold:host/embeddings@0.1.0") && said.contains("embeddings = "),
            "{said}"
        );
        assert!(server.asked().is_empty());
    });
}

#[test]
fn read_only_tool_gets_vectors_and_no_secret_leaves() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let host = scene(folder.path(), &server, &[GRANT]).await;
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
        let text = format!("deploy with {token} at once");
        let came = call(&host, "embed", &text, 2).await;
        assert!(came.contains(": [[127, 0, "), "{came}");
        let asked = server.asked();
        assert!(!asked.concat().contains(&token), "{asked:?}");
        let texts = texts_of(&asked[0]);
        assert!(texts.len() == 2 && texts[0].starts_with("deploy with "), "{texts:?}");
        // It is cacheable, but nobody could tell whether the model is the same.
        call(&host, "embed", &text, 2).await;
        assert_eq!(server.asked().len(), 1);
    });
}

#[test]
fn texts_are_bounded_in_number_and_size() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let host = scene(folder.path(), &server, &[GRANT]).await;
        for (text, count) in [("a", 65), ("", 1), (&*"a".repeat(8193), 1), ("a", 5000)] {
            let came = call(&host, "embed", text, count).await;
            assert!(came.contains(": invalid: "), "{came}");
        }
        assert!(server.asked().is_empty());
        assert_eq!(call(&host, "flood", "a", 64).await, "2048: limit");
        assert_eq!(server.texts().len(), 2048);
    });
}

#[test]
fn no_answer_of_a_server_becomes_a_vector_that_it_is_not() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let host = scene(folder.path(), &server, &[GRANT]).await;
        let item = |vector: &str| format!("{{\"data\":[{{\"index\":0,\"embedding\":{vector}}}]}}");
        for body in [
            item("[NaN]"),
            item("[1e999]"),
            item("[0.0, 0.0]"),
            item("[]"),
            item(&format!("[{}1]", "1,".repeat(4096))),
            item("\"AAAA\""),
            "{\"data\":[]}".to_owned(),
            "[".repeat(100_000),
            String::new(),
        ] {
            server.set_body(&body);
            let came = call(&host, "embed", "a", 1).await;
            assert!(
                came.contains(": failed: the model [providers.local] made no vectors"),
                "{came}"
            );
        }
        server.set(Does::UnequalVectors);
        let came = call(&host, "embed", "a", 3).await;
        assert!(came.contains("different lengths"), "{came}");
        server.set(Does::Endless);
        let came = call(&host, "embed", "a", 1).await;
        assert!(came.contains("16 MiB"), "{came}");
        server.set(Does::Vectors);
        assert!(call(&host, "embed", "a", 1).await.contains(": [["));
    });
}

#[test]
fn server_neither_redirects_nor_steers_a_terminal() {
    run(async {
        let (folder, server, other) = (folder(), Vectors::new(), Vectors::new());
        let host = scene(folder.path(), &server, &[GRANT]).await;
        let port = other.port;
        for status in ["301 Moved", "307 Temporary Redirect"] {
            server.set(Does::Http(format!(
                "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:{port}/v1/embeddings\r\n\
                 content-length: 0\r\nconnection: close\r\n\r\n"
            )));
            let came = call(&host, "embed", "private words", 1).await;
            assert!(came.contains(": failed: "), "{came}");
        }
        assert!(other.asked().is_empty());
        let text = "\u{1b}[2J\u{202e}".repeat(1000);
        let body = json!({ "error": { "message": text } }).to_string();
        server.set(Does::Http(format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )));
        let came = call(&host, "embed", "a", 1).await;
        assert!(came.contains(": failed: ") && came.len() < 1000, "{came}");
        assert!(!came.contains(['\u{1b}', '\u{202e}']), "{came}");
    });
}

#[test]
fn vectors_have_the_numbers_that_were_asked_for() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let settings = [GRANT, "providers.local.dimensions=8"];
        let host = scene(folder.path(), &server, &settings).await;
        let came = call(&host, "embed", "a", 1).await;
        assert!(came.contains("19 numbers, but `dimensions` is 8"), "{came}");
        let asked = server.asked();
        assert!(asked[0].contains("\"dimensions\":8"), "{asked:?}");
        // Another number is another model.
        let name = came.split(':').next().expect("its name").to_owned();
        let host = scene(folder.path(), &server, &[GRANT, "providers.local.dimensions=19"]).await;
        let came = call(&host, "embed", "a", 1).await;
        assert!(came.contains(": [[") && !came.starts_with(&name), "{came}");
    });
}

#[test]
fn silent_server_leaves_the_tool_half_of_its_time() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let host = scene(folder.path(), &server, &[GRANT, "tools.call=4"]).await;
        server.set(Does::Nothing);
        let came = call(&host, "embed", "a", 1).await;
        assert!(came.contains(": failed: ") && came.contains("didn't answer within"), "{came}");
    });
}
