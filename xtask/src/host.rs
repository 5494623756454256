//! Builds the `toolhold` binary with the plugins inside.

use std::path::{Path, PathBuf};

use crate::guests::{self, Guest, Selection};
use crate::{cargo, grammars, machine, step};

/// Builds the plugins, the parts, and `target/debug/toolhold` with the built-in plugins inside.
/// Returns the path of the binary.
pub(crate) fn build() -> Result<PathBuf, String> {
    machine::check()?;
    let guests = guests::build(Selection::All)?;
    grammars::build()?;
    with_plugins(&guests, compile_binary)
}

/// Builds `target/debug/toolhold` with the built-in plugins inside, and neither the plugins of the
/// tests nor the parts. Returns the path of the binary.
pub(crate) fn build_without_parts() -> Result<PathBuf, String> {
    machine::check()?;
    with_plugins(&guests::build(Selection::BuiltIn)?, compile_binary)
}

/// Builds the compiler with `build`, compiles these plugins, and builds the binary with them inside.
/// Returns its path. `build` gets the name of a binary and returns its path.
pub(crate) fn with_plugins(
    guests: &[Guest],
    build: impl Fn(&str) -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    step::headline("build the compiler of plugins");
    let compiler = build("toolhold-compile")?;
    let key = guests::engine_key(&compiler)?;
    for guest in guests.iter().filter(|guest| !guest.is_current(&key)) {
        step::headline(&format!("compile plugin {} ahead of time", guest.name()));
        guest.install(&compiler, &key)?;
    }
    step::headline("build toolhold");
    build("toolhold")
}

/// The folder of the release binary, which `compile_release` builds.
pub(crate) fn release_folder() -> PathBuf {
    cargo::target().join("release")
}

/// Builds the release binary with the plugins that [`build`] has compiled, and the binaries in
/// `also`.
pub(crate) fn compile_release(also: &[&str]) -> Result<(), String> {
    let mut build = cargo::host("build");
    build.args(["--workspace", "--release", "--bin", "toolhold"]);
    for binary in also {
        build.args(["--bin", binary]);
    }
    step::run("cargo build --release", &mut build)
}

/// Builds a binary of the workspace for development. Returns its path.
fn compile_binary(name: &str) -> Result<PathBuf, String> {
    step::run("cargo build", cargo::host("build").args(["--workspace", "--bin", name]))?;
    let binary = cargo::target().join("debug").join(name);
    check_exists(&binary)?;
    Ok(binary)
}

/// Fails if the build left no binary.
pub(crate) fn check_exists(binary: &Path) -> Result<(), String> {
    if binary.is_file() { Ok(()) } else { Err(format!("cargo didn't build {}", binary.display())) }
}
