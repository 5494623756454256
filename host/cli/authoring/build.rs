//! Puts the contract's WIT, the SDKs and the example plugins into the program, so that they fit it.
//! The bindings of the SDKs for C and Go are generated here.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wit_bindgen_core::{Files, WorldGenerator};
use wit_parser::{PackageName, Resolve, WorldId};

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

/// The packages of the contract, below its folder, that a plugin doesn't import, each after those
/// that it uses.
const USED: [&str; 3] = ["deps/io", "deps/clocks", "tool"];

/// The packages of which a plugin imports interfaces. The compiler leaves out what it doesn't use.
const IMPORTED: [&str; 2] = ["deps/http", "host"];

/// Parts of the names of interfaces that the SDK of C doesn't have.
const NOT_IN_C: [&str; 2] = ["wasi:http/", "toolhold:host/secrets@"];

/// Texts that the generator for Go writes, and those that the SDK has instead: its own module and
/// packages.
const IN_GO: [(&str, &str); 4] = [
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

/// Generates the bindings of the SDKs for C and Go, each into the folder with the name of its list.
fn write_bindings(wit: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let c = remove_folder(out.join("SDK_C"))?.join("bindings");
    let c_bindings = bindings(wit, wit_bindgen_c::Opts::default().build(), &NOT_IN_C)?;
    for (name, bytes) in c_bindings.iter() {
        write(&c.join(name), bytes)?;
    }

    let go = remove_folder(out.join("SDK_GO"))?.join("internal");
    let go_bindings = bindings(wit, wit_bindgen_go::Opts::default().build(), &[])?;
    for (name, bytes) in go_bindings.iter() {
        let folder = match name {
            "go.mod" => continue,
            "wit_exports.go" => "exports",
            _ => "wit",
        };
        let mut text = str::from_utf8(bytes)?.to_owned();
        for (from, to) in IN_GO {
            text = text.replace(from, to);
        }
        write(&go.join(folder).join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Generates the bindings of one language. `left_out`: parts of the names of interfaces that the
/// bindings don't have.
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

/// Adds the world of a plugin that asks for everything, without some interfaces.
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

/// Removes a folder that an earlier build may have left, and returns its path.
fn remove_folder(folder: PathBuf) -> Result<PathBuf, Box<dyn Error>> {
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("can't remove {}: {error}", folder.display()).into())
        }
        _ => Ok(folder),
    }
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("can't write {}: {error}", file.display());
    fs::create_dir_all(file.parent().ok_or("the file has no folder")?).map_err(failed)?;
    Ok(fs::write(file, bytes).map_err(failed)?)
}

/// Collects the files of a folder, sorted, each with its path below the folder. Links are followed:
/// the SDK has the contract by links.
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
