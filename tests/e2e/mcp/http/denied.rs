//! Callers whom the operator denied, with tokens of an authorization server that are still valid.

use std::fs;

use serde_json::{Value, json};
use toolhold_core::config::Who;

use super::super::client::text;
use super::super::looping_settings;
use super::calls;
use super::client::{Answered, Answering, Serving, modern};
use super::oauth::{ISSUER, Key, URL, claims, with};
use super::tokens::new_token;
use crate::shell::process_lifetime::{assert_gone, mark, stubborn, with_word};
use crate::support::{Cli, wait_until};

/// A table for all callers of the authorization server. `WORK` is the granted directory.
const TABLE: &str = r#"
[tools]
autonomy = "full"
[tools.file]
allowed_paths = ["WORK"]
[principals.users]
issuer = ["https://login.example.com"]
tools.file.allowed_paths = ["WORK/homes/{sub}"]
"#;

struct Company {
    cli: Cli,
    key: Key,
}

impl Company {
    /// The configuration has the authorization server, and `more`.
    fn new(serve: &str, more: &str) -> Self {
        let cli = Cli::new();
        let key = Key::ed();
        let keys = cli.root.path().join("keys.json");
        fs::write(&keys, json!({ "keys": [key.public("one")] }).to_string()).expect("is written");
        fs::create_dir(cli.work().join("homes")).expect("a folder is made");
        let more = more.replace("WORK", &cli.work().display().to_string());
        cli.configure(&format!(
            "[serve]\nurl = {URL:?}\n{serve}\n[serve.oauth]\nissuer = {ISSUER:?}\n\
             keys = {keys:?}\n{more}"
        ));
        Self { cli, key }
    }

    fn serving(&self, more: &[&str]) -> Serving {
        let mut serving = Serving::at(&self.cli, "0", more, false);
        serving.token = Some(self.token("anna"));
        serving
    }

    fn token(&self, name: &str) -> String {
        let claims = with(claims(name), "groups", json!(["users"]));
        self.key.token(&json!({ "alg": "EdDSA", "kid": "one" }), &claims)
    }

    #[track_caller]
    fn deny(&self, name: &str, more: &[&str]) -> String {
        let line = ["token", "revoke", "--issuer", ISSUER, "--subject", name];
        self.cli.run(&[&line[..], more].concat()).ends(0).stdout
    }

    /// The file that denies a caller, without `.json`, and the folder of its data.
    fn id(name: &str) -> String {
        let who = Who {
            issuer: ISSUER.to_owned(),
            subject: name.to_owned(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        who.id().to_string()
    }
}

fn list(serving: &Serving) -> Answered {
    serving.modern("tools/list", &json!({}), &[]).whole()
}

/// Starts a call, and returns its connection.
fn start(serving: &Serving, tool: &str, arguments: Value) -> Box<dyn super::client::Stream> {
    let (message, lines) = modern("tools/call", &json!({ "name": tool, "arguments": arguments }));
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut connection = serving.connect();
    connection
        .write_all(&serving.request("POST", "/mcp", &lines, &message.to_string()))
        .expect("the server reads");
    connection
}

#[test]
fn denied_caller_is_refused_at_once_by_every_server() {
    let company = Company::new("shared_workspace = true", "");
    let settings = looping_settings();
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let mut servers = [company.serving(&settings), company.serving(&settings)];
    let running: Vec<_> =
        servers.iter().map(|serving| start(serving, "hostile__loop_forever", json!({}))).collect();
    let count = |kind: &str, value: &str| {
        let records = calls(&company.cli);
        let loops = records.iter().filter(|record| record["tool"] == "hostile__loop_forever");
        loops.filter(|record| record[kind] == value).count()
    };
    wait_until("both calls run", || count("kind", "intent") == 2);

    let said = company.deny("anna", &[]);
    for serving in &servers {
        let answer = list(serving);
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains("was denied"), "{answer:?}");
    }
    wait_until("both calls end", || count("result", "cancelled") == 2);
    for connection in running {
        let answer = Answering::new(connection).whole();
        assert!(!answer.body.contains("\"result\""), "{answer:?}");
    }
    let records = calls(&company.cli);
    let called = records.iter().filter(|record| record["call"].is_string());
    assert_eq!(called.count(), 4, "nothing else was called: {records:#?}");

    // A new token doesn't help, and others aren't concerned.
    let denial = company.cli.root.path().join(format!("data/denied/{}.json", Company::id("anna")));
    assert!(said.contains(&denial.display().to_string()), "{said}");
    for serving in &mut servers {
        for (token, status) in [
            (company.token("anna"), 403),
            (company.token("ben"), 200),
            (new_token(&company.cli, &["anna"]), 200),
        ] {
            serving.token = Some(token);
            assert_eq!(list(serving).status, status);
        }
    }

    // A damaged file denies, too.
    servers[0].token = Some(company.token("anna"));
    fs::write(&denial, "nonsense").expect("it is written");
    assert_eq!(list(&servers[0]).status, 403);
    fs::remove_file(&denial).expect("it is there");
    assert_eq!(list(&servers[0]).status, 200);
    for serving in servers {
        assert_eq!(serving.ends(), 0);
    }
}

#[test]
fn purge_ends_the_host_of_a_denied_caller_and_removes_its_data() {
    let company = Company::new("", TABLE);
    let mut serving = company.serving(&[]);
    for name in ["ben", "anna"] {
        serving.token = Some(company.token(name));
        let note = json!({ "content": "a note", "key": "word", "scope": "user" });
        assert_eq!(serving.call("memory_save", &note, &[])["isError"], false);
    }
    let data = company.cli.root.path().join("data");
    let [of_anna, of_ben] =
        ["anna", "ben"].map(|name| data.join("principals").join(Company::id(name)));
    assert!(of_anna.is_dir() && of_ben.is_dir());
    let [job, call] = [mark(96, 0), mark(96, 1)];
    let background = json!({ "command": stubborn(&job), "background": true });
    let started = serving.call("bash", &background, &[]);
    assert!(text(&started).contains("Started as job"), "{started}");
    let running = start(&serving, "bash", json!({ "command": stubborn(&call) }));
    wait_until("the commands run", || with_word(&job) >= 4 && with_word(&call) >= 4);

    company.deny("anna", &["--purge"]);
    assert_eq!(list(&serving).status, 403);
    assert_gone(&job);
    assert_gone(&call);
    let answer = Answering::new(running).whole();
    assert!(!answer.body.contains("\"result\""), "{answer:?}");
    // A server that has written meanwhile removes the data again.
    wait_until("the data is gone", || !of_anna.exists());
    assert!(of_ben.is_dir());
    serving.token = Some(company.token("ben"));
    let found = serving.call("memory_search", &json!({ "query": "word" }), &[]);
    assert!(text(&found).contains("a note"), "{found}");
    let shown = ["config", "show", "--as", "https://login.example.com,anna,users"];
    assert!(company.cli.run(&shown).ends(4).stderr.contains("was denied"));

    // Whoever comes back begins without data.
    fs::remove_file(data.join(format!("denied/{}.json", Company::id("anna")))).expect("is there");
    serving.token = Some(company.token("anna"));
    wait_until("she is admitted again", || list(&serving).status == 200);
    let found = serving.call("memory_search", &json!({ "query": "word" }), &[]);
    assert!(!text(&found).contains("a note"), "{found}");
    assert_eq!(serving.ends(), 0);
    assert!(of_ben.is_dir());
}

#[test]
fn denial_needs_issuer_and_subject() {
    let cli = Cli::new();
    for line in [
        &["token", "revoke"][..],
        &["token", "revoke", "--subject", "anna"],
        &["token", "revoke", "--issuer", ISSUER],
        &["token", "revoke", "ci", "--subject", "anna", "--issuer", ISSUER],
        &["token", "revoke", "ci", "--purge"],
    ] {
        cli.run(line).ends(2);
    }
    assert!(!cli.root.path().join("data/denied").exists());
}
