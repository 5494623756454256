//! Selects the folders of a plugin's parts, which are pure components.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_compiler::parts::Parts;
use toolhold_component::Part;

use crate::plugin::{Origin, PluginInfo};

/// Returns the parts of a plugin, with the folders in which the host looks for them. The working
/// directory has no influence.
///
/// The parts of Toolhold's own plugins are next to the program, or in the installation's folder for
/// such files. The parts of another plugin are next to the plugin's file: `NAME.parts` for
/// `NAME.wasm`.
pub fn parts_of_plugin(info: &PluginInfo) -> Arc<Parts> {
    let folders = match &info.origin {
        Origin::BuiltIn => program_folders(std::env::current_exe().ok().as_deref()),
        Origin::File(path) => vec![path.with_extension("parts")],
    };
    Arc::new(Parts::new(&info.manifest.parts, folders))
}

fn program_folders(program: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = program.and_then(Path::parent) else { return Vec::new() };
    let mut folders = vec![folder.join("parts")];
    if let Some(prefix) = folder.parent() {
        folders.push(prefix.join("lib/toolhold/parts"));
    }
    folders
}

/// Converts the parts of a built-in plugin to the entries that a manifest would have.
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
