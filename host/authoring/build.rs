//! Puts the contract's WIT, the SDKs and the example plugins into the program, so that they fit it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The lists of files: a name, and the folder below the repository.
const FOLDERS: [(&str, &str); 11] = [
    ("WIT", "wit"),
    ("SDK_RUST", "plugins/sdk"),
    ("SDK_PYTHON", "plugins/sdk-python"),
    ("SDK_JAVASCRIPT", "plugins/sdk-javascript"),
    ("SDK_C", "plugins/sdk-c"),
    ("SDK_GO", "plugins/sdk-go"),
    ("EXAMPLE_RUST", "plugins/examples/rust"),
    ("EXAMPLE_PYTHON", "plugins/examples/python"),
    ("EXAMPLE_JAVASCRIPT", "plugins/examples/javascript"),
    ("EXAMPLE_C", "plugins/examples/c"),
    ("EXAMPLE_GO", "plugins/examples/go"),
];

/// Files and folders that are left out, wherever they are: what tools have made, what authors don't
/// need, and the list of released items of the contract.
const LEFT_OUT: [&str; 7] =
    ["target", "build", "node_modules", "__pycache__", ".venv", "released", "tests"];

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
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = package.ancestors().nth(2).ok_or("the package lies outside the workspace")?;
    let mut source = String::new();
    for (name, folder) in FOLDERS {
        let mut files = Vec::new();
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, "", &mut files)?;
        let _ = writeln!(source, "pub(crate) static {name}: &[File] = &[");
        for (path, file) in files {
            let _ = writeln!(source, "File {{ path: {path:?}, bytes: include_bytes!({file:?}) }},");
        }
        source.push_str("];\n");
    }
    let workspace = root.join("plugins/Cargo.toml");
    println!("cargo::rerun-if-changed={}", workspace.display());
    let _ = writeln!(source, "pub(crate) static WORKSPACE: &str = include_str!({workspace:?});");
    let out = PathBuf::from(variable("OUT_DIR")?).join("files.rs");
    fs::write(&out, source).map_err(|error| format!("can't write {}: {error}", out.display()))
}

/// The files of a folder, sorted, each with its path below the folder. Links are followed: the SDK
/// has the contract by links.
fn collect(folder: &Path, below: &str, files: &mut Vec<(String, PathBuf)>) -> Result<(), String> {
    let failed = |error| format!("can't read {}: {error}", folder.display());
    let mut entries: Vec<_> =
        fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name =
            entry.file_name().into_string().map_err(|name| format!("{name:?} isn't UTF-8"))?;
        if LEFT_OUT.contains(&&*name) || name.ends_with(".wasm") {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.path().is_dir() {
            collect(&entry.path(), &path, files)?;
        } else {
            files.push((path, entry.path()));
        }
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
