//! Starts a process of a call in its sandbox, passes its input and output, and ends it and all that
//! it started: at its time limit, or when its call is cancelled.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use toolhold_contract::{BoundedOutput, CancellationToken, OutputRecorder, OutputStream};
use toolhold_data_dir::PinnedDirectory;

use super::changes::ChangeWatch;
use super::command::{Command, StartError};
use super::helper::ConfineHelper;
use super::network::SharedNetwork;
use super::places::Places;
use super::sandbox::CommandSandbox;
use super::state::StateRecord;
use super::warm::{NextHelper, hand_over};
use crate::confine::{Bound, HelperStatus, Program, Sandbox, TreeState};
use crate::{messages, processes};

/// Time for the helper until the program runs.
const BEGIN: Duration = Duration::from_secs(10);

/// How often the sandbox is set up again if something in it is moved meanwhile.
const ATTEMPTS: usize = 5;

/// Bytes that are kept of a helper's output before it fails.
const MAX_COMPLAINT: u64 = 16 * 1024;

/// Time between two checks whether the call still waits.
const LOOK: Duration = Duration::from_millis(10);

/// The same for a process that goes on after its call, for hours perhaps.
const LOOK_SELDOM: Duration = Duration::from_millis(50);

/// Time to wait for the output of an ended program if a process that it left behind keeps it open.
const DRAIN: Duration = Duration::from_millis(250);

/// Bytes of output that are read in all; only the first are kept. More comes from a program that
/// never ends.
const MAX_WRITTEN: u64 = 256 << 20;

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command ended by itself.
    Exited,
    /// The command reached its time limit.
    Timeout,
    /// The call no longer waits for it, or its caller ended it.
    Cancelled,
    /// The command reached a limit on all its processes.
    Bound(Bound),
    /// The command wrote more than the limit.
    Output,
}

/// The result of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// Its exit code; 128 plus the signal if a signal ended it. `None` if Toolhold ended it.
    pub code: Option<i32>,
    /// Why it ended.
    pub ending: Ending,
}

/// The output of a process.
#[derive(Debug, Default)]
pub struct Output {
    /// Its standard output.
    pub stdout: BoundedOutput,
    /// Its standard error.
    pub stderr: BoundedOutput,
    written: u64,
    limit: usize,
}

impl Output {
    /// Whether there is new output.
    pub fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// A process that a call starts in its sandbox, until it ends.
pub struct Child {
    /// The helper, which becomes the program or waits for it. `None`: it is over, and another
    /// thread waits for its end.
    process: Option<std::process::Child>,
    pid: Pid,
    handle: OwnedFd,
    /// Its reports. `None`: it sends no more.
    control: Option<UnixStream>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Output,
    namespaces: bool,
    off: bool,
    finished: Option<CommandResult>,
    missing: Vec<String>,
    /// The names of the processes that it left behind.
    left: Vec<String>,
    cancel: CancellationToken,
    /// When its time limit ends.
    end: Instant,
    /// Time between two checks of `cancel` and `end`.
    look: Duration,
    /// Held until it ends.
    held: Vec<PinnedDirectory>,
    /// Serves its listener; ends behind it.
    changes: Option<ChangeWatch>,
    recorder: Option<Arc<dyn OutputRecorder>>,
    /// Gets the record of what it leaves for later commands.
    leaves: Option<StateRecord>,
    /// The helper of the next command. `None`: it was started, or there is none in advance.
    next: Option<NextHelper>,
}

/// How a command runs.
#[derive(Clone, Copy)]
struct Task<'a> {
    command: &'a Command,
    state: &'a TreeState,
    namespaces: bool,
    off: bool,
    limit: usize,
    end: Instant,
    cancel: &'a CancellationToken,
    held: &'a [PinnedDirectory],
    /// The trees that it may write.
    writable: &'a [PathBuf],
}

/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

impl Child {
    /// Starts a command in the sandbox of `places`. It is ended at `end`, and when `cancel` is set;
    /// at most `limit` bytes of each stream are kept. Blocks until the program runs.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing runs then.
    pub fn start(
        places: &Places,
        command: &Command,
        limit: usize,
        end: Instant,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let namespaces = places.tries_namespaces();
        // Moved paths are searched again.
        let mut begun = Self::begin(places, command, namespaces, limit, end, cancel);
        for _ in 1..ATTEMPTS {
            if matches!(begun, Err(StartError::Moved(_))) {
                begun = Self::begin(places, command, namespaces, limit, end, cancel);
            }
        }
        match begun {
            Err(StartError::Sandbox(reason))
                if namespaces && places.sandbox == Sandbox::BestEffort =>
            {
                let mut child = Self::begin(places, command, false, limit, end, cancel)?;
                places.known.without_namespaces.store(true, Ordering::Relaxed);
                child.missing.insert(0, reason);
                Ok(child)
            }
            Ok(mut child) => {
                if !namespaces && places.sandbox == Sandbox::BestEffort {
                    child.missing.insert(
                        0,
                        "namespaces: an earlier attempt showed that they aren't available"
                            .to_owned(),
                    );
                }
                Ok(child)
            }
            other => other,
        }
    }

    fn begin(
        places: &Places,
        command: &Command,
        namespaces: bool,
        limit: usize,
        end: Instant,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let Some(helper) = &places.helper else {
            return Err(StartError::Sandbox(
                "this program can't confine itself: its `main` has to begin with the helper hook, or the host be given a helper".to_owned(),
            ));
        };
        let sandbox = places.sandbox(command, namespaces)?;
        let warm = places.known.warm.take(&sandbox);
        let CommandSandbox { preparation, mounts, network, state, held } = sandbox;
        let off = places.sandbox == Sandbox::Off;
        let writable: Vec<PathBuf> = preparation.writable().map(PathBuf::from).collect();
        let task = Task {
            command,
            state: &state,
            namespaces,
            off,
            limit,
            end,
            cancel,
            held: &held,
            writable: &writable,
        };
        // A helper that has waited for too long has ended.
        let told = match warm.map(|warm| Self::tell(warm, &task)) {
            Some(Err(StartError::Moved(reason))) => return Err(StartError::Moved(reason)),
            Some(told) => told.ok(),
            None => None,
        };
        let mut child = match told {
            Some(child) => child,
            None => {
                let namespaces = network.as_deref().map(SharedNetwork::namespaces);
                let started = ConfineHelper::start(helper, &preparation, namespaces)?;
                Self::tell(started, &task)?
            }
        };
        child.held = held;
        child.next = Some(NextHelper {
            program: helper.clone(),
            preparation,
            mounts,
            network,
            slot: places.known.warm.clone(),
        });
        Ok(child)
    }

    /// Sends a helper the command and waits until the program runs.
    fn tell(helper: ConfineHelper, task: &Task<'_>) -> Result<Self, StartError> {
        let ConfineHelper { mut process, control } = helper;
        let pid = Pid::from_child(&process);
        let stdout = process.stdout.take();
        let stderr = process.stderr.take();
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .and_then(|pipe| Ok((pipe, pidfd_open(pid, PidfdFlags::empty())?)));
        let ((input, stdin), handle) = match pipe {
            Ok(opened) => opened,
            Err(errno) => {
                let _ = process.kill().and_then(|()| process.wait());
                return Err(io::Error::from(errno).into());
            }
        };
        let Task { command, namespaces, off, limit, end, .. } = *task;
        let mut child = Self {
            process: Some(process),
            pid,
            handle,
            control: None,
            stdin: Some(stdin.into()),
            stdout,
            stderr,
            output: Output { limit, ..Output::default() },
            namespaces,
            off,
            finished: None,
            missing: Vec::new(),
            left: Vec::new(),
            cancel: task.cancel.clone(),
            end,
            look: LOOK,
            held: Vec::new(),
            changes: None,
            recorder: command.output.clone(),
            leaves: None,
            next: None,
        };
        let program = Program {
            arguments: command.arguments.clone(),
            environment: command.environment.clone(),
            directory: command.directory.to_string_lossy().into_owned(),
            leaves_state: command.shell.is_some(),
        };
        let record = command.shell.as_ref().map(|shell| StateRecord::new(shell, &program));
        let (leaves, record) = record.transpose()?.unzip();
        // If the helper doesn't read them, it has reported the reason.
        let _ = messages::send(&control, task.state, None)
            .and_then(|()| messages::send(&control, &program, Some(input.as_fd())))
            .and_then(|()| match &record {
                Some(record) => messages::send(&control, &(), Some(record.as_fd())),
                None => Ok(()),
            });
        drop((input, record));
        child.leaves = leaves;
        let (unrecorded, listener) = child.wait_for_start(&control)?;
        match (&command.changes, unrecorded) {
            (None, _) => {}
            (Some(recorder), Some(reason)) => recorder.unrecorded(&reason),
            (Some(recorder), None) => {
                // Without the listener, the calls that it is asked about fail.
                let pinned = task.held.iter().map(|held| held.path().to_owned()).collect();
                let listener = listener.ok_or_else(|| io::Error::other("it sent no listener"))?;
                let writable = task.writable.to_vec();
                let watch = ChangeWatch::start(listener, Arc::clone(recorder), writable, pinned)?;
                child.changes = Some(watch);
            }
        }
        for stream in [
            child.stdout.as_ref().map(AsFd::as_fd),
            child.stderr.as_ref().map(AsFd::as_fd),
            child.stdin.as_ref().map(AsFd::as_fd),
        ] {
            let Some(stream) = stream else { continue };
            fcntl_getfl(stream)
                .and_then(|flags| fcntl_setfl(stream, flags | OFlags::NONBLOCK))
                .map_err(io::Error::from)?;
        }
        child.control = Some(control);
        Ok(child)
    }

    /// Waits until the program runs. Returns why its changes aren't recorded, or their listener.
    fn wait_for_start(
        &mut self,
        control: &UnixStream,
    ) -> Result<(Option<String>, Option<OwnedFd>), StartError> {
        let deadline = Instant::now() + BEGIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(LOOK);
            if left.is_zero() || self.cancel.is_cancelled() {
                return Err(StartError::Sandbox("setting it up took too long".to_owned()));
            }
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            match poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        match messages::receive(control) {
            Ok((HelperStatus::Started { missing, unrecorded }, listener)) => {
                self.missing = missing;
                Ok((unrecorded, listener))
            }
            Ok((HelperStatus::Failed(reason), _)) => Err(StartError::Sandbox(reason)),
            Ok((HelperStatus::Moved(reason), _)) => Err(StartError::Moved(reason)),
            Ok((HelperStatus::Exited { .. } | HelperStatus::Reached(_), _)) | Err(_) => {
                // It ends without a report, so this has an end.
                let mut said = String::new();
                if let Some(stderr) = self.stderr.take() {
                    let _ = stderr.take(MAX_COMPLAINT).read_to_string(&mut said);
                }
                Err(StartError::Sandbox(match said.trim() {
                    "" => "the helper ended without a message".to_owned(),
                    said => said.to_owned(),
                }))
            }
        }
    }

    /// The parts of the sandbox that this machine doesn't have.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The names of some of the processes that it left behind, and that were ended with it.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// The process above all of its processes.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its standard input, output and error, which don't block, for a caller that talks to it while
    /// it runs. From then on this only waits for its end. `None`: they were taken before.
    pub fn take_streams(&mut self) -> Option<[OwnedFd; 3]> {
        // A program that runs for long has no next one.
        self.next = None;
        let streams = (self.stdin.take()?, self.stdout.take()?, self.stderr.take()?);
        Some([streams.0.into(), streams.1.into(), streams.2.into()])
    }

    /// Exchanges its bounds: it is ended at `end`, and when `cancel` is set.
    pub fn set_bounds(&mut self, end: Instant, cancel: &CancellationToken) {
        (self.end, self.cancel) = (end, cancel.clone());
    }

    /// Its result, if it has ended.
    pub fn finished(&self) -> Option<&CommandResult> {
        self.finished.as_ref()
    }

    /// The output that wasn't taken yet.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Waits for output or its end, but at most until `until`. Also passes its output to `see`.
    pub fn wait_for_output(
        &mut self,
        until: Option<Instant>,
        see: &mut dyn FnMut(OutputStream, &[u8]),
    ) {
        self.wait(None, until, see, |child| !child.output.is_empty());
    }

    /// Takes the output that there is without waiting, and passes it to `see`. Returns whether
    /// there is output that wasn't taken yet, or it has ended.
    pub fn look(&mut self, see: &mut dyn FnMut(OutputStream, &[u8])) -> bool {
        self.wait_for_output(Some(Instant::now()), see);
        self.finished.is_some() || !self.output.is_empty()
    }

    /// Waits until it ends. Also passes its output to `see`.
    pub fn wait_for_end(&mut self, see: &mut dyn FnMut(OutputStream, &[u8])) -> &CommandResult {
        self.wait(None, None, see, |_| false);
        self.finished.get_or_insert(CommandResult { code: None, ending: Ending::Cancelled })
    }

    /// Waits as [`wait_for_end`](Self::wait_for_end) does, but looks less often whether it has to
    /// be ended: for a process that goes on after its call. Only its recorder gets its output.
    pub fn go_on(mut self) -> CommandResult {
        self.look = LOOK_SELDOM;
        self.close_input();
        self.wait_for_end(&mut |_, _| {}).clone()
    }

    /// Writes to its standard input until all is written or it ends, but at most until `until`.
    /// Returns how many bytes.
    pub fn write(
        &mut self,
        bytes: &[u8],
        until: Option<Instant>,
        see: &mut dyn FnMut(OutputStream, &[u8]),
    ) -> usize {
        let mut left = Some(bytes);
        self.wait(left.as_mut(), until, see, |_| false);
        bytes.len() - left.map_or(0, <[u8]>::len)
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Ends it and all its descendants.
    pub fn end(&mut self, ending: Ending) {
        if self.finished.is_some() {
            return;
        }
        if self.off {
            // All processes that can be found without namespaces: it started a session of its own.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        } else if !self.namespaces {
            // The outer process adopts orphans, so they are found as long as it lives.
            processes::end_below(self.pid);
        }
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let _ = self.process.take().map(|mut process| process.wait());
        self.changes = None;
        self.finished = Some(CommandResult { code: None, ending });
        hand_over(self.next.take(), None);
    }

    /// Its result, if it is over.
    fn result(&mut self, reported: bool, ended: bool) -> Option<CommandResult> {
        if reported && let Some(control) = self.control.take() {
            match messages::receive(&control) {
                Ok((HelperStatus::Exited { code, left }, _)) => {
                    self.left = left;
                    return Some(CommandResult { code: Some(code), ending: Ending::Exited });
                }
                Ok((HelperStatus::Reached(bound), _)) => {
                    return Some(CommandResult { code: None, ending: Ending::Bound(bound) });
                }
                // The program closes the socket if it runs without a sandbox, and its end tells how
                // it ended.
                _ => {}
            }
        }
        let status = ended.then(|| self.process.take()?.wait().ok());
        status.map(|status| {
            status.map_or(CommandResult { code: None, ending: Ending::Cancelled }, finished)
        })
    }

    /// The single loop: writes `input`, reads output and checks for the end, until everything is
    /// written and `enough` is reached, or `until`.
    fn wait(
        &mut self,
        mut input: Option<&mut &[u8]>,
        until: Option<Instant>,
        see: &mut dyn FnMut(OutputStream, &[u8]),
        enough: impl Fn(&Self) -> bool,
    ) {
        let feeds = input.is_some();
        let mut looked = false;
        let mut buffer = vec![0; CHUNK];
        loop {
            let fed = input.as_ref().is_none_or(|left| left.is_empty()) || self.stdin.is_none();
            let now = Instant::now();
            if self.finished.is_some()
                || feeds && fed
                || !feeds && enough(self)
                || looked && until.is_some_and(|until| now >= until)
            {
                return;
            }
            if self.cancel.is_cancelled() {
                return self.end(Ending::Cancelled);
            }
            if now >= self.end {
                return self.end(Ending::Timeout);
            }
            if self.output.written > MAX_WRITTEN {
                return self.end(Ending::Output);
            }
            let next = until.map_or(self.end, |until| until.min(self.end));
            let wait = next.saturating_duration_since(now).min(self.look);
            let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            let mut fds = vec![PollFd::new(&self.handle, PollFlags::IN)];
            fds.extend(self.control.as_ref().map(|control| PollFd::new(control, PollFlags::IN)));
            fds.extend(self.stdout.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            fds.extend(self.stderr.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            let feeding = if fed { None } else { self.stdin.as_ref() };
            fds.extend(feeding.map(|stream| PollFd::new(stream, PollFlags::OUT)));
            let polled = poll(&mut fds, Some(&timeout));
            let ended = !fds[0].revents().is_empty();
            let reported = self.control.is_some() && !fds[1].revents().is_empty();
            drop(fds);
            looked = true;
            if polled == Ok(0) && !wait.is_zero() {
                // It takes its time, so the next helper doesn't disturb it.
                hand_over(self.next.take(), None);
            }
            if let Some(left) = &mut input {
                self.feed(left);
            }
            self.take(&mut buffer, see);
            // Perhaps the output goes on now: a program may write a line and work for long.
            see(OutputStream::Stdout, &[]);
            if let Some(result) = self.result(reported, ended) {
                self.drain(&mut buffer, see);
                self.changes = None;
                if let Some(leaves) = self.leaves.take()
                    && result.ending == Ending::Exited
                {
                    leaves.finish();
                }
                self.finished = Some(result);
                hand_over(self.next.take(), self.process.take());
            }
        }
    }

    fn feed(&mut self, left: &mut &[u8]) {
        let Some(stdin) = &mut self.stdin else { return };
        while !left.is_empty() {
            match stdin.write(left) {
                Ok(taken) if taken > 0 => *left = &left[taken..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It has closed its standard input.
                Ok(_) | Err(_) => return self.close_input(),
            }
        }
    }

    fn take(&mut self, buffer: &mut [u8], see: &mut dyn FnMut(OutputStream, &[u8])) {
        let Self { stdout, stderr, output, recorder, .. } = self;
        let Output { stdout: kept_out, stderr: kept_err, written, limit } = output;
        let recorder = recorder.as_deref();
        take_from(stdout, kept_out, *limit, written, buffer, &mut |bytes, shown| {
            record(recorder, OutputStream::Stdout, bytes);
            see(OutputStream::Stdout, &bytes[..shown]);
        });
        take_from(stderr, kept_err, *limit, written, buffer, &mut |bytes, shown| {
            record(recorder, OutputStream::Stderr, bytes);
            see(OutputStream::Stderr, &bytes[..shown]);
        });
    }

    /// Reads the bytes that are still in the pipes after its end. In a namespace, no other process
    /// has the pipes open then.
    fn drain(&mut self, buffer: &mut [u8], see: &mut dyn FnMut(OutputStream, &[u8])) {
        let until = Instant::now() + DRAIN;
        while (self.stdout.is_some() || self.stderr.is_some())
            && Instant::now() < until
            && self.output.written <= MAX_WRITTEN
        {
            let mut fds: Vec<PollFd<'_>> = Vec::new();
            fds.extend(self.stdout.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            fds.extend(self.stderr.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now()))
                .unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            let _ = poll(&mut fds, Some(&timeout));
            drop(fds);
            self.take(buffer, see);
        }
        if self.off {
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end(Ending::Cancelled);
    }
}

fn record(recorder: Option<&dyn OutputRecorder>, stream: OutputStream, bytes: &[u8]) {
    if let Some(recorder) = recorder {
        recorder.write(stream, bytes);
    }
}

/// Reads the bytes that a pipe holds now, and closes the pipe at its end. `pass` gets the bytes,
/// and how many are shown.
fn take_from(
    stream: &mut Option<impl Read>,
    kept: &mut BoundedOutput,
    limit: usize,
    written: &mut u64,
    buffer: &mut [u8],
    pass: &mut dyn FnMut(&[u8], usize),
) {
    // A few chunks at a time, so that a program that writes without an end doesn't delay the other
    // checks.
    for _ in 0..16 {
        let Some(open) = stream else { return };
        match open.read(buffer) {
            Ok(0) => *stream = None,
            Ok(read) => {
                // As much output is passed on while it runs as is kept.
                let shown =
                    limit.saturating_sub(usize::try_from(*written).unwrap_or(usize::MAX)).min(read);
                *written += u64::try_from(read).unwrap_or(u64::MAX);
                kept.push(&buffer[..read], limit);
                pass(&buffer[..read], shown);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => *stream = None,
        }
    }
}

fn finished(status: std::process::ExitStatus) -> CommandResult {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandResult { code: Some(code), ending: Ending::Exited },
        (None, Some(signal)) => CommandResult { code: Some(128 + signal), ending: Ending::Exited },
        (None, None) => CommandResult { code: None, ending: Ending::Cancelled },
    }
}
