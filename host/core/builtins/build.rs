//! Puts the built-in plugins, and the attacks of the demo, into the program.
//!
//! They come from `target/plugins`, where `cargo xtask plugins` writes them, or from the folder
//! `TOOLHOLD_PLUGINS_DIR`. There, `NAME.wasm` is a component and `NAME.cwasm` its compiled code. Both
//! are compressed; the program unpacks the code into its cache, once.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sha2::{Digest, Sha256};

/// The plugins whose tools every user gets.
const BUILT_IN: [&str; 8] =
    ["file", "shell", "web", "filters", "memory", "code", "diagnostics", "scheduler"];

/// The attacks of `toolhold demo`, an untrusted component that only the demo loads.
const HOSTILE: &str = "hostile";

/// The level of compression in a release, where it saves a tenth, and while Toolhold is developed,
/// where nobody waits ten seconds for that.
const LEVEL: i32 = 19;
const LEVEL_OF_DEVELOPMENT: i32 = 3;

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
    println!("cargo::rerun-if-env-changed=TOOLHOLD_PLUGINS_DIR");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let folder = folder()?;
    let plugins =
        BUILT_IN.iter().map(|name| plugin(&folder, &out, name)).collect::<Result<String, _>>()?;
    let parts = parts(&folder)?;
    let hostile = folder.join(format!("{HOSTILE}.wasm"));
    let source = format!(
        "static BUILTINS: &[Builtin] = &[{plugins}];\n\
         static PARTS: &[(&str, &str)] = &[{parts}];\n\
         static HOSTILE: &[u8] = include_bytes!({hostile:?});\n",
    );
    let file = out.join("builtins.rs");
    fs::write(&file, source).map_err(|error| format!("can't write {}: {error}", file.display()))
}

/// The plugin as an element of the list.
fn plugin(folder: &Path, out: &Path, name: &str) -> Result<String, String> {
    let read = |file: &str| {
        let file = folder.join(file);
        println!("cargo::rerun-if-changed={}", file.display());
        fs::read(&file).map_err(|error| {
            format!(
                "{}: {error}. `cargo xtask install` builds and installs Toolhold with its plugins; `cargo xtask plugins` makes the plugins alone",
                file.display()
            )
        })
    };
    let [component, compiled] = [format!("{name}.wasm"), format!("{name}.cwasm")];
    let bytes = read(&component)?;
    let digest = digest(&bytes);
    let component = pack(&bytes, out.join(format!("{component}.zst")))?;
    let compiled = pack(&read(&compiled)?, out.join(format!("{compiled}.zst")))?;
    Ok(format!(
        "Builtin {{ name: {name:?}, wasm: include_bytes!({component:?}), digest: Some({digest:?}), parts: PARTS, compiled: Some(precompiled!({compiled:?})) }}, "
    ))
}

/// Compresses bytes into a file.
fn pack(bytes: &[u8], file: PathBuf) -> Result<PathBuf, String> {
    let is_release = variable("PROFILE")? == "release";
    let level = if is_release { LEVEL } else { LEVEL_OF_DEVELOPMENT };
    zstd::bulk::compress(bytes, level)
        .and_then(|bytes| fs::write(&file, bytes))
        .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    Ok(file)
}

/// The parts in the folder `parts`, by their names and digests. The program finds their files
/// beside it, and only those with these digests run. A build without them has none.
fn parts(folder: &Path) -> Result<String, String> {
    let folder = folder.join("parts");
    println!("cargo::rerun-if-changed={}", folder.display());
    let failed = |error: std::io::Error| format!("can't list {}: {error}", folder.display());
    let mut files = match fs::read_dir(&folder) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed(error)),
    };
    files.retain(|file| file.extension() == Some(OsStr::new("wasm")));
    files.sort();
    let part = |file: &PathBuf| {
        let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("({name:?}, {:?}), ", digest(&bytes)))
    };
    files.iter().map(part).collect()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The folder of the plugins.
fn folder() -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("TOOLHOLD_PLUGINS_DIR") {
        return std::path::absolute(folder)
            .map_err(|error| format!("TOOLHOLD_PLUGINS_DIR: {error}"));
    }
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(3).ok_or("the package lies outside the workspace")?;
    Ok(workspace.join("target/plugins"))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
