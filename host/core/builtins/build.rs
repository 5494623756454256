//! Puts the built-in plugins, and the attacks of the demo, into the program.
//!
//! They come from `target/plugins`, where `cargo xtask plugins` writes them, or from the folder
//! `TOOLHOLD_PLUGINS_DIR`. There, `NAME.wasm` is a component and `NAME.cwasm` its precompiled code,
//! which may be missing: then it is compiled into the cache at the first use. If no such folder
//! exists, as with `cargo install --path host/cli/toolhold`, this script builds the components.
//!
//! Components are compressed: code that was compiled ahead runs without them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use sha2::{Digest, Sha256};

/// The plugins whose tools every user gets.
const BUILT_IN: [&str; 8] =
    ["file", "shell", "web", "filters", "memory", "code", "diagnostics", "scheduler"];

/// The attacks of `toolhold demo`, which says so if they are missing. An untrusted component that
/// only the demo loads.
const HOSTILE: &str = "hostile";

/// The level of compression. Higher ones take much longer and hardly save more.
const LEVEL: i32 = 9;

/// The target that plugins are built for.
const WASM: &str = "wasm32-wasip2";

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
    let folder = folder(&out)?;
    let plugins =
        BUILT_IN.iter().map(|name| plugin(&folder, &out, name)).collect::<Result<String, _>>()?;
    let parts = parts(&folder)?;
    let hostile = folder.join(format!("{HOSTILE}.wasm"));
    let hostile = included(&hostile, "include_bytes!");
    let source = format!(
        "static BUILTINS: &[Builtin] = &[{plugins}];\n\
         static PARTS: &[(&str, &str)] = &[{parts}];\n\
         static HOSTILE: Option<&[u8]> = {hostile};\n",
    );
    let file = out.join("builtins.rs");
    fs::write(&file, source).map_err(|error| format!("can't write {}: {error}", file.display()))
}

/// The plugin as an element of the list.
fn plugin(folder: &Path, out: &Path, name: &str) -> Result<String, String> {
    let [wasm, compiled] =
        ["wasm", "cwasm"].map(|extension| folder.join(format!("{name}.{extension}")));
    let code = included(&compiled, "precompiled!");
    println!("cargo::rerun-if-changed={}", wasm.display());
    if !wasm.exists() {
        return Err(format!(
            "{} is missing: `cargo xtask plugins` makes it in target/plugins",
            wasm.display()
        ));
    }
    let bytes = fs::read(&wasm).map_err(|error| format!("{}: {error}", wasm.display()))?;
    let digest = digest(&bytes);
    let packed = out.join(format!("{name}.wasm.zst"));
    zstd::bulk::compress(&bytes, LEVEL)
        .and_then(|bytes| fs::write(&packed, bytes))
        .map_err(|error| format!("can't write {}: {error}", packed.display()))?;
    Ok(format!(
        "Builtin {{ name: {name:?}, wasm: include_bytes!({packed:?}), digest: Some({digest:?}), parts: PARTS, compiled: {code} }}, "
    ))
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

/// The expression for an optional file.
fn included(file: &Path, with: &str) -> String {
    println!("cargo::rerun-if-changed={}", file.display());
    if file.exists() { format!("Some({with}({file:?}))") } else { "None".to_owned() }
}

/// The folder of the plugins. Builds them if they don't exist.
fn folder(out: &Path) -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os("TOOLHOLD_PLUGINS_DIR") {
        return std::path::absolute(folder)
            .map_err(|error| format!("TOOLHOLD_PLUGINS_DIR: {error}"));
    }
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = package.ancestors().nth(3).ok_or("the package lies outside the workspace")?;
    let made = workspace.join("target/plugins");
    if BUILT_IN.iter().all(|name| made.join(format!("{name}.wasm")).exists()) {
        Ok(made)
    } else {
        build(workspace, &made, out)
    }
}

/// Builds the components in this script's own target folder and returns that.
fn build(workspace: &Path, awaited: &Path, out: &Path) -> Result<PathBuf, String> {
    // This path doesn't exist, so the script runs whenever cargo does, and cargo checks the
    // plugins' sources itself.
    println!("cargo::rerun-if-changed={}", awaited.display());
    let target = out.join("plugins");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace.join("plugins"))
        .args(["build", "--locked", "--release", "--lib", "--target", WASM, "--target-dir"])
        .arg(&target);
    for name in BUILT_IN.iter().chain([&HOSTILE]) {
        cargo.args(["--package", name]);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| is_about_this_build(name)) {
        cargo.env_remove(name);
    }
    let answer = cargo.output().map_err(|error| format!("cargo can't be started: {error}"))?;
    if !answer.status.success() {
        let told = String::from_utf8_lossy(&answer.stderr).into_owned();
        // One message on one line, as cargo requires.
        let first = told.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed");
        eprintln!("{told}");
        return Err(format!(
            "the built-in plugins can't be built: {first} (if {WASM} is missing: rustup target add {WASM})"
        ));
    }
    Ok(target.join(WASM).join("release"))
}

/// Whether a variable changes how the binary is built, which isn't how plugins are. Variables that
/// tell cargo where crates are stay.
fn is_about_this_build(name: &OsStr) -> bool {
    const STAYS: [&str; 5] =
        ["CARGO_HOME", "CARGO_HTTP_", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_REGISTR"];
    let name = name.to_string_lossy();
    let about = ["CARGO_", "RUSTC_", "RUSTFLAGS", "RUSTDOCFLAGS"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    about && !STAYS.iter().any(|prefix| name.starts_with(prefix))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
