//! What works for two callers of a server: plugins with a store, tasks of the protocol, servers
//! with a login, and what the ceiling stops.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::super::client::{LEGACY, text};
use super::super::tasks::EXTENSION;
use super::client::{Answered, Serving, modern};
use super::principals::{Company, MARK, TABLES, marked_files, with_program};
use crate::support::{plugin, wait_until};

#[test]
fn store_of_a_plugin_is_apart_for_each_caller() {
    let tables = format!(
        "{TABLES}[principals.users.plugins.hostile-store]\n[plugins.hostile-store]\n\
         path = {:?}\nreload = \"trust\"\nstore_mib = 1\n",
        plugin("hostile-store")
    );
    let mut company = Company::with(&tables, |_cli| {});
    let get = |company: &Company| company.succeeds("hostile-store__get", json!({ "key": "a" }));
    company.become_caller("anna");
    company.succeeds("hostile-store__put", json!({ "key": "a", "value": MARK }));
    for _ in 0..2 {
        assert!(get(&company).contains(MARK));
    }

    company.become_caller("ben");
    let got = get(&company);
    assert!(got.contains("nothing") && !got.contains(MARK), "{got}");
    company.succeeds("hostile-store__put", json!({ "key": "a", "value": "of ben" }));
    assert!(get(&company).contains("of ben"));
    // The quota that he uses up is his own.
    let flood = json!({ "bytes": 100_000, "keys": 5, "writes": 1000 });
    let flooded = company.succeeds("hostile-store__flood", flood);
    assert!(flooded.contains("store_mib"), "{flooded}");

    company.become_caller("anna");
    assert!(get(&company).contains(MARK));
    company.succeeds("hostile-store__put", json!({ "key": "b", "value": "x".repeat(100_000) }));

    let data = company.cli.root.path().join("data");
    for name in ["anna", "ben"] {
        assert!(company.data(name).join("stores/hostile-store.db").exists(), "{name}");
    }
    let own = company.data("anna");
    let marked = marked_files(&data);
    assert!(marked.iter().any(|path| path.starts_with(own.join("stores"))), "{marked:?}");
    for path in marked {
        assert!(path.starts_with(&own) || path.starts_with(data.join("audit")), "{path:?}");
    }
    let got = company.cli.run(&["call", "--yes", "hostile-store__get", "key=a"]).ends(0).stdout;
    assert!(got.contains("nothing") && !got.contains(MARK), "the operator has another: {got}");
}

/// A request of a client that takes tasks.
fn request(company: &Company, method: &str, params: &Value) -> Answered {
    let (mut message, lines) = modern(method, params);
    let capabilities =
        &mut message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    capabilities["extensions"] = json!({ EXTENSION: {} });
    let mut lines: Vec<_> =
        lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    lines.extend(params["taskId"].as_str().map(|id| ("mcp-name", id)));
    company.serving.post(&message, &lines)
}

/// The caller gets for the task what it gets for one that never existed.
#[track_caller]
fn assert_no_task(company: &Company, id: &str) {
    let never = "0".repeat(id.len());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let [missing, unknown] = [id, &never].map(|id| {
            let params = json!({ "taskId": id, "inputResponses": {} });
            request(company, method, &params).message()
        });
        assert_eq!(missing["error"]["code"], -32602, "{method}: {missing}");
        assert_eq!(missing, unknown, "{method}");
    }
    for method in ["tasks/list", "tasks/result"] {
        let missing = request(company, method, &json!({ "taskId": id })).message();
        assert_eq!(missing["error"]["code"], -32601, "{method}: {missing}");
    }
}

#[test]
fn protocol_task_of_a_caller_is_out_of_reach_of_others() {
    let mut company = Company::new();
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": MARK }));
    let command = "until test -e go; do sleep 0.1; done; cat a.txt";
    let call = json!({ "name": "bash", "arguments": { "command": command } });
    let begun = request(&company, "tools/call", &call).message()["result"].clone();
    assert_eq!(begun["resultType"], "task", "{begun}");
    let id = begun["taskId"].as_str().expect("it has an id").to_owned();
    let get = |company: &Company| request(company, "tasks/get", &json!({ "taskId": id })).message();

    company.become_caller("ben");
    assert_no_task(&company, &id);
    company.become_caller("anna");
    let working = get(&company);
    assert_eq!(working["result"]["status"], "working", "Ben has not ended it: {working}");

    fs::write(company.home("anna").join("go"), "").expect("a file is written");
    wait_until("the task ends", || get(&company)["result"]["status"] != "working");
    let ended = get(&company)["result"].clone();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(text(&ended["result"]).contains(MARK), "{ended}");
    company.become_caller("ben");
    assert_no_task(&company, &id);
    assert_eq!(company.serving.ends(), 0);
}

/// A server at a URL that takes any token, and says whose it is.
struct Upstream {
    server: Child,
    origin: String,
}

impl Upstream {
    fn new(folder: &Path) -> Self {
        fs::create_dir(folder).expect("a folder is made");
        fs::write(folder.join("any"), "").expect("a file is written");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/oauth.py");
        let server = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(folder)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut upstream = Self { server, origin: String::new() };
        wait_until("the server serves", || folder.join("ports").exists());
        let ports = fs::read_to_string(folder.join("ports")).expect("it is there");
        let (port, _) = ports.split_once(' ').expect("it has two ports");
        upstream.origin = format!("http://127.0.0.1:{port}");
        upstream
    }

    fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    /// Puts the tokens of a login into a folder of data. Returns the file.
    fn log_in(&self, data: &Path, token: &str) -> PathBuf {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let tokens = json!({
            "url": self.url(),
            "credentials": {
                "client_id": "registered",
                "token_response": {
                    "access_token": token,
                    "token_type": "bearer",
                    "expires_in": 3600,
                },
                "granted_scopes": ["read"],
                "token_received_at": now.expect("it is after 1970").as_secs(),
                "issuer": self.origin,
            },
        });
        let folder = data.join("servers/tokens");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).expect("it is made");
        let file = folder.join("far.json");
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file);
        serde_json::to_writer(opened.expect("it is new"), &tokens).expect("it is written");
        file
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn login_at_a_server_is_used_for_its_caller_alone() {
    let folder = tempfile::TempDir::new().expect("a temporary folder is made");
    let upstream = Upstream::new(&folder.path().join("server"));
    let tables = format!(
        "{TABLES}[principals.users.mcp.servers.far]\n[mcp.servers.far]\nurl = {:?}\n",
        upstream.url()
    );
    let mut logins = Vec::new();
    let mut company = Company::with(&tables, |cli| {
        let token = "only-of-operator";
        logins.push((upstream.log_in(&cli.root.path().join("data"), token), token));
        cli.run(&["mcp", "approve", "far", "--yes"]).ends(0);
        let said = cli.run(&["call", "far__who"]).ends(0).stdout;
        assert!(said.contains("you are operator"), "{said}");
    });
    let who = |company: &Company| company.call("far__who", json!({}));
    let assert_no_login = |company: &Company| {
        let answer = who(company);
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(!answer.to_string().contains("you are"), "{answer}");
    };
    // The operator's login is nobody else's.
    for name in ["anna", "ben"] {
        company.become_caller(name);
        assert_no_login(&company);
    }
    company.become_caller("anna");
    logins.push((upstream.log_in(&company.data("anna"), MARK), MARK));
    // A server that failed is connected to after a pause.
    wait_until("it serves Anna", || who(&company)["isError"] == false);
    company.become_caller("ben");
    assert_no_login(&company);
    let token = "only-of-ben";
    logins.push((upstream.log_in(&company.data("ben"), token), token));
    wait_until("it serves Ben", || who(&company)["isError"] == false);
    for _ in 0..2 {
        for name in ["anna", "ben"] {
            company.become_caller(name);
            let said = company.succeeds("far__who", json!({}));
            assert!(said.contains(&format!("you are {name}")), "{said}");
        }
    }

    for (file, token) in &logins {
        let kept = fs::read_to_string(file).expect("it is there");
        assert!(kept.contains(token) && kept.matches("only-of-").count() == 1, "{kept}");
    }
    let marked = marked_files(&company.cli.root.path().join("data"));
    assert_eq!(marked, [company.data("anna").join("servers/tokens/far.json")]);
}

#[test]
fn broken_ceiling_refuses_the_calls_of_all_callers_until_it_is_mended() {
    const CEILING: &str = "[tools]\ncall = 600\n";
    let mut company = Company::with(&with_program(), |cli| {
        cli.run(&["mcp", "approve", "s", "--yes"]).ends(0);
    });
    let ceiling = company.cli.root.path().join("ceiling.toml");
    let set = |text: &str| fs::write(&ceiling, text).expect("the ceiling is written");
    set(CEILING);
    let mut command = company.cli.command(&["serve", "--http", "0"]);
    command.env("TOOLHOLD_CEILING", &ceiling);
    company.serving = Serving::start(command, false);
    let read = json!({ "path": company.cli.work().join("notes.txt") });
    company.become_caller("ben");
    company.succeeds("write", json!({ "path": "a.txt", "content": "of ben" }));
    company.become_caller("anna");
    company.succeeds("write", json!({ "path": "a.txt", "content": MARK }));
    assert!(company.succeeds("s__work", read.clone()).contains("second"), "the server runs");
    let id = company.serving.handshake(LEGACY, false, &[]);

    set("[tools]\nnonsense = 1\n");
    wait_until("calls are refused", || company.list().status == 403);
    let calls = [
        ("s__work", read.clone()),
        ("read", json!({ "path": "a.txt" })),
        ("write", json!({ "path": "new.txt", "content": "gone" })),
        ("bash", json!({ "command": "echo gone > new.txt; cat a.txt" })),
    ];
    // Cleo's host isn't built yet.
    for name in ["anna", "ben", "cleo"] {
        company.become_caller(name);
        for (tool, arguments) in &calls {
            let call = json!({ "name": tool, "arguments": arguments });
            let message =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
            for answer in [
                company.serving.modern("tools/call", &call, &[]).whole(),
                company.serving.post(&message, &[("mcp-session-id", &id)]),
            ] {
                assert_eq!(answer.status, 403, "{name}: {tool}: {answer:?}");
                for own in ["second", MARK, "of ben", "nonsense"] {
                    assert!(!answer.body.contains(own), "{name}: {tool}: {answer:?}");
                }
            }
        }
        assert!(!company.home(name).join("new.txt").exists(), "{name}");
    }

    set(CEILING);
    for name in ["anna", "ben", "cleo"] {
        company.become_caller(name);
        wait_until("calls run again", || company.list().status == 200);
        company.succeeds("write", json!({ "path": "new.txt", "content": "written" }));
        assert!(company.succeeds("s__work", read.clone()).contains("second"), "{name}");
    }
    company.become_caller("anna");
    assert!(company.succeeds("read", json!({ "path": "a.txt" })).contains(MARK));
    assert_eq!(company.serving.ends(), 0);
}
