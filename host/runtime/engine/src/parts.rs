//! Finds the folders with a plugin's parts, which are pure components.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_compiler::parts::Parts;
use toolhold_component::Part;

use crate::plugin::{Origin, PluginInfo};

/// Returns the parts of a plugin with the folders in which they are searched.
///
/// Parts of built-in plugins are next to the program, or in the installation's folder for parts.
/// Parts of `NAME.wasm` are in the folder `NAME.parts` next to this file.
pub fn parts_of_plugin(info: &PluginInfo) -> Arc<Parts> {
    let folders = match &info.origin {
        Origin::BuiltIn => program_folders(std::env::current_exe().ok().as_deref()),
        Origin::File(path) => vec![path.with_extension("parts")],
    };
    Arc::new(Parts::new(&info.manifest.parts, folders))
}

/// Returns the folders in which the parts of built-in plugins are searched. Returns no folder if
/// `program` is unknown.
fn program_folders(program: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = program.and_then(Path::parent) else { return Vec::new() };
    let mut folders = vec![folder.join("parts")];
    if let Some(prefix) = folder.parent() {
        folders.push(prefix.join("lib/toolhold/parts"));
    }
    folders
}

pub(crate) fn built_in_parts(parts: &[(&str, &str)]) -> Vec<Part> {
    parts
        .iter()
        .map(|(name, sha256)| Part { name: (*name).to_owned(), sha256: (*sha256).to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_program_are_beside_it_or_in_its_library_folder() {
        let folders = program_folders(Some(Path::new("/opt/toolhold/bin/toolhold")));
        assert_eq!(
            folders,
            [Path::new("/opt/toolhold/bin/parts"), Path::new("/opt/toolhold/lib/toolhold/parts")]
        );
        assert!(program_folders(None).is_empty());
    }
}
