//! `cargo xtask demo`: builds everything and runs `berth demo`.

use std::ffi::OsString;

use crate::{CommandResult, host, no_arguments, run};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    let berth = host::build()?;
    run::exec_berth(&berth, &["demo".into()])
}
