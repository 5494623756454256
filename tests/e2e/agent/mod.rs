//! Toolhold's own agent end to end: `toolhold run` with the real tools, and a scripted model behind
//! a loopback server.

mod attacks;
mod custom_commands;
mod delegate;
mod extras;
mod found;
mod guide;
mod harbor;
mod large_catalogues;
mod limits;
mod llama;
mod picture;
mod replay;
mod resume;
mod rewind;
mod scheduled_runs;
mod screen;
mod skills;
mod tasks;
#[allow(dead_code, reason = "shared with the benches, which use more of it")]
#[path = "../../terminal.rs"]
mod terminal;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Cli, Ended};

/// The key of the provider, which nobody but its server sees.
const KEY: &str = "zk-5519-Wert-for-the-model-alone";

/// The formats of providers.
const FORMATS: [&str; 4] = ["chat", "messages", "responses", "ollama"];

/// Events of a moment, which aren't in the record, or in other parts.
const LIVE: [&str; 8] = [
    "asking",
    "text_part",
    "thinking_part",
    "call_part",
    "call_output",
    "question",
    "inquiry",
    "answered",
];

/// Time limit for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder to work in, and a model.
struct Scene {
    cli: Cli,
    server: Child,
    port: String,
}

/// What a task came to: its events, without those that a replay lacks.
struct Came {
    ended: Ended,
    events: Vec<Value>,
    /// All of them.
    all: Vec<Value>,
}

impl Scene {
    /// `provider`: lines of the provider's table. `more`: tables.
    fn new(format: &str, provider: &str, more: &str) -> Self {
        let cli = Cli::new();
        let folder = cli.root.path().join("model");
        fs::create_dir(&folder).expect("a folder is made");
        let key = cli.root.path().join("key");
        fs::write(&key, KEY).expect("a file is written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is private");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/agent/model.py");
        let server = Command::new("/usr/bin/python3")
            .args(["-B", script, folder.to_str().expect("UTF-8")])
            .spawn()
            .expect("it starts");
        let mut scene = Self { cli, server, port: String::new() };
        while scene.model_file("port").is_none() {
            let ended = scene.server.try_wait().expect("it can be asked");
            assert_eq!(ended, None, "the model ended");
            std::thread::yield_now();
        }
        scene.port = scene.model_file("port").expect("it is there");
        let version = if format == "ollama" { "" } else { "/v1" };
        scene.cli.configure(&format!(
            "{more}\n[providers.scripted]\nformat = \"{format}\"\nmodel = \"scripted\"\n\
             base_url = \"http://127.0.0.1:{}{version}\"\n{provider}\n\
             [providers.scripted.secrets.key]\nfile = {key:?}\n",
            scene.port
        ));
        scene
    }

    fn work(&self) -> PathBuf {
        self.cli.work()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder is made");
        fs::write(path, content).expect("a file is written");
    }

    /// The configuration that was written last.
    fn configuration(&self) -> String {
        fs::read_to_string(self.cli.root.path().join("config/toolhold.toml")).expect("it is there")
    }

    /// The content of a file of the working directory. Empty: there is none.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    fn model_file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.cli.root.path().join("model").join(name)).ok()
    }

    /// The bodies that the model got.
    fn bodies(&self) -> Vec<String> {
        let requests = self.model_file("requests").unwrap_or_default();
        let body = |line: &str| {
            let request: Value = serde_json::from_str(line).expect("the model writes JSON");
            request["body"].as_str().expect("it is a text").to_owned()
        };
        requests.lines().map(body).collect()
    }

    /// A command of `toolhold run`.
    fn command(&self, line: &[&str]) -> Command {
        let line: Vec<&str> = ["run"].iter().chain(line).copied().collect();
        self.cli.command(&line)
    }

    #[track_caller]
    fn run(&self, line: &[&str]) -> Ended {
        let ended = Ended::from_output(self.command(line).output().expect("toolhold starts"));
        self.assert_fine();
        ended
    }

    /// Does a task, and shows it again from its record: to the same events.
    #[track_caller]
    fn task(&self, line: &[&str]) -> Came {
        let came = self.once(line);
        let id = came.id();
        let again = Came::from_ended(self.run(&["--replay", &id, "--json"]));
        // The last task of a session, if it had others before.
        let from = again.events.iter().rposition(|event| event["event"] == "task");
        let (from, own) = (from.expect("it has a task"), &came.events[1..]);
        // Sums of floats may differ in their last digits.
        let (shown, own) = (format!("{:#?}", &again.events[from..]), format!("{own:#?}"));
        assert_eq!(shown, own, "the replay differs");
        assert_eq!(again.ended.code, came.ended.code);
        came
    }

    /// Does a task.
    #[track_caller]
    fn once(&self, line: &[&str]) -> Came {
        let line: Vec<&str> = ["--json"].iter().chain(line).copied().collect();
        Came::from_ended(self.run(&line))
    }

    /// The record of a session.
    fn record(&self, id: &str) -> PathBuf {
        self.cli.root.path().join(format!("data/agent/{id}.jsonl"))
    }

    /// The model had nothing to complain of, and nobody has its key.
    #[track_caller]
    fn assert_fine(&self) {
        assert_eq!(self.model_file("wrong"), None, "a request is wrong");
    }

    /// Starts `toolhold run`, to interrupt it.
    fn start(&self, line: &[&str]) -> Running {
        let mut command = self.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("toolhold starts")))
    }

    /// Files of Toolhold and of the model's log of requests that have a text, with their names.
    fn files_with(&self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.cli.root.path().join("data"), self.work()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("it can be read") {
                let path = entry.expect("it can be read").path();
                let kind = fs::symlink_metadata(&path).expect("it is there").file_type();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let bytes = fs::read(&path).expect("it can be read");
                    if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                        found.push(path.display().to_string());
                    }
                }
            }
        }
        found
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A `toolhold` that runs. It is killed if the test fails.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        let child = self.0.as_ref().expect("it runs");
        let id = i32::try_from(child.id()).expect("IDs are small");
        let id = rustix::process::Pid::from_raw(id).expect("it isn't 0");
        rustix::process::kill_process(id, signal).expect("it runs");
    }

    fn wait(mut self) -> Output {
        self.0.take().expect("it runs").wait_with_output().expect("it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Came {
    #[track_caller]
    fn from_ended(ended: Ended) -> Self {
        let event = |line: &str| -> Value {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        let all: Vec<Value> = ended.stdout.lines().map(event).collect();
        assert!(!all.is_empty(), "{}", ended.stderr);
        for event in &all {
            assert!(schema().is_valid(event), "not in the schema: {event}");
        }
        let is_replayed = |event: &&Value| !LIVE.iter().any(|kind| event["event"] == *kind);
        let events = all.iter().filter(is_replayed).cloned().collect();
        Self { ended, events, all }
    }

    fn id(&self) -> String {
        self.events[0]["id"].as_str().expect("a session begins").to_owned()
    }

    fn events_of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == kind).collect()
    }

    /// The last answer.
    fn answer(&self) -> &str {
        let answers = self.events_of("answer");
        answers.last().and_then(|answer| answer["text"].as_str()).unwrap_or_default()
    }

    /// Why it ended.
    fn reason(&self) -> &str {
        let ended = self.events_of("ended");
        ended.last().and_then(|ended| ended["reason"].as_str()).unwrap_or_default()
    }

    fn kind(&self) -> &str {
        let ended = self.events_of("ended");
        ended.last().and_then(|ended| ended["kind"].as_str()).expect("it ended")
    }

    /// The texts of all results.
    fn results(&self) -> String {
        let texts =
            self.events_of("result").into_iter().filter_map(|result| result["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn assert_answer(self, code: i32, answer: &str) -> Self {
        let came = format!("{:#?}\n{}", self.events, self.ended.stderr);
        assert_eq!(self.ended.code, code, "{came}");
        assert!(self.answer().contains(answer), "not {answer:?}: {came}");
        self
    }

    #[track_caller]
    fn ends(self, code: i32, reason: &str) -> Self {
        let came = format!("{:#?}\n{}", self.events, self.ended.stderr);
        assert_eq!(self.ended.code, code, "{came}");
        assert!(self.reason().contains(reason), "not {reason:?}: {came}");
        self
    }
}

/// The schema of events.
fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = include_str!("../../../docs/agent-events.schema.json");
        let schema = serde_json::from_str(text).expect("it is JSON");
        jsonschema::validator_for(&schema).expect("it is a schema")
    })
}

/// Waits for something.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::yield_now();
    }
}
