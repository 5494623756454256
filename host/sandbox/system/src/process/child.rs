//! Starts a process of a call in its sandbox, and transfers its input and output. At its time
//! limit, or when the call is cancelled, kills it with all of its descendants.

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
use toolhold_contract::{
    BoundedOutput, CancellationToken, ConnectionGate, OutputRecorder, OutputStream,
};
use toolhold_data_dir::PinnedDirectory;

use super::changes::CallWatch;
use super::command::{Command, StartError};
use super::connections::CommandGate;
use super::helper::ConfineHelper;
use super::network::SharedNetwork;
use super::places::Places;
use super::sandbox::CommandSandbox;
use super::state::StateRecord;
use super::warm::{NextHelper, start_next_and_reap};
use crate::confine::{AUTHORITIES, Bound, HelperStatus, Program, Sandbox, TreeState};
use crate::{messages, processes};

/// Time limit for the helper until the program runs.
const MAX_START: Duration = Duration::from_secs(10);

/// Attempts to set up the sandbox while paths in it are moved.
const MAX_ATTEMPTS: usize = 5;

/// Bytes of a failing helper's output that are read.
const MAX_COMPLAINT: u64 = 16 * 1024;

/// Time between two checks of the bounds.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The same time for a process that continues after its call, perhaps for hours.
const SELDOM_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for the output of an ended program, if one of its processes keeps the output open.
const DRAIN: Duration = Duration::from_millis(250);

/// Bytes of output that are read at once, and reads of a stream between two checks of the bounds.
const CHUNK: usize = 64 * 1024;
const MAX_READS: usize = 16;

/// A variable for the C library of a program whose connections the host makes in the machine's
/// network. It looks names up by TCP, whose connections the host sees, and tries each name as it is
/// before it adds a domain.
const LOOKUPS_BY_TCP: (&str, &str) = ("RES_OPTIONS", "use-vc ndots:0");

/// As in a shell, the exit code of a program that a signal ended is this number plus the signal.
const SIGNALLED: i32 = 128;

/// Maximum number of bytes that a program may write. A program that writes more is killed, although
/// only the first bytes are stored anyway.
const MAX_WRITTEN: u64 = 256 << 20;

/// The reason why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command ended by itself.
    Exited,
    /// The command reached its time limit.
    Timeout,
    /// The call no longer waits for the command, or the caller ended it.
    Cancelled,
    /// The command reached a limit for all of its processes together.
    Bound(Bound),
    /// The command wrote too much.
    Output,
}

/// The result of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The exit code, or 128 plus the signal that ended the command. `None` if Toolhold killed it.
    pub code: Option<i32>,
    /// The reason for the end.
    pub ending: Ending,
}

/// The output of a process.
#[derive(Debug, Default)]
pub struct Output {
    /// The standard output.
    pub stdout: BoundedOutput,
    /// The standard error.
    pub stderr: BoundedOutput,
    written: u64,
    limit: usize,
}

impl Output {
    /// Checks whether there is no new output.
    pub fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// A process that a call starts in its sandbox.
pub struct Child {
    process: Option<std::process::Child>,
    pid: Pid,
    handle: OwnedFd,
    /// The socket for the helper's reports. `None` after the last report.
    control: Option<UnixStream>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Output,
    namespaces: bool,
    is_sandbox_off: bool,
    finished: Option<CommandResult>,
    missing: Vec<String>,
    left: Vec<String>,
    cancel: CancellationToken,
    /// The time limit without waits for a person.
    end: Instant,
    /// Makes the connections of the command, which may wait for a person.
    connections: Option<Arc<dyn ConnectionGate>>,
    check_interval: Duration,
    /// Reserved paths. They are released after the process has ended.
    held: Vec<PinnedDirectory>,
    /// Serves the listener for changes and connections. It ends after the process.
    watch: Option<CallWatch>,
    recorder: Option<Arc<dyn OutputRecorder>>,
    state_record: Option<StateRecord>,
    /// The helper of the next command. `None` after it was started, or if there is none.
    next: Option<NextHelper>,
}

#[derive(Clone, Copy)]
struct Task<'a> {
    command: &'a Command,
    state: &'a TreeState,
    namespaces: bool,
    is_sandbox_off: bool,
    limit: usize,
    end: Instant,
    cancel: &'a CancellationToken,
    held: &'a [PinnedDirectory],
    writable: &'a [PathBuf],
    /// The host makes the connections of the command, which is in the machine's network.
    is_relayed_in_machine_network: bool,
}

impl Child {
    /// Starts a command in the sandbox of `places`. Blocks until the program runs.
    ///
    /// The command is killed at `end`, and when `cancel` is set. At most `limit` bytes of each
    /// stream are stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the command can't be started. No process runs then.
    pub fn start(
        places: &Places,
        command: &Command,
        limit: usize,
        end: Instant,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let namespaces = places.tries_namespaces();
        let is_best_effort = places.sandbox == Sandbox::BestEffort;

        let mut started = Self::start_once(places, command, namespaces, limit, end, cancel);
        for _ in 1..MAX_ATTEMPTS {
            // The next attempt finds the new place of a tree that was moved during the start.
            if matches!(started, Err(StartError::Moved(_))) {
                started = Self::start_once(places, command, namespaces, limit, end, cancel);
            }
        }

        match started {
            Err(StartError::Sandbox(reason)) if namespaces && is_best_effort => {
                let namespaces = false;
                let mut child = Self::start_once(places, command, namespaces, limit, end, cancel)?;
                places.known.without_namespaces.store(true, Ordering::Relaxed);
                child.missing.insert(0, reason);
                Ok(child)
            }
            Ok(mut child) if !namespaces && is_best_effort => {
                let reason = "namespaces: not available, as an earlier attempt showed";
                child.missing.insert(0, reason.to_owned());
                Ok(child)
            }
            // The sandbox has all parts, or the error doesn't depend on namespaces.
            started => started,
        }
    }

    /// Starts a command in a warm helper, or in a new helper if no warm helper fits.
    fn start_once(
        places: &Places,
        command: &Command,
        namespaces: bool,
        limit: usize,
        end: Instant,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let Some(helper) = &places.helper else {
            return Err(StartError::Sandbox(
                "this program has no sandbox helper: call the helper hook at the start of `main`, \
                 or give the host a helper program"
                    .to_owned(),
            ));
        };
        let sandbox = places.sandbox(command, namespaces)?;
        let warm = places.known.warm.take(&sandbox);
        let CommandSandbox { preparation, mounts, network, state, held } = sandbox;
        let is_sandbox_off = places.sandbox == Sandbox::Off;
        let writable: Vec<PathBuf> = preparation.writable().map(PathBuf::from).collect();
        let task = Task {
            command,
            state: &state,
            namespaces,
            is_sandbox_off,
            limit,
            end,
            cancel,
            held: &held,
            writable: &writable,
            is_relayed_in_machine_network: preparation.relayed && !namespaces,
        };

        let mut warm_child = None;
        if let Some(warm) = warm {
            match Self::run_in(warm, &task) {
                Ok(child) => warm_child = Some(child),
                Err(StartError::Moved(reason)) => return Err(StartError::Moved(reason)),
                // A warm helper exits if it waits for too long. Then a new helper is started below.
                Err(_) => {}
            }
        }
        let mut child = match warm_child {
            Some(child) => child,
            None => {
                let namespaces = network.as_deref().map(SharedNetwork::namespaces);
                let new = ConfineHelper::start(helper, &preparation, namespaces)?;
                Self::run_in(new, &task)?
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

    fn run_in(helper: ConfineHelper, task: &Task<'_>) -> Result<Self, StartError> {
        let ConfineHelper { mut process, control } = helper;
        let pid = Pid::from_child(&process);
        let (handle, input, stdin) = match open_handles(pid) {
            Ok(opened) => opened,
            Err(errno) => {
                let _ = process.kill().and_then(|()| process.wait());
                return Err(io::Error::from(errno).into());
            }
        };
        let stdout = process.stdout.take();
        let stderr = process.stderr.take();
        let Task { command, namespaces, is_sandbox_off, limit, end, .. } = *task;
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
            is_sandbox_off,
            finished: None,
            missing: Vec::new(),
            left: Vec::new(),
            cancel: task.cancel.clone(),
            end,
            connections: command.connections.clone(),
            check_interval: CHECK_INTERVAL,
            held: Vec::new(),
            watch: None,
            recorder: command.output.clone(),
            state_record: None,
            next: None,
        };

        child.state_record = send_program(&control, task, input)?;
        let (unrecorded, listener) = child.wait_for_start(&control)?;
        let mut recorder = command.changes.clone();
        if let (Some(unused), Some(reason)) = (&recorder, unrecorded) {
            unused.unrecorded(&reason);
            recorder = None;
        }
        if let Some(listener) = listener {
            let pinned = task.held.iter().map(|held| held.path().to_owned()).collect();
            let writable = task.writable.to_vec();
            let is_in_machine_network = task.is_relayed_in_machine_network;
            let connections = command.connections.clone();
            let gate = connections.map(|gate| CommandGate { gate, is_in_machine_network });
            child.watch = Some(CallWatch::start(listener, recorder, gate, writable, pinned)?);
        } else if recorder.is_some() {
            // Without a listener, each call that should notify it fails, so the command couldn't
            // change any file.
            let reason = "the helper sent no listener for file changes";
            return Err(io::Error::other(reason).into());
        }

        let stdout = child.stdout.as_ref().map(AsFd::as_fd);
        let stderr = child.stderr.as_ref().map(AsFd::as_fd);
        let stdin = child.stdin.as_ref().map(AsFd::as_fd);
        for stream in [stdout, stderr, stdin].into_iter().flatten() {
            let flags = fcntl_getfl(stream).map_err(io::Error::from)?;
            fcntl_setfl(stream, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
        }
        child.control = Some(control);
        Ok(child)
    }

    /// Waits until the program runs. Returns the reason why the program's changes aren't recorded,
    /// and the listener for the changes. Each is `None` if the helper sent none.
    fn wait_for_start(
        &mut self,
        control: &UnixStream,
    ) -> Result<(Option<String>, Option<OwnedFd>), StartError> {
        let deadline = Instant::now() + MAX_START;
        loop {
            // The cancellation is checked between the waits.
            let wait = deadline.saturating_duration_since(Instant::now()).min(CHECK_INTERVAL);
            if wait.is_zero() || self.cancel.is_cancelled() {
                return Err(StartError::Sandbox("setting up the sandbox took too long".to_owned()));
            }
            match poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&timeout_of(wait))) {
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
                Err(StartError::Sandbox(self.read_complaint()))
            }
        }
    }

    /// Returns the error output of a helper that has ended without a report.
    fn read_complaint(&mut self) -> String {
        let mut complaint = String::new();
        if let Some(stderr) = self.stderr.take() {
            // If reading fails, the message contains the bytes before the error.
            let _ = stderr.take(MAX_COMPLAINT).read_to_string(&mut complaint);
        }
        match complaint.trim() {
            "" => "the helper ended without a message".to_owned(),
            complaint => complaint.to_owned(),
        }
    }

    /// Returns the parts of the sandbox that this machine doesn't support.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns the names of some processes that were still running when the program ended. They
    /// were killed.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// Returns the ID of the ancestor of all processes of the command.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes the standard input, output and error, for a caller that communicates with the program
    /// while it runs. The streams don't block. Afterwards, this value only waits for the end.
    /// Returns `None` if the streams were already taken.
    pub fn take_streams(&mut self) -> Option<[OwnedFd; 3]> {
        // The caller lets the program run for long, so no helper is prepared for a next command.
        self.next = None;
        let stdin = self.stdin.take()?;
        let stdout = self.stdout.take()?;
        let stderr = self.stderr.take()?;
        Some([stdin.into(), stdout.into(), stderr.into()])
    }

    /// Replaces the bounds. The process is killed at `end`, and when `cancel` is set.
    pub fn set_bounds(&mut self, end: Instant, cancel: &CancellationToken) {
        self.end = end;
        self.cancel = cancel.clone();
    }

    /// Returns the result if the process has ended.
    pub fn finished(&self) -> Option<&CommandResult> {
        self.finished.as_ref()
    }

    /// Returns the output that wasn't taken yet.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Waits for output or the end of the process, but at most until `until`. Passes the output to
    /// `on_output`.
    pub fn wait_for_output(
        &mut self,
        until: Option<Instant>,
        on_output: &mut dyn FnMut(OutputStream, &[u8]),
    ) {
        let input = None;
        self.wait(input, until, on_output, |child| !child.output.is_empty());
    }

    /// Takes the available output without waiting, and passes it to `on_output`. Returns true if
    /// there is output, or if the process has ended.
    pub fn look(&mut self, on_output: &mut dyn FnMut(OutputStream, &[u8])) -> bool {
        self.wait_for_output(Some(Instant::now()), on_output);
        self.finished.is_some() || !self.output.is_empty()
    }

    /// Waits for the end of the process. Passes the output to `on_output`.
    pub fn wait_for_end(
        &mut self,
        on_output: &mut dyn FnMut(OutputStream, &[u8]),
    ) -> &CommandResult {
        let input = None;
        let until = None;
        self.wait(input, until, on_output, never);
        // Without input and a time, the wait always ends with a result.
        self.finished.get_or_insert(CommandResult { code: None, ending: Ending::Cancelled })
    }

    /// Waits like [`wait_for_end`](Self::wait_for_end), but checks the bounds less often. Use this
    /// for a process that continues after its call. Only the recorder gets the output.
    pub fn go_on(mut self) -> CommandResult {
        self.check_interval = SELDOM_CHECK_INTERVAL;
        self.close_input();
        self.wait_for_end(&mut |_, _| {}).clone()
    }

    /// Writes to the standard input until all bytes are written or the process ends, but at most
    /// until `until`. Returns the number of written bytes.
    pub fn write(
        &mut self,
        bytes: &[u8],
        until: Option<Instant>,
        on_output: &mut dyn FnMut(OutputStream, &[u8]),
    ) -> usize {
        let mut remaining = bytes;
        self.wait(Some(&mut remaining), until, on_output, never);
        bytes.len() - remaining.len()
    }

    /// Closes the standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Returns the time limit. It moves while a connection of the command waits for a person.
    fn current_end(&self) -> Instant {
        match &self.connections {
            Some(gate) => self.end + gate.waited(),
            None => self.end,
        }
    }

    /// Kills the process and all of its descendants.
    pub fn end(&mut self, ending: Ending) {
        if self.finished.is_some() {
            return;
        }
        if self.is_sandbox_off {
            // The program has its own session, so most of its processes are in its process group.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        } else if !self.namespaces {
            // The outer process adopts orphans, so they can be found while it runs.
            processes::end_below(self.pid);
        }
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
        self.watch = None;
        self.finished = Some(CommandResult { code: None, ending });
        let ended = None;
        start_next_and_reap(self.next.take(), ended);
    }

    /// Reads the helper's report or the exit status. `reported` means that the socket for the
    /// report is ready. `ended` means that the process has ended. Returns `None` if the process
    /// still runs.
    fn read_result(&mut self, reported: bool, ended: bool) -> Option<CommandResult> {
        if reported && let Some(control) = self.control.take() {
            match messages::receive(&control) {
                Ok((HelperStatus::Exited { code, left }, _)) => {
                    self.left = left;
                    return Some(CommandResult { code: Some(code), ending: Ending::Exited });
                }
                Ok((HelperStatus::Reached(bound), _)) => {
                    return Some(CommandResult { code: None, ending: Ending::Bound(bound) });
                }
                // There is no report about the end. Without a sandbox, for example, the helper has
                // become the program, and nothing watches it. Then the exit status shows how the
                // program ended.
                Ok(_) | Err(_) => {}
            }
        }
        if !ended {
            return None;
        }
        let status = self.process.take().and_then(|mut process| process.wait().ok());
        match status {
            Some(status) => Some(result_of(status)),
            // The exit status is lost, so the end doesn't count as an exit of the program.
            None => Some(CommandResult { code: None, ending: Ending::Cancelled }),
        }
    }

    /// Writes `input`, reads output and checks for the end of the process. Returns at `until`. With
    /// `input`, returns when all of it is written. Without `input`, returns when `enough` returns
    /// true.
    fn wait(
        &mut self,
        mut input: Option<&mut &[u8]>,
        until: Option<Instant>,
        on_output: &mut dyn FnMut(OutputStream, &[u8]),
        enough: impl Fn(&Self) -> bool,
    ) {
        let writes = input.is_some();
        let mut has_polled = false;
        let mut buffer = vec![0; CHUNK];
        loop {
            let has_input = input.as_ref().is_some_and(|left| !left.is_empty());
            let can_feed = has_input && self.stdin.is_some();
            let is_done = if writes { !can_feed } else { enough(self) };
            let now = Instant::now();
            let is_late = has_polled && until.is_some_and(|until| now >= until);
            if self.finished.is_some() || is_done || is_late {
                return;
            }
            if self.cancel.is_cancelled() {
                return self.end(Ending::Cancelled);
            }
            let end = self.current_end();
            if now >= end {
                return self.end(Ending::Timeout);
            }
            if self.output.written > MAX_WRITTEN {
                return self.end(Ending::Output);
            }
            let next = until.map_or(end, |until| until.min(end));
            let wait = next.saturating_duration_since(now).min(self.check_interval);
            let Polled { ended, reported, is_idle } = self.poll_descriptors(wait, can_feed);
            has_polled = true;
            if is_idle && !wait.is_zero() {
                // The program runs for a while, so starting the next helper doesn't disturb it.
                start_next_and_reap(self.next.take(), None);
            }

            if let Some(left) = &mut input {
                self.feed(left);
            }
            self.take_output(&mut buffer, on_output);
            // A program may write a line and then work for long, so `on_output` is called without
            // output too.
            on_output(OutputStream::Stdout, &[]);

            if let Some(result) = self.read_result(reported, ended) {
                self.drain(&mut buffer, on_output);
                self.watch = None;
                if let Some(state_record) = self.state_record.take()
                    && result.ending == Ending::Exited
                {
                    state_record.finish();
                }
                self.finished = Some(result);
                start_next_and_reap(self.next.take(), self.process.take());
            }
        }
    }

    /// Waits until a descriptor of the process is ready. With `can_feed`, this includes the
    /// standard input.
    fn poll_descriptors(&self, wait: Duration, can_feed: bool) -> Polled {
        let mut fds = vec![PollFd::new(&self.handle, PollFlags::IN)];
        fds.extend(self.control.as_ref().map(|control| PollFd::new(control, PollFlags::IN)));
        fds.extend(self.stdout.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        if can_feed && let Some(stdin) = &self.stdin {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let ready = poll(&mut fds, Some(&timeout_of(wait)));
        // The process is the first descriptor. The socket for reports is the second, if it is open.
        Polled {
            ended: !fds[0].revents().is_empty(),
            reported: self.control.is_some() && !fds[1].revents().is_empty(),
            is_idle: ready == Ok(0),
        }
    }

    /// Writes to the standard input as much as the pipe accepts now.
    fn feed(&mut self, remaining: &mut &[u8]) {
        let Some(stdin) = &mut self.stdin else { return };
        while !remaining.is_empty() {
            match stdin.write(remaining) {
                Ok(written) if written > 0 => *remaining = &remaining[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has closed its standard input.
                Ok(_) | Err(_) => return self.close_input(),
            }
        }
    }

    /// Takes the available output. Passes it to the recorder and to `on_output`.
    fn take_output(&mut self, buffer: &mut [u8], on_output: &mut dyn FnMut(OutputStream, &[u8])) {
        let Self { stdout, stderr, output, recorder, .. } = self;
        let Output { stdout: kept_out, stderr: kept_err, written, limit } = output;
        let recorder = recorder.as_deref();
        take_from(stdout, kept_out, *limit, written, buffer, &mut |bytes, shown| {
            record(recorder, OutputStream::Stdout, bytes);
            on_output(OutputStream::Stdout, &bytes[..shown]);
        });
        take_from(stderr, kept_err, *limit, written, buffer, &mut |bytes, shown| {
            record(recorder, OutputStream::Stderr, bytes);
            on_output(OutputStream::Stderr, &bytes[..shown]);
        });
    }

    /// Reads the remaining bytes in the pipes after the end of the process. Outside of a namespace,
    /// another process may keep the pipes open, so the time is limited.
    fn drain(&mut self, buffer: &mut [u8], on_output: &mut dyn FnMut(OutputStream, &[u8])) {
        let until = Instant::now() + DRAIN;
        loop {
            let is_complete = self.stdout.is_none() && self.stderr.is_none();
            let is_late = Instant::now() >= until;
            if is_complete || is_late || self.output.written > MAX_WRITTEN {
                break;
            }
            let mut fds: Vec<PollFd<'_>> = Vec::new();
            fds.extend(self.stdout.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            fds.extend(self.stderr.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
            let wait = until.saturating_duration_since(Instant::now());
            let _ = poll(&mut fds, Some(&timeout_of(wait)));
            drop(fds);
            self.take_output(buffer, on_output);
        }
        if self.is_sandbox_off {
            // Without a sandbox, no helper has killed the other processes of the program.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end(Ending::Cancelled);
    }
}

struct Polled {
    ended: bool,
    /// The helper has sent a report or closed its socket.
    reported: bool,
    /// Nothing happened within the time.
    is_idle: bool,
}

/// Returns a wait as a timeout for the kernel. All waits are shorter than a second, so the
/// conversion doesn't fail.
fn timeout_of(wait: Duration) -> Timespec {
    Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 })
}

/// Opens a handle of a process and a pipe for its standard input. Returns the handle, the process's
/// end of the pipe, and the host's end.
fn open_handles(pid: Pid) -> Result<(OwnedFd, OwnedFd, OwnedFd), Errno> {
    let (input, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((handle, input, stdin))
}

/// Sends the state of the trees and the program to a helper. Returns the record of the program's
/// state, if it writes one.
fn send_program(
    control: &UnixStream,
    task: &Task<'_>,
    input: OwnedFd,
) -> io::Result<Option<StateRecord>> {
    let command = task.command;
    let mut environment = command.environment.clone();
    if task.is_relayed_in_machine_network {
        let (name, value) = LOOKUPS_BY_TCP;
        // Without a view, this file is missing, and programs would trust nobody.
        environment.retain(|(other, path)| other != name && path != AUTHORITIES);
        environment.push((name.to_owned(), value.to_owned()));
    }
    let program = Program {
        arguments: command.arguments.clone(),
        environment,
        directory: command.directory.to_string_lossy().into_owned(),
        leaves_state: command.shell.is_some(),
    };
    let mut record = None;
    let mut record_file = None;
    if let Some(shell) = &command.shell {
        let (state_record, file) = StateRecord::new(shell, &program)?;
        record = Some(state_record);
        record_file = Some(file);
    }
    let mut sent = messages::send(control, task.state, None)
        .and_then(|()| messages::send(control, &program, Some(input.as_fd())));
    if let Some(file) = &record_file {
        sent = sent.and_then(|()| messages::send(control, &(), Some(file.as_fd())));
    }
    // A helper that doesn't read the messages has reported the reason, so this error is ignored.
    drop(sent);
    Ok(record)
}

fn record(recorder: Option<&dyn OutputRecorder>, stream: OutputStream, bytes: &[u8]) {
    if let Some(recorder) = recorder {
        recorder.write(stream, bytes);
    }
}

/// Reads the available bytes of a pipe, and closes the pipe at its end. `kept` stores the first
/// `limit` bytes. `pass` gets all bytes, and how many of these bytes to show.
fn take_from(
    stream: &mut Option<impl Read>,
    kept: &mut BoundedOutput,
    limit: usize,
    written: &mut u64,
    buffer: &mut [u8],
    pass: &mut dyn FnMut(&[u8], usize),
) {
    // A program may write endlessly, so the caller checks the bounds after some reads.
    for _ in 0..MAX_READS {
        let Some(open_stream) = stream else { return };
        match open_stream.read(buffer) {
            Ok(0) => *stream = None,
            Ok(read) => {
                // The limit for stored bytes is also the limit for shown bytes. All these numbers
                // fit into both types, so no conversion fails.
                let written_before = usize::try_from(*written).unwrap_or(usize::MAX);
                let shown = limit.saturating_sub(written_before).min(read);
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

/// The condition of a wait that no output ends.
fn never(_: &Child) -> bool {
    false
}

/// Returns the result for an exit status.
fn result_of(status: std::process::ExitStatus) -> CommandResult {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandResult { code: Some(code), ending: Ending::Exited },
        (None, Some(signal)) => {
            CommandResult { code: Some(SIGNALLED + signal), ending: Ending::Exited }
        }
        // The process has neither exited nor got a signal, so this isn't an exit of the program.
        (None, None) => CommandResult { code: None, ending: Ending::Cancelled },
    }
}
