//! `toolhold memory`, for people.

use serde_json::{Value, json};

use crate::mcp::client::{Client, MODERN, text};
use crate::support::Cli;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn people_search_show_change_export_and_delete_while_a_server_runs() {
    let cli = Cli::new();
    let mut client = Client::new(&cli, &[], MODERN, false);
    let mut save = |content: &str, key: &str, scope: &str| {
        let arguments = json!({ "content": content, "key": key, "scope": scope });
        text(&client.call("memory_save", arguments))
    };
    assert_eq!(save("Deploy with make ship", "deploy", "project").trim(), "Stored memory: deploy");
    save("Deploy on Fridays only", "deploy", "user");
    save("The tests need a database", "tests", "project");

    let found = cli.run(&["memory", "search", "deploy"]).ends(0).stdout;
    assert!(found.contains("make ship") && found.contains("Fridays"), "{found}");
    let found = cli.run(&["memory", "search", "--scope", "user", "--json"]).ends(0).json();
    assert_eq!(found["entries"].as_array().map(Vec::len), Some(1), "{found}");
    let entry = &found["entries"][0];
    assert_eq!(entry["front_end"], "mcp", "{entry}");
    assert_eq!(entry["untrusted"], false, "{entry}");
    assert!(entry["call"].as_str().is_some_and(|call| call.contains('-')), "{entry}");

    let several = cli.run(&["memory", "show", "deploy"]).ends(2).stderr;
    assert!(several.contains("use the ID of one") && several.contains("user/"), "{several}");
    let id = entry["id"].as_str().expect("a text");
    let shown = cli.run(&["memory", "show", id]).ends(0).stdout;
    assert!(shown.contains("Fridays") && shown.contains("saved by: mcp in call"), "{shown}");
    let missing = cli.run(&["memory", "show", "nothing"]).ends(2).stderr;
    assert!(missing.contains("there is no memory with the key `nothing`"), "{missing}");

    cli.run(&["memory", "edit", "tests", "The tests need no database"]).ends(0);
    cli.run(&["memory", "edit", "tests"]).ends(2);
    let found = client.call("memory_search", json!({ "query": "database" }));
    assert!(text(&found).contains("need no database"), "{found}");
    // No call wrote that text, and models still take it as trusted.
    let shown = cli.run(&["memory", "show", "tests"]).ends(0).stdout;
    assert!(shown.contains("saved by: toolhold memory edit\n"), "{shown}");
    let entry = cli.run(&["memory", "show", "tests", "--json"]).ends(0).json();
    assert_eq!((&entry["call"], &entry["untrusted"]), (&json!(""), &json!(false)), "{entry}");
    assert!(!text(&found).contains("<external-data"), "{found}");

    let all = lines(&cli.run(&["memory", "export"]).ends(0).stdout);
    assert_eq!(all.len(), 3, "{all:?}");
    // Nobody is asked about one that is named, and the answer shows what it was.
    let deleted = cli.run(&["memory", "delete", "tests"]).ends(0).stdout;
    assert!(deleted.starts_with("Deleted memory: tests\n"), "{deleted}");
    assert!(deleted.ends_with("core, this project\nThe tests need no database\n"), "{deleted}");
    let refused = cli.run(&["memory", "delete", "--all"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert_eq!(lines(&cli.run(&["memory", "export"]).ends(0).stdout).len(), 2);
    cli.run(&["memory", "delete", "--all", "--scope", "project", "--yes"]).ends(0);
    let left = lines(&cli.run(&["memory", "export"]).ends(0).stdout);
    assert!(left.len() == 1 && left[0]["scope"] == "user", "{left:?}");
    let deleted = cli.run(&["memory", "delete", "--all", "--yes"]).ends(0).stdout;
    assert_eq!(deleted.trim(), "Deleted 1 memory");
    let none = client.call("memory_search", json!({ "query": "deploy" }));
    assert_eq!(text(&none).trim(), "No matching memories found");
}

#[test]
fn untrusted_entry_is_marked_until_a_person_vouches_for_it() {
    let cli = Cli::new();
    // The answers of commands are untrusted text.
    cli.configure("[tools]\nautonomy = \"full\"\n");
    cli.run(&["call", "bash", "command=echo hello"]).ends(0);
    cli.run(&["call", "memory_save", "content=Say hello first", "key=hello"]).ends(0);
    let search = ["call", "--for-model", "memory_search", "query=hello"];
    let fenced = cli.run(&search).ends(0).stdout;
    assert!(fenced.contains("<external-data tool=\"memory_search\""), "{fenced}");
    let shown = cli.run(&["memory", "show", "hello"]).ends(0).stdout;
    assert!(shown.contains("untrusted") && shown.contains("--trusted"), "{shown}");
    // Nobody vouches for what they haven't seen.
    cli.run(&["memory", "edit", "hello", "--trusted"]).ends(3);
    let hash = shown.split("--trusted=").nth(1).and_then(|rest| rest.split('`').next());
    let vouch = format!("--trusted={}", hash.expect("it is shown"));
    cli.run(&["call", "memory_save", "content=Say evil first", "key=hello"]).ends(0);
    let error = cli.run(&["memory", "edit", "hello", &vouch]).ends(3).stderr;
    assert!(error.contains("the text has another hash"), "{error}");
    assert!(cli.run(&search).ends(0).stdout.contains("external-data"));
    cli.run(&["call", "memory_save", "content=Say hello first", "key=hello"]).ends(0);
    cli.run(&["memory", "edit", "hello", &vouch]).ends(0);
    let plain = cli.run(&search).ends(0).stdout;
    assert!(!plain.contains("external-data") && plain.contains("Say hello first"), "{plain}");
    // The session still has untrusted text. Saying the same changes nothing; another text does.
    cli.run(&["call", "memory_save", "content=Say hello first", "key=hello"]).ends(0);
    assert!(!cli.run(&search).ends(0).stdout.contains("external-data"));
    cli.run(&["call", "memory_save", "content=Say hello first!", "key=hello"]).ends(0);
    assert!(cli.run(&search).ends(0).stdout.contains("external-data"));
    let secret = "key=ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let refused = cli.run(&["call", "memory_save", "content=ok", secret]).ends(2).stderr;
    assert!(refused.contains("the key looks like a secret"), "{refused}");
    let refused = cli.run(&["call", "memory_save", "content=ok", "key=stand up"]).ends(2).stderr;
    assert!(refused.contains("the key has ' '"), "{refused}");
}

#[test]
fn terminal_gets_no_control_characters_and_no_secrets() {
    let cli = Cli::new();
    cli.run(&["call", "memory_save", "content=\u{1b}]0;x\u{7}\u{202e}bad", "key=bad"]).ends(0);
    let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    cli.run(&["memory", "edit", "bad", &format!("token {token} and \u{1b}[2J")]).ends(0);
    for line in [
        &["memory", "search"][..],
        &["memory", "search", "--json"],
        &["memory", "show", "bad"],
        &["memory", "export"],
        &["memory", "delete", "bad"],
    ] {
        let shown = cli.run(line).ends(0).stdout;
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown:?}");
        assert!(shown.contains("REDACTED") && !shown.contains(token), "{shown}");
    }
}
