//! Decides which file names a bundle may contain. Other names are refused, so that no file is
//! unpacked outside of the bundle's folder.

use toolhold_component::is_name;

/// The files that don't belong to a plugin.
const SINGLE: [&str; 3] = ["toolhold.lock", "ceiling.toml", "filters.toml"];

pub(crate) const PLUGINS: &str = "plugins";

/// Checks whether a bundle may have a file of this name: `toolhold.lock`, `ceiling.toml`,
/// `filters.toml`, `plugins/NAME.wasm`, and its signatures `plugins/NAME.wasm.minisig` and
/// `plugins/NAME.wasm.2.minisig` to `plugins/NAME.wasm.9.minisig`.
pub fn is_bundled_name(name: &str) -> bool {
    if SINGLE.contains(&name) {
        return true;
    }
    let Some((folder, file)) = name.split_once('/') else { return false };
    if folder != PLUGINS {
        return false;
    }
    let component = match file.strip_suffix(".minisig") {
        Some(signed_file) => match signed_file.rsplit_once('.') {
            // A further signature: `NAME.wasm.2.minisig`.
            Some((component, "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9")) => component,
            // The first signature has no number: `NAME.wasm.minisig`.
            _ => signed_file,
        },
        None => file,
    };
    component.strip_suffix(".wasm").is_some_and(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_bundles_are_few() {
        for name in [
            "toolhold.lock",
            "filters.toml",
            "plugins/acme-notes.wasm",
            "plugins/acme-notes.wasm.minisig",
            "plugins/acme-notes.wasm.2.minisig",
        ] {
            assert!(is_bundled_name(name), "{name}");
        }
        for name in [
            "",
            "/etc/passwd",
            "../toolhold.lock",
            "./toolhold.lock",
            "toolhold.toml",
            "ceiling.toml.minisig",
            "index.json",
            "plugins",
            "plugins/",
            "plugins/../toolhold.lock",
            "plugins/.wasm",
            "plugins//a.wasm",
            "plugins/a/b.wasm",
            "plugins/A.wasm",
            "plugins/a.wasm.1.minisig",
            "plugins/a.wasm.22.minisig",
            "plugins/a.wasm.minisig.minisig",
            "plugins/a.wasm\0",
            "plugins/a\n.wasm",
        ] {
            assert!(!is_bundled_name(name), "{name:?}");
        }
    }
}
