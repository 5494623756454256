//! Puts the built-in plugins, and the attacks of the demo, into the binary: what `cargo xtask plugins` left in `target/plugins`, or in the folder `BERTH_PLUGINS_DIR`.
//!
//! `NAME.wasm` has to be there. `NAME.cwasm`, its code compiled ahead of time, may be missing: it is compiled into the cache at the first
//! use then. With `BERTH_BOOTSTRAP=1` a binary without any plugin is built, which can compile plugins and nothing else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The plugins whose tools everybody gets.
const BUILT_IN: [&str; 1] = ["file"];

/// The attacks of `berth demo`, which says so where they are missing. A stranger's component: loaded there only, and in no way trusted.
const HOSTILE: &str = "hostile";

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
    let plugins = BUILT_IN.iter().filter_map(|name| plugin(&folder, name, bootstrap).transpose()).collect::<Result<String, _>>()?;
    let source = format!(
        "/// The plugins whose tools everybody gets.\npub(crate) static BUILTINS: &[Builtin] = &[{plugins}];\n\
         /// The component that attacks in the demo.\npub(crate) static HOSTILE: Option<&[u8]> = {};\n",
        included(&folder.join(format!("{HOSTILE}.wasm")), "include_bytes!")
    );
    let out = PathBuf::from(variable("OUT_DIR")?).join("builtins.rs");
    fs::write(&out, source).map_err(|error| format!("can't write {}: {error}", out.display()))
}

/// The plugin as an element of the list; `None` where the binary is to do without.
fn plugin(folder: &Path, name: &str, bootstrap: bool) -> Result<Option<String>, String> {
    let [wasm, compiled] = ["wasm", "cwasm"].map(|extension| folder.join(format!("{name}.{extension}")));
    let code = included(&compiled, "aligned!");
    println!("cargo::rerun-if-changed={}", wasm.display());
    if !wasm.exists() {
        let missing = format!("{} is missing: build with `cargo xtask plugins` (or run, demo, test), which makes it", wasm.display());
        return if bootstrap { Ok(None) } else { Err(missing) };
    }
    Ok(Some(format!("Builtin {{ name: {name:?}, wasm: include_bytes!({wasm:?}), compiled: {code} }}, ")))
}

/// The expression for a file that may be missing.
fn included(file: &Path, with: &str) -> String {
    println!("cargo::rerun-if-changed={}", file.display());
    if file.exists() { format!("Some({with}({file:?}))") } else { "None".to_owned() }
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
