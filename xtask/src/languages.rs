//! Builds the example plugin of each language into `target/plugins/languages`, for the benches,
//! with the language's own compiler, as readers of the example do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{self, WASM};
use crate::step;

/// The folder of the components.
fn folder() -> PathBuf {
    cargo::target().join("plugins/languages")
}

/// Builds every example. Returns the languages that this machine can't build, and why.
pub(crate) fn build(toolhold: &Path) -> Result<Vec<(String, String)>, String> {
    fs::create_dir_all(folder())
        .map_err(|error| format!("can't create {}: {error}", folder().display()))?;
    let examples = cargo::plugins().join("examples");
    let mut missing = Vec::new();
    for name in subfolders(&examples)? {
        let example = examples.join(&name);
        let built = if example.join("plugin.toml").exists() {
            with_toolhold(toolhold, &name)
        } else {
            with_cargo(&example)
        };
        let installed = folder().join(format!("{name}.wasm"));
        // Remove an old component, because it would be measured if this build failed.
        let _ = fs::remove_file(&installed);
        match built {
            Ok(component) => fs::copy(&component, &installed)
                .map(drop)
                .map_err(|error| format!("can't copy {}: {error}", component.display()))?,
            Err(why) => missing.push((name, why)),
        }
    }
    Ok(missing)
}

/// An example in Rust, in the build folder that has its dependencies.
fn with_cargo(example: &Path) -> Result<PathBuf, String> {
    let target = cargo::plugins().join("target");
    let mut build = cargo::cargo(example, "build");
    step::run(
        "cargo build of the example",
        build.args(["--release", "--target", WASM, "--target-dir"]).arg(&target),
    )?;
    Ok(target.join(WASM).join("release/word_count.wasm"))
}

/// An example in another language, as `toolhold plugin new` writes it, with the compilers that the
/// tests use too.
fn with_toolhold(toolhold: &Path, language: &str) -> Result<PathBuf, String> {
    let project = cargo::target().join("languages").join(language);
    if project.exists() {
        fs::remove_dir_all(&project)
            .map_err(|error| format!("can't remove {}: {error}", project.display()))?;
    }
    let mut new = Command::new(toolhold);
    new.args(["plugin", "new", "word-count", "--lang", language, "--dir"]).arg(&project);
    step::run("toolhold plugin new", &mut new)?;
    let clients = cargo::target().join("clients");
    let compilers = [
        "plugins-python/bin",
        "plugins-javascript/node_modules/.bin",
        "plugins-c/bin",
        "plugins-go/bin",
    ];
    let mut path = compilers.map(|folder| clients.join(folder).into_os_string()).join(":".as_ref());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut build = Command::new(toolhold);
    step::run(
        &format!("toolhold plugin build {}", project.display()),
        build.args(["plugin", "build"]).arg(&project).env("PATH", path),
    )?;
    Ok(project.join("word-count.wasm"))
}

fn subfolders(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .iter()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_what_builds_it() {
        let examples = cargo::plugins().join("examples");
        let names = subfolders(&examples).expect("there are examples");
        for language in ["javascript", "python", "rust"] {
            assert!(names.iter().any(|name| name == language), "{names:?}");
        }
        for name in names {
            let has = |file: &str| examples.join(&name).join(file).exists();
            assert!(has("plugin.toml") || has("Cargo.toml"), "{name}");
        }
    }
}
