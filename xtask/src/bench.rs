//! `cargo xtask bench`: Berth against what a user would otherwise run, in the same run, in release.

use std::ffi::OsString;
use std::process::Command;

use crate::{Done, cargo, clients, host, step};

pub(crate) fn command(arguments: &[OsString]) -> Done {
    host::build()?;
    step::headline("build berth and the benches in release");
    host::compile_release(&["bench"])?;
    // What the web tools and the filters are measured against: their own code, outside of any
    // sandbox.
    for (package, example) in [("web", "page"), ("filters", "filter")] {
        let mut build = cargo::guests("build");
        step::run(
            &format!("cargo build of the example `{example}`"),
            build.args(["--package", package, "--example", example, "--release"]),
        )?;
    }
    clients::provide()
        .iter()
        .for_each(|(clients, why)| eprintln!("NOT TRIED for want of {clients}: {why}"));
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
