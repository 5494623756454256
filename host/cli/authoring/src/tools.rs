//! Finds and runs the compilers and other tools of a language.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use thiserror::Error;
use toolhold_contract::text::neutral_line;

/// Folders with a project's own programs, which take precedence over programs in `PATH`.
const LOCAL: [&str; 2] = [".venv/bin", "node_modules/.bin"];

pub(crate) struct Program {
    pub(crate) file: PathBuf,
}

pub(crate) fn find(project: &Path, name: &str) -> Option<Program> {
    let path = env::var_os("PATH").unwrap_or_default();
    let local = LOCAL.iter().map(|folder| project.join(folder));
    for folder in local.chain(env::split_paths(&path)) {
        let file = folder.join(name);
        if file.is_file() {
            return Some(Program { file });
        }
    }
    None
}

/// A tool that is missing, failed, or was stopped.
#[derive(Debug, Error)]
pub enum ToolError {
    #[error("{name} is missing. To install {name}:\n  {install}")]
    Missing { name: &'static str, install: String },
    #[error("{} can't be started: {error}", program.display())]
    NotStarted { program: PathBuf, error: std::io::Error },
    #[error("{} failed ({status})", program.display())]
    Failed { program: PathBuf, status: ExitStatus },
    #[error("the build was stopped")]
    Stopped,
}

impl Program {
    pub(crate) fn command(&self, project: &Path) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(project);
        command
    }
}

/// Runs tools, and can stop them.
#[derive(Debug, Default)]
pub struct Console {
    /// The stored output, or `None` if the output goes to stderr.
    kept: Option<Mutex<Vec<u8>>>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    stopped: bool,
    /// The process group of the running tool.
    group: Option<Pid>,
}

/// The most stored bytes of output. Later output is dropped, because the first error comes first.
const MAX_KEPT: usize = 64 * 1024;

const READ_SIZE: usize = 8192;

impl Console {
    /// Makes a console that stores the output of its tools.
    pub fn keeping() -> Self {
        Self { kept: Some(Mutex::default()), ..Self::default() }
    }

    /// Returns the stored output.
    pub fn text(&self) -> String {
        match &self.kept {
            Some(kept) => String::from_utf8_lossy(&lock(kept)).into_owned(),
            None => String::new(),
        }
    }

    /// Ends the running tool and its child processes. Later tools aren't started.
    pub fn stop(&self) {
        let mut running = lock(&self.running);
        running.stopped = true;
        if let Some(group) = running.group {
            // Killing fails only if the processes have already ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    pub(crate) fn run(&self, command: &mut Command) -> Result<(), ToolError> {
        match &self.kept {
            // Stdout is for the command's own result.
            None => run_shown(command, Stdio::from(std::io::stderr())).map(drop),
            Some(kept) => {
                let keep_stdout = true;
                self.run_kept(command, kept, keep_stdout).map(drop)
            }
        }
    }

    /// Works like [`run`](Self::run), but returns stdout.
    pub(crate) fn run_for_output(&self, command: &mut Command) -> Result<Vec<u8>, ToolError> {
        match &self.kept {
            None => run_shown(command, Stdio::piped()),
            Some(kept) => {
                let keep_stdout = false;
                self.run_kept(command, kept, keep_stdout)
            }
        }
    }

    /// Runs a tool, and adds its output to `kept`. If `keep_stdout` is off, returns stdout instead
    /// of adding it.
    fn run_kept(
        &self,
        command: &mut Command,
        kept: &Mutex<Vec<u8>>,
        keep_stdout: bool,
    ) -> Result<Vec<u8>, ToolError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = self.start(command)?;
        let pid = Pid::from_child(&child);
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let mut printed = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Some(stderr) = stderr {
                    keep(stderr, kept);
                }
            });
            match stdout {
                Some(stdout) if keep_stdout => keep(stdout, kept),
                Some(mut stdout) => {
                    let _ = stdout.read_to_end(&mut printed);
                }
                None => {}
            }
        });

        // The process ID stays reserved until `child.wait`, so `stop` can't kill any other process.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}

        let mut running = lock(&self.running);
        running.group = None;
        let status = child.wait();
        let is_stopped = running.stopped;
        drop(running);
        if is_stopped {
            return Err(ToolError::Stopped);
        }
        match status {
            Ok(status) if status.success() => Ok(printed),
            Ok(status) => Err(failed(command, status)),
            Err(error) => Err(not_started(command)(error)),
        }
    }

    /// Starts a tool, unless the console is stopped.
    fn start(&self, command: &mut Command) -> Result<Child, ToolError> {
        let mut running = lock(&self.running);
        if running.stopped {
            return Err(ToolError::Stopped);
        }
        let child = command.spawn().map_err(not_started(command))?;
        running.group = Some(Pid::from_child(&child));
        Ok(child)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a tool's output to its end. Adds the output to `kept`, up to the limit of stored bytes.
fn keep(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut part = [0; READ_SIZE];
    while let Ok(length @ 1..) = from.read(&mut part) {
        let mut kept = lock(kept);
        let free_bytes = MAX_KEPT.saturating_sub(kept.len());
        // The loop goes on after the limit, because a tool blocks while its output isn't read.
        kept.extend_from_slice(&part[..length.min(free_bytes)]);
    }
}

fn run_shown(command: &mut Command, stdout: Stdio) -> Result<Vec<u8>, ToolError> {
    eprintln!("$ {}", neutral_line(&shown(command)));
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::inherit());
    let output = command.output().map_err(not_started(command))?;
    if output.status.success() { Ok(output.stdout) } else { Err(failed(command, output.status)) }
}

fn not_started(command: &Command) -> impl FnOnce(std::io::Error) -> ToolError {
    move |error| ToolError::NotStarted { program: command.get_program().into(), error }
}

fn failed(command: &Command, status: ExitStatus) -> ToolError {
    ToolError::Failed { program: command.get_program().into(), status }
}

/// Returns the command as a line, with the name of the program instead of its path.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = word.chars().all(|c| c.is_alphanumeric() || "-_./=:,+@".contains(c));
    if !word.is_empty() && is_plain {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_the_project_comes_first() {
        let project = tempfile::tempdir().unwrap();
        let bin = project.path().join(".venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        assert_ne!(find(project.path(), "sh").unwrap().file, bin.join("sh"));
        std::fs::write(bin.join("sh"), "").unwrap();
        assert_eq!(find(project.path(), "sh").unwrap().file, bin.join("sh"));
        assert!(find(project.path(), "no-such-program").is_none());
    }

    #[test]
    fn stopped_build_ends_with_all_that_it_started() {
        let (console, folder) = (Console::keeping(), tempfile::tempdir().unwrap());
        let ready = folder.path().join("ready");
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let mut command = Command::new("sh");
                // The program that it starts holds the output open.
                console.run(command.arg("-c").arg(format!(
                    "sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait",
                    ready.display()
                )))
            });
            while !ready.exists() {
                std::thread::yield_now();
            }
            console.stop();
            run.join().unwrap()
        });
        assert_eq!(ran.unwrap_err().to_string(), "the build was stopped");
        let started: i32 = std::fs::read_to_string(&ready).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(started).unwrap();
        // It may stay for a moment until it is reaped; a dead one has no command line.
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
        assert!(line.is_err() || line.is_ok_and(|line| line.is_empty()));
        let again = console.run(&mut Command::new("true"));
        assert_eq!(again.unwrap_err().to_string(), "the build was stopped");
    }

    #[test]
    fn kept_output_is_bounded_and_a_failure_is_one() {
        let console = Console::keeping();
        let mut command = Command::new("sh");
        let ran =
            console.run(command.args(["-c", "echo first; yes | head -c 1000000 >&2; exit 3"]));
        assert!(ran.unwrap_err().to_string().contains("exit status: 3"));
        assert_eq!(console.text().len(), MAX_KEPT);
        let printed = Console::keeping().run_for_output(Command::new("echo").arg("a")).unwrap();
        assert_eq!(printed, b"a\n");
    }

    #[test]
    fn command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/opt/bin/tool");
        command.args(["-o", "a b", "it's", "plain.c"]);
        assert_eq!(shown(&command), r"tool -o 'a b' 'it'\''s' plain.c");
    }
}
