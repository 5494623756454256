//! `cargo xtask run -- ARGS`: the binary as it stands in the sources.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::{Done, host, passed_on, step};

pub(crate) fn command(arguments: &[OsString]) -> Done {
    let berth = host::build()?;
    become_berth(&berth, passed_on(arguments))
}

/// Runs `berth` in the place of this process, so that signals, the terminal and the exit code are
/// the binary's own.
pub(crate) fn become_berth(berth: &Path, arguments: &[OsString]) -> Done {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    step::headline(&format!("berth {}", shown.join(" ")));
    let mut command = Command::new(berth);
    let error = command.args(arguments).exec();
    Err(step::cannot_start(&command, &error))
}
