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
    with_plugins(&guests, compile)
}

/// Builds `target/debug/toolhold` with the built-in plugins inside, and neither the plugins of the
/// tests nor the parts. Returns the path of the binary.
pub(crate) fn build_without_parts() -> Result<PathBuf, String> {
    machine::check()?;
    with_plugins(&guests::build(Selection::BuiltIn)?, compile)
}

/// Builds the binary with `compile`, with these plugins and their compiled code inside. Returns its
/// path.
///
/// The binary compiles its own plugins ahead of time, so there are two builds. On a fresh clone,
/// the first build has no compiled code inside. The second build only runs if there is new compiled
/// code. If neither the sources nor the plugins have changed, cargo is called once and builds
/// nothing.
pub(crate) fn with_plugins(
    guests: &[Guest],
    compile: impl Fn() -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    for guest in guests {
        guest.ensure_component()?;
    }
    step::headline("build toolhold");
    let toolhold = compile()?;
    let key = guests::engine_key(&toolhold)?;
    let stale: Vec<&Guest> = guests.iter().filter(|guest| !guest.is_current(&key)).collect();
    if stale.is_empty() {
        return Ok(toolhold);
    }
    for guest in stale {
        step::headline(&format!("compile plugin {} ahead of time", guest.name()));
        guest.install(&toolhold, &key)?;
    }
    step::headline("build toolhold with its plugins");
    compile()
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

fn compile() -> Result<PathBuf, String> {
    step::run("cargo build", cargo::host("build").args(["--workspace", "--bin", "toolhold"]))?;
    let toolhold = cargo::target().join("debug/toolhold");
    check_exists(&toolhold)?;
    Ok(toolhold)
}

/// Fails if the build left no binary.
pub(crate) fn check_exists(binary: &Path) -> Result<(), String> {
    if binary.is_file() { Ok(()) } else { Err(format!("cargo didn't build {}", binary.display())) }
}
