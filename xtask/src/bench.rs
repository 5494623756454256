//! `cargo xtask bench`: measures Toolhold and its rivals in the same run, in release builds.

use std::ffi::OsString;
use std::process::Command;

use crate::{CommandResult, cargo, clients, grammars, host, languages, step};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    host::build()?;
    step::headline("build toolhold and the benches in release");
    host::compile_release(&["bench"])?;
    // The parsers of code are compared with the same code outside of any sandbox.
    grammars::build_comparison()?;
    clients::fetch_all(false)
        .iter()
        .for_each(|(clients, why)| eprintln!("NOT TRIED because {clients} is missing: {why}"));
    let toolhold = host::release_folder().join("toolhold");
    languages::build(&toolhold)?
        .iter()
        .for_each(|(language, why)| eprintln!("NOT TRIED in {language}: {why}"));
    step::headline("measure");
    let mut bench = Command::new(host::release_folder().join("bench"));
    let status = bench
        .arg("--repository")
        .arg(cargo::root())
        .args(arguments)
        .status()
        .map_err(|error| step::cannot_start(&bench, &error))?;
    Ok(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1).into())
}
