//! The clients that people install from npm, without a person at them: `toolhold connect` puts
//! Toolhold into their files, a scripted model calls its tools, and a call that needs approval
//! waits in `toolhold approvals`.
//!
//! The published clients are hundreds of megabytes, so `cargo xtask soak` alone fetches them. In
//! each test run, an official SDK takes their place.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::third_party_clients::{Driven, Kind, node};
use crate::approvals_command::{notes, only_question};
use crate::support::model::{CHAT, GEMINI, MESSAGES, Model, Protocol, RESPONSES, Saying};
use crate::support::{Cli, Ended, fetched, not_tried, toolhold, wait_until};

/// A published client.
struct Client {
    /// The name in `toolhold connect`.
    name: &'static str,
    /// The command of the client.
    command: &'static str,
    /// The program below `node_modules`. `ARCH` is Node's name of the architecture. The soak runs no
    /// scripts of packages, which would put the programs of some into `.bin`.
    program: &'static str,
    /// The arguments without the task.
    arguments: &'static [&'static str],
    /// The protocol in which the client asks its model.
    protocol: Protocol,
    /// Whether the client offers to ask its user. Without a person, it cancels each question.
    can_ask: bool,
    /// The user's file that `toolhold connect` changes, below the home folder.
    file: &'static str,
    /// The text of the file before. `PORT` in it and in the variables is the port of the model.
    text: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

const CODEX: Client = Client {
    name: "codex",
    command: "codex",
    program: "@openai/codex/bin/codex.js",
    arguments: &["exec", "--skip-git-repo-check"],
    protocol: RESPONSES,
    can_ask: true,
    file: ".codex/config.toml",
    text: r#"# mine
model = "scripted" # so
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:PORT/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"#,
    variables: &[("SCRIPTED_KEY", "none")],
};

const CLAUDE_CODE: Client = Client {
    name: "claude-code",
    command: "claude",
    program: "@anthropic-ai/claude-code-linux-ARCH/claude",
    arguments: &["-p"],
    protocol: MESSAGES,
    can_ask: true,
    file: ".claude/settings.json",
    text: r#"{
  "permissions": {
    "allow": ["Bash(npm test:*)"]
  }
}
"#,
    variables: &[
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:PORT"),
        ("ANTHROPIC_API_KEY", "none"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        // The model would have to search for the tools first.
        ("ENABLE_TOOL_SEARCH", "false"),
    ],
};

const OPENCODE: Client = Client {
    name: "opencode",
    command: "opencode",
    program: "opencode-linux-ARCH/bin/opencode",
    arguments: &["run"],
    protocol: CHAT,
    can_ask: false,
    file: ".config/opencode/opencode.json",
    text: r#"{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false, // mine
  "model": "scripted/scripted",
  "provider": {
    "scripted": {
      "npm": "@ai-sdk/openai-compatible",
      "options": { "baseURL": "http://127.0.0.1:PORT/v1", "apiKey": "none" },
      "models": { "scripted": {} },
    },
  },
}
"#,
    variables: &[("OPENCODE_DISABLE_MODELS_FETCH", "1")],
};

const GEMINI_CLI: Client = Client {
    name: "gemini",
    command: "gemini",
    program: "@google/gemini-cli/bundle/gemini.js",
    arguments: &["-m", "gemini-2.5-pro", "-p"],
    protocol: GEMINI,
    can_ask: false,
    file: ".gemini/settings.json",
    text: r#"{
  // mine
  "general": { "enableAutoUpdate": false },
  "privacy": { "usageStatisticsEnabled": false },
  "security": { "auth": { "selectedType": "gemini-api-key" } }
}
"#,
    variables: &[
        ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:PORT"),
        ("GEMINI_API_KEY", "none"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
    ],
};

#[test]
fn soak_codex_works_without_a_person() {
    assert_works_without_a_person(&CODEX);
}

#[test]
fn soak_claude_code_works_without_a_person() {
    assert_works_without_a_person(&CLAUDE_CODE);
}

#[test]
fn soak_opencode_works_without_a_person() {
    assert_works_without_a_person(&OPENCODE);
}

#[test]
fn soak_gemini_cli_works_without_a_person() {
    assert_works_without_a_person(&GEMINI_CLI);
}

#[test]
fn official_sdk_works_without_a_person() {
    let cli = Cli::asking();
    let printed = cli.run(&["connect", "cursor", "--print"]).ends(0).json();
    let entry = printed["mcpServers"]["toolhold"].clone();
    // The older SDK is the one in most published clients. It cancels each question.
    let Some(mut client) = Driven::connect(Kind::TYPESCRIPT_1, &cli, entry) else { return };
    let write = json!({ "path": "notes.txt", "content": "by the model\n" });
    let refused = client.call("write", write.clone(), Value::Null);
    let id = only_question(&cli);
    let told = refused["text"].as_str().expect("it has a text");
    assert!(told.contains(&format!("toolhold approvals allow {id}")), "{refused}");
    assert_eq!(notes(&cli), "first\nsecond\n");

    cli.run(&["approvals", "allow", &id]).ends(0);
    let written = client.call("write", write, Value::Null);
    assert_eq!((&written["failed"], &written["asked"]), (&json!(false), &json!([])), "{written}");
    assert_eq!(notes(&cli), "by the model\n");
    client.close();
}

/// Lets a client do everything that it does with Toolhold when nobody is there.
#[track_caller]
fn assert_works_without_a_person(client: &'static Client) {
    // The soak alone fetches the clients.
    if std::env::var_os("TOOLHOLD_SOAK").is_none() {
        return;
    }
    let Some(scene) = Scene::new(client) else { return };
    let Scene { model, .. } = &scene;
    let before = scene.file();
    scene.toolhold(&["connect", client.name, "--yes"]).ends(0);
    assert!(scene.is_connected());
    assert_ne!(scene.file(), before);

    let mut running = scene.start("Do as the model says.");
    model.say(Saying::Call("read", json!({ "path": "notes.txt" })));
    let read = running.result(0);
    assert!(read.contains("second"), "{read}");
    let tools = model.tools();
    for name in ["read", "write", "edit", "grep", "bash", "fetch"] {
        assert!(tools.iter().any(|tool| tool.ends_with(name)), "{name} is not in {tools:?}");
    }

    let write = Saying::Call("write", json!({ "path": "made.txt", "content": "by the model\n" }));
    model.say(write.clone());
    let refused = running.result(1);
    let id = scene.only_question();
    assert!(refused.contains(&format!("toolhold approvals allow {id}")), "{refused}");
    assert_eq!(refused.contains("no person answered in the client"), client.can_ask, "{refused}");
    let made = scene.work().join("made.txt");
    assert!(!made.exists(), "{refused}");

    scene.toolhold(&["approvals", "allow", &id]).ends(0);
    model.say(write);
    let written = running.result(2);
    assert_eq!(fs::read_to_string(&made).ok().as_deref(), Some("by the model\n"), "{written}");
    model.say(Saying::Text("All of it is done."));
    let shown = running.wait();
    assert!(shown.contains("All of it is done."), "{shown}");

    scene.toolhold(&["connect", client.name, "--undo", "--yes"]).ends(0);
    assert_eq!(scene.file(), before, "the file is as before");
    assert!(!scene.is_connected());
}

/// A home folder with a client's file, a folder to work in, and a model.
struct Scene {
    client: &'static Client,
    home: TempDir,
    model: Model,
    /// The folders with the client, and with the usual programs.
    path: OsString,
}

impl Scene {
    /// `None`, with a notice, if the client couldn't be fetched.
    fn new(client: &'static Client) -> Option<Self> {
        let node = node(&fetched("node")?);
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let program = client.program.replace("ARCH", architecture);
        let program = fetched("agents")?.join("node_modules").join(program);
        if !program.exists() {
            // A client may have no package for this architecture.
            not_tried(client.command);
            return None;
        }
        let home = TempDir::new().expect("a temporary folder is made");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a folder is made");
        symlink(program, bin.join(client.command)).expect("a link is made");
        let node = node.parent().expect("it lies in a folder");
        let path = [&bin, node, Path::new("/usr/bin"), Path::new("/bin")];
        let path = std::env::join_paths(path).expect("they can be joined");
        let scene = Self { client, home, model: Model::start(client.protocol), path };
        scene.write("work/notes.txt", "first\nsecond\n");
        scene.write(client.file, &scene.with_port(client.text));
        scene.write(".config/toolhold/toolhold.toml", "[tools]\nautonomy = \"ask\"\n");
        Some(scene)
    }

    /// Writes a file below the home folder.
    fn write(&self, name: &str, text: &str) {
        let path = self.home.path().join(name);
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder is made");
        fs::write(path, text).expect("a file is written");
    }

    fn with_port(&self, text: &str) -> String {
        text.replace("PORT", &self.model.port().to_string())
    }

    fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// The client's file.
    fn file(&self) -> String {
        fs::read_to_string(self.home.path().join(self.client.file)).expect("it is there")
    }

    /// A program with the variables that a shell of the user has. Clients hand only some of them
    /// to a server, so the folders of Toolhold are the usual ones.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.work()).env_clear().stdin(Stdio::null());
        command.env("HOME", self.home.path()).env("PATH", &self.path);
        for (name, value) in self.client.variables {
            command.env(name, self.with_port(value));
        }
        command
    }

    #[track_caller]
    fn toolhold(&self, line: &[&str]) -> Ended {
        let output = self.command(toolhold()).args(line).output().expect("toolhold starts");
        Ended::from_output(output)
    }

    fn is_connected(&self) -> bool {
        let listed = self.toolhold(&["connect", "--json"]).ends(0).json();
        let clients = listed.as_array().expect("it is a list");
        clients
            .iter()
            .any(|known| known["client"] == self.client.name && known["connected"] == true)
    }

    /// The ID of the only open question.
    #[track_caller]
    fn only_question(&self) -> String {
        let waiting = self.toolhold(&["approvals", "--json"]).ends(0).json();
        let [question] = &waiting.as_array().expect("it is a list")[..] else {
            panic!("{waiting}")
        };
        question["id"].as_str().expect("it has a name").to_owned()
    }

    /// Starts the client with a task.
    fn start(&self, task: &str) -> Running<'_> {
        let shown = self.home.path().join("shown");
        let file = File::create(&shown).expect("a file is made");
        let program = self.home.path().join("bin").join(self.client.command);
        let mut command = self.command(program);
        command.args(self.client.arguments).arg(task);
        command.stdout(file.try_clone().expect("it can be shared")).stderr(file);
        let child = command.spawn().expect("the client starts");
        Running { child, model: &self.model, shown }
    }
}

/// A client that runs. It is killed if the test fails.
struct Running<'s> {
    child: Child,
    model: &'s Model,
    /// The file with all that the client writes.
    shown: PathBuf,
}

impl Running<'_> {
    /// The text of a result, once it has reached the model.
    #[track_caller]
    fn result(&mut self, number: usize) -> String {
        wait_until("a result reaches the model", || {
            self.model.results().len() > number || self.has_ended()
        });
        let results = self.model.results();
        results.get(number).unwrap_or_else(|| panic!("the client ended early")).clone()
    }

    /// Waits for the client's end. Returns all that the client has written.
    #[track_caller]
    fn wait(mut self) -> String {
        wait_until("the client ends", || self.has_ended());
        let status = self.child.wait().expect("it has ended");
        assert!(status.success(), "{status}");
        self.shown()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_some()
    }

    fn shown(&self) -> String {
        fs::read_to_string(&self.shown).expect("it writes UTF-8")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the client wrote: {}", self.shown());
        }
    }
}
