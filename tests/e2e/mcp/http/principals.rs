//! Two callers of a server with tables of `[principals]`: each has data and rights of its own.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolhold_core::config::Who;

use super::super::client::{LEGACY, text};
use super::client::{Answered, Serving};
use super::oauth::{ISSUER, Key, URL, claims, with};
use super::tokens::new_token;
use super::{calls, sharing};
use crate::shell::process_lifetime::{assert_gone, mark, stubborn, with_word};
use crate::support::{Cli, wait_until};

/// Text that is only in Anna's data.
pub(super) const MARK: &str = "only-of-anna";

/// The tables of Anna's and Ben's server. `WORK` is the granted directory. `ROOT`
/// contains it, and Toolhold's own folders.
pub(super) const TABLES: &str = r#"
[tools]
autonomy = "full"
[tools.file]
allowed_paths = ["WORK"]
[tools.overflow]
threshold = 2000
[tools.scheduler]
enabled = true
min_interval = 1
[[tools.permissions.write]]
pattern = "*.ask"
action = "ask"
[principals.users]
issuer = ["ISSUER"]
group = ["users"]
[principals.users.tools.file]
allowed_paths = ["WORK/homes/{sub}"]
"#;

/// A server `s` for the callers, which reads the files that it is told to.
const PROGRAM: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        answer = {"tools": [{"name": "work", "inputSchema": schema}]}
    else:
        try: text = open(message["params"]["arguments"]["path"]).read()
        except OSError as error: text = f"Error: {error}"
        answer = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"#;

/// The tables with this server, which may read everything.
pub(super) fn with_program() -> String {
    format!(
        "{TABLES}[principals.users.mcp.servers.s]\nallowed_paths = [{{ path = \"ROOT\", access = \"read\" }}]\n\
         [mcp.servers.s]\ncommand = \"/usr/bin/python3\"\nargs = [\"-c\", {}]\nnetwork = true\n\
         allowed_paths = [{{ path = \"ROOT\", access = \"read\" }}]\n",
        json!(PROGRAM)
    )
}

/// A server of the real binary, and the key of its authorization server.
pub(super) struct Company {
    pub(super) cli: Cli,
    key: Key,
    pub(super) serving: Serving,
}

impl Company {
    pub(super) fn new() -> Self {
        Self::with(TABLES, |_cli| {})
    }

    pub(super) fn with(tables: &str, prepare: impl FnOnce(&Cli)) -> Self {
        let cli = Cli::new();
        let key = Key::ed();
        let keys = cli.root.path().join("keys.json");
        fs::write(&keys, json!({ "keys": [key.public("one")] }).to_string()).expect("is written");
        fs::create_dir(cli.work().join("homes")).expect("a folder is made");
        configure(&cli, tables);
        prepare(&cli);
        let serving = Serving::at(&cli, "0", &[], false);
        Self { cli, key, serving }
    }

    /// The following requests are Anna's, Ben's, …
    pub(super) fn become_caller(&mut self, name: &str) {
        self.become_with(name, &["users"]);
    }

    fn become_with(&mut self, name: &str, groups: &[&str]) {
        let claims = with(claims(name), "groups", json!(groups));
        let head = json!({ "alg": "EdDSA", "kid": "one" });
        self.serving.token = Some(self.key.token(&head, &claims));
    }

    pub(super) fn home(&self, name: &str) -> PathBuf {
        self.cli.work().join("homes").join(name)
    }

    /// The folder of a caller's own data.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        let who = Who {
            issuer: ISSUER.to_owned(),
            subject: name.to_owned(),
            groups: Vec::new(),
            client: None,
            token: None,
        };
        self.cli.root.path().join("data/principals").join(who.id().as_str())
    }

    #[track_caller]
    pub(super) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.serving.call(tool, &arguments, &[])
    }

    #[track_caller]
    pub(super) fn succeeds(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        text(&result)
    }

    pub(super) fn list(&self) -> Answered {
        self.serving.modern("tools/list", &json!({}), &[]).whole()
    }

    /// Nothing of Anna's is in the answer.
    #[track_caller]
    fn reveals_nothing(&self, tool: &str, arguments: Value) {
        let result = self.call(tool, arguments.clone());
        assert!(!result.to_string().contains(MARK), "{tool} {arguments}: {result}");
    }
}

/// Writes the configuration with the tables.
fn configure(cli: &Cli, tables: &str) {
    let keys = cli.root.path().join("keys.json");
    let root = cli.root.path().canonicalize().expect("it is there");
    let tables = tables
        .replace("WORK", &cli.work().display().to_string())
        .replace("ROOT", &root.display().to_string())
        .replace("ISSUER", ISSUER);
    cli.configure(&format!(
        "[serve]\nurl = {URL:?}\n[serve.oauth]\nissuer = {ISSUER:?}\nkeys = {keys:?}\n{tables}"
    ));
}

/// The files below a folder that contain Anna's text.
pub(super) fn marked_files(folder: &Path) -> Vec<PathBuf> {
    let mut marked = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            marked.extend(marked_files(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && String::from_utf8_lossy(&bytes).contains(MARK)
        {
            marked.push(path);
        }
    }
    marked
}

#[test]
fn files_of_a_caller_are_out_of_reach_of_others() {
    let mut company = Company::new();
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": MARK }));
    let file = company.home("anna").join("a.txt");
    assert_eq!(fs::read_to_string(&file).expect("it was written"), MARK);

    company.become_caller("ben");
    company.succeeds("write", json!({ "path": "a.txt", "content": "of ben" }));
    assert!(company.succeeds("read", json!({ "path": "a.txt" })).contains("of ben"));
    let homes = company.cli.work().join("homes");
    for path in [file.display().to_string(), "../anna/a.txt".to_owned()] {
        company.reveals_nothing("read", json!({ "path": path }));
        company.reveals_nothing("write", json!({ "path": path, "content": "gone" }));
        company.reveals_nothing("bash", json!({ "command": format!("cat {path}") }));
        company.reveals_nothing("bash", json!({ "command": format!("echo gone > {path}") }));
        company.reveals_nothing("copy_path", json!({ "source": path, "destination": "b.txt" }));
    }
    company.reveals_nothing("grep", json!({ "pattern": MARK, "path": homes }));
    company.reveals_nothing("find_path", json!({ "pattern": "**/a.txt", "path": homes }));
    let command = format!("grep -r {MARK} {}", homes.display());
    let result = company.call("bash", json!({ "command": command }));
    assert!(!text(&result).contains("a.txt"), "{result}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), MARK);
}

#[test]
fn kept_data_of_a_caller_is_out_of_reach_of_others() {
    let mut company = Company::new();
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": MARK }));
    let line = format!("{MARK} {}\n", "x".repeat(100));
    fs::write(company.home("anna").join("long.txt"), line.repeat(500)).expect("it is written");
    let long = company.call("read", json!({ "path": "long.txt" }));
    let kept = sharing::id(&long);
    company.succeeds("read_overflow", json!({ "id": kept }));
    company.succeeds(
        "memory_save",
        json!({ "content": format!("The word is {MARK}"), "key": "word", "scope": "user" }),
    );
    let found = company.succeeds("memory_search", json!({ "query": "word" }));
    assert!(found.contains(MARK), "{found}");
    let task = json!({ "content": MARK, "path": "later.txt" });
    company.succeeds(
        "schedule_deferred",
        json!({ "name": "later", "when": "1h", "tool": "write", "arguments": task }),
    );
    assert!(company.succeeds("list_tasks", json!({})).contains("later"));
    let mark = mark(94, 0);
    let job = json!({ "command": stubborn(&mark), "background": true });
    let started = company.succeeds("bash", job);
    let mut words = started.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let job = words.find(|word| word.starts_with("job-")).expect("it names the job");
    wait_until("the job runs", || with_word(&mark) >= 4);
    // What reads the same words is answered from the cache.
    for _ in 0..2 {
        assert!(company.succeeds("read", json!({ "path": "a.txt" })).contains(MARK));
    }

    company.become_caller("ben");
    company.succeeds("write", json!({ "path": "a.txt", "content": "of ben" }));
    for (tool, arguments) in [
        ("read", json!({ "path": "a.txt" })),
        ("memory_search", json!({ "query": "word" })),
        ("job_list", json!({})),
    ] {
        company.reveals_nothing(tool, arguments);
    }
    for (tool, arguments) in [
        ("read_overflow", json!({ "id": kept })),
        ("job_output", json!({ "id": job })),
        ("job_stop", json!({ "id": job })),
        ("cancel_task", json!({ "name": "later" })),
    ] {
        let result = company.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(!result.to_string().contains(MARK), "{tool}: {result}");
    }
    assert!(!company.succeeds("list_tasks", json!({})).contains("later"));
    let record =
        company.serving.modern("resources/read", &json!({ "uri": "toolhold://record" }), &[]);
    let record = record.whole();
    assert!(record.status == 200 && !record.body.contains(MARK), "{record:?}");
    let resource = json!({ "uri": format!("toolhold://kept/{kept}") });
    let resource = company.serving.modern("resources/read", &resource, &[]).message();
    assert!(resource["error"].is_object(), "{resource}");

    // Ben changed nothing of Anna's.
    assert_eq!(fs::read_to_string(company.home("anna").join("a.txt")).expect("is there"), MARK);
    assert!(with_word(&mark) >= 4, "the job goes on");
    company.become_caller("anna");
    assert!(company.succeeds("list_tasks", json!({})).contains("later"));
    assert!(company.succeeds("memory_search", json!({ "query": "word" })).contains(MARK));

    // All of it is in Anna's folder, and in the audit log.
    let data = company.cli.root.path().join("data");
    let own = company.data("anna");
    let marked = marked_files(&data);
    assert!(marked.iter().any(|path| path.starts_with(&own)), "{marked:?}");
    for path in marked {
        assert!(path.starts_with(&own) || path.starts_with(data.join("audit")), "{path:?}");
    }
    assert_eq!(company.serving.ends(), 0);
    assert_gone(&mark);
}

#[test]
fn caller_undoes_its_own_changes_alone() {
    let mut company = Company::new();
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": "before" }));
    company.succeeds("write", json!({ "path": "a.txt", "content": MARK }));
    company.become_caller("ben");
    for arguments in [json!({}), json!({ "turn": true })] {
        company.reveals_nothing("undo", arguments);
    }
    let file = company.home("anna").join("a.txt");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), MARK);
    company.become_caller("anna");
    company.succeeds("undo", json!({}));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
}

#[test]
fn connections_and_questions_belong_to_their_caller() {
    let mut company = Company::new();
    company.become_caller("anna");
    let id = company.serving.handshake(LEGACY, false, &[]);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(company.serving.post(&list, &[("mcp-session-id", &id)]).status, 200);
    let write = json!({ "path": "a.ask", "content": MARK });
    let mut write = json!({ "name": "write", "arguments": write });
    let asked = company.serving.modern("tools/call", &write, &[]).message()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    write["requestState"] = asked["requestState"].clone();
    write["inputResponses"] =
        json!({ "answer": { "action": "accept", "content": { "answer": "once" } } });

    company.become_caller("ben");
    assert_eq!(company.serving.post(&list, &[("mcp-session-id", &id)]).status, 404);
    let stolen = company.serving.modern("tools/call", &write, &[]).message();
    assert!(stolen["error"].is_object(), "{stolen}");
    assert!(!company.home("ben").join("a.ask").exists());

    company.become_caller("anna");
    let answered = company.serving.modern("tools/call", &write, &[]).message();
    assert_eq!(answered["result"]["isError"], false, "{answered}");
    assert_eq!(
        fs::read_to_string(company.home("anna").join("a.ask")).expect("it was written"),
        MARK
    );
}

#[test]
fn caller_without_rights_is_refused() {
    let mut company = Company::new();
    for (name, groups, why) in [
        ("eve", &[][..], "no table [principals.*] of "),
        ("eve", &["user", "users2"], "no table [principals.*] of "),
        ("../anna", &["users"], "the subject can't be part of a path"),
        ("homes/anna", &["users"], "the subject can't be part of a path"),
    ] {
        company.become_with(name, groups);
        let answer = company.list();
        assert_eq!(answer.status, 403, "{name}: {answer:?}");
        assert!(answer.body.contains(why), "{name}: {answer:?}");
        assert_eq!(company.serving.get("/metrics", &[]).status, 403);
    }
    assert!(calls(&company.cli).is_empty(), "nothing was called");
    // The metrics are about all users.
    company.become_caller("anna");
    assert_eq!(company.list().status, 200);
    assert_eq!(company.serving.get("/metrics", &[]).status, 403);
}

#[test]
fn rights_follow_the_groups_of_each_token() {
    let more = format!(
        "{TABLES}[principals.guests]\nissuer = [\"ISSUER\"]\ngroup = [\"guests\"]\n\
         [principals.guests.tools.file]\n\
         allowed_paths = [{{ path = \"WORK/homes/{{sub}}\", access = \"read\" }}]\n"
    );
    let mut company = Company::with(&more, |_cli| {});
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": "one" }));
    // The tokens are used in turn, so that no rights are left over.
    for _ in 0..2 {
        company.become_with("anna", &["guests"]);
        company.succeeds("read", json!({ "path": "a.txt" }));
        let refused = company.call("write", json!({ "path": "a.txt", "content": "two" }));
        assert_eq!(refused["isError"], true, "{refused}");
        company.become_caller("anna");
        company.succeeds("write", json!({ "path": "a.txt", "content": "one" }));
    }
    assert_eq!(fs::read_to_string(company.home("anna").join("a.txt")).expect("is there"), "one");
}

#[test]
fn removed_table_ends_the_work_of_its_callers() {
    let mut company = Company::new();
    company.become_caller("anna");
    let mark = mark(95, 0);
    company.succeeds("bash", json!({ "command": stubborn(&mark), "background": true }));
    wait_until("the job runs", || with_word(&mark) >= 4);
    let id = company.serving.handshake(LEGACY, false, &[]);
    let head = [("mcp-session-id", id.as_str())];
    let stream = company.serving.raw(&company.serving.request("GET", "/mcp", &head, ""));
    assert_eq!(stream.status, 200);

    let (operator, _) = TABLES.split_once("[principals.users]").expect("it has tables");
    configure(&company.cli, operator);
    stream.whole();
    assert_gone(&mark);
    wait_until("the caller is refused", || company.list().status == 403);
    // Without tables, nobody gets the operator's rights.
    company.become_caller("ben");
    assert_eq!(company.list().status, 403);

    configure(&company.cli, TABLES);
    wait_until("the tables are back", || company.list().status == 200);
}

#[test]
fn changed_table_applies_to_the_next_call() {
    let mut company = Company::new();
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": "one" }));
    let narrower = TABLES
        .replace("[\"WORK/homes/{sub}\"]", "[{ path = \"WORK/homes/{sub}\", access = \"read\" }]");
    configure(&company.cli, &narrower);
    wait_until("the table has changed", || {
        company.call("write", json!({ "path": "a.txt", "content": "two" }))["isError"] == true
    });
    company.succeeds("read", json!({ "path": "a.txt" }));
}

#[test]
fn many_first_requests_are_answered_by_one_host() {
    let mut company = Company::new();
    company.become_caller("anna");
    let serving = &company.serving;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| serving.modern("tools/list", &json!({}), &[]).whole().status))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it answers")).collect()
    });
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let principals = fs::read_dir(company.cli.root.path().join("data/principals"));
    assert_eq!(principals.expect("it is there").count(), 1);
}

#[test]
fn more_callers_than_hosts_are_served_one_after_the_other() {
    let mut company = Company::new();
    // The host of the first one ends, and its data stays.
    company.become_caller("anna");
    company.succeeds("memory_save", json!({ "content": MARK, "key": "word", "scope": "user" }));
    for number in 0..70 {
        company.become_caller(&format!("user{number}"));
        assert_eq!(company.list().status, 200, "{number}");
    }
    company.become_caller("anna");
    assert!(company.succeeds("memory_search", json!({ "query": "word" })).contains(MARK));
    assert_eq!(company.serving.ends(), 0);
}

#[test]
fn task_of_a_caller_runs_with_its_rights() {
    let mut company = Company::new();
    company.become_caller("ben");
    company.succeeds("write", json!({ "path": "b.txt", "content": "of ben" }));
    let other = company.home("ben").join("b.txt").display().to_string();
    company.become_caller("anna");
    let write = json!({ "path": other, "content": "gone" });
    let refused = company.call(
        "schedule_deferred",
        json!({ "name": "other", "when": "1s", "tool": "write", "arguments": write }),
    );
    assert_eq!(refused["isError"], true, "{refused}");
    let command = format!("echo gone > {other}; echo ran > ran.txt");
    let write = json!({ "path": "written.txt", "content": "by the task" });
    for (name, tool, arguments) in
        [("command", "bash", json!({ "command": command })), ("own", "write", write)]
    {
        company.succeeds(
            "schedule_deferred",
            json!({ "name": name, "when": "1s", "tool": tool, "arguments": arguments }),
        );
    }
    let home = company.home("anna");
    for file in ["ran.txt", "written.txt"] {
        wait_until("the task has run", || home.join(file).exists());
    }
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "of ben");
    // The log names the caller and not the user of this machine.
    let of_tasks = calls(&company.cli).into_iter().filter(|record| {
        record["session"].as_str().is_some_and(|session| session.starts_with("task "))
    });
    for record in of_tasks {
        assert_eq!(record["user"], "anna", "{record}");
    }
}

#[test]
fn server_of_a_caller_sees_no_data_of_others() {
    let server = with_program();
    let mut company = Company::with(&server, |cli| {
        cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    });
    company.become_caller("anna");
    company.succeeds("memory_save", json!({ "content": MARK, "key": "word", "scope": "user" }));
    company.become_caller("ben");
    let public = company.cli.work().join("notes.txt");
    let read = company.succeeds("s__work", json!({ "path": public }));
    assert!(read.contains("second"), "the server sees all of it: {read}");
    let own = company.data("anna");
    let marked = marked_files(&own);
    assert!(!marked.is_empty(), "{own:?}");
    let secret = company.cli.root.path().join("data/audit/key");
    for path in marked.iter().chain([&secret]) {
        let read = text(&company.call("s__work", json!({ "path": path })));
        assert!(read.contains("Error: "), "{read}");
    }
}

#[test]
fn limits_of_a_token_apply_without_tables() {
    let cli = Cli::new();
    cli.configure("[tools]\nautonomy = \"full\"\n");
    let docs = cli.work().join("docs");
    fs::create_dir(&docs).expect("a folder is made");
    fs::write(docs.join("a.txt"), "allowed").expect("a file is written");
    let mut serving = Serving::new(&cli, &[]);
    let own = serving.token.clone();
    let read = |serving: &Serving, path: &str| serving.call("read", &json!({ "path": path }), &[]);
    let write = json!({ "path": "docs/a.txt", "content": "gone" });

    serving.token = Some(new_token(&cli, &["ci", "--allow-read", "docs"]));
    assert_eq!(read(&serving, "docs/a.txt")["isError"], false);
    assert_eq!(read(&serving, "notes.txt")["isError"], true);
    assert_eq!(serving.call("write", &write, &[])["isError"], true);
    serving.token = Some(new_token(&cli, &["ci", "--set", "tools.autonomy=read-only"]));
    assert_eq!(read(&serving, "notes.txt")["isError"], false);
    assert_eq!(serving.call("write", &write, &[])["isError"], true);
    // A table that doesn't exist gives nothing.
    serving.token = Some(new_token(&cli, &["ci", "--for", "developers"]));
    let answer = serving.modern("tools/list", &json!({}), &[]).whole();
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.contains("[principals.developers]"), "{answer:?}");
    assert_eq!(fs::read_to_string(docs.join("a.txt")).expect("it is there"), "allowed");
    // The server's own token is not limited.
    serving.token = own;
    assert_eq!(serving.call("write", &write, &[])["isError"], false);
}

#[test]
fn token_has_the_rights_of_its_table() {
    let mut company = Company::with(
        &TABLES.replace("issuer = [\"ISSUER\"]", "issuer = [\"toolhold\"]"),
        |_cli| {},
    );
    company.serving.token = Some(new_token(&company.cli, &["ci", "--group", "users"]));
    company.succeeds("write", json!({ "path": "a.txt", "content": "of ci" }));
    assert!(company.home("ci").join("a.txt").exists());
    company.serving.token = Some(new_token(&company.cli, &["other", "--for", "users"]));
    company.succeeds("write", json!({ "path": "a.txt", "content": "of other" }));
    company.serving.token = Some(new_token(&company.cli, &["none"]));
    assert_eq!(company.list().status, 403);
}
