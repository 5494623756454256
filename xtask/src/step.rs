//! Progress messages of a chore. They go to stderr, because stdout belongs to the programs that the
//! chore runs.

use std::io::IsTerminal;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

/// Prints the step that starts, and the seconds since the chore began.
pub(crate) fn headline(what: &str) {
    let line = format!("[{:>6.1} s] {what}", started().elapsed().as_secs_f64());
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        eprintln!("\x1b[1m{line}\x1b[0m");
    } else {
        eprintln!("{line}");
    }
}

/// Runs a command with this process's own stdin, stdout and stderr, and waits for its end. `what`
/// names it in the error if it fails.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})")) }
}

/// The message for a program that didn't start.
pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("{} can't be started: {error}", command.get_program().display())
}

fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}
