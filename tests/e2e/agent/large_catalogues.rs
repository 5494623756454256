//! More tools than a model should read: those of recorded catalogues, offered by a server.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Came, Scene};
use crate::support::Ended;

const FULL: &str = "[tools]\nautonomy = \"full\"\n";

const FILTER: &str = "[agent.tool_filter]\nenabled = true\n";

/// The servers, whose tools are more than 350.
const SERVERS: [&str; 4] = ["linear", "cloudflare", "azure-devops", "github"];

/// A tool without arguments that fits none of the tasks.
const RATE: &str = "linear__linear_getratelimitstatus";

/// A scene with the tools of the servers, which are approved. `provider`, `more`: as of a scene.
fn scene(format: &str, provider: &str, more: &str) -> Scene {
    let scene = Scene::new(format, provider, &format!("{FULL}{more}"));
    let folder = scene.cli.root.path().canonicalize().expect("it is there").join("server");
    fs::create_dir(&folder).expect("a folder is made");
    let script = folder.join("server.py");
    fs::write(&script, include_str!("../../servers/recorded.py")).expect("a file is written");
    let mut tables = String::new();
    for server in SERVERS {
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogues");
        let catalogue = folder.join(format!("{server}.json"));
        fs::copy(format!("{recorded}/{server}.json"), &catalogue).expect("it is copied");
        tables += &format!(
            "[mcp.servers.{server}]\ncommand = \"/usr/bin/python3\"\n\
             args = [{script:?}, {catalogue:?}, {folder:?}]\nallowed_paths = [{folder:?}]\n"
        );
    }
    scene.cli.configure(&format!("{}\n{tables}", scene.configuration()));
    for server in SERVERS {
        scene.cli.run(&["mcp", "approve", server, "--yes"]).ends(0);
    }
    scene
}

/// The tools that were called at the servers.
fn called(scene: &Scene) -> String {
    fs::read_to_string(scene.cli.root.path().join("server/called")).unwrap_or_default()
}

/// The tools of a request, as they stand there, and their names.
fn offered(body: &str) -> (String, Vec<String>) {
    let parsed: Value = serde_json::from_str(body).expect("it is JSON");
    let tools = parsed["tools"].as_array().expect("it has tools");
    let name = |tool: &Value| tool["function"]["name"].as_str().expect("a name").to_owned();
    let names = tools.iter().map(name).collect();
    let start = body.find("\"tools\":[").expect("they stand there");
    let rest = &body[start..];
    let mut depth = 0;
    let mut in_text = false;
    let mut escaped = false;
    let end = rest.bytes().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b'[' if !in_text => depth += 1,
            b']' if !in_text => depth -= 1,
            _ => {}
        }
        depth == 0 && byte == b']' && !in_text
    });
    (rest[..end.expect("they end")].to_owned(), names)
}

fn tries(calls: &Value) -> String {
    format!("tries: {calls}")
}

fn through(name: &str, arguments: Value) -> Value {
    json!(["call_tool", { "name": name, "arguments": arguments }])
}

fn notices(came: &Came) -> Vec<&str> {
    came.events_of("notice").iter().filter_map(|it| it["text"].as_str()).collect()
}

/// The tools of the records of the audit.
fn audited(scene: &Scene) -> Vec<String> {
    let tail = scene.cli.run(&["audit", "tail", "--json", "-n", "200"]).ends(0).stdout;
    let records = tail.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    records.filter_map(|record| Some(record["tool"].as_str()?.to_owned())).collect()
}

#[test]
fn session_has_the_tools_of_its_first_task_in_the_same_bytes() {
    let scene = scene("chat", "", FILTER);
    let first = scene.task(&["answer: merge the GitHub pull request 7, and look at its checks"]);
    assert_eq!(notices(&first), [""; 0], "it was wanted");
    let bodies = scene.bodies();
    let (bytes, names) = offered(&bodies[0]);
    assert!(names.iter().any(|name| name == "github__merge_pull_request"), "{names:?}");
    for always in ["read", "bash", "compress_context", "find_tools", "call_tool"] {
        assert!(names.iter().any(|name| name == always), "{always} is missing: {names:?}");
    }
    assert!(names.len() < 30 && !names.iter().any(|name| name == RATE), "{names:?}");
    // Another task, another process, another length of the conversation.
    let id = first.id();
    scene.once(&["--session", &id, "answer: now list the D1 databases of Cloudflare"]);
    scene.once(&["--session", &id, &tries(&json!([["read", { "path": "notes.txt" }]]))]);
    let bodies = scene.bodies();
    assert!(bodies.len() >= 4, "{}", bodies.len());
    for body in &bodies {
        assert_eq!(offered(body).0, bytes);
    }
    // Another session has others.
    scene.once(&["answer: now list the D1 databases of Cloudflare"]);
    let last = scene.bodies().pop().expect("it was asked");
    let (_, names) = offered(&last);
    assert!(names.iter().any(|name| name == "cloudflare__d1_list_databases"), "{names:?}");
    assert!(last.len() * 4 < 400_000, "{} bytes", last.len());
}

#[test]
fn tool_that_was_left_out_is_found_and_called_as_itself() {
    let scene = scene("chat", "", FILTER);
    let id = scene.task(&["answer: hello"]).id();
    let find = json!(["find_tools", { "query": "how much of the rate limit is left" }]);
    let came = scene.once(&["--session", &id, &tries(&json!([find, through(RATE, json!({}))]))]);
    let found = came.results();
    assert!(found.contains(&format!("## {RATE}")) && found.contains("called"), "{found}");
    assert!(found.len() < 40_000, "{}", found.len());
    assert_eq!(called(&scene), "linear_getRateLimitStatus\n");
    // Events, the record and the audit have the tool itself.
    let tools: Vec<_> = came.events_of("call").iter().map(|it| it["tool"].clone()).collect();
    assert_eq!(tools, ["find_tools", RATE]);
    let audited = audited(&scene);
    assert!(audited.iter().any(|tool| tool == RATE), "{audited:?}");
    assert!(!audited.iter().any(|tool| tool == "call_tool" || tool == "find_tools"));
    // Its arguments are checked as those of any call.
    let wrong = through("linear__linear_getprojectbyid", json!({ "id": 7, "x": [] }));
    let came = scene.once(&["--session", &id, &tries(&json!([wrong]))]);
    let category = &came.events_of("result")[0]["category"];
    assert!(category == "invalid_parameters" || category == "type_mismatch", "{category}");
    assert_eq!(called(&scene).lines().count(), 1);
    let empty = json!(["find_tools", {}]);
    let came = scene.once(&["--session", &id, &tries(&json!([empty]))]);
    assert!(came.results().contains("`query` is missing"), "{}", came.results());
}

#[test]
fn denied_tool_is_neither_found_nor_called() {
    let deny = format!(
        "{FILTER}[[tools.policy.rules]]\neffect = \"deny\"\ntools = [{RATE:?}]\n\
         [tools.permissions]\nbash = [{{ pattern = \"*\", action = \"deny\" }}]\n"
    );
    let scene = scene("chat", "", &deny);
    let id = scene.task(&["answer: hello"]).id();
    let find = json!(["find_tools", { "query": "rate limit status" }]);
    let call = through(RATE, json!({}));
    let bash = through("bash", json!({ "command": "touch made.txt" }));
    let came = scene.once(&["--session", &id, &tries(&json!([find, call, bash]))]);
    assert!(!came.results().contains(&format!("## {RATE}")), "{}", came.results());
    let denied: Vec<_> =
        came.events_of("result").iter().map(|it| it["category"].clone()).skip(1).collect();
    assert_eq!(denied, ["policy_blocked", "policy_blocked"], "{}", came.results());
    assert_eq!(called(&scene), "");
    assert!(!scene.work().join("made.txt").exists());
}

#[test]
fn call_tool_reaches_no_tool_of_the_loop() {
    let scene = scene("chat", "", FILTER);
    let inner = json!({ "name": "call_tool", "arguments": { "name": RATE, "arguments": {} } });
    let calls = json!([
        ["call_tool", inner],
        through("find_tools", json!({ "query": "rate limit" })),
        through("compress_context", json!({})),
        through("nothing__of_that_name", json!({})),
        ["call_tool", { "arguments": {} }],
        ["call_tool", "[]"],
    ]);
    let id = scene.task(&["answer: hello"]).id();
    let came = scene.once(&["--session", &id, &tries(&calls)]);
    let results = came.results();
    assert_eq!(results.matches("can't be called by `call_tool`").count(), 3, "{results}");
    assert!(results.contains("tool_not_found"), "{results}");
    assert_eq!(called(&scene), "");
    // A call that is repeated is found behind call_tool too.
    let same: Vec<Value> = (0..6).map(|_| through(RATE, json!({}))).collect();
    scene.once(&["--session", &id, &tries(&json!(same))]);
    assert!(called(&scene).lines().count() < 6, "{}", called(&scene));
}

#[test]
fn catalogue_that_does_not_fit_is_made_to_fit() {
    let scene = scene("chat", "context_tokens = 16000\nmax_output_tokens = 1000", "");
    let came = scene.task(&["answer: open an issue in the GitHub repository"]);
    let came = came.assert_answer(0, "open an issue");
    let told = notices(&came).concat();
    assert!(told.contains("tools that fit the task") && told.contains("budget_percent"), "{told}");
    let body = scene.bodies().remove(0);
    let (bytes, names) = offered(&body);
    assert!(names.iter().any(|name| name == "github__create_issue"), "{names:?}");
    // A quarter, and what stands around each definition.
    assert!(bytes.len() / 4 < 16_000 / 4 + 25 * names.len(), "{} bytes", bytes.len());
    // Where there is room, all are offered.
    let set = ["--set", "providers.scripted.context_tokens=1000000"];
    let came = scene.once(&[&set[..], &["answer: anything"]].concat());
    assert_eq!(notices(&came), [""; 0]);
    let (_, names) = offered(&scene.bodies().pop().expect("it was asked"));
    assert!(names.len() > 350 && !names.iter().any(|name| name == "call_tool"), "{}", names.len());
}

#[test]
fn model_without_native_tools_calls_what_it_found_by_its_name() {
    let scene = scene("chat", "native_tools = false", FILTER);
    let id = scene.task(&["answer: hello"]).id();
    let calls = json!([["find_tools", { "query": "rate limit status" }], [RATE, {}]]);
    let came = scene.once(&["--session", &id, &format!("tries_in_text: {calls}")]);
    let system = scene.bodies().remove(0);
    assert!(system.contains("## find_tools") && !system.contains("## call_tool"), "{system}");
    assert!(came.results().contains(&format!("## {RATE}")), "{}", came.results());
    assert!(!system.contains(RATE));
    assert_eq!(called(&scene), "linear_getRateLimitStatus\n", "{}", came.results());
}

#[test]
fn person_sees_what_is_chosen_and_why() {
    let scene = scene("chat", "", FILTER);
    let shown = scene.cli.run(&["tools", "--for", "merge the GitHub pull request"]).ends(0).stdout;
    assert!(shown.contains("github__merge_pull_request") && shown.contains("fits the task"));
    assert!(shown.contains("always on") && shown.contains(" tools, about "), "{shown}");
    let line = ["tools", "--json", "--for", "use github__merge_pull_request"];
    let chosen = scene.cli.run(&line).ends(0).json();
    let named = json!({ "name": "github__merge_pull_request", "reason": "name_mentioned" });
    assert!(chosen["included"].as_array().expect("a list").contains(&named), "{chosen}");
    assert!(chosen["excluded"].as_array().expect("a list").len() > 300);
    assert!(chosen["tokens"].as_u64() < chosen["all_tokens"].as_u64());
    // In a chat, once the first task chose them.
    let mut chat = scene.cli.command(&["chat"]);
    chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut chat = chat.spawn().expect("it starts");
    let mut input = chat.stdin.take().expect("it is piped");
    input.write_all(b"answer: merge a pull request\n/status\n/exit\n").expect("it reads");
    drop(input);
    let ended = Ended::from_output(chat.wait_with_output().expect("it ends"));
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("Filter: top_k=10, always_on=read, ") && said.contains("embeddings=off"));
    assert!(said.contains("github__merge_pull_request: fits the task"), "{said}");
}

#[test]
fn meaning_chooses_where_a_model_makes_vectors() {
    let filter = format!("{FILTER}embeddings = \"scripted\"\n");
    let scene = scene("chat", "", &filter);
    let requests = || scene.model_file("embedded").unwrap_or_default();
    let task = "answer: qqq";
    let came = scene.task(&[task]);
    assert_eq!(notices(&came), [""; 0]);
    // The server of the tests says that such a task means the same as this tool.
    let (_, names) = offered(&scene.bodies()[0]);
    assert!(names.iter().any(|name| name == RATE), "{names:?}");
    let first = requests().lines().count();
    assert!(first > 300, "each tool and the task: {first}");
    // The vectors of the tools are kept.
    scene.once(&[task]);
    assert_eq!(requests().lines().count(), first + 1);
    // Without vectors, words choose, and the person knows it.
    fs::write(scene.cli.root.path().join("model/no-vectors"), "").expect("it is written");
    let came = scene.once(&["answer: merge a pull request"]).assert_answer(0, "merge");
    assert!(notices(&came).concat().contains("chosen only by words"), "{:?}", notices(&came));
    let (_, names) = offered(&scene.bodies().pop().expect("it was asked"));
    assert!(names.iter().any(|name| name == "github__merge_pull_request"), "{names:?}");
}

#[test]
fn call_of_little_use_is_put_off_once() {
    let gate = "[agent.utility]\nenabled = true\nthreshold = 0.7\n";
    let scene = Scene::new("chat", "", &format!("{FULL}{gate}"));
    scene.write("a.txt", "the text");
    let read = json!(["read", { "path": "a.txt" }]);
    let write = json!(["write", { "path": "b.txt", "content": "made" }]);
    // The person names the tools here, so nothing is postponed.
    let came = scene.task(&[&tries(&json!([read, read]))]);
    assert_eq!(notices(&came), [""; 0]);
    let came = scene.task(&["looks_thrice: a.txt"]);
    let texts: Vec<_> = came.events_of("result").iter().map(|it| it["text"].to_string()).collect();
    assert!(texts[0].contains("the text"), "{texts:?}");
    assert!(texts[1].contains("[not made]"), "{texts:?}");
    assert!(texts[2].contains("the text"), "{texts:?}");
    assert!(notices(&came).concat().contains("is postponed"), "{:?}", notices(&came));
    scene.task(&[&tries(&json!([write]))]);
    assert_eq!(scene.read("b.txt"), "made");
}
