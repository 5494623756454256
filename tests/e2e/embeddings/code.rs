//! `search_code` with a model.

use std::fs;

use super::{Does, KEY, Vectors};
use crate::support::Cli;

fn scene() -> (Cli, Vectors) {
    let (cli, server) = (Cli::new(), Vectors::new());
    let tables = server.tables("local", cli.root.path());
    cli.configure(&format!("[index]\nembeddings = \"local\"\n{tables}"));
    fs::remove_file(cli.work().join("notes.txt")).expect("it is removed");
    write(&cli, "net.rs", "pub fn send() {\n    wait_with_backoff();\n}\n");
    write(&cli, "disk.rs", "pub fn clean(path: &Path) {\n    unlink(path);\n}\n");
    (cli, server)
}

fn write(cli: &Cli, path: &str, text: &str) {
    fs::write(cli.work().join(path), text).expect("a file is written");
}

fn search(cli: &Cli, query: &str) -> String {
    cli.run(&["call", "search_code", &format!("query={query}")]).ends(0).stdout
}

#[test]
fn meaning_finds_code_without_a_common_word() {
    let (cli, server) = scene();
    let text = search(&cli, "try it again");
    assert!(text.starts_with("net.rs:1 in send (meaning)\n"), "{text}");
    let asked = server.asked().concat();
    assert!(asked.contains("wait_with_backoff();") && asked.contains(KEY), "{asked}");
    // All of it is in the index now.
    search(&cli, "what gets removed?");
    assert_eq!(server.texts(), ["what gets removed?"]);
    write(&cli, "disk.rs", "pub fn clean() {\n    deploy();\n}\n");
    let text = search(&cli, "roll out");
    assert!(text.starts_with("disk.rs:1 in clean (meaning)\n"), "{text}");
    assert_eq!(server.texts(), ["pub fn clean() {\ndeploy();\n}\n", "roll out"]);
    // Names are no question.
    cli.run(&["call", "search_code", "symbol=send"]).ends(0);
    assert!(server.asked().is_empty());
}

#[test]
fn neither_secrets_nor_denied_files_are_sent() {
    let (cli, server) = scene();
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    write(&cli, "use.rs", &format!("fn again() {{ login(\"{token}\") }}\n"));
    write(&cli, "private.rs", "fn hidden_words() {}\n");
    let tables = server.tables("local", cli.root.path());
    cli.configure(&format!(
        "[tools.file]\ndeny_read = [\"private.rs\"]\n[index]\nembeddings = \"local\"\n{tables}"
    ));
    search(&cli, "try again");
    let asked = server.asked().concat();
    assert!(asked.contains("fn again()"), "{asked}");
    assert!(!asked.contains(&token) && !asked.contains("hidden_words"), "{asked}");
}

#[test]
fn server_that_is_down_leaves_words() {
    let (cli, server) = scene();
    server.set(Does::Http("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_owned()));
    let text = search(&cli, "unlink path");
    assert!(text.contains("disk.rs:") && text.contains("(words)"), "{text}");
    assert!(text.contains("[Searched by words alone, and 2 parts have no vector"), "{text}");
    server.set(Does::Vectors);
    let text = search(&cli, "try it again");
    assert!(text.starts_with("net.rs:1 in send (meaning)\n"), "{text}");
}

#[test]
fn without_a_model_nothing_is_sent() {
    let (cli, server) = scene();
    let tables = server.tables("local", cli.root.path());
    cli.configure(&tables);
    let text = search(&cli, "try it again");
    assert!(!text.contains("meaning"), "{text}");
    assert!(server.asked().is_empty());
}
