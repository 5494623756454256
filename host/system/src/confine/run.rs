//! `berth __confine`: the process that confines itself, and the program that it becomes.
//!
//! Up to three processes: the outer one, which the host starts and waits for; the first process of
//! the namespace, which watches; and the program.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

use super::init::{self, End};
use super::raw::{self, Fork};
use super::spec::{Bound, ENDED_BY, HelperStatus, Recorded, Sandbox, Spec, TreeAccess};
use super::{calls, changes, limits, namespaces, trees, view};
use crate::{descriptors, processes};

/// The first argument of the helper.
pub const HELPER: &str = "__confine";

/// Its option: enter namespaces without the network in advance and wait for a spec for a short
/// time.
pub(crate) const WAITS: &str = "--waits";

/// The time that it waits.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Largest spec in bytes.
const MAX_SPEC: u32 = 16 << 20;

/// The exit code of a helper that failed; its first line gives the reason.
const FAILED: i32 = 125;

/// Runs the helper: reads a [`Spec`] from standard input, confines itself as the spec says, and
/// runs the program with the rest of the input. Only for a process without other threads.
pub fn run() -> ! {
    if raw::close_inherited().is_err() {
        fail("what was handed down can't be closed: Linux 5.9 is needed".to_owned());
    }
    let waits = std::env::args().nth(2).is_some_and(|option| option == WAITS);
    // No terminal: the program can't type for the user, and `/dev/tty` leads to none.
    if rustix::process::setsid().is_err() {
        fail("the terminal can't be left".to_owned());
    }
    let parent = rustix::process::getppid();
    let Some(host) = parent.and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok()) else {
        exit(FAILED)
    };
    let host = Host { pid: parent.map_or(0, |parent| parent.as_raw_nonzero().get()), handle: host };
    let begun =
        if waits { inside(&host, None) } else { host.spec().and_then(|task| begin(&host, task)) };
    match begun {
        Ok(never) => match never {},
        Err(reason) => fail(reason),
    }
}

/// The process that waits for the answer.
struct Host {
    pid: i32,
    handle: OwnedFd,
}

/// What to run, and the socket to the host.
struct Task {
    spec: Spec,
    control: OwnedFd,
}

impl Host {
    /// Reads the spec, if this process is the one that sent it.
    fn spec(&self) -> Result<Task, String> {
        let task = read()?;
        // If it had ended before this check, another process would be the parent now.
        if task.spec.parent == self.pid { Ok(task) } else { Err("nobody waits for it".to_owned()) }
    }
}

/// Unreachable: the process has ended before.
enum Never {}

fn fail(reason: String) -> ! {
    tell(&if reason.starts_with(view::MOVED) {
        HelperStatus::Moved(reason)
    } else {
        HelperStatus::Failed(reason)
    });
    exit(FAILED)
}

fn tell(begun: &HelperStatus) {
    let mut line = serde_json::to_vec(begun).unwrap_or_default();
    line.push(b'\n');
    // If the line can't be written, no process waits for the program.
    if io::stderr().lock().write_all(&line).is_err() {
        exit(FAILED);
    }
}

/// Reads the spec from the socket to the host, which is the standard input so far. The descriptor
/// that comes with it is the program's standard input.
fn read() -> Result<Task, String> {
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut length = [0; 4];
    let stdin = descriptors::receive(&control, &mut length)
        .and_then(|stdin| stdin.ok_or_else(|| io::ErrorKind::InvalidData.into()))
        .map_err(|error| format!("{HELPER} is for Berth itself: {error}"))?;
    let length = u32::from_le_bytes(length);
    if length > MAX_SPEC {
        return Err("what is to be run takes too many words".to_owned());
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    let mut socket = std::os::unix::net::UnixStream::from(control);
    socket.read_exact(&mut text).map_err(|error| error.to_string())?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|errno| errno.to_string())?;
    let spec = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(Task { spec, control: socket.into() })
}

fn begin(host: &Host, task: Task) -> Result<Never, String> {
    if task.spec.sandbox == Sandbox::Off {
        // A filter of system calls would take away the right to run `sudo`.
        let unrecorded = unrecorded(&task.spec, || Err("the sandbox is switched off".to_owned()))?;
        tell(&HelperStatus::Started { missing: Vec::new(), unrecorded });
        return Err(become_program(&task.spec));
    }
    if task.spec.namespaces { inside(host, Some(task)) } else { outside(task, host) }
}

/// Runs with namespaces. `task`: `None` if it is still to come; it won't want the network then.
fn inside(host: &Host, task: Option<Task>) -> Result<Never, String> {
    limits::go_first();
    let outer = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(|errno| errno.to_string())?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| errno.to_string())?;
    let entered = namespaces::enter_outer().map_err(|error| format!("namespaces: {error}"));
    let child = raw::fork().map_err(|error| format!("a process in namespaces: {error}"))?;
    let Fork::Parent(inner) = child else {
        drop(reader);
        let entered = entered.and_then(|()| {
            let network = task.as_ref().is_some_and(|task| task.spec.network);
            namespaces::enter_inner(network).map_err(|error| format!("namespaces: {error}"))
        });
        let task = match task {
            Some(task) => task,
            None => {
                if poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&PATIENCE)) != Ok(1) {
                    exit(0);
                }
                host.spec()?
            }
        };
        entered?;
        let ended = first(task, host, &outer)?;
        init::end_all();
        // The result is known and no process is left before this process removes its namespaces,
        // which takes a while.
        let answer = match ended {
            End::Exited(code) => (code, 0),
            End::Reached(bound) => (
                FAILED,
                ENDED_BY.iter().find(|(_, known)| *known == bound).map_or(0, |(signal, _)| *signal),
            ),
            End::Alone => (FAILED, 0),
        };
        let answer = [answer.0.to_ne_bytes(), answer.1.to_ne_bytes()].concat();
        let _ = rustix::io::write(&writer, &answer);
        exit(0)
    };
    drop((writer, task));
    close_streams();
    wait(inner, &reader)
}

/// The outer process: it ends as the program did.
fn wait(inner: Pid, reader: &OwnedFd) -> ! {
    let mut answer = [0; 8];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(reader, &mut answer));
    let [a, b, c, d, e, f, g, h] = answer;
    if read != Ok(answer.len()) {
        // It ended without a status line, or failed and reported that.
        let status = rustix::io::retry_on_intr(|| waitpid(Some(inner), WaitOptions::empty()));
        let code = status.ok().flatten().and_then(|(_, status)| status.exit_status());
        exit(code.unwrap_or(128 + Signal::KILL.as_raw()));
    }
    if let Some(signal) = Signal::from_named_raw(i32::from_ne_bytes([e, f, g, h])) {
        end_by(signal);
    }
    exit(i32::from_ne_bytes([a, b, c, d]))
}

fn end_by(signal: Signal) -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    exit(FAILED)
}

/// The first process of the namespace. The program's branch never returns.
fn first(task: Task, host: &Host, outer: &OwnedFd) -> Result<End, String> {
    let Task { spec, control } = task;
    // In addition to the watching, which may come late.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| errno.to_string())?;
    limits::bound_processes(&spec.limits);
    limits::bound_shared_memory(&spec.limits);
    view::enter(&spec)?;
    match raw::fork().map_err(|error| error.to_string())? {
        Fork::Child => Err(program(&spec, control, true)),
        Fork::Parent(program) => {
            drop(control);
            close_streams();
            Ok(init::watch(
                program,
                &[host.handle.as_fd(), outer.as_fd()],
                &spec.limits,
                init::ProcessScope::Namespace,
            ))
        }
    }
}

/// Without namespaces: this process watches, and finds the processes to end in the list of all
/// processes.
fn outside(task: Task, host: &Host) -> Result<Never, String> {
    let Task { spec, control } = task;
    limits::go_first();
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(|errno| errno.to_string())?;
    match raw::fork().map_err(|error| error.to_string())? {
        Fork::Child => Err(program(&spec, control, false)),
        Fork::Parent(program) => {
            drop(control);
            close_streams();
            let end = init::watch(
                program,
                &[host.handle.as_fd()],
                &spec.limits,
                init::ProcessScope::Below(own),
            );
            processes::end_below(own);
            let signal = |bound: Bound| {
                ENDED_BY
                    .iter()
                    .find(|(_, known)| *known == bound)
                    .and_then(|(signal, _)| Signal::from_named_raw(*signal))
            };
            match end {
                End::Exited(code) => exit(code),
                End::Reached(bound) => {
                    signal(bound).map_or_else(|| exit(FAILED), |signal| end_by(signal))
                }
                End::Alone => exit(FAILED),
            }
        }
    }
}

/// Closes its copies of the program's streams: their readers must see when the last process of the
/// program ends.
fn close_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null)
            .and_then(|()| rustix::stdio::dup2_stdout(&null))
            .and_then(|()| rustix::stdio::dup2_stderr(&null));
    }
}

/// Sets up the parts of the sandbox that are only for the program, and becomes it. Returns the
/// reason if that fails.
fn program(spec: &Spec, control: OwnedFd, view: bool) -> String {
    let mut missing = if view { Vec::new() } else { uncovered(spec) };
    let mut put_on = |part: Result<(), String>| match part {
        Err(reason) if spec.sandbox == Sandbox::BestEffort => {
            missing.push(reason);
            Ok(())
        }
        part => part,
    };
    let all = put_on(limits::bound(&spec.limits))
        .and_then(|()| put_on(trees::restrict(spec, view)))
        .and_then(|()| {
            put_on(
                limits::drop_capabilities()
                    .map_err(|error| format!("giving up capabilities: {error}")),
            )
        })
        .and_then(|()| put_on(calls::filter(view, spec.network)));
    if let Err(reason) = all {
        return reason;
    }
    let unrecorded = match unrecorded(spec, || record(&control)) {
        Ok(unrecorded) => unrecorded,
        Err(reason) => return reason,
    };
    drop(control);
    tell(&HelperStatus::Started { missing, unrecorded });
    become_program(spec)
}

/// Why the host can't learn of the program's changes in files, if it wanted to.
fn unrecorded(
    spec: &Spec,
    record: impl FnOnce() -> Result<(), String>,
) -> Result<Option<String>, String> {
    match spec.recorded {
        Recorded::No => Ok(None),
        Recorded::IfPossible => Ok(record().err()),
        Recorded::Required => record().map(|()| None).map_err(|reason| {
            format!("{reason}; so the changes in files can't be saved, but they have to be")
        }),
    }
}

/// Sends the host a listener that gets the program's changes in files.
fn record(control: &OwnedFd) -> Result<(), String> {
    let listener = changes::listen().map_err(|error| format!("a filter of changes: {error}"))?;
    descriptors::send(control, &[0], &listener).map_err(|error| error.to_string())
}

/// What can't be hidden from a program without a view of its own, although it is in its trees.
fn uncovered(spec: &Spec) -> Vec<String> {
    let some = |paths: &[String]| {
        let mut shown = paths.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        if paths.len() > 3 {
            shown.push_str(", …");
        }
        shown
    };
    let inner = spec.trees.iter().enumerate().filter(|(at, tree)| {
        let around =
            spec.trees[..*at].iter().rfind(|outer| Path::new(&tree.path).starts_with(&outer.path));
        tree.access == TreeAccess::Read
            && around.is_some_and(|outer| outer.access == TreeAccess::Write)
    });
    let inner: Vec<String> = inner.map(|(_, tree)| tree.path.clone()).collect();
    let kinds = [
        ("what may not be read", &spec.hidden),
        ("what may not be written", &spec.frozen),
        ("what is granted for reading only", &inner),
    ];
    kinds
        .iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(kind, paths)| format!("{kind}: {}", some(paths)))
        .collect()
}

/// Becomes the program. Returns only if that fails: the program's own failure, reported in a
/// shell's way.
fn become_program(spec: &Spec) -> String {
    let Some((program, arguments)) = spec.arguments.split_first() else { exit(127) };
    let environment = spec.environment.iter().map(|(name, value)| (name, value));
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .current_dir(&spec.directory)
        .exec();
    let (code, reason) = match error.kind() {
        io::ErrorKind::NotFound if std::fs::metadata(&spec.directory).is_err() => {
            (1, format!("{}: {error}", spec.directory))
        }
        io::ErrorKind::NotFound => (127, format!("{program}: not found")),
        _ => (126, format!("{program}: {error}")),
    };
    let _ = writeln!(io::stderr(), "{reason}");
    exit(code)
}
