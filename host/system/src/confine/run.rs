//! `berth __confine`: the process that confines itself, and the program that it becomes.
//!
//! Up to three processes: the outer one, which the host started and waits for; the first of the namespace, which watches; and the program.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};

use super::init::{self, End};
use super::raw::{self, Fork};
use super::spec::{Begun, Bound, ENDED_BY, Sandbox, Spec};
use super::{calls, limits, namespaces, trees, view};
use crate::process::tree;

/// The first argument of the helper.
pub const HELPER: &str = "__confine";

/// Bytes of a spec.
const MAX_SPEC: u32 = 16 << 20;

/// The exit code of a helper that could not do its work; its first line says why.
const FAILED: i32 = 125;

/// Runs the helper: reads a [`Spec`] from standard input, confines itself as it says, and runs the program with what is left of it. For a
/// process that has no other threads yet.
pub fn run() -> ! {
    match read().and_then(begin) {
        Ok(never) => match never {},
        Err(reason) => fail(reason),
    }
}

/// What never happens: the process is over before.
enum Never {}

fn fail(reason: String) -> ! {
    tell(&Begun::Failed(reason));
    exit(FAILED)
}

fn tell(begun: &Begun) {
    let mut line = serde_json::to_vec(begun).unwrap_or_default();
    line.push(b'\n');
    // Where nobody reads it, nobody waits for the program.
    if io::stderr().lock().write_all(&line).is_err() {
        exit(FAILED);
    }
}

/// Reads the spec, and not a byte more: the rest is the program's.
fn read() -> Result<Spec, String> {
    let mut stdin = io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from).map_err(|error| error.to_string())?;
    let mut length = [0; 4];
    stdin.read_exact(&mut length).map_err(|error| format!("{HELPER} is for Berth itself: {error}"))?;
    let length = u32::from_le_bytes(length);
    if length > MAX_SPEC {
        return Err("what is to be run takes too many words".to_owned());
    }
    let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
    stdin.read_exact(&mut text).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

fn begin(spec: Spec) -> Result<Never, String> {
    let host = init::of_host(spec.parent).ok_or("nobody waits for it")?;
    // No terminal: nobody can be typed for.
    let _ = rustix::process::setsid();
    if spec.sandbox == Sandbox::Off {
        tell(&Begun::Without(Vec::new()));
        return Err(become_program(&spec));
    }
    limits::go_first();
    if !spec.namespaces {
        return outside(&spec, &host);
    }
    let outer = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(|errno| errno.to_string())?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| errno.to_string())?;
    namespaces::enter(spec.network).map_err(|error| format!("namespaces: {error}"))?;
    match raw::fork().map_err(|error| format!("a process in them: {error}"))? {
        Fork::Child => {
            drop(reader);
            let ended = first(&spec, &host, &outer)?;
            let (code, bound) = match ended {
                End::Exited(code) => (code, None),
                End::Reached(bound) => (1, Some(bound)),
                End::Alone => (1, None),
            };
            if let Some((signal, _)) = ENDED_BY.iter().find(|(_, known)| Some(*known) == bound) {
                let _ = rustix::io::write(&writer, &signal.to_ne_bytes());
            }
            // With this process, the kernel ends all others of the namespace.
            exit(code)
        }
        Fork::Parent(inner) => {
            drop(writer);
            drop((host, outer));
            wait(inner, &reader)
        }
    }
}

/// What the outer process does: it ends as the inner one did.
fn wait(inner: Pid, reader: &OwnedFd) -> ! {
    let status = loop {
        match waitpid(Some(inner), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(_) => exit(FAILED),
        }
    };
    let mut signal = [0; 4];
    if rustix::io::read(reader, &mut signal).is_ok_and(|read| read == signal.len())
        && let Some(signal) = Signal::from_named_raw(i32::from_ne_bytes(signal))
    {
        end_by(signal);
    }
    exit(status.exit_status().unwrap_or(128 + Signal::KILL.as_raw()))
}

fn end_by(signal: Signal) -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    exit(FAILED)
}

/// What the first process of the namespace does. The program's part of it never returns.
fn first(spec: &Spec, host: &OwnedFd, outer: &OwnedFd) -> Result<End, String> {
    // Beside the watching, which may come late.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| errno.to_string())?;
    limits::bound_processes(&spec.limits);
    view::enter(spec)?;
    match raw::fork().map_err(|error| error.to_string())? {
        Fork::Child => Err(program(spec, true)),
        Fork::Parent(program) => {
            close_streams();
            Ok(init::watch(program, &[host.as_fd(), outer.as_fd()], &spec.limits, init::Whose::Namespace))
        }
    }
}

/// Without namespaces: this process watches, and goes through the list of all processes to find those that it has to end.
fn outside(spec: &Spec, host: &OwnedFd) -> Result<Never, String> {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(|errno| errno.to_string())?;
    match raw::fork().map_err(|error| error.to_string())? {
        Fork::Child => Err(program(spec, false)),
        Fork::Parent(program) => {
            close_streams();
            let end = init::watch(program, &[host.as_fd()], &spec.limits, init::Whose::Below(own));
            tree::end_below(own);
            let signal =
                |bound: Bound| ENDED_BY.iter().find(|(_, known)| *known == bound).and_then(|(signal, _)| Signal::from_named_raw(*signal));
            match end {
                End::Exited(code) => exit(code),
                End::Reached(bound) => signal(bound).map_or_else(|| exit(FAILED), |signal| end_by(signal)),
                End::Alone => exit(FAILED),
            }
        }
    }
}

/// Lets go of the program's streams: their other ends have to see when the last of the program's processes does.
fn close_streams() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null)
            .and_then(|()| rustix::stdio::dup2_stdout(&null))
            .and_then(|()| rustix::stdio::dup2_stderr(&null));
    }
}

/// Puts on what only the program wears, and becomes it. Returns why it could not.
fn program(spec: &Spec, view: bool) -> String {
    let mut missing = Vec::new();
    let mut put_on = |part: Result<(), String>| match part {
        Err(reason) if spec.sandbox == Sandbox::BestEffort => {
            missing.push(reason);
            Ok(())
        }
        part => part,
    };
    let all = put_on(limits::bound(&spec.limits))
        .and_then(|()| put_on(trees::restrict(spec, view)))
        .and_then(|()| put_on(limits::drop_capabilities().map_err(|error| format!("giving up capabilities: {error}"))))
        .and_then(|()| put_on(calls::filter(view, spec.network)));
    if let Err(reason) = all {
        return reason;
    }
    tell(&Begun::Without(missing));
    become_program(spec)
}

/// Becomes the program. Returns only where that fails, which is then the program's failure, told as a shell would.
fn become_program(spec: &Spec) -> String {
    let Some((program, arguments)) = spec.arguments.split_first() else { exit(127) };
    let environment = spec.environment.iter().map(|(name, value)| (name, value));
    let error = Command::new(program).args(arguments).env_clear().envs(environment).current_dir(&spec.directory).exec();
    let (code, reason) = match error.kind() {
        io::ErrorKind::NotFound if std::fs::metadata(&spec.directory).is_err() => (1, format!("{}: {error}", spec.directory)),
        io::ErrorKind::NotFound => (127, format!("{program}: not found")),
        _ => (126, format!("{program}: {error}")),
    };
    let _ = writeln!(io::stderr(), "{reason}");
    exit(code)
}
