//! `toolhold plugin wit`: writes the contract's WIT and a world into a folder.

use std::path::Path;

use toolhold_component::{CONTRACT_VERSION, Capability};
use wit_component::StringEncoding;
use wit_parser::Resolve;

use crate::AuthoringError;
use crate::files::{self, ProjectFileError, WIT, Written};

pub(crate) const WORLD: &str = "plugin";

pub(crate) const WASI: &str = "wasi:";

/// An interface that plugins with the capability `http` may import too.
const SECRETS: &str = "toolhold:host/secrets@0.1.0";

/// Interfaces that every plugin may import.
const ALWAYS: [&str; 4] =
    ["toolhold:host/call@0.1.0", "toolhold:host/config@0.1.0", "toolhold:host/log@0.1.0", TYPES];

/// An interface with only types. Languages have no module for it.
pub(crate) const TYPES: &str = "toolhold:host/types@0.1.0";

/// Writes the contract's packages and a world to start from. Returns a note for the author.
///
/// # Errors
///
/// Returns an error if a file can't be written. If `force` is off and a file has other content,
/// returns an error and writes nothing.
pub fn write(folder: &Path, force: bool) -> Result<String, AuthoringError> {
    let mut files = packages();
    files.push(Written::new("world.wit", starting_world()));
    files::write_all(folder, &files, force)?;
    let shown = folder.display();
    Ok(format!("The contract is in {shown}; start with the world in world.wit"))
}

/// Writes the contract and the world of a plugin with `capabilities`. `imports_files` adds the
/// interfaces for files, which is needed if the plugin's language has no file API.
pub(crate) fn write_for(
    folder: &Path,
    capabilities: &[&str],
    imports_files: bool,
) -> Result<(), ProjectFileError> {
    let force = true;
    files::write_all(folder, &for_world(capabilities, imports_files), force)
}

/// Writes the contract and the world of a plugin whose language has no file API. `prefix` replaces
/// the prefix `wasi:` of packages. Both prefixes must have the same length, because `wasi:` later
/// overwrites `prefix` in the component.
pub(crate) fn write_renamed(
    folder: &Path,
    capabilities: &[&str],
    prefix: &str,
) -> Result<(), ProjectFileError> {
    let imports_files = true;
    let mut files = for_world(capabilities, imports_files);
    for file in &mut files {
        let text = String::from_utf8_lossy(&file.bytes).replace(WASI, prefix);
        file.bytes = text.into_bytes();
    }
    let force = true;
    files::write_all(folder, &files, force)
}

/// Writes a description of all interfaces of the contract into a core module. The encoder keeps
/// only imported interfaces in the component. The contract itself is written into `folder`.
pub(crate) fn describe(core: &mut Vec<u8>, folder: &Path) -> Result<(), AuthoringError> {
    let imports_files = false;
    write_for(folder, &Capability::ALL.map(Capability::name), imports_files)?;
    let mut resolve = Resolve::default();
    let embedded = resolve.push_dir(folder).and_then(|(package, _)| {
        let world = resolve.select_world(&[package], Some(WORLD))?;
        wit_component::embed_component_metadata(core, &resolve, world, StringEncoding::UTF8)
    });
    embedded.map_err(|error| AuthoringError::NotDescribable(format!("{error:#}")))
}

fn for_world(capabilities: &[&str], imports_files: bool) -> Vec<Written> {
    let mut files = packages();
    files.push(Written::new("world.wit", world(&imports(capabilities, imports_files))));
    files
}

/// Returns the interfaces that a plugin with `capabilities` imports. `imports_files` adds the
/// interfaces for files, which is needed if the plugin's language has no file API.
pub(crate) fn imports(capabilities: &[&str], imports_files: bool) -> Vec<&'static str> {
    let mut imports = ALWAYS.to_vec();
    for capability in Capability::ALL {
        // A language with a file API imports these interfaces itself.
        if capability == Capability::Files && !imports_files {
            continue;
        }
        if capabilities.contains(&capability.name()) {
            imports.extend(imports_of(capability));
        }
    }
    imports
}

fn imports_of(capability: Capability) -> impl Iterator<Item = &'static str> {
    let secrets = if capability == Capability::Http { Some(SECRETS) } else { None };
    capability.facts().interfaces.iter().copied().chain(secrets)
}

/// Returns the files of the contract. Each package has its own folder in `deps`, where generators
/// of bindings look.
fn packages() -> Vec<Written> {
    let mut files = Vec::new();
    for file in WIT {
        let path = match file.path.split_once('/') {
            Some((package @ ("tool" | "host"), rest)) => format!("deps/toolhold-{package}/{rest}"),
            Some(("deps", rest)) => format!("deps/wasi-{rest}"),
            _ => file.path.to_owned(),
        };
        files.push(Written::new(path, file.bytes));
    }
    files
}

fn world(imports: &[&str]) -> String {
    let imports: String = imports.iter().map(|name| format!("  import {name};\n")).collect();
    format!(
        "package toolhold:plugin@{CONTRACT_VERSION};\n\nworld {WORLD} {{\n  include toolhold:tool/tool-plugin@{CONTRACT_VERSION};\n\n{imports}}}\n"
    )
}

/// Returns a world for new plugins, with the imports of capabilities as comments.
fn starting_world() -> String {
    let mut optional = String::new();
    for capability in Capability::ALL {
        let imports: String =
            imports_of(capability).map(|import| format!("  // import {import};\n")).collect();
        // A language with a file API imports these interfaces itself.
        if capability != Capability::Files && !imports.is_empty() {
            let name = capability.name();
            optional += &format!("\n  // If the manifest asks for `{name}`:\n{imports}");
        }
    }
    let world = world(&ALWAYS);
    let body = world.strip_suffix("}\n").unwrap_or(&world);
    format!("{body}{optional}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world_of(folder: &Path) -> (Resolve, wit_parser::WorldId) {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(folder).expect("the WIT is valid");
        let world = resolve.select_world(&[package], Some(WORLD)).expect("there is a world");
        (resolve, world)
    }

    #[test]
    fn written_package_is_valid_and_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), false).unwrap();
        let (resolve, world) = world_of(folder.path());
        assert_eq!(resolve.worlds[world].exports.len(), 1);

        let file = folder.path().join("world.wit");
        std::fs::write(&file, "mine").unwrap();
        assert!(write(folder.path(), false).unwrap_err().to_string().contains("world.wit"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        write(folder.path(), true).unwrap();
    }

    #[test]
    fn every_capability_has_a_valid_world() {
        let folder = tempfile::tempdir().unwrap();
        let all = Capability::ALL.map(Capability::name);
        write_for(folder.path(), &all, true).unwrap();
        let (resolve, world) = world_of(folder.path());
        let named: Vec<String> =
            resolve.worlds[world].imports.keys().map(|key| resolve.name_world_key(key)).collect();
        for import in imports(&all, true) {
            assert!(named.iter().any(|name| name == import), "{import} is missing");
        }
    }

    #[test]
    fn version_is_the_contract_s() {
        let tools = WIT.iter().find(|file| file.path == "tool/tools.wit").unwrap();
        let text = std::str::from_utf8(tools.bytes).unwrap();
        assert!(text.starts_with(&format!("package toolhold:tool@{CONTRACT_VERSION};")));
    }
}
