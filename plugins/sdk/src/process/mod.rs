//! Programs of the machine, which run in a sandbox of the operating system. The plugin asks for
//! them in its manifest: `process = "reason"`. The operator names the programs that it may start,
//! with patterns for their arguments, or lets it start what would be allowed as a command of `bash`
//! (`judged_programs`). Such a program has an empty standard input.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use toolhold_sdk::process::Command;
//!
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! let status = Command::program("git").args(["status", "--short"]).timeout(Duration::from_secs(10)).run()?;
//! if !status.success() {
//!     return Err(toolhold_sdk::Failure::permanent("git", String::from_utf8_lossy(&status.output.stderr)));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program ends with the call that started it, and so does everything that the program started. A
//! call of a read-only tool can't start a program.
//!
//! In unit tests [`std::process`] replaces the host. Programs aren't confined there.

#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(target_arch = "wasm32")]
pub(crate) mod wasi;

use std::fmt::{self, Display};
use std::time::Duration;

use crate::{Category, Failure};

/// A command, and how to start it.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) kind: CommandKind,
    pub(crate) input: Vec<u8>,
    pub(crate) directory: Option<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) output_limit: Option<u32>,
    pub(crate) live: bool,
    pub(crate) background: bool,
}

/// The kinds of commands.
#[derive(Clone, Debug)]
pub(crate) enum CommandKind {
    /// A program and its arguments.
    Program(Vec<String>),
    /// A command line for `bash`.
    Shell(String),
}

impl Command {
    /// A program. It gets its arguments without a shell. A name without `/` is searched on the
    /// operator's `PATH`.
    pub fn program(name: impl Into<String>) -> Self {
        Self::new(CommandKind::Program(vec![name.into()]))
    }

    /// A command line for `bash`, if the operator grants a shell. It has to be exactly the text of
    /// an argument that is a [subject](crate::Subject) of kind `command`, since the host decides on
    /// that text.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(CommandKind::Shell(line.into()))
    }

    fn new(kind: CommandKind) -> Self {
        Self {
            kind,
            input: Vec::new(),
            directory: None,
            environment: Vec::new(),
            timeout: None,
            output_limit: None,
            live: false,
            background: false,
        }
    }

    /// Adds an argument.
    ///
    /// # Panics
    ///
    /// If it is a command line for a [shell](Self::shell), which contains its arguments.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        match &mut self.kind {
            CommandKind::Program(words) => words.push(argument.into()),
            CommandKind::Shell(_) => {
                panic!("a command line for a shell takes no further arguments")
            }
        }
        self
    }

    /// Adds arguments, as [`arg`](Self::arg) does.
    #[must_use]
    pub fn args(self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Sets the directory where it runs: absolute, and one that the plugin may read. The default is
    /// the plugin's working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<String>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Adds an environment variable; at most 64. The command also gets the usual variables and
    /// those that the operator named. The host refuses variables that look like a credential or
    /// make a program load other code.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Ends it after this time. The default is the time that the call has left.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Sets the standard input for [`run`](Self::run), at most 1 MiB. For a [`Child`], use
    /// [`Child::write`].
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets how many bytes of each output are kept: at most 1 MiB, which is the default.
    #[must_use]
    pub fn output_limit(mut self, bytes: u32) -> Self {
        self.output_limit = Some(bytes);
        self
    }

    /// Shows its output to the caller while it runs. The answer contains the output only if the
    /// tool puts it there.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Runs it to its end. A program that fails or is stopped isn't an error: see [`Finished`].
    ///
    /// # Errors
    ///
    /// If the command isn't started.
    pub fn run(self) -> Result<Finished, ProcessError> {
        engine::run(self)
    }

    /// Starts it as a job of the session, which goes on after the call, and returns the job's ID.
    /// Its standard input is empty, and its output is for the host's tools for jobs. The host
    /// allows it to built-in plugins alone, once in a call.
    ///
    /// # Errors
    ///
    /// The same as [`run`](Self::run), or the host has no jobs.
    pub fn background(mut self) -> Result<String, ProcessError> {
        self.background = true;
        engine::background(self)
    }

    /// Starts it without waiting for its end. At most eight commands run at a time.
    ///
    /// # Errors
    ///
    /// The same as [`run`](Self::run).
    pub fn start(self) -> Result<Child, ProcessError> {
        engine::Child::start(self).map(Child)
    }
}

/// A running program. Dropping it ends the program and everything that the program started.
#[derive(Debug)]
pub struct Child(engine::Child);

impl Child {
    /// Waits until there is output, the program has ended, or `timeout` has passed. Returns the
    /// output so far.
    pub fn read(&mut self, timeout: Option<Duration>) -> Output {
        self.0.read(timeout)
    }

    /// Writes to its standard input, and waits until the program has read it. Returns how many
    /// bytes it read. If that is less than the input, it reads no more.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        self.0.write(bytes)
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.0.close_input();
    }

    /// Waits until it has ended. The output is the part that wasn't [read](Self::read) before.
    pub fn wait(&mut self) -> Finished {
        self.0.wait()
    }

    /// Ends it and everything that it started.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Whether it has ended.
    pub fn is_finished(&mut self) -> bool {
        self.0.is_finished()
    }

    /// Becomes ready when there is output to read, or when the program has ended, so that a plugin
    /// waits for it beside requests and times. It has to be dropped before the child. For programs
    /// alone, there is [`wait_any`].
    #[cfg(target_arch = "wasm32")]
    pub fn subscribe(&self) -> wasip2::io::poll::Pollable {
        self.0.subscribe()
    }
}

/// Waits until one of the programs has output to read or has ended, or until `timeout` has passed.
/// Returns the indices of those that are ready.
pub fn wait_any(children: &mut [Child], timeout: Option<Duration>) -> Vec<usize> {
    engine::wait_any(children.iter_mut().map(|child| &mut child.0), timeout)
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process exited by itself.
    Exited,
    /// The host stopped it at its time limit.
    Timeout,
    /// The caller cancelled the call, or the tool stopped the program.
    Cancelled,
    /// The host stopped it: it and the programs that it started reached the memory limit.
    Memory,
    /// The host stopped it: it and the programs that it started reached the limit of processes.
    Processes,
    /// The host stopped it: it and the programs that it started reached the limit of processor
    /// time.
    Processor,
    /// The host stopped it: it and the programs that it started reached the limit of output.
    Output,
    /// The host stopped it, for a reason that this version of the SDK doesn't know.
    Other,
}

/// The result of a program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The exit code. If a signal ended it, 128 plus the signal, as in shells. `None` if the host
    /// stopped it.
    pub exit_code: Option<i32>,
    /// Why it ended.
    pub ending: Ending,
    /// Advice for a program that failed: the line of the configuration that grants what it seems to
    /// lack. Pass it on to the caller.
    pub notices: Vec<String>,
    /// The output.
    pub output: Output,
}

impl Finished {
    /// Whether it exited by itself with code 0.
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited && self.exit_code == Some(0)
    }
}

/// Output of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Whether the rest of standard output was dropped.
    pub stdout_truncated: bool,
    /// Whether the rest of standard error was dropped.
    pub stderr_truncated: bool,
}

/// Why a command wasn't started. `?` converts it to a [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessError {
    /// The command is denied. Holds the rule that decided.
    Denied(String),
    /// The command or its options aren't valid. Holds the reason.
    Invalid(String),
    /// This machine can't provide the sandbox. Holds the reason and the remedy.
    Unavailable(String),
    /// Any other error.
    Failed(String),
}

#[cfg(not(target_arch = "wasm32"))]
use native as engine;
#[cfg(target_arch = "wasm32")]
use wasi as engine;

impl Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) => write!(f, "denied: {why}"),
            Self::Invalid(why) => write!(f, "the command can't be started: {why}"),
            Self::Unavailable(why) => write!(f, "the command was not started: {why}"),
            Self::Failed(why) => write!(f, "starting the command failed: {why}"),
        }
    }
}

impl std::error::Error for ProcessError {}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        let (category, code) = match &error {
            ProcessError::Denied(_) => (Category::PermanentFailure, "not-permitted"),
            ProcessError::Invalid(_) => (Category::InvalidParameters, "invalid-command"),
            ProcessError::Unavailable(_) => (Category::PermanentFailure, "no-sandbox"),
            ProcessError::Failed(_) => (Category::PermanentFailure, "not-started"),
        };
        Self::new(category, error.to_string()).with_code(code)
    }
}
