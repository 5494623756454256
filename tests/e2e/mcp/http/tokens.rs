//! Callers with tokens of `toolhold token`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolhold_core::config::{self, AllowedPath, Folders, Inputs, PathAccess};

use super::super::client::{LEGACY, text};
use super::super::looping_settings;
use super::calls;
use super::client::{Answered, Answering, Serving, modern};
use crate::shell::process_lifetime::{assert_gone, mark, stubborn, with_word};
use crate::support::Cli;

/// Time limit for an event that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the caller `ci` in the audit log.
const CI: &str = r#"mcp ["toolhold","ci"]"#;

/// Makes a token.
#[track_caller]
pub(super) fn new_token(cli: &Cli, line: &[&str]) -> String {
    let made = cli.run(&[&["token", "new"][..], line].concat()).ends(0);
    made.stdout.trim().to_owned()
}

fn read(serving: &Serving) -> Answered {
    let params = json!({ "name": "read", "arguments": { "path": "notes.txt" } });
    serving.modern("tools/call", &params, &[]).whole()
}

#[track_caller]
fn assert_refused(serving: &Serving, status: u16, why: &str) {
    let answer = read(serving);
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.body.contains(why), "{why}: {answer:?}");
}

#[test]
fn token_is_accepted_until_it_is_revoked_by_every_server() {
    let cli = Cli::asking();
    let mut servers = [Serving::new(&cli, &[]), Serving::new(&cli, &[])];
    let own = servers[0].token.clone();
    let token = new_token(&cli, &["ci", "--group", "dev"]);
    let other = new_token(&cli, &["other"]);
    for serving in &mut servers {
        serving.token = Some(token.clone());
        assert_eq!(read(serving).status, 200);
        // The calls are those of a caller of its own.
        assert!(calls(&cli).iter().any(|record| record["session"] == CI), "{:?}", calls(&cli));
    }
    let listed = cli.run(&["token", "list", "--json"]).ends(0);
    assert!(!listed.stdout.contains(&token), "{}", listed.stdout);
    assert_eq!(listed.json()[0]["name"], "ci");
    assert_eq!(listed.json()[0]["groups"], json!(["dev"]));

    let made = calls(&cli).len();
    cli.run(&["token", "revoke", "ci"]).ends(0);
    for serving in &mut servers {
        assert_refused(serving, 401, "the token was revoked");
        assert_eq!(serving.get("/metrics", &[]).status, 401);
    }
    assert_eq!(calls(&cli).len(), made, "nothing was called");
    for serving in &mut servers {
        for valid in [Some(&other), own.as_ref()] {
            serving.token = valid.cloned();
            assert_eq!(read(serving).status, 200);
        }
    }
    let listed = cli.run(&["token", "list", "--json"]).ends(0).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    cli.run(&["token", "revoke", "ci"]).ends(2);
}

#[test]
fn expired_token_ends_its_streams_and_calls() {
    let cli = Cli::asking();
    let mut serving = Serving::new(&cli, &[]);
    serving.token = Some(new_token(&cli, &["ci", "--expires", "8s"]));
    let id = serving.handshake(LEGACY, false, &[]);
    let stream = serving.raw(&serving.request("GET", "/mcp", &[("mcp-session-id", &id)], ""));
    assert_eq!(stream.status, 200);
    // The stream ends without a message, and only because the token expires.
    let since = Instant::now();
    stream.whole();
    assert!(since.elapsed() < PATIENCE);
    let made = calls(&cli).len();
    assert_refused(&serving, 401, "the token has expired");
    assert_eq!(calls(&cli).len(), made, "nothing was called");
}

#[test]
fn revocation_ends_running_calls_streams_and_jobs() {
    let cli = Cli::asking();
    let settings = looping_settings();
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let mut serving = Serving::new(&cli, &settings);
    let own = serving.token.replace(new_token(&cli, &["ci"]));
    let id = serving.handshake(LEGACY, false, &[]);
    let head = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", LEGACY)];
    let request = |id: u64, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };

    let mark = mark(29, 0);
    let job = json!({ "command": stubborn(&mark), "background": true });
    let started = serving.post(&request(2, "bash", job), &head).message();
    assert!(text(&started["result"]).contains("Started as job"), "{started}");
    let stream = serving.raw(&serving.request("GET", "/mcp", &head, ""));
    assert_eq!(stream.status, 200);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening = serving.modern("subscriptions/listen", &listen, &[]);
    listening.until(|message| message["method"] == "notifications/subscriptions/acknowledged");
    let mut of_connection = serving.connect();
    let call = request(3, "hostile__loop_forever", json!({})).to_string();
    of_connection
        .write_all(&serving.request("POST", "/mcp", &head, &call))
        .expect("the server reads");
    let mut alone = serving.connect();
    let (message, lines) =
        modern("tools/call", &json!({ "name": "hostile__loop_forever", "arguments": {} }));
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    alone
        .write_all(&serving.request("POST", "/mcp", &lines, &message.to_string()))
        .expect("the server reads");
    let count = |kind: &str, value: &str| {
        let records = calls(&cli);
        let loops = records.iter().filter(|record| record["tool"] == "hostile__loop_forever");
        loops.filter(|record| record[kind] == value).count()
    };
    let until = Instant::now() + PATIENCE;
    while count("kind", "intent") < 2 || with_word(&mark) < 4 {
        assert!(Instant::now() < until, "they run");
        std::thread::yield_now();
    }

    cli.run(&["token", "revoke", "ci"]).ends(0);
    let until = Instant::now() + PATIENCE;
    while count("result", "cancelled") < 2 {
        assert!(Instant::now() < until, "they end: {:?}", calls(&cli));
        std::thread::yield_now();
    }
    assert_gone(&mark);
    stream.whole();
    listening.whole();
    for call in [alone, of_connection] {
        let answer = Answering::new(call).whole();
        assert!(!answer.body.contains("\"result\""), "{answer:?}");
    }
    assert_eq!(serving.post(&request(4, "bash", json!({ "command": "true" })), &head).status, 401);
    serving.token = own;
    assert_eq!(read(&serving).status, 200, "other callers stay");
    assert_eq!(serving.ends(), 0);
}

#[test]
fn token_of_another_installation_is_refused() {
    let cli = Cli::asking();
    let other = Cli::asking();
    let mut serving = Serving::new(&cli, &[]);
    let own = new_token(&cli, &["ci"]);
    let foreign = new_token(&other, &["ci"]);
    // The record without the key doesn't help.
    let folder = |cli: &Cli| cli.root.path().join("data/tokens");
    for entry in fs::read_dir(folder(&other)).expect("it is there").flatten() {
        let to = folder(&cli).join(entry.file_name());
        if !to.exists() {
            fs::copy(entry.path(), to).expect("it is copied");
        }
    }
    let (signed, _) = own.rsplit_once('.').expect("it has parts");
    let (_, signature) = foreign.rsplit_once('.').expect("it has parts");
    let mut longer = own.clone();
    longer.push('A');
    for forged in [foreign.clone(), format!("{signed}.{signature}"), format!("{signed}."), longer] {
        serving.token = Some(forged);
        assert_refused(&serving, 401, "the token isn't one of this server");
    }
    assert_eq!(calls(&cli).len(), 0, "nothing was called");
    serving.token = Some(own);
    assert_eq!(read(&serving).status, 200);
    assert_eq!(serving.ends(), 0);
}

/// The record has the directories of the options and no others.
#[test]
fn options_of_a_token_replace_the_directories() {
    let cli = Cli::asking();
    for name in ["docs", "build"] {
        fs::create_dir(cli.work().join(name)).expect("a folder is made");
    }
    cli.configure("[tools.shell]\nallowed_paths = [\"build\"]\n");
    let made = cli.run(&["token", "new", "ci", "--allow-read", "docs", "--json"]).ends(0).json();
    let id = made["id"].as_str().expect("it has an id");
    let record = cli.root.path().join(format!("data/tokens/{id}.json"));
    let record: Value =
        serde_json::from_slice(&fs::read(record).expect("it is read")).expect("a record is JSON");
    let bounds = serde_json::from_value(record["bounds"].clone()).expect("they are texts");
    let inputs = Inputs { bounds, working_directory: Some(cli.work()), ..Inputs::default() };
    let folders = Folders::inside(&cli.root.path().canonicalize().expect("it is there"));
    let loaded = config::load(&folders, &inputs).expect("it is valid");
    let docs = AllowedPath {
        path: cli.work().join("docs").display().to_string(),
        access: PathAccess::Read,
    };
    assert_eq!(loaded.values.tools.file.allowed_paths, [docs]);
    // Commands may use `build` alone, so the token has none.
    assert!(!loaded.values.tools.shell.enabled);
}

#[test]
fn token_beyond_the_configuration_is_not_made() {
    let cli = Cli::asking();
    let outside = cli.root.path().display().to_string();
    for (line, key) in [
        (&["--allow", &outside][..], "tools.file.allowed_paths"),
        (&["--set", "tools.autonomy=full"][..], "tools.autonomy"),
        (&["--set", "tools.call=1", "--allow-read", "/etc"][..], "tools.file.allowed_paths"),
    ] {
        let ended = cli.run(&[&["token", "new", "ci"][..], line].concat()).ends(2);
        assert!(ended.stderr.contains(key), "{key}: {}", ended.stderr);
    }
    let long = "x".repeat(65);
    for name in ["../x", "a/b", "", "a b", ".hidden", &long] {
        cli.run(&["token", "new", "--", name]).ends(2);
    }
    for time in ["91d", "0s", "forever", "-1h"] {
        cli.run(&["token", "new", "ci", &format!("--expires={time}")]).ends(2);
    }
    assert!(!cli.root.path().join("data/tokens").exists(), "no file was written");
    assert_eq!(cli.run(&["token", "list", "--json"]).ends(0).json(), json!([]));
}

#[test]
fn no_tool_reads_the_key_of_tokens() {
    let cli = Cli::asking();
    let root = cli.root.path().canonicalize().expect("it is there");
    new_token(&cli, &["ci"]);
    let file = root.join("data/tokens/key");
    let key = fs::read_to_string(&file).expect("it is there");
    let serving = Serving::new(&cli, &["--allow", root.to_str().expect("is UTF-8")]);
    let read = serving.call("read", &json!({ "path": file }), &[]);
    assert_eq!(read["isError"], true, "{read}");
    assert!(!read.to_string().contains(key.trim()), "{read}");
}
