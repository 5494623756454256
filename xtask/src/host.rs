//! Builds the `toolhold` binary with the plugins inside.

use std::path::{Path, PathBuf};

use crate::guests::{self, Guest, Selection};
use crate::{cargo, grammars, machine, step};

/// The program that compiles plugins.
const COMPILER: &str = "toolhold-compile";

/// Builds the plugins, the parts, and `target/debug/toolhold` with the built-in plugins inside.
/// Returns the path of the binary.
pub(crate) fn build() -> Result<PathBuf, String> {
    machine::check()?;
    let plugins = || {
        let guests = guests::build(Selection::All)?;
        grammars::build()?;
        Ok(guests)
    };
    with_plugins(plugins, compile)
}

/// Builds `target/debug/toolhold` with the built-in plugins inside, and neither the plugins of the
/// tests nor the parts. Returns the path of the binary.
pub(crate) fn build_without_parts() -> Result<PathBuf, String> {
    machine::check()?;
    with_plugins(|| guests::build(Selection::BuiltIn), compile)
}

/// The packages that need the plugins, or that the program doesn't need. Each other package has the
/// same features without them, so it is compiled once.
const LATER: [&str; 2] = ["toolhold-builtins", "toolhold-fuzz"];

/// Builds the plugins, their compiler and the libraries of the program, side by side, since each of
/// them alone often leaves a processor idle. Then compiles the plugins, and builds the program with
/// them inside. Returns its path. `build` is cargo with these arguments for the workspace, and
/// returns the folder of the programs.
pub(crate) fn with_plugins(
    plugins: impl FnOnce() -> Result<Vec<Guest>, String> + Send,
    build: impl Fn(&[&str]) -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    let mut first = vec!["--lib", "--bin", COMPILER];
    first.extend(LATER.iter().flat_map(|package| ["--exclude", package]));
    let (guests, folder) = std::thread::scope(|scope| {
        let plugins = scope.spawn(plugins);
        step::headline("build the compiler of plugins, and the libraries of the program");
        let folder = build(&first);
        (plugins.join().expect("building the plugins doesn't panic"), folder)
    });
    let compiler = program(&folder?, COMPILER)?;
    let key = guests::engine_key(&compiler)?;
    for guest in guests?.iter().filter(|guest| !guest.is_current(&key)) {
        step::headline(&format!("compile plugin {} ahead of time", guest.name()));
        guest.install(&compiler, &key)?;
    }
    step::headline("build toolhold");
    program(&build(&["--bin", "toolhold"])?, "toolhold")
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

/// Builds targets of the workspace for development. Returns the folder of its programs.
fn compile(targets: &[&str]) -> Result<PathBuf, String> {
    step::run("cargo build", cargo::host("build").arg("--workspace").args(targets))?;
    Ok(cargo::target().join("debug"))
}

/// The path of a program that cargo has built in a folder.
fn program(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let program = folder.join(name);
    if program.is_file() {
        Ok(program)
    } else {
        Err(format!("cargo didn't build {}", program.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The packages that cargo would compile, each with its features.
    fn packages(excluded: &[&str]) -> BTreeSet<String> {
        let mut tree = cargo::host("tree");
        tree.args(["--offline", "--workspace", "--edges", "normal,build", "--prefix", "none"]);
        tree.args(["--format", "{p} {f}"]);
        tree.args(excluded.iter().flat_map(|package| ["--exclude", package]));
        let output = tree.output().expect("cargo runs");
        let lines = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn both_builds_give_each_package_the_same_features() {
        let first = packages(&LATER);
        assert!(first.len() > 400, "{} packages", first.len());
        let twice: Vec<_> = first.difference(&packages(&[])).cloned().collect();
        assert!(twice.is_empty(), "these would be compiled twice: {twice:?}");
    }
}
