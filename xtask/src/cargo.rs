//! The folders of the repository, and the cargo commands for the two workspaces.
//!
//! Host crates are always built with `--workspace`. Cargo unifies features over the packages that
//! are selected, so another selection would compile wasmtime a second time.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The target that plugins are built for.
pub(crate) const WASM: &str = "wasm32-wasip2";

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root")
}

/// The host's build folder: `target`.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// The workspace of the plugins.
pub(crate) fn plugins() -> PathBuf {
    root().join("plugins")
}

/// The folders of the example plugins that are written in Rust.
pub(crate) fn examples() -> Result<Vec<PathBuf>, String> {
    rust_projects("examples")
}

/// The folders of the sample plugins that are written in Rust.
pub(crate) fn samples() -> Result<Vec<PathBuf>, String> {
    rust_projects("samples")
}

fn rust_projects(folder: &str) -> Result<Vec<PathBuf>, String> {
    let folder = plugins().join(folder);
    let entries = std::fs::read_dir(&folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list {}: {error}", folder.display()))?;
    let mut projects: Vec<PathBuf> = entries
        .iter()
        .map(std::fs::DirEntry::path)
        .filter(|path| path.join("Cargo.toml").exists())
        .collect();
    projects.sort();
    Ok(projects)
}

/// `cargo SUBCOMMAND` in the host's workspace.
pub(crate) fn host(subcommand: &str) -> Command {
    cargo(root(), subcommand)
}

/// `cargo SUBCOMMAND` in the plugins' workspace.
pub(crate) fn guests(subcommand: &str) -> Command {
    cargo(&plugins(), subcommand)
}

/// `cargo SUBCOMMAND` in the workspace of the grammars.
pub(crate) fn grammars(subcommand: &str) -> Command {
    cargo(&plugins().join("grammars"), subcommand)
}

/// `cargo SUBCOMMAND` in the workspace of `folder`.
pub(crate) fn cargo(folder: &Path, subcommand: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(folder).arg(subcommand);
    // Each workspace keeps its own target folder, even if the user's environment names another one,
    // because the build of the binary looks for plugins there. Cargo's variables about xtask are
    // removed, because they don't describe the crates that are built.
    command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_BUILD_TARGET_DIR");
    for (name, _) in std::env::vars_os() {
        let about_xtask = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if about_xtask {
            command.env_remove(name);
        }
    }
    command
}
