//! Builds the parts that parse languages into `target/plugins/parts`, one component each. Their
//! parsers are in C. Zig compiles them to WebAssembly, as it does with plugins in C.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::cargo::{self, WASM};
use crate::tidy::manifest::Manifest;
use crate::{clients, guests, step};

/// The folder of the parts, below that of the plugins. A program finds its parts in a folder of
/// this name beside it.
const FOLDER: &str = "parts";

/// The flags with which the parsers are compiled. More functions are inlined than usual, because
/// the parsers call many small ones. Assertions are left out, because the sandbox guards all that
/// they would guard.
const C_FLAGS: &str = "-O3 -DNDEBUG -mllvm -inline-threshold=500";

/// Builds the parts for tests, and puts them where the programs of cargo find them. If the compiler
/// is missing, no parts are built. This isn't an error, because the host reports a missing part
/// when the part is needed.
pub(crate) fn build() -> Result<(), String> {
    let parts = cargo::target().join("plugins").join(FOLDER);
    if let Err(why) = clients::fetch(clients::C_COMPILER) {
        step::headline(&format!("no parts are built, since the C compiler is missing: {why}"));
        return Ok(());
    }
    build_with(&mut cargo::grammars("build"), &cargo::plugins().join("target"), &parts)?;
    for profile in ["debug", "release"] {
        let folder = cargo::target().join(profile);
        let link = folder.join(FOLDER);
        fs::create_dir_all(&folder)
            .map_err(|error| format!("can't link {}: {error}", link.display()))?;
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("../plugins").join(FOLDER), &link)
                .map_err(|error| format!("can't link {}: {error}", link.display()))?;
        }
    }
    Ok(())
}

/// Builds the parts with this command. `target` is its build folder; `folder` is where the parts
/// are put.
pub(crate) fn build_with(
    cargo_build: &mut Command,
    target: &Path,
    folder: &Path,
) -> Result<(), String> {
    step::headline("build the parts");
    let [compiler, archiver] = ["cc", "ar"].map(wrapper);
    cargo_build
        .env(variable("CC"), compiler?)
        .env(variable("AR"), archiver?)
        .env(variable("CFLAGS"), C_FLAGS)
        .args(["--examples", "--release", "--target", WASM, "--target-dir"])
        .arg(target);
    step::run("cargo build of the parts", cargo_build)?;
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    let names = names()?;
    for name in &names {
        let built = target.join(WASM).join("release/examples").join(format!("{name}.wasm"));
        guests::update(&folder.join(format!("{name}.wasm")), &guests::read(&built)?)?;
    }
    // Remove the parts of another version, because the build of the binary would name them.
    for entry in fs::read_dir(folder).map_err(|error| cannot_write(folder, &error))? {
        let path = entry.map_err(|error| cannot_write(folder, &error))?.path();
        if !names.iter().any(|name| path.file_stem() == Some(name.as_ref())) {
            fs::remove_file(&path).map_err(|error| cannot_write(folder, &error))?;
        }
    }
    Ok(())
}

/// The name of a variable for the target.
fn variable(name: &str) -> String {
    format!("{name}_{}", WASM.replace('-', "_"))
}

fn cannot_write(folder: &Path, error: &io::Error) -> String {
    format!("can't write to {}: {error}", folder.display())
}

/// Builds the program that compares the parsers with ctags and measures them, without a sandbox.
/// Returns its path.
pub(crate) fn build_comparison() -> Result<PathBuf, String> {
    step::headline("build the comparison");
    let target = cargo::plugins().join("target");
    let options = ["--release", "--bin", "compare", "--target-dir"];
    let mut build = cargo::grammars("build");
    build.env("CFLAGS", "-O3 -DNDEBUG");
    step::run("cargo build of the comparison", build.args(options).arg(&target))?;
    Ok(target.join("release/compare"))
}

/// The names of the parts, which are the examples of the package.
pub(crate) fn names() -> Result<Vec<String>, String> {
    let manifest = guests::read(&cargo::plugins().join("grammars/Cargo.toml"))?;
    let manifest = String::from_utf8_lossy(&manifest).into_owned();
    let examples = manifest.split("[[example]]").skip(1);
    examples
        .map(|example| {
            Manifest::parse(example)
                .string("", "name")
                .ok_or_else(|| "an example in plugins/grammars/Cargo.toml has no name".to_owned())
        })
        .collect()
}

/// Writes a script that runs a tool of zig, and returns the script's path. The script removes the
/// option `--target`, because zig doesn't know Rust's name of the target.
fn wrapper(tool: &str) -> Result<PathBuf, String> {
    // The C compiler is zig, from a Python package.
    let zig = clients::folder(clients::C_COMPILER).join("bin/python-zig");
    let path = cargo::target().join(format!("zig-{tool}"));
    let target = if tool == "cc" { "-target wasm32-wasi " } else { "" };
    // The loop takes each word from the front of the arguments, and puts it back at their end
    // unless it is `--target`.
    let script = format!(
        "#!/bin/sh\n\
         for word in \"$@\"; do\n\
         \x20   shift\n\
         \x20   case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\n\
         done\n\
         exec '{}' {tool} {target}\"$@\"\n",
        zig.display()
    );
    guests::update(&path, script.as_bytes())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("can't write {}: {error}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn every_part_has_a_source() {
        let names = names().expect("the manifest is readable");
        assert_eq!(names.len(), 13);
        for name in names {
            let source = crate::cargo::plugins().join(format!("grammars/parts/{name}.rs"));
            assert!(source.exists(), "{}", source.display());
        }
    }
}
