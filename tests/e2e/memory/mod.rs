//! The built-in memory: what is found again, by whom, and what it never keeps.

mod commands;
mod large_memory;
mod poisoning;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_contract::CancellationToken;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Audience, Category, Host, Request, Session};
use toolhold_store::Stop;
use toolhold_store::index::{Document, DocumentIndex, IndexQuota};

use crate::support::{Cli, builtin, failure, run, shared_cache, toolhold};

/// A host with the memory and the web tools, in folders that a test keeps.
pub(crate) async fn host_in(folder: &Path, settings: &[&str]) -> Host {
    let folders = Folders { cache: shared_cache(), ..Folders::inside(&folder.join("toolhold")) };
    let work = folder.join("work");
    fs::create_dir_all(&work).expect("a folder is made");
    let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .expect("the settings are valid");
    let host = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(work)
        .builtins(&[builtin("memory"), builtin("web")])
        .helper(toolhold());
    host.build().await.expect("the host starts")
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder is made")
}

/// Calls a tool in a session, as a model does.
pub(crate) async fn call(host: &Host, session: &Session, tool: &str, arguments: Value) -> Answer {
    let request = Request {
        audience: Audience::Model,
        session: Some(session.clone()),
        ..Request::new(tool, arguments)
    };
    host.call(request).await
}

/// The text that a model gets.
#[track_caller]
pub(crate) fn text(answer: &Answer) -> String {
    answer.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure:?}")).joined_text()
}

/// All bytes of the memory's files.
fn read_files(folder: &Path) -> Vec<u8> {
    let files = fs::read_dir(folder).expect("the folder is there");
    let names = files.map(|file| file.expect("it is read").path());
    let own = names.filter(|path| path.to_string_lossy().contains("/memory.db"));
    own.flat_map(|path| fs::read(path).expect("it is read")).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn what_one_process_saves_another_one_finds() {
    let cli = Cli::new();
    let saved = cli.run(&["call", "memory_save", "content=Deploy with make ship", "key=deploy"]);
    assert_eq!(saved.ends(0).stdout.trim(), "Stored memory: deploy");
    let found = cli.run(&["call", "memory_search", "query=How do I deploy?"]).ends(0).stdout;
    assert!(found.starts_with("Found 1 memory\n"), "{found}");
    assert!(found.contains("core, project, found by words)\nDeploy with make ship"), "{found}");
    let none = cli.run(&["call", "memory_recall", "query=whales"]).ends(0).stdout;
    assert_eq!(none.trim(), "No matching memories found");
    let stored = cli.run(&["call", "memory_store", "content=x", "category=nonsense"]).ends(0);
    assert!(stored.stdout.starts_with("Stored memory: m-"), "{}", stored.stdout);
    let forgot = cli.run(&["call", "--yes", "memory_forget", "key=deploy"]).ends(0).stdout;
    assert_eq!(forgot.trim(), "Forgot memory: deploy");
    let none = cli.run(&["call", "memory_search", "query=deploy"]).ends(0).stdout;
    assert_eq!(none.trim(), "No matching memories found");
}

#[test]
fn entry_is_found_by_its_key() {
    let cli = Cli::new();
    let keys = ["deploy-command", "release_day", "lunchPlace", "team.contact", "infra/paging"];
    for (number, key) in keys.iter().enumerate() {
        let content = format!("content=fact {number}");
        cli.run(&["call", "memory_save", &content, &format!("key={key}")]).ends(0);
    }
    let find =
        |query: &str| cli.run(&["call", "memory_search", &format!("query={query}")]).ends(0).stdout;
    for key in keys {
        let words = key.split(['-', '_', '.', '/']).chain([key]);
        let humps = if key == "lunchPlace" { ["lunch", "place"].as_slice() } else { &[] };
        for query in words.chain(humps.iter().copied()) {
            let found = find(query);
            assert!(
                found.starts_with(&format!("Found 1 memory\n\n1. {key} (")),
                "{query}: {found}"
            );
        }
    }
    // One whose key has the word is before one that has it somewhere in a long text.
    let long = format!("content=what we deploy is {}", "one word and another ".repeat(20));
    cli.run(&["call", "memory_save", &long, "key=other"]).ends(0);
    let found = find("deploy");
    assert!(found.contains("1. deploy-command (") && found.contains("2. other ("), "{found}");
    // The key is no part of the content, for nobody.
    cli.run(&["memory", "edit", "deploy-command", "Run make ship"]).ends(0);
    let shown = cli.run(&["memory", "show", "deploy-command", "--json"]).ends(0).json();
    assert_eq!(shown["content"], "Run make ship");
    let found = find("command");
    assert!(found.ends_with(")\nRun make ship\n"), "{found}");
    let found = cli.run(&["memory", "search", "paging"]).ends(0).stdout;
    assert!(found.starts_with("infra/paging ") && found.contains("\n  fact 4"), "{found}");
}

#[test]
fn entries_of_an_older_toolhold_are_found_by_their_keys_after_a_save() {
    let cli = Cli::new();
    cli.run(&["call", "memory_save", "content=first", "key=first"]).ends(0);
    let quota = IndexQuota { bytes: 1 << 20, documents: 100 };
    let folder = cli.root.path().join("data/indexes");
    let index = DocumentIndex::named(folder, "memory", quota, false);
    let stop = Stop {
        deadline: Instant::now() + Duration::from_secs(60),
        cancel: CancellationToken::new(),
    };
    let listed = index.list("", None, 10, &stop).expect("it is read").entries.remove(0);
    let mut data: Value = serde_json::from_slice(&listed.data).expect("it is JSON");
    data.as_object_mut().expect("it is an object").remove("keyed");
    let prefix = listed.key.strip_suffix("first").expect("its key is last");
    let older = Document {
        key: format!("{prefix}deploy-command"),
        text: "Run make ship".to_owned(),
        data: data.to_string().into_bytes(),
        ..Document::default()
    };
    index.delete(std::slice::from_ref(&listed.key), &stop).expect("it is deleted");
    index.put(&[older], &stop).expect("it is written");
    let search = ["call", "memory_search", "query=deploy"];
    assert!(cli.run(&search).ends(0).stdout.starts_with("No matching memories found"));
    cli.run(&["call", "memory_save", "content=Something else"]).ends(0);
    let found = cli.run(&search).ends(0).stdout;
    assert!(found.starts_with("Found 1 memory\n\n1. deploy-command ("), "{found}");
    assert!(found.ends_with(")\nRun make ship\n"), "{found}");
}

#[test]
fn another_project_finds_only_what_is_the_users() {
    let cli = Cli::new();
    cli.run(&["call", "memory_save", "content=here uses postgres"]).ends(0);
    cli.run(&["call", "memory_save", "content=the user likes postgres", "scope=user"]).ends(0);
    let other = cli.root.path().join("other");
    fs::create_dir(&other).expect("a folder is made");
    let mut command = cli.command(&["call", "memory_search", "query=postgres"]);
    let found = command.current_dir(&other).output().expect("toolhold starts");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.starts_with("Found 1 memory") && found.contains("the user likes"), "{found}");
    let found = cli.run(&["call", "memory_search", "query=postgres"]).ends(0).stdout;
    assert!(found.starts_with("Found 2 memories"), "{found}");
}

#[test]
fn sessions_and_principals_are_apart() {
    run(async {
        let folder = folder();
        let host = host_in(folder.path(), &[]).await;
        let anna = Session::of_principal("mcp anna 1", "anna");
        let berta = Session::of_principal("mcp berta 1", "berta");
        for scope in ["user", "project", "session"] {
            let arguments = json!({ "content": format!("falcon of {scope}"), "scope": scope });
            text(&call(&host, &anna, "memory_save", arguments).await);
        }
        let query = || json!({ "query": "falcon" });
        let own = text(&call(&host, &anna, "memory_search", query()).await);
        assert!(own.starts_with("Found 3 memories"), "{own}");
        let later = Session::of_principal("mcp anna 2", "anna");
        let later = text(&call(&host, &later, "memory_search", query()).await);
        assert!(later.starts_with("Found 2") && !later.contains("of session"), "{later}");
        for stranger in [berta, Session::new("agent 1"), Session::new("mcp anna 1")] {
            let found = text(&call(&host, &stranger, "memory_search", query()).await);
            assert_eq!(found, "No matching memories found");
            let arguments = json!({ "key": "m-000000000000" });
            let forgot = call(&host, &stranger, "memory_forget", arguments).await;
            assert!(forgot.outcome.is_err());
        }
    });
}

#[test]
fn secret_is_never_in_the_file() {
    run(async {
        let folder = folder();
        let host = host_in(folder.path(), &[]).await;
        let session = Session::new("agent 1");
        let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        let content = format!("The token for releases is {secret}, and the branch is stable");
        text(&call(&host, &session, "memory_save", json!({ "content": content })).await);
        let bytes = read_files(&folder.path().join("toolhold/data/indexes"));
        assert!(holds(&bytes, "the branch is stable"), "it is kept");
        assert!(!holds(&bytes, secret) && !holds(&bytes, &secret[4..]));
        assert!(!holds(&bytes.to_ascii_lowercase(), &secret[4..].to_ascii_lowercase()));
        let found =
            text(&call(&host, &session, "memory_search", json!({ "query": "releases" })).await);
        assert!(found.contains("REDACTED") && !found.contains(secret), "{found}");
        // A secret as the key is refused or redacted, and not kept either.
        let arguments = json!({ "content": "about a key", "key": secret });
        call(&host, &session, "memory_save", arguments).await;
        let bytes = read_files(&folder.path().join("toolhold/data/indexes"));
        assert!(!holds(&bytes, secret));
    });
}

#[test]
fn quota_fails_clearly_and_loses_nothing() {
    run(async {
        let folder = folder();
        let host = host_in(folder.path(), &["tools.memory.index_mib=1"]).await;
        let session = Session::new("agent 1");
        let save =
            |content: String| call(&host, &session, "memory_save", json!({ "content": content }));
        let content = |number: u32| format!("fact {number} {}", "🦀".repeat(4000));
        let mut full = save(content(0)).await;
        for number in 1..100 {
            if full.outcome.is_err() {
                break;
            }
            full = save(content(number)).await;
        }
        let full = failure(&full, Category::PermanentFailure, Some("index-limit"));
        assert!(
            full.message.contains("the limit is 1048576")
                && full.message.contains("[tools.memory]"),
            "{full:?}"
        );
        assert!(full.suggestion.as_ref().is_some_and(|told| told.contains("memory_forget")));
        // What is there can still change, be found and be forgotten.
        text(&save(content(1)).await);
        let found = text(&call(&host, &session, "memory_search", json!({ "query": "fact" })).await);
        assert!(found.starts_with("Found "), "{found}");
    });
}

#[test]
fn control_and_bidi_characters_reach_no_model() {
    run(async {
        let folder = folder();
        let host = host_in(folder.path(), &[]).await;
        let session = Session::new("agent 1");
        let content = "steer\u{1b}[2J\u{202e}me\u{7}";
        text(&call(&host, &session, "memory_save", json!({ "content": content })).await);
        let found =
            text(&call(&host, &session, "memory_search", json!({ "query": "steer" })).await);
        assert!(!found.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{found:?}");
    });
}

#[test]
fn project_can_disable_the_memory() {
    let cli = Cli::new();
    cli.run(&["call", "memory_save", "content=something"]).ends(0);
    fs::write(cli.work().join("toolhold.toml"), "[tools.memory]\nenabled = false\n")
        .expect("a file is written");
    let refused = cli.run(&["call", "memory_search", "query=something"]).ends(3);
    assert!(refused.stderr.contains("enabled = false"), "{}", refused.stderr);
    let tools = cli.run(&["tools", "--json"]).ends(0).stdout;
    assert!(!tools.contains("memory_search"), "{tools}");
    // One that is named is shown, and not as if it could be called.
    let shown = cli.run(&["tools", "memory_search"]).ends(0);
    assert!(shown.stderr.contains("the tool is disabled by `enabled = false`"), "{}", shown.stderr);
    let shown = cli.run(&["tools", "memory_search", "--json"]).ends(0).json();
    assert_eq!(shown["enabled"], false, "{shown}");
    fs::remove_file(cli.work().join("toolhold.toml")).expect("it is removed");
    let shown = cli.run(&["tools", "memory_search"]).ends(0);
    assert!(!shown.stderr.contains("disabled"), "{}", shown.stderr);
}

#[test]
fn saving_needs_no_approval_unless_the_operator_wants_it() {
    let asking = Cli::asking();
    let refused = asking.run(&["call", "memory_save", "content=x"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert!(!asking.root.path().join("data/indexes").exists());
    let read_only = Cli::new();
    read_only.configure("[tools]\nautonomy = \"read-only\"\n");
    let refused = read_only.run(&["call", "--yes", "memory_save", "content=x"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    read_only.run(&["call", "memory_search", "query=x"]).ends(0);
}

#[test]
fn processes_save_at_once() {
    let cli = Cli::new();
    std::thread::scope(|scope| {
        for process in ["a", "b"] {
            let cli = &cli;
            scope.spawn(move || {
                for number in 0..5 {
                    let content = format!("content=from {process}, number {number}");
                    cli.run(&["call", "memory_save", &content]).ends(0);
                }
            });
        }
    });
    let all = cli.run(&["memory", "export"]).ends(0).stdout;
    assert_eq!(all.lines().count(), 10, "{all}");
}
