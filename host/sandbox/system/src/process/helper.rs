//! Starts helper processes with an empty environment and limits.
//!
//! A helper is the Toolhold program with a single task. It confines itself before it reads its
//! input.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::network_namespaces::NetworkNamespaces;
#[cfg(debug_assertions)]
use crate::confine::NEWEST_LANDLOCK;
use crate::confine::{HELPER, Preparation};
use crate::messages;

/// The limits of a helper.
#[derive(Clone, Copy, Debug)]
pub struct HelperBounds {
    /// Time limit from the start to the end of the helper.
    pub time: Duration,
    /// Bytes of the longest answer. A helper with a longer answer is killed.
    pub output: usize,
}

/// The reason why a helper gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The helper can't be started, or the communication failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The helper reported an error.
    #[error("{0}")]
    Failed(String),
    /// The helper reported an error in its input.
    #[error("{0}")]
    Input(String),
    /// The helper crashed.
    #[error("{0}")]
    Crashed(String),
    /// The helper used too much CPU time.
    #[error("the helper used more CPU time than its limit allows")]
    ProcessorTime,
    /// The helper exceeded its time limit and was killed.
    #[error("the helper took longer than {} s, the limit", .0.as_secs())]
    Timeout(Duration),
    /// The helper's answer is too large.
    #[error("the helper's output has more than {0} bytes, the limit")]
    Output(usize),
}

impl HelperError {
    /// Checks whether the input is the reason. If so, the same input would probably fail again.
    pub const fn is_of_input(&self) -> bool {
        matches!(self, Self::Input(_) | Self::Crashed(_) | Self::ProcessorTime)
    }
}

/// The exit code of a helper for an error in its input.
pub const INPUT_AT_FAULT: i32 = 2;

/// Rust's exit code after a panic.
const PANICKED: i32 = 101;

/// Bytes of a helper's error output that are read.
const MAX_COMPLAINT: u64 = 16 * 1024;

/// A helper that confines itself. `control` is the other end of its standard input.
#[derive(Debug)]
pub(super) struct ConfineHelper {
    pub(super) process: Child,
    pub(super) control: UnixStream,
}

impl ConfineHelper {
    /// Starts a helper with an empty environment. The helper immediately carries out the
    /// preparation. `namespaces` are the namespaces of the shared network in the preparation.
    pub(super) fn start(
        program: &Path,
        preparation: &Preparation,
        namespaces: Option<&NetworkNamespaces>,
    ) -> std::io::Result<Self> {
        let (control, stdin) = UnixStream::pair()?;
        let mut command = Command::new(program);
        command.arg(HELPER).env_clear().current_dir("/");
        // Tests set this variable.
        #[cfg(debug_assertions)]
        if let Ok(newest) = std::env::var(NEWEST_LANDLOCK) {
            command.env(NEWEST_LANDLOCK, newest);
        }
        command.stdin(OwnedFd::from(stdin)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;
        if let Err(error) = send_preparation(&control, preparation, namespaces) {
            let _ = process.kill().and_then(|()| process.wait());
            return Err(error);
        }
        Ok(Self { process, control })
    }
}

/// Sends the preparation, and then the namespaces of its shared network.
fn send_preparation(
    control: &UnixStream,
    preparation: &Preparation,
    namespaces: Option<&NetworkNamespaces>,
) -> std::io::Result<()> {
    messages::send(control, preparation, None)?;
    if let Some(namespaces) = namespaces {
        namespaces.send(control)?;
    }
    Ok(())
}

/// Time limit for an answer about a network.
const NETWORK_TIME: Duration = Duration::from_secs(10);

/// Starts a helper for a network task, and passes its answers to `receive`. Blocks.
pub(super) fn ask_about_network<R>(
    program: &Path,
    task: &str,
    receive: impl FnOnce(&UnixStream) -> std::io::Result<R>,
) -> std::io::Result<R> {
    let (control, stdin) = UnixStream::pair()?;
    control.set_read_timeout(Some(NETWORK_TIME))?;
    let mut command = Command::new(program);
    command.args([HELPER, task]).env_clear().current_dir("/");
    command.stdin(OwnedFd::from(stdin)).stdout(Stdio::null()).stderr(Stdio::null());
    let _process = command.spawn().map(ChildGuard)?;
    // The command holds a copy of the helper's end. Without this copy, the host notices when the
    // helper closes its end.
    drop(command);
    receive(&control)
}

/// Runs `program` with `arguments`, with `input` on its standard input and an empty environment.
/// Returns its standard output. Blocks.
///
/// # Errors
///
/// Returns an error if the helper fails. The process has ended in every case.
pub fn run_helper(
    program: &Path,
    arguments: &[&str],
    input: &[u8],
    bounds: HelperBounds,
) -> Result<Vec<u8>, HelperError> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map(ChildGuard)?;
    let (Some(stdin), Some(mut stdout), Some(stderr)) =
        (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take())
    else {
        return Err(HelperError::Failed("the helper was started without pipes".into()));
    };

    let deadline = Instant::now() + bounds.time;
    std::thread::scope(|scope| {
        // A helper that doesn't read its input is killed at its deadline. This also ends the
        // writing thread.
        scope.spawn(move || {
            let mut stdin = stdin;
            // If the helper ends early, its error gives the reason.
            let _ = stdin.write_all(input);
        });
        let complaint = scope.spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.take(MAX_COMPLAINT).read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim().to_owned()
        });

        let output = read_until(&mut stdout, bounds, deadline);
        if output.is_err() {
            child.end();
        }
        drop(stdout);
        let output = output?;
        let status = child.wait_until(deadline, bounds.time)?;
        let complaint = complaint.join().unwrap_or_default();
        if status.success() {
            return Ok(output);
        }
        Err(error_of(status, complaint))
    })
}

/// Returns the reason why a helper failed. `complaint` is its standard error.
fn error_of(status: ExitStatus, mut complaint: String) -> HelperError {
    if complaint.is_empty() {
        complaint = format!("the helper ended with {status}");
    }
    match (status.code(), status.signal()) {
        (Some(INPUT_AT_FAULT), _) => HelperError::Input(complaint),
        (_, Some(libc::SIGXCPU)) => HelperError::ProcessorTime,
        (Some(PANICKED), _)
        | (_, Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE)) => {
            HelperError::Crashed(complaint)
        }
        _ => HelperError::Failed(complaint),
    }
}

/// Bytes of output that are read at once.
const CHUNK: usize = 64 * 1024;

/// Time between two checks whether a helper has ended.
const END_CHECK: Duration = Duration::from_millis(1);

/// Reads the output of a helper up to its end, before the deadline and within the limit.
fn read_until(
    stdout: &mut std::process::ChildStdout,
    bounds: HelperBounds,
    deadline: Instant,
) -> Result<Vec<u8>, HelperError> {
    let mut output = Vec::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(HelperError::Timeout(bounds.time));
        }
        // If the remaining time is too long for the kernel, the loop waits in steps.
        let one_second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let timeout = Timespec::try_from(remaining).unwrap_or(one_second);
        let mut descriptors = [PollFd::new(&*stdout, PollFlags::IN)];
        let ready = poll(&mut descriptors, Some(&timeout)).map_err(std::io::Error::from)?;
        let is_timeout = ready == 0;
        if is_timeout {
            continue;
        }
        match stdout.read(&mut buffer)? {
            0 => return Ok(output),
            read if output.len() + read > bounds.output => {
                return Err(HelperError::Output(bounds.output));
            }
            read => output.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A child process that is killed when this value is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    /// Waits for a child that has closed its output and is about to end. Kills the child at the
    /// deadline. `time` is the time limit for the error.
    fn wait_until(
        &mut self,
        deadline: Instant,
        time: Duration,
    ) -> Result<std::process::ExitStatus, HelperError> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.end();
                return Err(HelperError::Timeout(time));
            }
            std::thread::sleep(END_CHECK);
        }
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.end();
    }
}
