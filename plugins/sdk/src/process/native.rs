//! Runs programs with `std::process` instead of the host's processes, for unit tests. Programs
//! aren't confined. Only the program itself is ended, not the programs that it started.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Command, CommandKind, Ending, Finished, Output, ProcessError};

/// Bytes that are kept of each output.
const MAX_OUTPUT: usize = 1 << 20;

/// The default time limit in a test.
const DEFAULT_TIME: Duration = Duration::from_secs(600);

pub(super) fn run(mut command: Command) -> Result<Finished, ProcessError> {
    let input = std::mem::take(&mut command.input);
    let mut child = Child::start(command)?;
    child.write(&input);
    child.close_input();
    Ok(child.wait())
}

pub(super) fn background(_command: Command) -> Result<String, ProcessError> {
    Err(ProcessError::Unavailable("unit tests have no jobs".to_owned()))
}

pub(super) fn wait_any<'c>(
    children: impl Iterator<Item = &'c mut Child>,
    timeout: Option<Duration>,
) -> Vec<usize> {
    let mut children: Vec<&mut Child> = children.collect();
    let until = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let ready = children
            .iter_mut()
            .enumerate()
            .filter_map(|(at, child)| child.is_ready().then_some(at));
        let ready: Vec<usize> = ready.collect();
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        if !ready.is_empty() || is_over || children.is_empty() {
            return ready;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Debug)]
pub(super) struct Child {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    /// Pieces of both outputs, from one thread for each.
    written: Receiver<Written>,
    output: Output,
    /// The bytes of each output that can still be kept.
    room: [usize; 2],
    end: Instant,
    over: Option<(Option<i32>, Ending)>,
}

#[derive(Debug)]
enum Written {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

impl Child {
    pub(super) fn start(command: Command) -> Result<Self, ProcessError> {
        let mut words = match command.kind {
            CommandKind::Program(words) => words,
            CommandKind::Shell(line) => ["bash", "-c", "--", &line].map(str::to_owned).to_vec(),
        };
        let mut started = std::process::Command::new(words.remove(0));
        started.args(words).envs(command.environment);
        if let Some(directory) = command.directory {
            started.current_dir(directory);
        }
        let piped = started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| ProcessError::Failed(error.to_string()))?;
        let (sender, written) = sync_channel(16);
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            send(stdout, Written::Stdout, sender.clone());
            send(stderr, Written::Stderr, sender);
        }
        let limit = command.output_limit.map_or(MAX_OUTPUT, |limit| MAX_OUTPUT.min(limit as usize));
        let end = Instant::now() + command.timeout.unwrap_or(DEFAULT_TIME);
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            written,
            output: Output::default(),
            room: [limit; 2],
            end,
            over: None,
        })
    }

    pub(super) fn read(&mut self, timeout: Option<Duration>) -> Output {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        while self.over.is_none() && self.output.stdout.is_empty() && self.output.stderr.is_empty()
        {
            if !self.take(until) {
                break;
            }
        }
        let kept = Output {
            stdout_truncated: self.output.stdout_truncated,
            stderr_truncated: self.output.stderr_truncated,
            ..Output::default()
        };
        std::mem::replace(&mut self.output, kept)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
        let Some(stdin) = &mut self.stdin else { return 0 };
        let mut taken = 0;
        while let Ok(more @ 1..) = stdin.write(&bytes[taken..]) {
            taken += more;
        }
        taken as u64
    }

    pub(super) fn close_input(&mut self) {
        self.stdin = None;
    }

    pub(super) fn wait(&mut self) -> Finished {
        while self.over.is_none() {
            self.take(None);
        }
        let (exit_code, ending) = self.over.unwrap_or((None, Ending::Cancelled));
        Finished { exit_code, ending, notices: Vec::new(), output: self.read(None) }
    }

    pub(super) fn kill(&mut self) {
        self.stop(Ending::Cancelled);
    }

    /// Whether there is output or it has ended.
    fn is_ready(&mut self) -> bool {
        self.is_finished() || !self.output.stdout.is_empty() || !self.output.stderr.is_empty()
    }

    pub(super) fn is_finished(&mut self) -> bool {
        while self.over.is_none() && self.take(Some(Instant::now())) {}
        self.over.is_some()
    }

    /// Takes the next piece of output. Returns false if `until` has passed.
    fn take(&mut self, until: Option<Instant>) -> bool {
        let next = until.map_or(self.end, |until| until.min(self.end));
        match self.written.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(written) => self.keep(written),
            // Both outputs are closed.
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().ok();
                let code = status.and_then(|status| {
                    status.code().or(status.signal().map(|signal| 128 + signal))
                });
                self.over = Some((code, Ending::Exited));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= self.end => {
                self.stop(Ending::Timeout);
            }
            Err(RecvTimeoutError::Timeout) => return false,
        }
        true
    }

    fn keep(&mut self, written: Written) {
        let Self { output, room: [stdout_room, stderr_room], .. } = self;
        let (bytes, kept, truncated, room) = match written {
            Written::Stdout(bytes) => {
                (bytes, &mut output.stdout, &mut output.stdout_truncated, stdout_room)
            }
            Written::Stderr(bytes) => {
                (bytes, &mut output.stderr, &mut output.stderr_truncated, stderr_room)
            }
        };
        let fits = bytes.len().min(*room);
        kept.extend_from_slice(&bytes[..fits]);
        *room -= fits;
        *truncated |= fits < bytes.len();
    }

    fn stop(&mut self, ending: Ending) {
        if self.over.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            while let Ok(written) = self.written.try_recv() {
                self.keep(written);
            }
            self.over = Some((None, ending));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(Ending::Cancelled);
    }
}

fn send(
    mut from: impl Read + Send + 'static,
    name: fn(Vec<u8>) -> Written,
    to: SyncSender<Written>,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if to.send(name(buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_gets_arguments_variables_and_input() {
        let script = "printf '%s|%s|' \"$1\" \"$WORD\"; cat; echo no >&2; exit 3";
        let command =
            Command::program("sh").args(["-c", script, "sh", "a b"]).env("WORD", "w").input("in");
        let finished = command.run().unwrap();
        assert_eq!(
            (finished.exit_code, finished.ending, finished.success()),
            (Some(3), Ending::Exited, false)
        );
        assert_eq!(
            (&*finished.output.stdout, &*finished.output.stderr),
            (&b"a b|w|in"[..], &b"no\n"[..])
        );
    }

    #[test]
    fn shell_runs_in_its_directory_and_reports_signals_as_shells_do() {
        let directory = tempfile::tempdir().unwrap();
        let finished = Command::shell("pwd; kill -9 $$")
            .directory(directory.path().to_str().unwrap())
            .run()
            .unwrap();
        assert_eq!(finished.exit_code, Some(137));
        assert!(finished.output.stdout.ends_with(b"\n") && finished.output.stdout.len() > 1);
    }

    #[test]
    fn output_limit_and_timeout_hold() {
        let finished =
            Command::shell("printf 12345; printf abc >&2").output_limit(4).run().unwrap();
        assert!(finished.success());
        let output = finished.output;
        assert_eq!((&*output.stdout, output.stdout_truncated), (&b"1234"[..], true));
        assert_eq!((&*output.stderr, output.stderr_truncated), (&b"abc"[..], false));
        let finished =
            Command::program("sleep").arg("600").timeout(Duration::from_millis(1)).run().unwrap();
        assert_eq!((finished.exit_code, finished.ending), (None, Ending::Timeout));
    }

    #[test]
    fn child_is_written_to_and_read_from() {
        let mut child = Command::shell("read line; echo \"got $line\"; cat").start().unwrap();
        assert_eq!(child.write(b"one\n"), 4);
        assert_eq!(child.read(None).stdout, b"got one\n");
        assert!(!child.is_finished());
        child.write(b"two");
        child.close_input();
        let finished = child.wait();
        assert!(finished.success() && child.is_finished());
        assert_eq!(finished.output.stdout, b"two");
        let mut endless = Command::program("cat").start().unwrap();
        endless.kill();
        assert_eq!(endless.wait().ending, Ending::Cancelled);
    }

    #[test]
    fn missing_program_is_reported() {
        let error = Command::program("no-such-program-anywhere").run().unwrap_err();
        let failure = crate::Failure::from(error);
        assert_eq!(failure.code.as_deref(), Some("not-started"));
    }
}
