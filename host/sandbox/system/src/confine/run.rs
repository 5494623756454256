//! `toolhold __confine`: the process that confines itself and then becomes the program.
//!
//! There are up to three processes. The host starts the outer process and waits for it. The first
//! process of the namespace watches the program. The third process is the program.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

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

/// How long a prepared helper waits for its command.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The exit code of a helper that failed. The helper has reported the reason.
const FAILED: i32 = 125;

/// Runs the helper. Only for a process without other threads.
///
/// The helper reads three messages from its standard input, which is a socket. First it reads a
/// `Preparation` and carries it out. When the host has a command, the helper reads a `TreeState`
/// and a `Program`. With the argument `network`, the helper makes a network. With `sockets`, it
/// makes sockets in a network.
pub fn run() -> ! {
    if raw::close_inherited().is_err() {
        eprintln!("inherited descriptors can't be closed: Linux 5.9 is needed");
        exit(FAILED);
    }
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { exit(FAILED) };
    let control = UnixStream::from(control);
    match std::env::args_os().nth(2) {
        Some(task) if task == network::NETWORK => network::serve(&control),
        Some(task) if task == network::SOCKETS => network::serve_sockets(&control),
        _ => {}
    }
    let Err(error) = prepare(&control);
    fail(&control, &error)
}

/// The process that waits for the answer.
struct Host {
    pid: i32,
    handle: OwnedFd,
}

/// An uninhabited type, since the process ends before it returns a value.
enum Never {}

fn fail(control: &UnixStream, error: &ConfineError) -> ! {
    let reason = error.to_string();
    let status =
        if error.is_moved() { HelperStatus::Moved(reason) } else { HelperStatus::Failed(reason) };
    // If sending fails, no process waits for the status.
    let _ = messages::send(control, &status, None);
    exit(FAILED)
}

fn prepare(control: &UnixStream) -> Result<Never, ConfineError> {
    // The program gets no terminal. So it can't type for the user, and `/dev/tty` can't be opened.
    rustix::process::setsid().map_err(|_| ConfineError::Terminal)?;
    let Some(parent) = rustix::process::getppid() else { exit(FAILED) };
    let Ok(handle) = pidfd_open(parent, PidfdFlags::empty()) else { exit(FAILED) };
    let host = Host { pid: parent.as_raw_nonzero().get(), handle };

    let (preparation, _) =
        messages::receive::<Preparation>(control).map_err(ConfineError::Preparation)?;
    // If the parent had ended before this check, this process would have another parent.
    if preparation.parent != host.pid {
        return Err(ConfineError::Unawaited);
    }
    match (preparation.sandbox, preparation.namespaces) {
        (Sandbox::Off, _) => {
            wait_for_command(control)?;
            // A filter of system calls would take away the right to run `sudo`.
            let (_, unrecorded) = record(preparation.recorded, || Err(RecordingError::Off))?;
            start(control, Vec::new(), unrecorded, None)
        }
        (_, true) => run_with_namespaces(&host, &preparation, control),
        (_, false) => run_without_namespaces(&host, &preparation, control),
    }
}

/// Waits for a command, and reads the state of the trees.
fn wait_for_command(control: &UnixStream) -> Result<TreeState, ConfineError> {
    if poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&PATIENCE)) != Ok(1) {
        exit(0);
    }
    let (state, _) = messages::receive(control)?;
    Ok(state)
}

/// Runs the program with namespaces.
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
    let entered = namespaces::enter_outer().map_err(ConfineError::Namespaces);
    match raw::fork().map_err(ConfineError::Fork)? {
        Fork::Parent(inner) => {
            // The first process sends the answer. If it sends none, the host notices the end of
            // this process.
            close_streams();
            let status = rustix::io::retry_on_intr(|| waitpid(Some(inner), WaitOptions::empty()));
            let code = status.ok().flatten().and_then(|(_, status)| status.exit_status());
            exit(code.unwrap_or(128 + Signal::KILL.as_raw()))
        }
        Fork::Child => {
            entered?;
            // This process already entered the network of the session.
            let keeps = preparation.network || preparation.shared_network.is_some();
            namespaces::enter_inner(keeps).map_err(ConfineError::Namespaces)?;
            run_first(host, preparation, control, &outer)
        }
    }
}

/// Runs as the first process of the namespace. The program waits until it is fully confined and the
/// paths that it may not read are covered.
fn run_first(
    host: &Host,
    preparation: &Preparation,
    control: &UnixStream,
    outer: &OwnedFd,
) -> Result<Never, ConfineError> {
    // This is in addition to the watching, which may start late.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    limits::bound_processes(&preparation.limits);
    limits::bound_shared_memory(&preparation.limits);
    let view = View::enter(preparation)?;
    let (covered, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match raw::fork()? {
        Fork::Child => {
            drop(go);
            run_confined(preparation, control, Vec::new(), None, Some(&covered))
        }
        Fork::Parent(program) => {
            drop(covered);
            close_streams();
            let state = wait_for_command(control)?;
            view.cover(&preparation.trees, &state)?;
            let _ = rustix::io::write(&go, &[1]);
            let waiting = [host.handle.as_fd(), outer.as_fd()];
            let scope = init::ProcessScope::Namespace;
            watch(program, control, &waiting, preparation, scope, init::end_all)
        }
    }
}

/// Watches the program until it ends, ends the other processes with `end_all`, and reports the
/// result.
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
        End::Alone => Ok(()),
    };
    exit(FAILED)
}

/// Runs the program without namespaces. This process watches the program, and finds the processes
/// to end in the list of all processes.
fn run_without_namespaces(
    host: &Host,
    preparation: &Preparation,
    control: &UnixStream,
) -> Result<Never, ConfineError> {
    limits::go_first();
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own))?;
    let state = wait_for_command(control)?;
    let missing = uncovered(&preparation.trees, &state);
    match raw::fork()? {
        Fork::Child => run_confined(preparation, control, missing, Some(&state), None),
        Fork::Parent(program) => {
            close_streams();
            let scope = init::ProcessScope::Below(own);
            watch(program, control, &[host.handle.as_fd()], preparation, scope, || {
                processes::end_below(own);
            })
        }
    }
}

/// Closes this process's copies of the program's streams, so that their readers notice when the
/// last process of the program ends.
fn close_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null)
            .and_then(|()| rustix::stdio::dup2_stdout(&null))
            .and_then(|()| rustix::stdio::dup2_stderr(&null));
    }
}

/// Sets up the parts of the sandbox that are only for the program, waits until the rest is
/// `covered`, and becomes the program. `state`: the required state of the trees, or `None` with a
/// view.
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
    let filtered =
        calls::filter(state.is_none(), preparation.network).map_err(ConfineError::Filter);
    tolerate(filtered, sandbox, &mut missing)?;
    let (listener, unrecorded) =
        record(preparation.recorded, || changes::listen().map_err(RecordingError::Filter))?;
    if let Some(covered) = covered
        && rustix::io::retry_on_intr(|| rustix::io::read(covered, &mut [0; 1])) != Ok(1)
    {
        // The first process has reported the reason.
        exit(FAILED);
    }
    start(control, missing, unrecorded, listener)
}

/// Adds a failed part of the sandbox to `missing`, if the sandbox may lack this part.
fn tolerate(
    part: Result<(), ConfineError>,
    sandbox: Sandbox,
    missing: &mut Vec<String>,
) -> Result<(), ConfineError> {
    match part {
        Err(error) if sandbox == Sandbox::BestEffort && !error.is_moved() => {
            missing.push(error.to_string());
            Ok(())
        }
        part => part,
    }
}

/// Returns the listener that gets the program's file changes, or the reason why the host can't
/// record them. Returns neither if the host doesn't record changes.
fn record(
    recorded: Recorded,
    listen: impl FnOnce() -> Result<OwnedFd, RecordingError>,
) -> Result<(Option<OwnedFd>, Option<RecordingError>), ConfineError> {
    if recorded == Recorded::No {
        return Ok((None, None));
    }
    match listen() {
        Ok(listener) => Ok((Some(listener), None)),
        Err(reason) if recorded == Recorded::Required => Err(ConfineError::Unrecorded(reason)),
        Err(reason) => Ok((None, Some(reason))),
    }
}

/// Reads the program, reports its start, and becomes the program.
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

/// Describes the paths that should be hidden, but can't be hidden from a program without its own
/// view.
fn uncovered(trees: &[Tree], state: &TreeState) -> Vec<String> {
    let mut inner = Vec::new();
    for (index, tree) in trees.iter().enumerate() {
        let mut before = trees[..index].iter();
        let around = before.rfind(|outer| Path::new(&tree.path).starts_with(&outer.path));
        let is_in_writable = around.is_some_and(|outer| outer.access == TreeAccess::Write);
        if tree.access == TreeAccess::Read && is_in_writable {
            inner.push(tree.path.clone());
        }
    }
    let kinds = [
        ("what may not be read", &state.hidden),
        ("what may not be written", &state.frozen),
        ("what is granted for reading only", &inner),
    ];
    kinds
        .iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(kind, paths)| format!("{kind}: {}", first_three(paths)))
        .collect()
}

fn first_three(paths: &[String]) -> String {
    let mut shown = paths.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if paths.len() > 3 {
        shown.push_str(", …");
    }
    shown
}

/// Becomes the program. A failure is the program's own, and is reported in a shell's way.
fn become_program(task: &Program, state: Option<LeavingState>) -> ! {
    let Some((program, arguments)) = task.arguments.split_first() else { exit(127) };
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
            (1, format!("{}: {error}", task.directory))
        }
        io::ErrorKind::NotFound => (127, format!("{program}: not found")),
        _ => (126, format!("{program}: {error}")),
    };
    let _ = writeln!(io::stderr(), "{reason}");
    exit(code)
}
