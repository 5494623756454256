//! Servers as their authors publish them, of npm and PyPI, over pipes and over HTTP.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::mcp::client::{Client, LEGACY, MODERN, records, text};
use crate::servers::until;
use crate::support::{Cli, fetched};

/// A configuration with one real program, approved.
fn with_program(name: &str, command: &[&Path], readable: &[&Path]) -> Cli {
    let cli = Cli::new();
    approve_program(&cli, name, command, readable);
    cli
}

/// The program sees the working directory, and may read these paths.
fn approve_program(cli: &Cli, name: &str, command: &[&Path], readable: &[&Path]) {
    let text = |path: &&Path| json!(path.to_str().expect("a path is text"));
    let [program, arguments @ ..] = command else { panic!("it has a program") };
    let grants: Vec<Value> = readable.iter().map(text).collect();
    let grants: Vec<String> =
        grants.iter().map(|path| format!("{{ path = {path}, access = \"read\" }}")).collect();
    let arguments: Vec<Value> = arguments.iter().map(text).collect();
    cli.configure(&format!(
        "[tools]\nautonomy = \"full\"\n[mcp.servers.{name}]\ncommand = {}\nargs = {}\n\
         allowed_paths = [\".\", {}]\n",
        text(program),
        json!(arguments),
        grants.join(", "),
    ));
    cli.run(&["mcp", "approve", name, "--yes"]).ends(0);
}

/// A real server that listens at a port of this machine.
struct Listening {
    child: Child,
    port: u16,
    /// What it prints.
    output: PathBuf,
}

impl Listening {
    /// Starts what `command` makes of a port and waits until it listens there.
    fn start(cli: &Cli, command: impl Fn(u16) -> Command) -> Self {
        loop {
            let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
            let port = free.local_addr().expect("it has an address").port();
            drop(free);
            let output = cli.root.path().join("output");
            let child = command(port)
                .current_dir(cli.work())
                .stdin(Stdio::null())
                .stdout(File::create(&output).expect("a file is made"))
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            let mut server = Self { child, port, output };
            let mut has_ended = false;
            until("it listens", || {
                has_ended = server.child.try_wait().expect("it is a child").is_some();
                has_ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
            // Another program may have taken the port in between.
            if !has_ended {
                return server;
            }
        }
    }

    fn approve(&self, cli: &Cli, name: &str) {
        let port = self.port;
        cli.configure(&format!(
            "[tools]\nautonomy = \"full\"\n[mcp.servers.{name}]\n\
             url = \"http://127.0.0.1:{port}/mcp\"\n"
        ));
        cli.run(&["mcp", "approve", name, "--yes"]).ends(0);
    }

    /// The messages that server-everything got.
    fn posts(&self) -> usize {
        self.count("Received MCP POST request")
    }

    /// How often it printed these words.
    fn count(&self, words: &str) -> usize {
        fs::read_to_string(&self.output).expect("it prints text").matches(words).count()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Node, and a server of npm.
struct Npm {
    folder: PathBuf,
    node: PathBuf,
}

impl Npm {
    /// `None`, with a notice, if they weren't fetched.
    fn fetched() -> Option<Self> {
        let folder = fetched("node")?.canonicalize().expect("it is there");
        let node = folder.join("node_modules/.bin/node").canonicalize().expect("node is there");
        Some(Self { folder, node })
    }

    fn script(&self, package: &str) -> PathBuf {
        self.folder.join("node_modules/@modelcontextprotocol").join(package).join("dist/index.js")
    }
}

/// Python, its standard library, and the packages of PyPI.
struct PyPi {
    folder: PathBuf,
    python: PathBuf,
    home: PathBuf,
}

impl PyPi {
    /// `None`, with a notice, if they weren't fetched.
    fn fetched() -> Option<Self> {
        let folder = fetched("python")?.canonicalize().expect("it is there");
        let python = folder.join("bin/python");
        let real = python.canonicalize().expect("it is there");
        let home = real.parent().and_then(Path::parent).expect("it lies in a folder").to_owned();
        Some(Self { folder, python, home })
    }

    /// A server of a package, whose modules run with `-m`.
    fn with_module(&self, name: &str, module: &str) -> Cli {
        let command = [&self.python, Path::new("-m"), Path::new(module)];
        with_program(name, &command, &[&self.folder, &self.home])
    }

    fn echo_script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/echo_server.py")
    }
}

/// Asks for a call with progress.
fn ask_with_progress(client: &mut Client, tool: &str, arguments: Value) -> u64 {
    let meta = json!({ "progressToken": "mine" });
    client.ask("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
}

fn cancel(client: &mut Client, call: u64) {
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call },
    }));
}

/// What server-everything has, and how its calls go. `listening`: it is at a port.
fn assert_has_everything(cli: &Cli, listening: Option<&Listening>) {
    let mut client = Client::new(cli, &[], MODERN, false);
    let listed = client.request("tools/list", json!({}));
    let listed = listed["tools"].as_array().expect("a list");
    let listed: Vec<&str> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
    // It has the last one only after the handshake, if the client can ask its user.
    let named = ["echo", "get-tiny-image", "trigger-elicitation-request"];
    for tool in named.map(|tool| format!("all__{tool}")) {
        assert!(listed.contains(&tool.as_str()), "{tool} is in {listed:?}");
    }
    assert!(text(&client.call("all__echo", json!({ "message": "hello" }))).contains("hello"));
    let image = client.call("all__get-tiny-image", json!({}));
    let image = image["content"].as_array().expect("a list").iter();
    let image: Vec<&Value> = image.filter(|part| part["type"] == "image").collect();
    assert_eq!(image[0]["mimeType"], "image/png");
    let start = image[0]["data"].as_str().map(|data| &data[..11]);
    assert_eq!(start, Some("iVBORw0KGgo"), "it is a PNG");
    let weather = client.call("all__get-structured-content", json!({ "location": "Chicago" }));
    assert_eq!(weather["structuredContent"]["temperature"], 36, "{weather}");
    let sum = client.call("all__get-sum", json!({ "a": "two", "b": 3 }));
    assert!(
        sum.to_string().contains("invalid_parameters") || sum.to_string().contains("type_mismatch"),
        "{sum}"
    );
    client.leave();

    let mut client = Client::new(cli, &[], LEGACY, true);
    let work = "all__trigger-long-running-operation";
    let call = ask_with_progress(&mut client, work, json!({ "duration": 0.2, "steps": 2 }));
    for step in [1.0, 2.0] {
        let progress = client.notification("notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
        assert_eq!(progress["params"]["progress"], step, "{progress}");
    }
    assert!(text(&client.answer(call)).contains("completed"));
    let call = ask_with_progress(&mut client, work, json!({ "duration": 100, "steps": 1000 }));
    client.notification("notifications/progress");
    let before = listening.map(Listening::posts);
    cancel(&mut client, call);
    until("the server learns of it", || {
        listening.map(Listening::posts) > before || before.is_none()
    });
    client.aside.clear();
    assert!(text(&client.call("all__echo", json!({ "message": "on" }))).contains("on"));
    let call = ask_with_progress(&mut client, work, json!({ "duration": 0.3, "steps": 1 }));
    client.answer(call);
    assert_eq!(client.aside.len(), 1, "nothing came of the cancelled one: {:?}", client.aside);

    let call = json!({ "name": "all__trigger-elicitation-request", "arguments": {} });
    let asks = client.ask("tools/call", call);
    let said =
        json!({ "action": "accept", "content": { "name": "Ada", "check": true, "integer": 7 } });
    let form = client.user_says(&said);
    assert!(
        form["message"]
            .as_str()
            .is_some_and(|text| text.contains("The server `all` has a question"))
    );
    let answered = text(&client.answer(asks));
    assert!(answered.contains("Ada"), "{answered}");

    let file = "demo://resource/session/new.gz";
    let added = json!({ "name": "new.gz", "data": "data:text/plain,hello" });
    assert_ne!(client.call("all__gzip-file-as-resource", added)["isError"], true);
    // The server says that its list has changed. What was approved is still the list.
    let listed = client.request("resources/list", json!({}));
    assert!(!listed.to_string().contains(file), "{listed}");
    let read = client.request("resources/read", json!({ "uri": format!("all+{file}") }));
    let blob = read["contents"][0]["blob"].as_str();
    assert!(blob.is_some_and(|blob| blob.starts_with("H4sI")), "it is packed: {read}");
    let resources = listed["resources"].as_array().expect("a list");
    let document = resources.iter().filter_map(|resource| resource["uri"].as_str());
    let document = document.into_iter().find(|uri| uri.starts_with("all+demo://resource/static"));
    let read = client.request("resources/read", json!({ "uri": document.expect("a document") }));
    assert!(read["contents"][0]["text"].as_str().is_some_and(|text| text.len() > 100), "{read}");
    let dynamic = json!({ "uri": "all+demo://resource/dynamic/text/1" });
    let read = client.request("resources/read", dynamic);
    assert!(read["contents"].to_string().contains("plaintext resource"), "{read}");
    let prompt = json!({ "name": "all__args-prompt", "arguments": { "city": "Oslo" } });
    let prompt = client.request("prompts/get", prompt);
    assert!(prompt["messages"].to_string().contains("weather in Oslo"), "{prompt}");
    client.leave();
    let records = records(&cli.root.path().join("data"));
    let is_cancelled = |record: &&Value| {
        record["kind"] == "outcome" && record["tool"] == work && record["result"] == "cancelled"
    };
    assert_eq!(records.iter().filter(is_cancelled).count(), 1);
}

#[test]
fn server_everything_works_over_pipes() {
    let Some(npm) = Npm::fetched() else { return };
    let command = [&npm.node, &npm.script("server-everything"), Path::new("stdio")];
    let cli = with_program("all", &command, &[&npm.folder]);
    assert_has_everything(&cli, None);
    let told = cli.run(&["call", "all__get-env", "--json"]).ends(0).stdout;
    assert!(told.contains("HOME") && !told.contains("TOOLHOLD_"), "{told}");
}

#[test]
fn server_everything_works_over_http() {
    let Some(npm) = Npm::fetched() else { return };
    let cli = Cli::new();
    let server = Listening::start(&cli, |port| {
        let mut command = Command::new(&npm.node);
        command.arg(npm.script("server-everything")).arg("streamableHttp");
        command.env("PORT", port.to_string());
        command
    });
    server.approve(&cli, "all");
    assert_has_everything(&cli, Some(&server));
    let ended = || server.count("Received session termination request");
    let before = ended();
    cli.run(&["call", "all__echo", "message=hello"]).ends(0);
    assert_eq!(ended(), before + 1, "the call's session has ended");
}

#[test]
fn server_filesystem_works() {
    let Some(npm) = Npm::fetched() else { return };
    let command = [&npm.node, &npm.script("server-filesystem"), Path::new(".")];
    let cli = with_program("files", &command, &[&npm.folder]);
    fs::write(cli.work().join("toolhold.toml"), "").expect("it is written");
    let mut client = Client::new(&cli, &[], MODERN, false);
    let read = client.call("files__read_text_file", json!({ "path": "notes.txt" }));
    assert!(text(&read).contains("first\nsecond"), "{read}");
    let written = json!({ "path": "new.txt", "content": "new" });
    assert_ne!(client.call("files__write_file", written)["isError"], true);
    assert_eq!(fs::read_to_string(cli.work().join("new.txt")).expect("it is there"), "new");
    // The sandbox refuses what the server would allow.
    let script = json!({ "path": "toolhold.toml", "content": "[tools]\nautonomy = \"full\"" });
    assert_eq!(client.call("files__write_file", script)["isError"], true);
    client.leave();
    assert_eq!(fs::read_to_string(cli.work().join("toolhold.toml")).expect("it is there"), "");
}

#[test]
fn server_filesystem_works_with_what_is_proposed_for_it() {
    let Some(npm) = Npm::fetched() else { return };
    let cli = Cli::new();
    cli.configure("[tools]\nautonomy = \"full\"\n");
    let folder = cli.root.path().canonicalize().expect("it is there").join("notes");
    fs::create_dir(&folder).expect("a folder is made");
    let words = [&npm.folder, &npm.node, &npm.script("server-filesystem"), &folder];
    let [packages, node, script, named] = words.map(|path| path.display().to_string());
    let add = ["mcp", "add", "files", "--allow-read", &packages];
    let refused = cli.run(&[&add[..], &["--", &node, &script, &named]].concat()).ends(0).stderr;
    assert!(refused.contains("arguments name"), "{refused}");
    // Without the folder, it doesn't start, and the error says what is missing.
    let told = cli.run(&["mcp", "approve", "files", "--yes"]);
    assert!(told.code != 0 && told.stderr.contains("allowed_paths = "), "{}", told.stderr);
    cli.run(&["mcp", "remove", "files"]).ends(0);
    cli.run(&[&add[..], &["--yes", "--", &node, &script, &named]].concat()).ends(0);
    cli.run(&["mcp", "approve", "files", "--yes"]).ends(0);
    let mut client = Client::new(&cli, &[], MODERN, false);
    let path = folder.join("new.txt");
    let written = client.call("files__write_file", json!({ "path": path, "content": "new" }));
    assert_ne!(written["isError"], true, "{written}");
    client.leave();
    assert_eq!(fs::read_to_string(path).expect("it is there"), "new");
}

#[test]
fn server_time_works() {
    let Some(pypi) = PyPi::fetched() else { return };
    let cli = pypi.with_module("time", "mcp_server_time");
    let mut client = Client::new(&cli, &[], MODERN, false);
    let noon =
        json!({ "source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC" });
    let converted = client.call("time__convert_time", noon);
    let structured = &converted["structuredContent"];
    for (shown, expected) in [
        (&structured["target"]["datetime"], "T03:00:00+00:00\n"),
        (&structured["time_difference"], "-9.0h\n"),
    ] {
        assert!(shown.as_str().is_some_and(|shown| shown.contains(expected)), "{converted}");
    }
    let wrong = client.call("time__get_current_time", json!({ "timezone": "Nowhere" }));
    assert_eq!(wrong["isError"], true);
    assert!(text(&wrong).contains("Invalid timezone"), "{wrong}");
}

/// Runs git, which must succeed, and returns its output.
fn git(folder: &Path, line: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Tester", "-c", "user.email=tester@example.com"])
        .args(line)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git starts");
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn server_git_commits_where_it_may_and_nowhere_else() {
    let Some(pypi) = PyPi::fetched() else { return };
    let cli = Cli::new();
    let outside = cli.root.path().canonicalize().expect("it is there").join("outside");
    fs::create_dir(&outside).expect("a folder is made");
    for folder in [&cli.work(), &outside] {
        git(folder, &["init", "--quiet", "--initial-branch=main"]);
        git(folder, &["commit", "--quiet", "--allow-empty", "--message=begin"]);
        fs::write(folder.join("new.txt"), "new").expect("a file is written");
    }
    let command = [&pypi.python, Path::new("-m"), Path::new("mcp_server_git")];
    approve_program(&cli, "git", &command, &[&pypi.folder, &pypi.home]);
    let mut client = Client::new(&cli, &[], MODERN, false);
    let work = cli.work();
    let added = client.call("git__git_add", json!({ "repo_path": work, "files": ["new.txt"] }));
    assert_ne!(added["isError"], true, "{added}");
    let message = json!({ "repo_path": work, "message": "Add the new file" });
    let committed = client.call("git__git_commit", message);
    assert_ne!(committed["isError"], true, "{committed}");
    let last = git(&work, &["log", "-1", "--format=%H %s", "--name-only"]);
    let hash = last.split(' ').next().expect("it has a hash");
    assert!(last.ends_with("Add the new file\n\nnew.txt\n"), "{last}");
    assert!(text(&committed).contains(hash), "{committed}");
    git(&work, &["fsck", "--strict"]);
    assert_eq!(git(&work, &["status", "--porcelain"]), "?? notes.txt\n");

    let before = git(&outside, &["status", "--porcelain=v2", "--branch"]);
    for (tool, more) in [
        ("git__git_status", json!({})),
        ("git__git_add", json!({ "files": ["new.txt"] })),
        ("git__git_commit", json!({ "message": "Add the new file" })),
        ("git__git_create_branch", json!({ "branch_name": "theirs" })),
    ] {
        let mut arguments = json!({ "repo_path": outside });
        let all = arguments.as_object_mut().expect("an object");
        all.extend(more.as_object().expect("an object").clone());
        let refused = client.call(tool, arguments);
        assert_eq!(refused["isError"], true, "{tool}: {refused}");
        assert!(!text(&refused).contains("new.txt"), "{tool}: {refused}");
    }
    assert_eq!(git(&outside, &["status", "--porcelain=v2", "--branch"]), before);
    assert_eq!(git(&outside, &["branch", "--list", "theirs"]), "");
}

#[test]
fn fast_mcp_server_works() {
    let Some(pypi) = PyPi::fetched() else { return };
    let script = PyPi::echo_script();
    let here = script.parent().expect("it lies in a folder");
    let cli = with_program("py", &[&pypi.python, &script], &[&pypi.folder, &pypi.home, here]);
    let mut client = Client::new(&cli, &[], MODERN, false);
    let note = client.request("resources/read", json!({ "uri": "py+memo://greeting" }));
    assert!(note["contents"].to_string().contains("welcome"), "{note}");
    let plan = json!({ "name": "py__plan", "arguments": { "topic": "a trip" } });
    let plan = client.request("prompts/get", plan);
    assert!(plan["messages"].to_string().contains("Plan a trip"), "{plan}");
    client.leave();
    // A question in the revision without a handshake, to a client of each kind.
    let branch = json!({ "action": "accept", "content": { "branch": "next" } });
    let mut client = Client::new(&cli, &[], MODERN, true);
    let mut merge = json!({ "name": "py__merge", "arguments": {} });
    let required = client.request("tools/call", merge.clone());
    merge["requestState"] = required["requestState"].clone();
    merge["inputResponses"] = json!({ "answer": branch });
    let merged = client.request("tools/call", merge);
    assert!(text(&merged).contains("merged next"), "{required} {merged}");
    client.leave();
    let mut client = Client::new(&cli, &[], LEGACY, true);
    let merge = client.ask("tools/call", json!({ "name": "py__merge", "arguments": {} }));
    client.user_says(&branch);
    let merged = client.answer(merge);
    assert!(text(&merged).contains("merged next"), "{merged}");
    assert_cancels_and_changes(&cli, client);
    let told = cli.run(&["call", "py__echo", "message=hello"]).ends(0);
    assert!(told.stdout.contains("hello"), "{}", told.stdout);
}

/// A cancelled call ends in the server, and a tool that it changes later is held.
fn assert_cancels_and_changes(cli: &Cli, mut client: Client) {
    let call = ask_with_progress(&mut client, "py__wait", json!({}));
    let progress = client.notification("notifications/progress");
    assert_eq!(progress["params"]["message"], "waiting", "{progress}");
    cancel(&mut client, call);
    until("the server's own call ends", || cli.work().join("cancelled").exists());
    assert!(text(&client.call("py__echo", json!({ "message": "on" }))).contains("on"));
    assert!(text(&client.call("py__learn", json!({}))).contains("learnt"));
    until("the server tells of it", || {
        let held = client.call("py__echo", json!({ "message": "on" }));
        held["isError"] == true && text(&held).contains("has changed since the approval")
    });
    assert!(text(&client.call("py__learn", json!({}))).contains("learnt"), "others serve");
    client.leave();
}

#[test]
fn fast_mcp_server_works_over_http() {
    let Some(pypi) = PyPi::fetched() else { return };
    let cli = Cli::new();
    let server = Listening::start(&cli, |port| {
        let mut command = Command::new(&pypi.python);
        command.arg(PyPi::echo_script()).arg(port.to_string());
        command
    });
    server.approve(&cli, "py");
    let mut client = Client::new(&cli, &[], MODERN, false);
    assert!(text(&client.call("py__echo", json!({ "message": "hello" }))).contains("hello"));
    let note = client.request("resources/read", json!({ "uri": "py+memo://greeting" }));
    assert!(note["contents"].to_string().contains("welcome"), "{note}");
    client.leave();
    let branch = json!({ "action": "accept", "content": { "branch": "next" } });
    let mut client = Client::new(&cli, &[], LEGACY, true);
    let merge = client.ask("tools/call", json!({ "name": "py__merge", "arguments": {} }));
    client.user_says(&branch);
    let merged = client.answer(merge);
    assert!(text(&merged).contains("merged next"), "{merged}");
    assert_cancels_and_changes(&cli, client);
}
