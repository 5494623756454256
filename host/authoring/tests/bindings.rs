//! The bindings of the SDKs fit the contract: they are what their generators make of it today.

use std::fs;
use std::path::{Path, PathBuf};

use wit_bindgen_core::{Files, WorldGenerator};
use wit_parser::{Resolve, WorldId};

/// What the SDK of C has no functions for.
const NOT_IN_C: &[&str] = &["wasi:http/", "toolhold:host/secrets@"];

/// The world of a plugin that asks for everything, without some interfaces. What it doesn't use,
/// the compiler leaves out.
fn world(left_out: &[&str]) -> (Resolve, WorldId) {
    let folder = tempfile::tempdir().unwrap();
    toolhold_authoring::write_wit(folder.path(), false).unwrap();
    let file = folder.path().join("world.wit");
    let kept = |line: &&str| !left_out.iter().any(|name| line.contains(name));
    let world = fs::read_to_string(&file).unwrap().replace("  // import", "  import");
    fs::write(&file, world.lines().filter(kept).collect::<Vec<_>>().join("\n")).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(folder.path()).unwrap();
    let world = resolve.select_world(&[package], Some("plugin")).unwrap();
    (resolve, world)
}

fn generate(mut generator: Box<dyn WorldGenerator>, left_out: &[&str]) -> Vec<(String, Vec<u8>)> {
    let (mut resolve, world) = world(left_out);
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files).unwrap();
    files.iter().map(|(name, bytes)| (name.to_owned(), bytes.to_owned())).collect()
}

/// Compares the files of a folder, below the repository, with these. If they differ, the new ones
/// are kept, and the failure says where.
#[track_caller]
fn compare(folder: &str, files: &[(String, Vec<u8>)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let is_current = |(name, bytes): &(String, Vec<u8>)| {
        fs::read(root.join(folder).join(name)).ok() == Some(bytes.clone())
    };
    if files.iter().all(is_current) {
        return;
    }
    let new = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    for (name, bytes) in files {
        let file = new.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
    panic!("{folder} doesn't fit the contract. Copy there what is in {}", new.display());
}

/// As the generator makes them, below a module of their own instead of the SDK's.
fn bindings_of_go() -> Vec<(String, Vec<u8>)> {
    let imports = [
        ("\"wit_component/", "\"toolhold/internal/wit/"),
        ("\"go.bytecodealliance.org/pkg/wit/runtime\"", "\"toolhold/internal/memory\""),
        ("\"go.bytecodealliance.org/pkg/wit/types\"", "\"toolhold/internal/types\""),
    ];
    let placed = |(name, bytes): (String, Vec<u8>)| {
        let mut text = String::from_utf8(bytes).unwrap();
        for (from, to) in imports {
            text = text.replace(from, to);
        }
        match name.as_str() {
            "go.mod" => None,
            "wit_exports.go" => {
                let text = text.replace("package main", "package exports");
                Some((format!("exports/{name}"), text.into_bytes()))
            }
            _ => Some((format!("wit/{name}"), text.into_bytes())),
        }
    };
    generate(wit_bindgen_go::Opts::default().build(), &[]).into_iter().filter_map(placed).collect()
}

#[test]
fn bindings_of_go_fit_the_contract() {
    compare("plugins/sdk-go/internal", &bindings_of_go());
}

#[test]
fn bindings_of_c_fit_the_contract() {
    compare("plugins/sdk-c/bindings", &generate(wit_bindgen_c::Opts::default().build(), NOT_IN_C));
}
