//! The client: lines of JSON over pipes, written and read with as little work as possible, the same
//! for every server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::measure::memory;

/// Parallel calls.
pub(crate) const IN_FLIGHT: usize = 16;

/// A server that runs, and its client.
pub(crate) struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The last line.
    line: String,
    next: u64,
    /// From its start to its first answer.
    pub(crate) start: Duration,
}

impl Client {
    /// Starts a server and shakes hands with it.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| format!("{program} can't be started: {error}");
        let begin = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (stdin, stdout) =
            child.stdin.take().zip(child.stdout.take()).ok_or("a server has no pipes")?;
        let mut client = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            line: String::new(),
            next: 1,
            start: Duration::ZERO,
        };
        client.ask("initialize", r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#)?;
        client.hear()?;
        client.start = begin.elapsed();
        client.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(client)
    }

    /// One call whose answer must have this text, so that the right thing is measured.
    pub(crate) fn check(&mut self, call: &str, text: &str) -> Result<(), String> {
        self.ask("tools/call", call)?;
        self.hear()?;
        let answer: Value =
            serde_json::from_str(&self.line).map_err(|error| format!("{error}: {}", self.line))?;
        let is_right =
            answer["result"]["content"][0]["text"].as_str().is_some_and(|said| said.contains(text));
        if is_right && answer["result"]["isError"] != true {
            Ok(())
        } else {
            Err(format!("{call} was answered with {}", self.line))
        }
    }

    /// The times of this number of consecutive calls.
    pub(crate) fn one_by_one(&mut self, call: &str, count: usize) -> Result<Vec<Duration>, String> {
        let each = |_| {
            let start = Instant::now();
            self.ask("tools/call", call)?;
            self.hear()?;
            Ok(start.elapsed())
        };
        (0..count).map(each).collect()
    }

    /// The times of consecutive calls, while answers to other ones may come too. Each answer has to
    /// have this text: a refused call is fast.
    pub(crate) fn among_others(
        &mut self,
        call: &str,
        text: &str,
        count: usize,
    ) -> Result<Vec<Duration>, String> {
        let each = |_| {
            let start = Instant::now();
            let id = self.next;
            self.ask("tools/call", call)?;
            let ends = [format!("\"id\":{id},"), format!("\"id\":{id}}}")];
            loop {
                self.read_line()?;
                if ends.iter().any(|end| self.line.contains(end)) {
                    break;
                }
            }
            let time = start.elapsed();
            let is_right = self.line.contains(text);
            is_right.then_some(time).ok_or_else(|| format!("{call} got {}", self.line))
        };
        (0..count).map(each).collect()
    }

    /// The average time of each of these calls with [`IN_FLIGHT`] in parallel.
    pub(crate) fn many(&mut self, call: &str, count: usize) -> Result<Duration, String> {
        let start = Instant::now();
        for asked in 0..count + IN_FLIGHT {
            if asked >= IN_FLIGHT {
                self.hear()?;
            }
            if asked < count {
                self.ask("tools/call", call)?;
            }
        }
        Ok(start.elapsed() / u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// A call without waiting for its answer.
    pub(crate) fn leave_hanging(&mut self, call: &str) -> Result<(), String> {
        self.ask("tools/call", call)
    }

    /// The memory of the server that is in RAM, in MiB.
    pub(crate) fn resident(&self) -> Result<f64, String> {
        memory(self.child.id(), "VmRSS")
    }

    /// What of that is the server's own, and not a file's, in MiB.
    pub(crate) fn own_memory(&self) -> Result<f64, String> {
        memory(self.child.id(), "RssAnon")
    }

    fn ask(&mut self, method: &str, params: &str) -> Result<(), String> {
        let id = self.next;
        self.next += 1;
        self.write(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        ))
    }

    fn write(&mut self, message: &str) -> Result<(), String> {
        self.stdin
            .write_all(message.as_bytes())
            .map_err(|error| format!("a server does not read: {error}"))
    }

    /// Reads up to the next answer. A server may send notifications too.
    fn hear(&mut self) -> Result<(), String> {
        loop {
            self.read_line()?;
            // In a text, the quotes would be escaped.
            if self.line.contains("\"result\":") {
                return Ok(());
            }
            if self.line.contains("\"error\":") {
                return Err(format!("a server refuses: {}", self.line));
            }
        }
    }

    fn read_line(&mut self) -> Result<(), String> {
        self.line.clear();
        let read = self.stdout.read_line(&mut self.line);
        match read.map_err(|error| format!("a server can't be read: {error}"))? {
            0 => Err("a server has ended".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lower limit for any server: returns each call as its answer without reading it.
pub(crate) fn echo_lines() -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        // A message that isn't a call is the handshake, which is answered once.
        if !line.windows(11).any(|word| word == b"initialized") {
            output
                .write_all(b"{\"result\":")
                .and_then(|()| output.write_all(&line))
                .map_err(failed)?;
            output.flush().map_err(failed)?;
        }
        line.clear();
    }
    Ok(())
}
