//! Programs of the machine, in the sandbox of the operating system's. The plugin asks for them in
//! its manifest: `process = "reason"`, and the operator names those that it may start, with
//! patterns for their arguments.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use berth_sdk::process::Command;
//!
//! # fn main() -> Result<(), berth_sdk::Failure> {
//! let status = Command::program("git").args(["status", "--short"]).timeout(Duration::from_secs(10)).run()?;
//! if !status.success() {
//!     return Err(berth_sdk::Failure::permanent("git", String::from_utf8_lossy(&status.output.stderr)));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What is started belongs to the call: it ends with it, and all that it has started too. A call of
//! a tool that is read-only starts nothing.
//!
//! In unit tests [`std::process`] takes the host's place: programs are not confined there.

#[cfg(not(target_arch = "wasm32"))]
mod native;

use std::fmt::{self, Display};
use std::time::Duration;

use crate::{Category, Failure};

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) kind: CommandKind,
    pub(crate) input: Vec<u8>,
    pub(crate) directory: Option<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) output_limit: Option<u32>,
    pub(crate) live: bool,
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) enum CommandKind {
    /// A program and its arguments.
    Program(Vec<String>),
    /// A command line for `bash`.
    Shell(String),
}

impl Command {
    /// A program. Its arguments go through no shell. A name without `/` is looked for on the
    /// operator's `PATH`.
    pub fn program(name: impl Into<String>) -> Self {
        Self::new(CommandKind::Program(vec![name.into()]))
    }

    /// A command line for `bash`, where the operator grants a shell. It has to be exactly the text
    /// of an argument that is a [subject](crate::Subject) of kind `command`: the host decided on
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
        }
    }

    /// The same with one more argument.
    ///
    /// # Panics
    ///
    /// For a [shell](Self::shell)'s command line, which holds its arguments itself.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        match &mut self.kind {
            CommandKind::Program(words) => words.push(argument.into()),
            CommandKind::Shell(_) => {
                panic!("a shell command takes no separate arguments")
            }
        }
        self
    }

    /// The same with more arguments. Otherwise as [`arg`](Self::arg).
    #[must_use]
    pub fn args(self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Works in this directory: absolute, and one that the plugin may look into. Otherwise it is
    /// the plugin's working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<String>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The same with a variable beside those that everything gets and those that the operator
    /// named; at most 64. What looks like a credential, or makes a program load something else, is
    /// refused.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Ends it after this time. Otherwise it has what the call has.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// What [`run`](Self::run) gives it on its standard input, at most 1 MiB. A [`Child`] is
    /// written to instead.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Keeps this many bytes of each of its outputs: at most 1 MiB, which is the default.
    #[must_use]
    pub fn output_limit(mut self, bytes: u32) -> Self {
        self.output_limit = Some(bytes);
        self
    }

    /// Shows its output to the caller as it comes. It is part of the answer only if the tool puts
    /// it there.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Runs it to its end. A program that failed, or was ended, is not an error: see [`Finished`].
    ///
    /// # Errors
    ///
    /// If nothing was started.
    pub fn run(self) -> Result<Finished, ProcessError> {
        engine::run(self)
    }

    /// Starts it, to run while the tool does something else. At most eight run at a time.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn start(self) -> Result<Child, ProcessError> {
        engine::Child::start(self).map(Child)
    }
}

/// A program that runs. Dropping it ends it, and all that it has started.
#[derive(Debug)]
pub struct Child(engine::Child);

impl Child {
    /// Waits until there is output, it is over, or `timeout` has passed, and takes what there is.
    pub fn read(&mut self, timeout: Option<Duration>) -> Output {
        self.0.read(timeout)
    }

    /// Writes to its standard input, and waits until that was taken. Returns how many bytes were
    /// taken; if fewer than given, it reads no more.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        self.0.write(bytes)
    }

    /// Ends its standard input.
    pub fn close_input(&mut self) {
        self.0.close_input();
    }

    /// Waits until it is over. The output is what was not [read](Self::read) before.
    pub fn wait(&mut self) -> Finished {
        self.0.wait()
    }

    /// Ends it, and all that it has started.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Whether it is over.
    pub fn is_finished(&mut self) -> bool {
        self.0.is_finished()
    }
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ended.
    Exited,
    /// Its time was up, and it was ended.
    Timeout,
    /// The caller went away, or the tool ended it.
    Cancelled,
    /// It and what it started took more memory than they may.
    Memory,
    /// They were more processes than they may be.
    Processes,
    /// They took more processor time than they may.
    Processor,
    /// They wrote more than the limit for output.
    Output,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; 128 and the signal where one ended it, as shells have it. None where the host
    /// ended it.
    pub exit_code: Option<i32>,
    /// Why it ended.
    pub ending: Ending,
    /// What could help, should it have failed: the line of the configuration that grants what it
    /// seems to have missed. To be passed on.
    pub notices: Vec<String>,
    /// What it wrote.
    pub output: Output,
}

impl Finished {
    /// Whether it ended by itself and well.
    pub fn success(&self) -> bool {
        self.ending == Ending::Exited && self.exit_code == Some(0)
    }
}

/// Some of what a program wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// To its standard output.
    pub stdout: Vec<u8>,
    /// To its standard error.
    pub stderr: Vec<u8>,
    /// Whether it wrote more to its standard output than was kept.
    pub stdout_truncated: bool,
    /// Whether it wrote more to its standard error than was kept.
    pub stderr_truncated: bool,
}

/// Why nothing was started. `?` makes a [`Failure`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessError {
    /// The rule that decided.
    Denied(String),
    /// What is wrong with the command, or with how it was to be started.
    Invalid(String),
    /// The sandbox can't be had on this machine, and what would help.
    Unavailable(String),
    /// Anything else.
    Failed(String),
}

#[cfg(target_arch = "wasm32")]
use crate::guest::process as engine;
#[cfg(not(target_arch = "wasm32"))]
use native as engine;

impl Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) => write!(f, "denied: {why}"),
            Self::Invalid(why) => write!(f, "it can't be started: {why}"),
            Self::Unavailable(why) => write!(f, "it was not started: {why}"),
            Self::Failed(why) => write!(f, "starting it failed: {why}"),
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
