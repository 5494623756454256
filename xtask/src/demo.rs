//! `cargo xtask demo`: builds the program and runs `toolhold demo`.

use std::ffi::OsString;

use crate::{CommandResult, host, no_arguments, run};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    let toolhold = host::build_without_parts()?;
    run::exec_toolhold(&toolhold, &["demo".into()])
}
