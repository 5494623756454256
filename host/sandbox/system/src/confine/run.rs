//! `toolhold __confine`: the process that confines itself and then becomes the program.
//!
//! There are up to three processes. The host starts the outer process and waits for it. The first
//! process of the namespace watches the program. The third process becomes the program.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

use super::calls::SocketAccess;
use super::changes::Notified;
use super::error::{ConfineError, RecordingError};
use super::init::{self, End};
use super::leaving::LeavingState;
use super::raw::{self, Fork};
use super::spec::{
    HelperStatus, Preparation, Program, Recorded, Sandbox, Tree, TreeAccess, TreeState,
};
use super::view::View;
use super::{calls, changes, limits, namespaces, network, trees};
use crate::{messages, processes};

/// How long a prepared helper waits for its command before it exits.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The exit code of a helper that failed and has reported the reason.
const FAILED: i32 = 125;

/// The code of a program that a signal ended, minus the number of the signal.
const SIGNALLED: i32 = 128;

/// The exit codes of a shell for a program that is missing, for a program that can't be run, and
/// for other errors.
const NOT_FOUND: i32 = 127;
const NOT_RUNNABLE: i32 = 126;
const OTHER_ERROR: i32 = 1;

/// The index of the helper's optional task in its arguments. Program and [`super::HELPER`] come
/// first.
const TASK: usize = 2;

/// Runs the helper. Only for a process without other threads.
///
/// The helper reads three messages from its standard input, which is a socket. First it carries out
/// a `Preparation`. When the host has a command, it reads a `TreeState` and a `Program`. With the
/// argument `network`, it makes a network instead. With `sockets`, it makes sockets in a network.
pub fn run() -> ! {
    if raw::close_inherited().is_err() {
        eprintln!("inherited descriptors can't be closed; this needs Linux 5.9");
        exit(FAILED);
    }
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { exit(FAILED) };
    let control = UnixStream::from(control);
    if let Some(task) = std::env::args_os().nth(TASK) {
        if task == network::NETWORK {
            network::serve(&control);
        }
        if task == network::SOCKETS {
            network::serve_sockets(&control);
        }
    }
    // If nothing fails, this process becomes the program.
    let Err(error) = prepare(&control);
    fail(&control, &error)
}

/// The process that waits for the result.
struct Host {
    pid: i32,
    handle: OwnedFd,
}

/// No value is ever returned, because the process exits.
enum Never {}

/// Reports an error to the host and ends this process.
fn fail(control: &UnixStream, error: &ConfineError) -> ! {
    let reason = error.to_string();
    let status =
        if error.is_moved() { HelperStatus::Moved(reason) } else { HelperStatus::Failed(reason) };
    // If sending fails, no process waits for the status.
    let _ = messages::send(control, &status, None);
    exit(FAILED)
}

/// Reads the preparation, and carries it out as far as its sandbox requires.
fn prepare(control: &UnixStream) -> Result<Never, ConfineError> {
    // The program gets no terminal. So it can't type for the user, and can't open `/dev/tty`.
    rustix::process::setsid().map_err(|_| ConfineError::Terminal)?;
    let Some(parent) = rustix::process::getppid() else { exit(FAILED) };
    let Ok(handle) = pidfd_open(parent, PidfdFlags::empty()) else { exit(FAILED) };
    let host = Host { pid: parent.as_raw_nonzero().get(), handle };

    let (preparation, _) =
        messages::receive::<Preparation>(control).map_err(ConfineError::Preparation)?;
    // If the parent has already ended, another process is the parent now.
    if preparation.parent != host.pid {
        return Err(ConfineError::Unawaited);
    }
    if preparation.sandbox == Sandbox::Off {
        wait_for_command(control)?;
        // Recording changes needs a filter of system calls. With a filter, the program couldn't
        // run `sudo`, so no changes are recorded.
        let (listener, unrecorded) = listener_for(&preparation, |_| Err(RecordingError::Off))?;
        let missing = Vec::new();
        return start(control, missing, unrecorded, listener);
    }
    if preparation.namespaces {
        run_with_namespaces(&host, &preparation, control)
    } else {
        run_without_namespaces(&host, &preparation, control)
    }
}

fn wait_for_command(control: &UnixStream) -> Result<TreeState, ConfineError> {
    let ready_descriptors = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&PATIENCE));
    if ready_descriptors != Ok(1) {
        exit(0);
    }
    let (state, _) = messages::receive(control)?;
    Ok(state)
}

/// Runs the program in new namespaces. This process stays outside, and its child becomes the first
/// process inside.
fn run_with_namespaces(
    host: &Host,
    preparation: &Preparation,
    control: &UnixStream,
) -> Result<Never, ConfineError> {
    limits::go_first();
    let outer = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    if preparation.shared_network.is_some() {
        network::enter(control).map_err(ConfineError::Network)?;
    }
    // If this fails, the child reports the error.
    let entered = namespaces::enter_outer().map_err(ConfineError::Namespaces);
    match raw::fork().map_err(ConfineError::Fork)? {
        Fork::Parent(inner) => {
            // The first process sends the result. Without a result, the host notices the end of
            // this process.
            close_streams();
            let status = rustix::io::retry_on_intr(|| waitpid(Some(inner), WaitOptions::empty()));
            let code = status.ok().flatten().and_then(|(_, status)| status.exit_status());
            // Only a signal ends the first process without an exit code.
            exit(code.unwrap_or(SIGNALLED + Signal::KILL.as_raw()))
        }
        Fork::Child => {
            entered?;
            // This process has already entered the network of the session.
            let keeps_network = preparation.network || preparation.shared_network.is_some();
            namespaces::enter_inner(keeps_network).map_err(ConfineError::Namespaces)?;
            run_first(host, preparation, control, &outer)
        }
    }
}

/// Runs as the first process of the namespace, and starts a child that becomes the program. The
/// child waits until the denied paths of the program are covered.
fn run_first(
    host: &Host,
    preparation: &Preparation,
    control: &UnixStream,
    outer: &OwnedFd,
) -> Result<Never, ConfineError> {
    // The watch also notices the end of the parent, but the watch starts only with the command.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    limits::bound_processes(&preparation.limits);
    limits::bound_shared_memory(&preparation.limits);
    let view = View::enter(preparation)?;
    // The child waits until this process writes a byte into this pipe.
    let (covered_reader, covered_writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match raw::fork()? {
        Fork::Child => {
            drop(covered_writer);
            let missing = Vec::new();
            // The view itself checks the state of the trees.
            let state = None;
            run_confined(preparation, control, missing, state, Some(&covered_reader))
        }
        Fork::Parent(program) => {
            drop(covered_reader);
            close_streams();
            let state = wait_for_command(control)?;
            view.cover(&preparation.trees, &state)?;
            let _ = rustix::io::write(&covered_writer, &[1]);
            let waiting = [host.handle.as_fd(), outer.as_fd()];
            let scope = init::ProcessScope::Namespace;
            watch(program, control, &waiting, preparation, scope, init::end_all)
        }
    }
}

/// Watches the program until it ends, kills the other processes with `end_all`, and reports the
/// result. The program also ends when one of the `waiting` processes ends.
fn watch(
    program: Pid,
    control: &UnixStream,
    waiting: &[BorrowedFd<'_>],
    preparation: &Preparation,
    scope: init::ProcessScope,
    end_all: impl FnOnce(),
) -> Result<Never, ConfineError> {
    let end = init::watch(program, waiting, &preparation.limits, scope);
    end_all();
    // Removing the namespaces of this process takes a while. So the result is sent first, after all
    // other processes have ended.
    let _ = match end {
        End::Exited(code, left) => {
            messages::send(control, &HelperStatus::Exited { code, left }, None)
        }
        End::Reached(bound) => messages::send(control, &HelperStatus::Reached(bound), None),
        // No process waits for the result.
        End::Alone => Ok(()),
    };
    // The host reads the status instead of this exit code.
    exit(FAILED)
}

/// Runs the program without namespaces. This process watches the program, and finds the program's
/// processes in the list of all processes.
fn run_without_namespaces(
    host: &Host,
    preparation: &Preparation,
    control: &UnixStream,
) -> Result<Never, ConfineError> {
    limits::go_first();
    let own = rustix::process::getpid();
    // This process adopts orphans, so it finds all descendants of the program.
    rustix::process::set_child_subreaper(Some(own))?;
    let state = wait_for_command(control)?;
    let missing = uncovered(&preparation.trees, &state);
    match raw::fork()? {
        Fork::Child => {
            // Without a view, no paths are covered.
            let covered = None;
            run_confined(preparation, control, missing, Some(&state), covered)
        }
        Fork::Parent(program) => {
            close_streams();
            let scope = init::ProcessScope::Below(own);
            let waiting = [host.handle.as_fd()];
            watch(program, control, &waiting, preparation, scope, || processes::end_below(own))
        }
    }
}

/// Closes this process's copies of the program's streams. So the readers of the streams notice when
/// the last process of the program ends.
fn close_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null)
            .and_then(|()| rustix::stdio::dup2_stdout(&null))
            .and_then(|()| rustix::stdio::dup2_stderr(&null));
    }
}

/// Sets up the sandbox of the program itself, waits for a byte in `covered`, and becomes the
/// program. The byte means that the denied paths are covered. `state` is the required state of the
/// trees, or `None` with a view. `missing` are the parts that the sandbox already lacks.
fn run_confined(
    preparation: &Preparation,
    control: &UnixStream,
    mut missing: Vec<String>,
    state: Option<&TreeState>,
    covered: Option<&OwnedFd>,
) -> Result<Never, ConfineError> {
    let sandbox = preparation.sandbox;
    tolerate(limits::bound(&preparation.limits), sandbox, &mut missing)?;
    let restricted = trees::restrict(preparation, state).map_err(ConfineError::Landlock);
    tolerate(restricted, sandbox, &mut missing)?;
    let dropped = limits::drop_capabilities().map_err(ConfineError::Capabilities);
    tolerate(dropped, sandbox, &mut missing)?;
    let has_view = state.is_none();
    let (listener, unrecorded) =
        listener_for(preparation, |calls| changes::listen(calls).map_err(RecordingError::Filter))?;
    // Without a listener, nothing would stop the connections of sockets.
    let is_relayed = preparation.relayed && listener.is_some();
    let sockets = SocketAccess { has_view, has_network: preparation.network, is_relayed };
    let filtered = calls::filter(&sockets).map_err(ConfineError::Filter);
    tolerate(filtered, sandbox, &mut missing)?;
    if let Some(covered) = covered {
        let read_bytes = rustix::io::retry_on_intr(|| rustix::io::read(covered, &mut [0; 1]));
        if read_bytes != Ok(1) {
            // The first process has failed and reported the reason.
            exit(FAILED);
        }
    }
    start(control, missing, unrecorded, listener)
}

/// Adds a failed part of the sandbox to `missing`, if the sandbox may lack this part. Otherwise,
/// returns its error.
fn tolerate(
    part: Result<(), ConfineError>,
    sandbox: Sandbox,
    missing: &mut Vec<String>,
) -> Result<(), ConfineError> {
    let Err(error) = part else { return Ok(()) };
    // Another object at the path of a tree is an attack or a mistake, and not a missing part.
    let may_lack_part = sandbox == Sandbox::BestEffort && !error.is_moved();
    if !may_lack_part {
        return Err(error);
    }
    missing.push(error.to_string());
    Ok(())
}

/// Returns the listener for the program's file changes and connections, or the reason why the host
/// can't record changes. Returns neither if the host needs no listener. If recording is required,
/// the reason is an error.
fn listener_for(
    preparation: &Preparation,
    listen: impl FnOnce(Notified) -> Result<OwnedFd, RecordingError>,
) -> Result<(Option<OwnedFd>, Option<RecordingError>), ConfineError> {
    let Preparation { recorded, relayed: connections, .. } = *preparation;
    let changes = recorded != Recorded::No;
    if !changes && !connections {
        return Ok((None, None));
    }
    match listen(Notified { changes, connections }) {
        Ok(listener) => Ok((Some(listener), None)),
        Err(reason) if recorded == Recorded::Required => Err(ConfineError::Unrecorded(reason)),
        // Only connections needed the listener. Without it, the program just reaches no host.
        Err(_) if !changes => Ok((None, None)),
        Err(reason) => Ok((None, Some(reason))),
    }
}

/// Reads the program from the host, reports the start, and becomes the program.
fn start(
    control: &UnixStream,
    missing: Vec<String>,
    unrecorded: Option<RecordingError>,
    listener: Option<OwnedFd>,
) -> Result<Never, ConfineError> {
    let (program, stdin) = messages::receive::<Program>(control)?;
    rustix::stdio::dup2_stdin(&stdin.ok_or(ConfineError::NoInput)?)?;
    let state = if program.leaves_state {
        let ((), record) = messages::receive(control)?;
        Some(LeavingState::new(&record.ok_or(ConfineError::NoRecord)?)?)
    } else {
        None
    };
    let unrecorded = unrecorded.map(|reason| reason.to_string());
    let status = HelperStatus::Started { missing, unrecorded };
    if messages::send(control, &status, listener.as_ref().map(AsFd::as_fd)).is_err() {
        // No process waits for the program.
        exit(FAILED);
    }
    become_program(&program, state)
}

/// Describes the restricted paths that stay accessible because the program has no view.
fn uncovered(trees: &[Tree], state: &TreeState) -> Vec<String> {
    let kinds = [
        ("paths that may not be read", &state.hidden),
        ("paths that may not be written", &state.frozen),
        ("paths that are granted read-only", &read_only_in_writable(trees)),
    ];
    let mut descriptions = Vec::new();
    for (kind, paths) in kinds {
        if !paths.is_empty() {
            descriptions.push(format!("{kind}: {}", join_first(paths)));
        }
    }
    descriptions
}

/// Returns the read-only trees whose next outer tree is writable.
fn read_only_in_writable(trees: &[Tree]) -> Vec<String> {
    let mut inner = Vec::new();
    for (index, tree) in trees.iter().enumerate() {
        // An outer tree comes before its inner trees, so the last match is the next outer tree.
        let mut before = trees[..index].iter();
        let outer = before.rfind(|outer| Path::new(&tree.path).starts_with(&outer.path));
        let is_in_writable = outer.is_some_and(|outer| outer.access == TreeAccess::Write);
        if tree.access == TreeAccess::Read && is_in_writable {
            inner.push(tree.path.clone());
        }
    }
    inner
}

/// Paths that a description contains. Further paths are shown as an ellipsis.
const MAX_SHOWN_PATHS: usize = 3;

fn join_first(paths: &[String]) -> String {
    let shown_paths: Vec<String> = paths.iter().take(MAX_SHOWN_PATHS).cloned().collect();
    let mut shown = shown_paths.join(", ");
    if paths.len() > MAX_SHOWN_PATHS {
        shown.push_str(", …");
    }
    shown
}

/// Becomes the program. If this fails, writes the reason to standard error, and exits with the code
/// of a shell.
fn become_program(task: &Program, state: Option<LeavingState>) -> ! {
    let Some((program, arguments)) = task.arguments.split_first() else { exit(NOT_FOUND) };
    let environment = task.environment.iter().map(|(name, value)| (name, value));
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .envs(state.as_ref().map(LeavingState::variable))
        .current_dir(&task.directory)
        .exec();
    let (code, reason) = match error.kind() {
        io::ErrorKind::NotFound if std::fs::metadata(&task.directory).is_err() => {
            (OTHER_ERROR, format!("{}: {error}", task.directory))
        }
        io::ErrorKind::NotFound => (NOT_FOUND, format!("{program}: not found")),
        _ => (NOT_RUNNABLE, format!("{program}: {error}")),
    };
    let _ = writeln!(io::stderr(), "{reason}");
    exit(code)
}
