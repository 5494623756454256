//! Builds the `berth` binary with the plugins inside.

use std::path::{Path, PathBuf};

use crate::plugins::{self, Guest};
use crate::{cargo, machine, step};

/// Builds the plugins and `target/debug/berth` that carries them, and returns its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    machine::check()?;
    with_plugins(&plugins::build()?, compile)
}

/// Has the binary built by `compile` with these plugins and their compiled code inside, and returns
/// its path.
///
/// The binary compiles its own plugins ahead of time, so there are two builds. The first has no
/// compiled code to carry on a fresh clone; the second runs only when there is new one. A binary
/// whose sources and plugins haven't changed costs one look by cargo.
pub(crate) fn with_plugins(
    guests: &[Guest],
    compile: impl Fn() -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    for guest in guests {
        guest.provide()?;
    }
    step::headline("build berth");
    let berth = compile()?;
    let key = plugins::engine_key(&berth)?;
    let stale: Vec<&Guest> = guests.iter().filter(|guest| !guest.is_current(&key)).collect();
    if stale.is_empty() {
        return Ok(berth);
    }
    for guest in stale {
        step::headline(&format!("compile plugin {} ahead of time", guest.name()));
        guest.install(&berth, &key)?;
    }
    step::headline("build berth with its plugins");
    compile()
}

/// Where the release binary lies once `compile_release` has run.
pub(crate) fn release_folder() -> PathBuf {
    cargo::target().join("release")
}

/// Builds the release binary, which carries what [`build`] has left, and whatever else is named.
pub(crate) fn compile_release(also: &[&str]) -> Result<(), String> {
    let mut build = cargo::host("build");
    build.args(["--workspace", "--release", "--bin", "berth"]);
    for binary in also {
        build.args(["--bin", binary]);
    }
    step::run("cargo build --release", &mut build)
}

fn compile() -> Result<PathBuf, String> {
    step::run("cargo build", cargo::host("build").args(["--workspace", "--bin", "berth"]))?;
    let berth = cargo::target().join("debug/berth");
    existing(&berth)?;
    Ok(berth)
}

/// Refuses a build that left no binary.
pub(crate) fn existing(binary: &Path) -> Result<(), String> {
    if binary.is_file() { Ok(()) } else { Err(format!("cargo built no {}", binary.display())) }
}
