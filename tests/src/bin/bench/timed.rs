//! Programs in other languages that time their own calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that answers a line with a number by a line with the times of as many calls.
pub(crate) struct TimedProgram {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    name: String,
}

impl TimedProgram {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} can't be started: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a client has no pipes")?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout), name })
    }

    /// The times of this number of consecutive calls.
    pub(crate) fn one_by_one(&mut self, count: usize) -> Result<Vec<Duration>, String> {
        let failed = |error: std::io::Error| format!("{} has ended: {error}", self.name);
        let mut line = String::new();
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "{count}").map_err(failed)?;
        }
        self.stdout.read_line(&mut line).map_err(failed)?;
        let times: Vec<u64> = serde_json::from_str(&line)
            .map_err(|error| format!("{} printed no times: {error}", self.name))?;
        Ok(times.into_iter().map(Duration::from_nanos).collect())
    }
}

impl Drop for TimedProgram {
    fn drop(&mut self) {
        // At the end of its input it ends what it started and itself.
        self.stdin = None;
        let _ = self.child.wait();
    }
}
