//! Puts the contract's WIT, the SDKs and the example plugins into the program. Generates the
//! bindings of the SDKs for C and Go.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wit_bindgen_core::{Files, WorldGenerator};
use wit_parser::{PackageName, Resolve, WorldId};

/// The name of each list, and its folder in the repository.
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

/// The names of files and folders that are left out: outputs of tools, tests, and the released
/// items of the contract.
const LEFT_OUT: [&str; 7] =
    ["target", "build", "node_modules", "__pycache__", ".venv", "released", "tests"];

/// Packages of the contract that only other packages use, each after the packages that it uses.
const USED: [&str; 3] = ["deps/io", "deps/clocks", "tool"];

/// Packages whose interfaces a plugin may import. The compiler removes unused imports.
const IMPORTED: [&str; 2] = ["deps/http", "host"];

/// Parts of the names of interfaces for which the SDK for C has no bindings.
const NOT_IN_C: [&str; 2] = ["wasi:http/", "toolhold:host/secrets@"];

/// Strings in the generated Go code, each with its replacement: the SDK's module and packages.
const GO_REPLACEMENTS: [(&str, &str); 4] = [
    ("\"wit_component/", "\"toolhold/internal/wit/"),
    ("\"go.bytecodealliance.org/pkg/wit/runtime\"", "\"toolhold/internal/memory\""),
    ("\"go.bytecodealliance.org/pkg/wit/types\"", "\"toolhold/internal/types\""),
    ("package main", "package exports"),
];

fn main() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates the bindings, and the source file `files.rs`, which embeds [`FOLDERS`] in the program.
fn generate() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = package.ancestors().nth(3).ok_or("the package lies outside the workspace")?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    write_bindings(&root.join("wit"), &out)?;
    let mut source = String::new();
    for (name, folder) in FOLDERS {
        let mut files = Vec::new();
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        collect(&folder, "", &mut files)?;
        // Only the SDKs for C and Go have generated files.
        let generated = out.join(name);
        if generated.exists() {
            collect(&generated, "", &mut files)?;
        }
        writeln!(source, "pub(crate) static {name}: &[File] = &[")?;
        for (path, file) in files {
            writeln!(source, "File {{ path: {path:?}, bytes: include_bytes!({file:?}) }},")?;
        }
        source.push_str("];\n");
    }
    let workspace = root.join("plugins/Cargo.toml");
    println!("cargo::rerun-if-changed={}", workspace.display());
    writeln!(source, "pub(crate) static WORKSPACE: &str = include_str!({workspace:?});")?;
    write(&out.join("files.rs"), source.as_bytes())
}

fn write_bindings(wit: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let c_sdk = out.join("SDK_C");
    remove_folder(&c_sdk)?;
    let c_bindings = bindings(wit, wit_bindgen_c::Opts::default().build(), &NOT_IN_C)?;
    for (name, bytes) in c_bindings.iter() {
        write(&c_sdk.join("bindings").join(name), bytes)?;
    }

    let go_sdk = out.join("SDK_GO");
    remove_folder(&go_sdk)?;
    let go_bindings = bindings(wit, wit_bindgen_go::Opts::default().build(), &[])?;
    for (name, bytes) in go_bindings.iter() {
        let folder = match name {
            // The SDK has its own `go.mod`.
            "go.mod" => continue,
            "wit_exports.go" => "exports",
            _ => "wit",
        };
        let mut text = str::from_utf8(bytes)?.to_owned();
        for (generated, replacement) in GO_REPLACEMENTS {
            text = text.replace(generated, replacement);
        }
        write(&go_sdk.join("internal").join(folder).join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Generates the bindings of one language. Interfaces whose names contain an item of `left_out` get
/// no bindings.
fn bindings(
    wit: &Path,
    mut generator: Box<dyn WorldGenerator>,
    left_out: &[&str],
) -> Result<Files, Box<dyn Error>> {
    let mut resolve = Resolve::default();
    let world = add_world(&mut resolve, wit, left_out)?;
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files)?;
    Ok(files)
}

/// Adds the world of a plugin with all capabilities.
fn add_world(
    resolve: &mut Resolve,
    wit: &Path,
    left_out: &[&str],
) -> Result<WorldId, Box<dyn Error>> {
    let mut last_package = None;
    for folder in USED {
        let (package, _) = resolve.push_dir(wit.join(folder))?;
        last_package = Some(package);
    }
    // `tool` is the last package of `USED`.
    let tool_package = last_package.ok_or("the contract has no package")?;
    let tool = &resolve.packages[tool_package].name;
    let plugin = PackageName { name: "plugin".to_owned(), ..tool.clone() };
    let tool_plugin = tool.interface_id("tool-plugin");
    let mut text = format!("package {plugin};\n\nworld plugin {{\n  include {tool_plugin};\n");

    for folder in IMPORTED {
        let (package, _) = resolve.push_dir(wit.join(folder))?;
        let names = resolve.packages[package].interfaces.values();
        for name in names.filter_map(|interface| resolve.id_of(*interface)) {
            if !left_out.iter().any(|part| name.contains(part)) {
                writeln!(text, "  import {name};")?;
            }
        }
    }
    text.push('}');
    let package = resolve.push_str("plugin.wit", &text)?;
    Ok(resolve.select_world(&[package], None)?)
}

/// Removes the output of an earlier build, if there is one.
fn remove_folder(folder: &Path) -> Result<(), Box<dyn Error>> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("can't remove {}: {error}", folder.display()).into())
        }
        _ => Ok(()),
    }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("can't write {}: {error}", file.display());
    fs::create_dir_all(file.parent().ok_or("the file has no folder")?).map_err(failed)?;
    Ok(fs::write(file, bytes).map_err(failed)?)
}

/// Collects the sorted files of a folder. In the program, their paths start with `below`. Links are
/// followed, because an SDK contains the contract as a link.
fn collect(
    folder: &Path,
    below: &str,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("can't read {}: {error}", folder.display());
    let mut entries: Vec<_> =
        fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name =
            entry.file_name().into_string().map_err(|name| format!("{name:?} isn't UTF-8"))?;
        if LEFT_OUT.contains(&name.as_str()) || name.ends_with(".wasm") {
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
