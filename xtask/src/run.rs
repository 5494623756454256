//! `cargo xtask run -- ARGS`: builds the binary from the sources and runs it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::{CommandResult, forwarded, host, step};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    let toolhold = host::build()?;
    exec_toolhold(&toolhold, forwarded(arguments))
}

/// Replaces this process with `toolhold`, so that `toolhold` gets the signals and the terminal, and
/// sets the exit code.
pub(crate) fn exec_toolhold(toolhold: &Path, arguments: &[OsString]) -> CommandResult {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    step::headline(&format!("toolhold {}", shown.join(" ")));
    let mut command = Command::new(toolhold);
    let error = command.args(arguments).exec();
    Err(step::cannot_start(&command, &error))
}
