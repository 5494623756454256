//! `cargo xtask demo`: builds everything and shows it.

use std::ffi::OsString;

use crate::{Done, host, no_arguments, run};

pub(crate) fn command(arguments: &[OsString]) -> Done {
    no_arguments(arguments)?;
    let berth = host::build()?;
    run::become_berth(&berth, &["demo".into()])
}
