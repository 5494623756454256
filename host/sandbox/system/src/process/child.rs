//! Starts a process of a call in its sandbox, transfers its input and output, and ends it with all
//! of its descendants at its time limit or when the call is cancelled.

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
const MAX_START: Duration = Duration::from_secs(10);

/// How often the setup of the sandbox is retried if a path in it was moved meanwhile.
const ATTEMPTS: usize = 5;

/// The most bytes of the output of a failing helper that are stored.
const MAX_COMPLAINT: u64 = 16 * 1024;

/// Time between two checks whether the call still waits.
const LOOK: Duration = Duration::from_millis(10);

/// The interval between two checks of a process that continues after its call, perhaps for hours.
const LOOK_SELDOM: Duration = Duration::from_millis(50);

/// How long to wait for the output of an ended program if one of its processes keeps the output
/// open.
const DRAIN: Duration = Duration::from_millis(250);

/// The most bytes of output that are read in total. Only the first bytes are stored. More output
/// comes only from programs that never end.
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
    /// The command reached a limit that applies to all of its processes together.
    Bound(Bound),
    /// The command wrote more than the limit.
    Output,
}

/// The result of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// The exit code, or 128 plus the signal that ended the command. `None` if Toolhold ended it.
    pub code: Option<i32>,
    /// The reason of the end.
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

/// A process that a call starts in its sandbox. Exists until the process ends.
pub struct Child {
    /// The helper, which becomes the program or waits for it. `None` if the helper is done, and
    /// another thread waits for its end.
    process: Option<std::process::Child>,
    pid: Pid,
    handle: OwnedFd,
    /// The socket for reports of the helper. `None` if the helper sends no more reports.
    control: Option<UnixStream>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    output: Output,
    namespaces: bool,
    off: bool,
    finished: Option<CommandResult>,
    missing: Vec<String>,
    /// The names of the processes that the program left running.
    left: Vec<String>,
    cancel: CancellationToken,
    /// The end of the time limit.
    end: Instant,
    /// Time between two checks of `cancel` and `end`.
    look: Duration,
    /// The reserved paths, which are released at the end of the process.
    held: Vec<PinnedDirectory>,
    /// Serves the listener for changes. It ends after the process.
    changes: Option<ChangeWatch>,
    recorder: Option<Arc<dyn OutputRecorder>>,
    /// Receives the shell state for later commands.
    leaves: Option<StateRecord>,
    /// The helper of the next command. `None` if the helper was started, or isn't started in
    /// advance.
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
    /// The trees that the command may write.
    writable: &'a [PathBuf],
}

/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;

impl Child {
    /// Starts a command in the sandbox of `places`. Blocks until the program runs.
    ///
    /// The command is ended at `end`, and when `cancel` is set. At most `limit` bytes of each
    /// stream are stored.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the command can't be started. No process then runs.
    pub fn start(
        places: &Places,
        command: &Command,
        limit: usize,
        end: Instant,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let namespaces = places.tries_namespaces();
        let is_best_effort = places.sandbox == Sandbox::BestEffort;

        // If paths have moved, the sandbox is set up again.
        let mut started = Self::start_once(places, command, namespaces, limit, end, cancel);
        for _ in 1..ATTEMPTS {
            if matches!(started, Err(StartError::Moved(_))) {
                started = Self::start_once(places, command, namespaces, limit, end, cancel);
            }
        }

        match started {
            Err(StartError::Sandbox(reason)) if namespaces && is_best_effort => {
                let mut child = Self::start_once(places, command, false, limit, end, cancel)?;
                places.known.without_namespaces.store(true, Ordering::Relaxed);
                child.missing.insert(0, reason);
                Ok(child)
            }
            Ok(mut child) if !namespaces && is_best_effort => {
                let reason = "namespaces: an earlier attempt showed that they aren't available";
                child.missing.insert(0, reason.to_owned());
                Ok(child)
            }
            started => started,
        }
    }

    /// Starts a command in a warm helper, or in a new helper if there is no warm one.
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

        let mut warm_child = None;
        if let Some(warm) = warm {
            match Self::run_in(warm, &task) {
                Ok(child) => warm_child = Some(child),
                Err(StartError::Moved(reason)) => return Err(StartError::Moved(reason)),
                // A warm helper ends if it waits for too long.
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

    /// Sends a helper the command and waits until the program runs.
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

        child.leaves = send_program(&control, task, input)?;
        let (unrecorded, listener) = child.wait_for_start(&control)?;
        match (&command.changes, unrecorded) {
            (None, _) => {}
            (Some(recorder), Some(reason)) => recorder.unrecorded(&reason),
            (Some(recorder), None) => {
                // Without a listener, the kernel fails the calls that need one.
                let pinned = task.held.iter().map(|held| held.path().to_owned()).collect();
                let listener = listener.ok_or_else(|| io::Error::other("it sent no listener"))?;
                let writable = task.writable.to_vec();
                let watch = ChangeWatch::start(listener, Arc::clone(recorder), writable, pinned)?;
                child.changes = Some(watch);
            }
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

    /// Waits until the program runs. Returns the listener for the program's changes, or the reason
    /// why they aren't recorded.
    fn wait_for_start(
        &mut self,
        control: &UnixStream,
    ) -> Result<(Option<String>, Option<OwnedFd>), StartError> {
        let deadline = Instant::now() + MAX_START;
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
                // The helper has ended without a report, so its output is complete.
                let mut complaint = String::new();
                if let Some(stderr) = self.stderr.take() {
                    let _ = stderr.take(MAX_COMPLAINT).read_to_string(&mut complaint);
                }
                let reason = match complaint.trim() {
                    "" => "the helper ended without a message",
                    complaint => complaint,
                };
                Err(StartError::Sandbox(reason.to_owned()))
            }
        }
    }

    /// Returns the parts of the sandbox that this machine doesn't have.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns the names of some of the processes that the program left running. They were ended
    /// with the program.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// Returns the ID of the process that is the ancestor of all processes of the command.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes the standard input, output and error, for a caller that communicates with the program
    /// while it runs. The streams don't block. From then on, this value only waits for the end.
    /// Returns `None` if the streams were taken before.
    pub fn take_streams(&mut self) -> Option<[OwnedFd; 3]> {
        // A program that runs for long is followed by no other command.
        self.next = None;
        let stdin = self.stdin.take()?;
        let stdout = self.stdout.take()?;
        let stderr = self.stderr.take()?;
        Some([stdin.into(), stdout.into(), stderr.into()])
    }

    /// Replaces the bounds. The process is ended at `end`, and when `cancel` is set.
    pub fn set_bounds(&mut self, end: Instant, cancel: &CancellationToken) {
        self.end = end;
        self.cancel = cancel.clone();
    }

    /// Returns the result, if the process has ended.
    pub fn finished(&self) -> Option<&CommandResult> {
        self.finished.as_ref()
    }

    /// Returns the output that wasn't taken yet.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Waits for output or the end of the process, but at most until `until`. Passes the output to
    /// `see`.
    pub fn wait_for_output(
        &mut self,
        until: Option<Instant>,
        see: &mut dyn FnMut(OutputStream, &[u8]),
    ) {
        self.wait(None, until, see, |child| !child.output.is_empty());
    }

    /// Takes the available output without waiting, and passes it to `see`. Returns `true` if more
    /// output is available, or the process has ended.
    pub fn look(&mut self, see: &mut dyn FnMut(OutputStream, &[u8])) -> bool {
        self.wait_for_output(Some(Instant::now()), see);
        self.finished.is_some() || !self.output.is_empty()
    }

    /// Waits for the end of the process. Passes the output to `see`.
    pub fn wait_for_end(&mut self, see: &mut dyn FnMut(OutputStream, &[u8])) -> &CommandResult {
        self.wait(None, None, see, |_| false);
        self.finished.get_or_insert(CommandResult { code: None, ending: Ending::Cancelled })
    }

    /// Waits like [`wait_for_end`](Self::wait_for_end), but checks the bounds less often. This is
    /// for a process that continues after its call. Only the recorder gets the output.
    pub fn go_on(mut self) -> CommandResult {
        self.look = LOOK_SELDOM;
        self.close_input();
        self.wait_for_end(&mut |_, _| {}).clone()
    }

    /// Writes to the standard input until all bytes are written or the process ends, but at most
    /// until `until`. Returns the number of written bytes.
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

    /// Closes the standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Ends the process and all of its descendants.
    pub fn end(&mut self, ending: Ending) {
        if self.finished.is_some() {
            return;
        }
        if self.off {
            // Without namespaces, the process group finds most processes, because the program
            // started its own session.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        } else if !self.namespaces {
            // The outer process adopts orphans, so they can be found while it lives.
            processes::end_below(self.pid);
        }
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let _ = self.process.take().map(|mut process| process.wait());
        self.changes = None;
        self.finished = Some(CommandResult { code: None, ending });
        hand_over(self.next.take(), None);
    }

    /// Reads the report or the exit status. Returns `None` if the process still runs.
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
                // A program without a sandbox closes the socket. Its exit status then shows how it
                // ended.
                _ => {}
            }
        }
        if !ended {
            return None;
        }
        let status = self.process.take().and_then(|mut process| process.wait().ok());
        match status {
            Some(status) => Some(result_of(status)),
            None => Some(CommandResult { code: None, ending: Ending::Cancelled }),
        }
    }

    /// Runs the main loop: writes `input`, reads output and checks for the end. With `input`, the
    /// loop ends when all of it is written. Without `input`, the loop ends when `enough` returns
    /// true. In both cases, it also ends at `until`.
    fn wait(
        &mut self,
        mut input: Option<&mut &[u8]>,
        until: Option<Instant>,
        see: &mut dyn FnMut(OutputStream, &[u8]),
        enough: impl Fn(&Self) -> bool,
    ) {
        let writes = input.is_some();
        let mut has_polled = false;
        let mut buffer = vec![0; CHUNK];
        loop {
            let has_input = input.as_ref().is_some_and(|left| !left.is_empty());
            let feeds = has_input && self.stdin.is_some();
            let is_done = if writes { !feeds } else { enough(self) };
            let now = Instant::now();
            let is_late = has_polled && until.is_some_and(|until| now >= until);
            if self.finished.is_some() || is_done || is_late {
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
            let Polled { ended, reported, is_idle } = self.poll_descriptors(wait, feeds);
            has_polled = true;
            if is_idle && !wait.is_zero() {
                // The program runs for a while, so starting the next helper doesn't disturb it.
                hand_over(self.next.take(), None);
            }

            if let Some(left) = &mut input {
                self.feed(left);
            }
            self.take(&mut buffer, see);
            // The output may continue, since a program may write a line and then work for long.
            see(OutputStream::Stdout, &[]);

            if let Some(result) = self.read_result(reported, ended) {
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

    /// Waits until a descriptor of the process is ready. With `feeds`, this includes the standard
    /// input.
    fn poll_descriptors(&self, wait: Duration, feeds: bool) -> Polled {
        let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = vec![PollFd::new(&self.handle, PollFlags::IN)];
        fds.extend(self.control.as_ref().map(|control| PollFd::new(control, PollFlags::IN)));
        fds.extend(self.stdout.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        fds.extend(self.stderr.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        if feeds && let Some(stdin) = &self.stdin {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let ready = poll(&mut fds, Some(&timeout));
        Polled {
            ended: !fds[0].revents().is_empty(),
            reported: self.control.is_some() && !fds[1].revents().is_empty(),
            is_idle: ready == Ok(0),
        }
    }

    /// Writes as much of `left` as possible to the standard input, and removes it from `left`.
    fn feed(&mut self, left: &mut &[u8]) {
        let Some(stdin) = &mut self.stdin else { return };
        while !left.is_empty() {
            match stdin.write(left) {
                Ok(written) if written > 0 => *left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has closed its standard input.
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

    /// Reads the bytes that remain in the pipes after the end of the process. In a namespace, no
    /// other process then has the pipes open.
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

/// The result of waiting for the descriptors of a process.
struct Polled {
    /// The process has ended.
    ended: bool,
    /// Whether the helper has sent a report, or closed its socket.
    reported: bool,
    /// Nothing happened in the whole time.
    is_idle: bool,
}

/// Opens a handle of a process and a pipe for its standard input. Returns the handle, the pipe end
/// for the process, and the pipe end for the host.
fn open_handles(pid: Pid) -> Result<(OwnedFd, OwnedFd, OwnedFd), Errno> {
    let (input, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    Ok((handle, input, stdin))
}

/// Sends a helper the state of the trees and the program with its standard input. Returns the
/// record of the program's state, if the program writes one.
fn send_program(
    control: &UnixStream,
    task: &Task<'_>,
    input: OwnedFd,
) -> io::Result<Option<StateRecord>> {
    let command = task.command;
    let program = Program {
        arguments: command.arguments.clone(),
        environment: command.environment.clone(),
        directory: command.directory.to_string_lossy().into_owned(),
        leaves_state: command.shell.is_some(),
    };
    let record = command.shell.as_ref().map(|shell| StateRecord::new(shell, &program));
    let (leaves, record) = record.transpose()?.unzip();
    let mut sent = messages::send(control, task.state, None)
        .and_then(|()| messages::send(control, &program, Some(input.as_fd())));
    if let Some(record) = &record {
        sent = sent.and_then(|()| messages::send(control, &(), Some(record.as_fd())));
    }
    // A helper that doesn't read the messages has reported the reason.
    drop(sent);
    Ok(leaves)
}

fn record(recorder: Option<&dyn OutputRecorder>, stream: OutputStream, bytes: &[u8]) {
    if let Some(recorder) = recorder {
        recorder.write(stream, bytes);
    }
}

/// Reads the available bytes of a pipe, and closes the pipe at its end. `pass` gets the bytes, and
/// how many of them are shown.
fn take_from(
    stream: &mut Option<impl Read>,
    kept: &mut BoundedOutput,
    limit: usize,
    written: &mut u64,
    buffer: &mut [u8],
    pass: &mut dyn FnMut(&[u8], usize),
) {
    // The loop reads only a few chunks, so that a program that writes endlessly doesn't delay the
    // other checks.
    for _ in 0..16 {
        let Some(open) = stream else { return };
        match open.read(buffer) {
            Ok(0) => *stream = None,
            Ok(read) => {
                // The limit for showing output is the same as for storing it.
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

fn result_of(status: std::process::ExitStatus) -> CommandResult {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandResult { code: Some(code), ending: Ending::Exited },
        (None, Some(signal)) => CommandResult { code: Some(128 + signal), ending: Ending::Exited },
        (None, None) => CommandResult { code: None, ending: Ending::Cancelled },
    }
}
