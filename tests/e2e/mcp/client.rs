//! A client that writes and reads lines of JSON itself, so that it can also send what no real
//! client would.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Cli;

/// Time limit for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The revision without a handshake.
pub(crate) const MODERN: &str = "2026-07-28";

/// The last one with it.
pub(crate) const LEGACY: &str = "2025-11-25";

/// A running `toolhold serve`, and its client.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next: u64,
    /// Messages of the server that weren't awaited.
    pub(crate) aside: Vec<Value>,
    /// Sent with each request.
    meta: Value,
}

impl Client {
    /// A client that hasn't sent anything yet.
    pub(crate) fn silent(cli: &Cli, more: &[&str]) -> Self {
        let line: Vec<&str> = ["serve"].iter().chain(more).copied().collect();
        Self::start(cli.command(&line))
    }

    /// For a command that serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("toolhold starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it has an output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // A line without an end is one of a server that was killed.
            while stdout.read_line(&mut line).expect("the server writes UTF-8") > 0
                && line.ends_with('\n')
            {
                let message: Value = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("nothing but the protocol: {line:?}"));
                assert_eq!(message["jsonrpc"], "2.0", "nothing but the protocol: {line}");
                if sender.send(message).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { child, stdin, lines, next: 1, aside: Vec::new(), meta: json!({}) }
    }

    /// A client of a revision, which can ask its user if `asks` is set.
    pub(crate) fn new(cli: &Cli, more: &[&str], version: &str, asks: bool) -> Self {
        let mut client = Self::silent(cli, more);
        client.begin(version, asks);
        client
    }

    /// Sends a client's first messages.
    pub(crate) fn begin(&mut self, version: &str, asks: bool) {
        let capabilities = if asks { json!({ "elicitation": {} }) } else { json!({}) };
        let info = json!({ "name": "tester", "version": "1" });
        if version == MODERN {
            self.meta = json!({
                "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientInfo": info,
                "io.modelcontextprotocol/clientCapabilities": capabilities,
            });
            let found = self.request("server/discover", json!({}));
            assert!(
                found["supportedVersions"]
                    .as_array()
                    .is_some_and(|versions| versions.contains(&json!(version))),
                "{found}"
            );
        } else {
            let begun = self.request("initialize", json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info }));
            assert_eq!(begun["protocolVersion"], version, "{begun}");
            assert_eq!(begun["serverInfo"]["name"], "toolhold");
            self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
    }

    /// Declares an extension with each request from now on.
    pub(crate) fn knows(&mut self, extension: &str) {
        self.meta["io.modelcontextprotocol/clientCapabilities"]["extensions"][extension] =
            json!({});
    }

    /// The id of the server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a message.
    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Writes bytes, whatever they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("it is open").write_all(bytes).expect("the server reads");
    }

    /// Asks for something, and returns the id that the answer will have.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut meta = self.meta.as_object().cloned().unwrap_or_default();
        meta.extend(params.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default());
        if !meta.is_empty() {
            params["_meta"] = Value::Object(meta);
        }
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("the server says something")
    }

    /// The answer with this ID: `result`, or the whole message if it is an error.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next();
            if message.get("id") == Some(&json!(id)) && message.get("method").is_none() {
                return message.get("result").cloned().unwrap_or(message);
            } else {
                self.aside.push(message);
            }
        }
    }

    /// The next message with this method, a stored one first.
    #[track_caller]
    pub(crate) fn notification(&mut self, method: &str) -> Value {
        if let Some(at) = self.aside.iter().position(|message| message["method"] == method) {
            return self.aside.remove(at);
        }
        loop {
            let message = self.next();
            if message["method"] == method { return message } else { self.aside.push(message) }
        }
    }

    /// Asks and waits for the answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Calls a tool and waits.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Answers a question of the server to the client's user.
    #[track_caller]
    pub(crate) fn user_says(&mut self, result: &Value) -> Value {
        let question = self.notification("elicitation/create");
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        question["params"].clone()
    }

    /// Kills the server. Returns what it had said that wasn't awaited.
    pub(crate) fn kill(mut self) -> Vec<Value> {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
        let mut said = std::mem::take(&mut self.aside);
        said.extend(self.lines.iter());
        said
    }

    /// Closes the client's side. The server may still answer.
    pub(crate) fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes the connection and waits until the server has ended too.
    pub(crate) fn leave(mut self) -> i32 {
        self.close();
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> String {
    let parts =
        result["content"].as_array().unwrap_or_else(|| panic!("it is a tool's result: {result}"));
    parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The records of a log, the newest last.
pub(crate) fn records(data: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(data.join("audit/audit.jsonl")).expect("there is a log");
    // A host may be writing the last one: it is a record once its line has ended.
    let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
}
