//! Embeds the built-in plugins, and the attacks of the demo, in the program.
//!
//! The plugins come from `target/plugins` or from the folder `TOOLHOLD_PLUGINS_DIR`. `cargo xtask
//! plugins` builds them. `NAME.wasm` is a component, and `NAME.cwasm` is its compiled code. All
//! files have much in common, so they are compressed against the file of one plugin.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sha2::{Digest, Sha256};

/// The plugins that are loaded by default.
const BUILT_IN: [&str; 8] =
    ["file", "shell", "web", "filters", "memory", "code", "diagnostics", "scheduler"];

/// The untrusted component of `toolhold demo`.
const HOSTILE: &str = "hostile";

/// The plugin whose files are the base for compression. All plugins contain the SDK and the
/// standard library.
const BASE: &str = "file";

/// Size of the compression window as a power of two. The window must contain a file and its base.
const WINDOW_LOG: u32 = 24;

/// Compression levels. The release level saves a tenth of the size, but needs ten seconds.
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

/// Compresses the plugins, and writes the Rust code that embeds them.
fn generate() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TOOLHOLD_PLUGINS_DIR");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let folder = plugins_folder()?;
    let base_component = read(&folder, BASE, "wasm")?;
    let base_code = read(&folder, BASE, "cwasm")?;
    let mut plugins = String::new();
    for name in BUILT_IN {
        let component = read(&folder, name, "wasm")?;
        let digest = hex_digest(&component);
        let wasm = compress(&component, &base_component, out.join(format!("{name}.wasm.zst")))?;
        let code = read(&folder, name, "cwasm")?;
        let cwasm = compress(&code, &base_code, out.join(format!("{name}.cwasm.zst")))?;
        plugins += &format!(
            "Builtin {{ name: {name:?}, wasm: component(include_bytes!({wasm:?})), digest: Some({digest:?}), parts: PARTS, compiled: compiled(include_bytes!({cwasm:?})) }}, "
        );
    }
    let hostile = read(&folder, HOSTILE, "wasm")?;
    let hostile_wasm = compress(&hostile, &base_component, out.join("hostile.wasm.zst"))?;

    let base_component = compress(&base_component, &[], out.join("base.wasm.zst"))?;
    let base_code = compress(&base_code, &[], out.join("base.cwasm.zst"))?;
    let parts = list_parts(&folder)?;
    let source = format!(
        "static BASE_COMPONENT: &[u8] = include_bytes!({base_component:?});\n\
         static BASE_CODE: &[u8] = include_bytes!({base_code:?});\n\
         static BUILTINS: &[Builtin] = &[{plugins}];\n\
         static PARTS: &[(&str, &str)] = &[{parts}];\n\
         const HOSTILE: EmbeddedFile = component(include_bytes!({hostile_wasm:?}));\n",
    );
    write(&out.join("builtins.rs"), source.as_bytes())
}

/// Compresses a file against the file `base`, which the program also needs to decompress it.
fn compress(file: &[u8], base: &[u8], path: PathBuf) -> Result<PathBuf, String> {
    let is_release = variable("PROFILE")? == "release";
    let level = if is_release { LEVEL } else { LEVEL_OF_DEVELOPMENT };
    let compressed = compress_against(base, file, level)
        .map_err(|error| format!("can't compress {}: {error}", path.display()))?;
    write(&path, &compressed)?;
    Ok(path)
}

fn compress_against(base: &[u8], file: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    let mut zstd = zstd::Encoder::with_ref_prefix(Vec::new(), level, base)?;
    zstd.window_log(WINDOW_LOG)?;
    // The program allocates memory for a file of this size.
    zstd.set_pledged_src_size(Some(file.len() as u64))?;
    zstd.write_all(file)?;
    zstd.finish()
}

/// Reads a file of a plugin. A change of the file starts this script again.
fn read(folder: &Path, name: &str, kind: &str) -> Result<Vec<u8>, String> {
    let file = folder.join(format!("{name}.{kind}"));
    println!("cargo::rerun-if-changed={}", file.display());
    fs::read(&file).map_err(|error| {
        format!(
            "{}: {error}. `cargo xtask install` builds and installs Toolhold with its plugins; `cargo xtask plugins` makes the plugins alone",
            file.display()
        )
    })
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(file, bytes).map_err(|error| format!("can't write {}: {error}", file.display()))
}

/// Lists the names and digests in the folder `parts`, as Rust code. The program loads a part only
/// if its file has this digest. The list is empty if the folder is missing.
fn list_parts(folder: &Path) -> Result<String, String> {
    let folder = folder.join("parts");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = match list(&folder) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("can't list {}: {error}", folder.display())),
    };
    files.retain(|file| file.extension() == Some(OsStr::new("wasm")));
    files.sort();
    files.iter().map(|file| describe_part(file)).collect()
}

fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn describe_part(file: &Path) -> Result<String, String> {
    let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("({name:?}, {:?}), ", hex_digest(&bytes)))
}

fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plugins_folder() -> Result<PathBuf, String> {
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
