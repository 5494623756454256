//! `cargo xtask plugins`: builds the plugins into `target/plugins`, as components and as compiled
//! code.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{CommandResult, cargo, host, no_arguments, step};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    host::build()?;
    step::headline(&format!("the plugins are in {}", cargo::target().join("plugins").display()));
    Ok(ExitCode::SUCCESS)
}
