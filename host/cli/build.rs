//! Puts the built-in plugins into the binary: what `cargo xtask plugins` left in `target/plugins`, or in the folder `BERTH_PLUGINS_DIR`.
//!
//! `NAME.wasm` has to be there. `NAME.cwasm`, its code compiled ahead of time, may be missing: it is compiled into the cache at the first
//! use then. With `BERTH_BOOTSTRAP=1` a binary without any plugin is built, which can compile plugins and nothing else.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The plugins whose tools everybody gets.
const BUILT_IN: [&str; 1] = ["file"];

/// The attacks of `berth demo`, which says so where they are missing. Their tools are offered there only.
const DEMO: [&str; 1] = ["hostile"];

fn main() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn generate() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=BERTH_PLUGINS_DIR");
    println!("cargo::rerun-if-env-changed=BERTH_BOOTSTRAP");
    let bootstrap = env::var_os("BERTH_BOOTSTRAP").is_some_and(|value| value == "1");
    let folder = folder()?;
    let lists = [("BUILTINS", "Always there.", &BUILT_IN, !bootstrap), ("DEMO", "Only in `berth demo`.", &DEMO, false)];
    let mut source = String::new();
    for (list, doc, names, required) in lists {
        let plugins = names.iter().filter_map(|name| plugin(&folder, name, required).transpose()).collect::<Result<String, _>>()?;
        writeln!(source, "/// {doc}\npub(crate) static {list}: &[Builtin] = &[{plugins}];").map_err(|error| error.to_string())?;
    }
    let out = PathBuf::from(variable("OUT_DIR")?).join("builtins.rs");
    fs::write(&out, source).map_err(|error| format!("can't write {}: {error}", out.display()))
}

/// The plugin as an element of the list; `None` where the binary is to do without.
fn plugin(folder: &Path, name: &str, required: bool) -> Result<Option<String>, String> {
    let [wasm, compiled] = ["wasm", "cwasm"].map(|extension| folder.join(format!("{name}.{extension}")));
    for file in [&wasm, &compiled] {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    if !wasm.exists() {
        let missing = format!("{} is missing: build with `cargo xtask plugins` (or run, demo, test), which makes it", wasm.display());
        return if required { Err(missing) } else { Ok(None) };
    }
    let compiled = if compiled.exists() { format!("Some(aligned!({compiled:?}))") } else { "None".to_owned() };
    Ok(Some(format!("Builtin {{ name: {name:?}, wasm: include_bytes!({wasm:?}), compiled: {compiled} }}, ")))
}

fn folder() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("BERTH_PLUGINS_DIR") {
        return std::path::absolute(folder).map_err(|error| format!("BERTH_PLUGINS_DIR: {error}"));
    }
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(2).ok_or("the package lies outside the workspace")?;
    Ok(workspace.join("target/plugins"))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
