//! The memory with a model.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_core::{Host, Request};

use super::{Does, KEY, Vectors, host};
use crate::support::{Cli, builtin, loot, run};

const GRANT: &str = "tools.memory.embeddings=local";

/// Facts about a subject, and questions that share their meaning. Words of a fact stand in none of
/// them, but for the subject in every second one.
const FACTS: [(&str, &str); 10] = [
    ("Run make ship to deploy {}.", "How is {} rolled out?"),
    ("Anna owns {}.", "Who looks after {}?"),
    ("{} uses Postgres 16.", "Where are the records of {}?"),
    ("The checks of {} are flaky.", "Is {} unreliable?"),
    ("Logs of {} stay for thirty days.", "Do we keep the journal of {}?"),
    ("A new {} comes out on Tuesday, after a review.", "When is {} published?"),
    ("{} listens on port 8080.", "At which address do I find {}?"),
    ("The outage of {} in March was a certificate.", "Why was {} down this spring?"),
    ("We keep {} in Rust.", "In which language is {}?"),
    ("Changes of {} should be small.", "What size may a change of {} have?"),
];

const SUBJECTS: [(&str, &str); 6] = [
    ("billing", "the invoices"),
    ("search", "the lookup"),
    ("mailer", "the newsletters"),
    ("gateway", "the entrance"),
    ("uploads", "the attachments"),
    ("sessions", "the logins"),
];

async fn call(host: &Host, tool: &str, arguments: Value) -> String {
    loot(&host.call(Request::new(tool, arguments)).await)
}

async fn recall(host: &Host) -> usize {
    let mut found = 0;
    for (kind, (_, question)) in FACTS.iter().enumerate() {
        for (at, (subject, other)) in SUBJECTS.iter().enumerate() {
            let asked = if (kind + at) % 2 == 0 { subject } else { other };
            let query = question.replace("{}", asked);
            let text = call(host, "memory_search", json!({ "query": query })).await;
            found += usize::from(text.contains(&format!(". {kind}-{subject} (")));
        }
    }
    found
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

#[test]
fn meaning_finds_more_than_words() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let builtins = [builtin("memory")];
        let words = host(folder.path(), &builtins, &[]).await;
        for (kind, (fact, _)) in FACTS.iter().enumerate() {
            for (subject, _) in SUBJECTS {
                let content = fact.replace("{}", subject);
                let key = format!("{kind}-{subject}");
                call(&words, "memory_save", json!({ "content": content, "key": key })).await;
            }
        }
        let by_words = recall(&words).await;
        drop(words);
        assert!(server.asked().is_empty());
        // What was saved before there was a model gets its vector with the next saves.
        let settings = [server.settings("local"), vec![GRANT.to_owned()]].concat();
        let meaning = host(folder.path(), &builtins, &settings).await;
        let saved = |number: u32| json!({ "content": format!("note {number}"), "key": "note" });
        let first = call(&meaning, "memory_save", saved(1)).await;
        assert!(first.contains("28 older memories are found by their words alone"), "{first}");
        let second = call(&meaning, "memory_save", saved(2)).await;
        assert_eq!(second, "Stored memory: note");
        let by_meaning = recall(&meaning).await;
        let all = FACTS.len() * SUBJECTS.len();
        println!("recall@5: {by_words} of {all} by words, {by_meaning} by meaning");
        assert!(by_words < all / 2 && by_meaning >= all * 9 / 10, "{by_words} {by_meaning}");
    });
}

#[test]
fn server_that_is_down_loses_nothing() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let settings = [server.settings("local"), vec![GRANT.to_owned()]].concat();
        let host = host(folder.path(), &[builtin("memory")], &settings).await;
        server.set(Does::Http("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_owned()));
        let fact = json!({ "content": "Run make ship", "key": "ship" });
        let saved = call(&host, "memory_save", fact).await;
        assert!(saved.starts_with("Stored memory: ship\n[It is found by its words"), "{saved}");
        let found = call(&host, "memory_search", json!({ "query": "make" })).await;
        assert!(
            found.contains("1. ship (") && found.contains("[Searched by words alone"),
            "{found}"
        );
        server.set(Does::Vectors);
        call(&host, "memory_save", json!({ "content": "Blue", "key": "blue" })).await;
        let found = call(&host, "memory_search", json!({ "query": "deploy" })).await;
        assert!(found.contains("1. ship (") && found.contains("found by meaning"), "{found}");
    });
}

#[test]
fn silent_server_does_not_keep_an_entry_from_being_saved() {
    run(async {
        let (folder, server) = (folder(), Vectors::new());
        let settings = [GRANT.to_owned(), "tools.call=4".to_owned()];
        let settings = [server.settings("local"), settings.to_vec()].concat();
        let host = host(folder.path(), &[builtin("memory")], &settings).await;
        server.set(Does::Nothing);
        let fact = json!({ "content": "Run make ship", "key": "ship" });
        let saved = call(&host, "memory_save", fact).await;
        assert!(saved.starts_with("Stored memory: ship\n"), "{saved}");
        // It would answer now, but nobody waits for it again so soon.
        server.set(Does::Vectors);
        let fact = json!({ "content": "Blue", "key": "blue" });
        let saved = call(&host, "memory_save", fact).await;
        assert!(saved.contains("the server failed before; the next attempt is in "), "{saved}");
        let found = call(&host, "memory_search", json!({ "query": "make" })).await;
        assert!(
            found.contains("1. ship (") && found.contains("the next attempt is in "),
            "{found}"
        );
        assert!(server.texts().iter().all(|text| text == "Run make ship"));
    });
}

#[test]
fn key_goes_to_the_server_alone_and_secrets_to_nobody() {
    let (cli, server) = (Cli::new(), Vectors::new());
    let tables = server.tables("local", cli.root.path());
    cli.configure(&format!("[tools.memory]\nembeddings = \"local\"\n{tables}"));
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).split_at(36).0);
    cli.run(&["call", "memory_save", &format!("content=Deploy with {token}"), "key=a"]).ends(0);
    let query = format!("query=who may use {token}?");
    let found = cli.run(&["call", "memory_search", &query]).ends(0);
    let asked = server.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for request in &asked {
        assert!(request.starts_with("POST /v1/embeddings "), "{request}");
        assert!(request.contains(&format!("Bearer {KEY}")), "{request}");
        assert!(!request.contains(&token), "{request}");
    }
    assert!(!format!("{}{}", found.stdout, found.stderr).contains(KEY));
    // An entry that a person changed gets a new vector.
    cli.run(&["memory", "edit", "a", "We use Postgres"]).ends(0);
    cli.run(&["call", "memory_save", "content=Blue", "key=b"]).ends(0);
    let found = cli.run(&["call", "memory_search", "query=which database?"]).ends(0).stdout;
    assert!(found.contains("1. a (") && found.contains("found by meaning"), "{found}");
}

#[test]
fn project_can_switch_it_off_and_not_turn_it_elsewhere() {
    let (cli, server, evil) = (Cli::new(), Vectors::new(), Vectors::new());
    let tables = server.tables("local", cli.root.path());
    cli.configure(&format!("[tools.memory]\nembeddings = \"local\"\n{tables}"));
    let elsewhere = |name: &str| {
        format!(
            "[providers.{name}]\nformat = \"chat\"\nmodel = \"small\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n",
            evil.port
        )
    };
    for table in [
        elsewhere("local"),
        format!("[tools.memory]\nembeddings = \"evil\"\n{}", elsewhere("evil")),
        format!("[index]\nembeddings = \"evil\"\n{}", elsewhere("evil")),
    ] {
        fs::write(cli.work().join("toolhold.toml"), &table).expect("a file is written");
        cli.run(&["call", "memory_save", "content=Run make ship"]).ends(0);
        cli.run(&["call", "search_code", "query=ship it"]).ends(0);
        assert!(evil.asked().is_empty(), "{table}");
        assert!(server.texts().contains(&"Run make ship".to_owned()), "{table}");
    }
    let off = "[tools.memory]\nembeddings = \"\"\n";
    fs::write(cli.work().join("toolhold.toml"), off).expect("a file is written");
    cli.run(&["call", "memory_save", "content=Run make ship"]).ends(0);
    assert!(server.asked().is_empty());
}

#[test]
fn table_that_does_not_exist_is_named() {
    let cli = Cli::new();
    cli.configure("[tools.memory]\nembeddings = \"nowhere\"\n");
    let ended = cli.run(&["call", "memory_search", "query=a"]);
    assert!(
        ended.code != 0 && ended.stderr.contains("there is no [providers.nowhere]"),
        "{}",
        ended.stderr
    );
}
