//! Third-party clients: the official SDKs, each behind a small program that does what a test says,
//! step by step.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{LEGACY, MODERN};
use crate::support::{Cli, fetched, toolhold};

/// Time limit for a step that must end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client and the revision that it speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    language: Language,
    pub(crate) revision: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Language {
    /// The SDK of TypeScript, by its major version.
    Node(&'static str),
    Python,
}

impl Kind {
    pub(crate) const TYPESCRIPT_1: Self = Self { language: Language::Node("1"), revision: LEGACY };
    pub(crate) const TYPESCRIPT_2: Self = Self { language: Language::Node("2"), revision: MODERN };
    pub(crate) const TYPESCRIPT_2_BEFORE: Self =
        Self { language: Language::Node("2"), revision: LEGACY };
    pub(crate) const PYTHON: Self = Self { language: Language::Python, revision: MODERN };
    pub(crate) const PYTHON_BEFORE: Self = Self { language: Language::Python, revision: LEGACY };

    pub(crate) const ALL: [Self; 5] = [
        Self::TYPESCRIPT_1,
        Self::TYPESCRIPT_2,
        Self::TYPESCRIPT_2_BEFORE,
        Self::PYTHON,
        Self::PYTHON_BEFORE,
    ];

    /// The program that drives it. `None`, with a notice, if it wasn't fetched.
    fn program(self) -> Option<Command> {
        Some(match self.language {
            Language::Node(sdk) => {
                let folder = fetched("node")?;
                let mut command = Command::new(node(&folder));
                command.arg(folder.join("drive.mjs")).arg(sdk);
                command
            }
            Language::Python => {
                let folder = fetched("python")?;
                let mut command = Command::new(folder.join("bin/python"));
                command.arg(folder.join("drive.py"));
                command
            }
        })
    }
}

/// The fetched Node.
pub(crate) fn node(fetched: &Path) -> PathBuf {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    fetched.join(format!("node_modules/node-linux-{architecture}/bin/node"))
}

/// A client that is connected with a server.
pub(crate) struct Driven {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
}

impl Driven {
    /// Makes a client start `toolhold serve` and connect to it. Its user is asked if approval is
    /// needed.
    pub(crate) fn new(kind: Kind, cli: &Cli, more: &[&str]) -> Option<Self> {
        let args: Vec<&str> = ["serve"].iter().chain(more).copied().collect();
        Self::connect(kind, cli, json!({ "command": toolhold(), "args": args }))
    }

    /// Makes a client connect to a server. `None` if it wasn't fetched.
    pub(crate) fn connect(kind: Kind, cli: &Cli, mut server: Value) -> Option<Self> {
        let (mut command, as_toolhold) = (kind.program()?, cli.command(&[]));
        // The server gets the client's environment.
        command.current_dir(cli.work()).env_clear();
        command.envs(as_toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it has an output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let line = line.expect("it writes UTF-8");
                let came = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("what came of a step: {line:?}"));
                if sender.send(came).is_err() {
                    return;
                }
            }
        });
        let mut driven = Self { child, stdin, lines };
        server["revision"] = json!(kind.revision);
        server["asks"] = json!(true);
        let connected = driven.step("connect", server);
        assert_eq!(
            (connected["server"].as_str(), connected["version"].as_str()),
            (Some("toolhold"), Some(kind.revision)),
            "{connected}"
        );
        Some(driven)
    }

    /// Does a step and returns its result.
    #[track_caller]
    pub(crate) fn step(&mut self, what: &str, mut with: Value) -> Value {
        with["do"] = json!(what);
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{with}").expect("the client reads");
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("something comes of {with}"))
    }

    /// The names of the tools.
    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let listed = self.step("list", json!({}));
        let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("a list: {listed}"));
        tools.iter().map(|tool| tool.as_str().expect("a name").to_owned()).collect()
    }

    /// Calls a tool. The user gives this answer if asked.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value, answer: Value) -> Value {
        self.step("call", json!({ "name": tool, "arguments": arguments, "answer": answer }))
    }

    /// Closes the client as its own library does it.
    pub(crate) fn close(mut self) {
        let closed = self.step("close", json!({}));
        assert_eq!(closed, json!({}));
        drop(self.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
