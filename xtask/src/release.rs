//! `cargo xtask release KEY INPUT OUTPUT`: brings the files together that `cargo xtask dist` made on
//! each kind of machine, each in a folder in INPUT, and adds what a release has once. KEY is the
//! file of the public key that the release will be signed with.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{CommandResult, dist, step};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    let [key, input, output] = arguments else {
        return Err("usage: cargo xtask release KEY INPUT OUTPUT".to_owned());
    };
    let repository = dist::repository()?.ok_or(
        "Cargo.toml doesn't say where the release will be: \
         add `repository = \"https://github.com/OWNER/NAME\"` to [workspace.package]",
    )?;
    std::fs::create_dir_all(output)
        .map_err(|error| format!("can't create {}: {error}", output.display()))?;
    let mut make = dist::packaging("release");
    make.args([dist::version()?, repository]);
    make.arg(absolute(key)?).arg(absolute(input)?).arg(absolute(output)?);
    step::run("toolhold-packaging", &mut make)?;
    Ok(ExitCode::SUCCESS)
}

/// The absolute path for a program that cargo runs in the root of the repository.
fn absolute(path: &OsStr) -> Result<PathBuf, String> {
    std::path::absolute(Path::new(path))
        .map_err(|error| format!("can't use {}: {error}", path.display()))
}
