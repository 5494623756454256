//! The servers that are measured, and how each is started.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::client::Client;
use crate::Setting;
use crate::measure::find_program;
use crate::timed::TimedProgram;

/// The echoed text, and what the answer of every call of an echo has.
pub(crate) const SAID: &str = "hello";

/// The beginning of the file that is read.
pub(super) const READ: &str = "a line of text as it might stand in a file";

/// Bytes of the file that is read, and of a long echo.
pub(crate) const BYTES: usize = 4096;

/// How the servers are called in the table.
pub(crate) const TOOLHOLD: &str = "toolhold";
pub(crate) const NODE: &str = "node";
pub(crate) const PYTHON: &str = "python";
pub(crate) const FLOOR: &str = "floor";

/// A server that can be started any number of times, and its call.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The home folder of a server that must not find the user's files.
    pub(super) home: Option<PathBuf>,
    pub(super) directory: PathBuf,
    pub(crate) call: String,
    /// Text in its answer. Empty: it isn't checked.
    pub(super) answer: String,
}

/// Where everything lies.
pub(crate) struct BenchSetting {
    pub(crate) repository: PathBuf,
    toolhold: PathBuf,
    /// This program.
    pub(super) bench: PathBuf,
    pub(super) home: PathBuf,
    folder: tempfile::TempDir,
}

impl BenchSetting {
    pub(crate) fn make(setting: &Setting) -> Result<Self, String> {
        let bench = std::env::current_exe()
            .map_err(|error| format!("this program can't find itself: {error}"))?;
        let home = setting.scratch.join("mcp");
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&home);
        made.map_err(|error| format!("can't create {}: {error}", home.display()))?;
        let folder = tempfile::tempdir_in(&setting.scratch)
            .map_err(|error| format!("no folder for the file to read: {error}"))?;
        let text: String =
            format!("{READ}, of 64 bytes or such.\n").chars().cycle().take(BYTES).collect();
        std::fs::write(folder.path().join("text.txt"), text)
            .map_err(|error| format!("can't write the file to read: {error}"))?;
        // Built together with this program.
        let toolhold = bench.with_file_name("toolhold");
        Ok(Self { repository: setting.repository.clone(), toolhold, bench, home, folder })
    }

    /// The servers that echo `said`, Toolhold first, and the reasons for missing ones.
    pub(crate) fn echoing(&self, said: &str) -> (Vec<Server>, Option<String>) {
        let call = |tool: &str, argument: &str| {
            json!({ "name": tool, "arguments": { argument: said } }).to_string()
        };
        let toolhold = self.toolhold(&["bench"], call("bench__echo", "text"), SAID);
        let floor = Server {
            name: FLOOR,
            arguments: vec!["--echo-lines".to_owned()],
            answer: String::new(),
            ..self.server(&self.bench, &toolhold.call)
        };
        let node = self.node("server-everything", &["stdio"], call("echo", "message"), SAID);
        let program = self.clients().join("python/bin/python");
        let script = self.repository.join("tests/clients/python/echo_server.py");
        let python = program.is_file().then(|| Server {
            name: PYTHON,
            arguments: vec![script.display().to_string()],
            ..self.server(&program, &call("echo", "message"))
        });
        left_out([Some(toolhold), node, python, Some(floor)])
    }

    /// A call that reads the file to read.
    pub(super) fn read(&self, tool: &str) -> String {
        let path = self.folder.path().join("text.txt");
        json!({ "name": tool, "arguments": { "path": path } }).to_string()
    }

    /// The servers that read files, Toolhold first.
    pub(crate) fn reading(&self) -> (Vec<Server>, Option<String>) {
        let text = READ;
        let call = |tool: &str| self.read(tool);
        let toolhold = self.toolhold(&[], call("read"), text);
        let folder = self.folder.path().display().to_string();
        left_out([
            Some(toolhold),
            self.node("server-filesystem", &[&folder], call("read_text_file"), text),
        ])
    }

    /// Toolhold with a tool that never ends, and a call of it.
    pub(crate) fn hanging(&self) -> (Server, String) {
        let mut server = self.toolhold(
            &["bench", "hostile"],
            json!({ "name": "bench__echo", "arguments": { "text": SAID } }).to_string(),
            SAID,
        );
        server.arguments.extend(
            ["--set", "tools.autonomy=full", "--set", "tools.call=3600"].map(str::to_owned),
        );
        (server, json!({ "name": "hostile__sleep_forever", "arguments": {} }).to_string())
    }

    /// Toolhold with its defaults, except for what would measure something else: no answer is
    /// reused, and records are thrown away.
    pub(super) fn toolhold(&self, plugins: &[&str], call: String, answer: &str) -> Server {
        let mut arguments: Vec<String> =
            ["serve", "--set", "tools.result_cache.enabled=false", "--set", "audit.keep=1"]
                .map(str::to_owned)
                .into();
        for plugin in plugins {
            arguments.extend([
                "--plugin".to_owned(),
                self.repository.join(format!("target/plugins/{plugin}.wasm")).display().to_string(),
            ]);
        }
        Server {
            name: TOOLHOLD,
            arguments,
            home: Some(self.home.clone()),
            answer: answer.to_owned(),
            ..self.server(&self.toolhold, &call)
        }
    }

    fn node(
        &self,
        package: &str,
        arguments: &[&str],
        call: String,
        answer: &str,
    ) -> Option<Server> {
        let script = self
            .clients()
            .join("node/node_modules/@modelcontextprotocol")
            .join(package)
            .join("dist/index.js");
        let program = find_program("node").filter(|_| script.is_file())?;
        let script = script.display().to_string();
        let arguments = [script.as_str()]
            .iter()
            .chain(arguments)
            .map(|&argument| argument.to_owned())
            .collect();
        Some(Server {
            name: NODE,
            arguments,
            answer: answer.to_owned(),
            ..self.server(&program, &call)
        })
    }

    fn server(&self, program: &Path, call: &str) -> Server {
        Server {
            name: "",
            program: program.to_owned(),
            arguments: Vec::new(),
            home: None,
            directory: self.folder.path().to_owned(),
            call: call.to_owned(),
            answer: SAID.to_owned(),
        }
    }

    /// The folder for fetched programs.
    fn clients(&self) -> PathBuf {
        self.repository.join("target/clients")
    }
}

fn left_out<const N: usize>(servers: [Option<Server>; N]) -> (Vec<Server>, Option<String>) {
    let missing = servers.iter().any(Option::is_none);
    let why = "not fetched: `cargo xtask bench` does it where npm and python3 are installed and reach their registries";
    (servers.into_iter().flatten().collect(), missing.then(|| why.to_owned()))
}

impl Server {
    /// Starts it and checks its answer.
    pub(crate) fn start(&self) -> Result<Client, String> {
        let mut client =
            Client::start(self.surround(Command::new(&self.program).args(&self.arguments)))?;
        if !self.answer.is_empty() {
            client.check(&self.call, &self.answer)?;
        }
        Ok(client)
    }

    /// Starts it below the client in Python.
    pub(crate) fn start_from_python(
        &self,
        python: &Path,
        repository: &Path,
    ) -> Result<TimedProgram, String> {
        let mut command = Command::new(python);
        command
            .arg(repository.join("tests/clients/python/time_calls.py"))
            .arg(&self.call)
            .arg(&self.program)
            .args(&self.arguments);
        TimedProgram::start(self.surround(&mut command))
    }

    /// Sets the folder and the variables.
    pub(super) fn surround<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.current_dir(&self.directory);
        if let Some(home) = &self.home {
            command.env_clear().env("HOME", home);
        }
        command
    }
}
