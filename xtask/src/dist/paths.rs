//! Paths of the build machine, which may not be in its output.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{packages, read, verify};
use crate::cargo::{self, WASM};
use crate::machine;

/// The source folders of this machine, each with the name that replaces it in the output.
pub(crate) struct Paths(Vec<(PathBuf, String)>);

impl Paths {
    /// The folders of the sources that both workspaces use.
    pub(crate) fn of_this_machine(target: &str) -> Result<Paths, String> {
        let own = cargo::root();
        let mut paths = vec![(own.to_owned(), "/toolhold".to_owned())];
        let folders = [
            packages::folders(own, target)?,
            packages::folders(&cargo::plugins(), WASM)?,
            packages::folders(&cargo::plugins().join("grammars"), WASM)?,
        ]
        .concat();
        // The folders in which cargo keeps the sources of packages; usually there is one.
        let others: BTreeSet<&Path> = folders
            .iter()
            .filter(|folder| !folder.starts_with(own))
            .filter_map(|folder| folder.parent())
            .collect();
        paths.extend(others.into_iter().map(|folder| (folder.to_owned(), "/crates".to_owned())));
        // Use the name that the standard library has if its sources aren't installed.
        let version = machine::rustc(&["-vV"])?;
        let commit = version
            .lines()
            .find_map(|line| line.strip_prefix("commit-hash: "))
            .unwrap_or("unknown");
        paths.push((machine::sysroot()?.join("lib/rustlib/src/rust"), format!("/rustc/{commit}")));
        Ok(Paths(paths))
    }

    /// Sets the flags with which Rust compilers write the other names.
    pub(crate) fn hide_from<'a>(&self, cargo: &'a mut Command) -> &'a mut Command {
        // Remove the user's flags, because they would change the binary.
        cargo
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags("--remap-path-prefix").join("\x1f"))
    }

    /// The flags with which C compilers write the other names. `assert` puts the name of its file
    /// into the output.
    pub(crate) fn c_flags(&self) -> String {
        // Quoted for a shell.
        let quoted: Vec<String> = self
            .flags("-ffile-prefix-map")
            .iter()
            .map(|flag| format!("'{}'", flag.replace('\'', r"'\''")))
            .collect();
        quoted.join(" ")
    }

    fn flags(&self, option: &str) -> Vec<String> {
        self.0.iter().map(|(from, to)| format!("{option}={}={to}", from.display())).collect()
    }

    /// Fails if one of the paths is in the binary.
    pub(crate) fn check_absent_from(&self, binary: &Path) -> Result<(), String> {
        self.check_allowed(binary, &read(binary)?, |_| false)
    }

    /// Fails if one of the paths is in the compiled C code for `target`.
    pub(crate) fn check_absent_from_c_code(&self, target: &str) -> Result<(), String> {
        let builds = cargo::target().join(target).join("debug/build");
        let archives: Vec<PathBuf> = entries(&builds)
            .flat_map(|package| entries(&package.join("out")))
            .filter(|file| file.extension().is_some_and(|kind| kind == "a"))
            .collect();
        if archives.is_empty() {
            return Err(format!("there is no compiled C code below {}", builds.display()));
        }
        archives.iter().try_for_each(|archive| self.check_absent_from(archive))
    }

    /// Checks a binary that was built without hiding the paths. Compilers write paths of source
    /// files only, and the flags hide those. Fails if the binary has another path, which the flags
    /// wouldn't hide.
    pub(crate) fn check_only_sources_in(&self, binary: &Path) -> Result<(), String> {
        let bytes = read(binary)?;
        let loaded = verify::loaded(&bytes)
            .ok_or_else(|| format!("{} isn't a 64-bit little-endian ELF file", binary.display()))?;
        loaded
            .into_iter()
            .try_for_each(|part| self.check_allowed(binary, part, starts_with_source_path))
    }

    fn check_allowed(
        &self,
        file: &Path,
        bytes: &[u8],
        allowed: fn(&str) -> bool,
    ) -> Result<(), String> {
        let text = String::from_utf8_lossy(bytes);
        for (path, _) in &self.0 {
            for (at, _) in text.match_indices(&*path.to_string_lossy()) {
                let shown: String =
                    text[at..].chars().take_while(|c| !c.is_control()).take(200).collect();
                if !allowed(&shown) {
                    return Err(format!(
                        "{} contains a path of the machine that built it: {shown}",
                        file.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The paths of the entries of a folder. Those that can't be read are left out.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether a text begins with the path of a source file. Rust puts other text directly behind it.
fn starts_with_source_path(text: &str) -> bool {
    let name = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "/._-+@".contains(c)))
        .next()
        .unwrap_or_default();
    name.contains(".rs") || [".c", ".h"].iter().any(|kind| name.ends_with(kind))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Paths, starts_with_source_path};

    #[test]
    fn source_paths_are_recognized() {
        for source in
            ["/a/src/lib.rs", "/a/src/lib.rsan error", "/a/src/./parser.c", "/a/b.rs:1 of"]
        {
            assert!(starts_with_source_path(source), "{source}");
        }
        for other in ["/a/target/debug/build/x-1/out", "/a/Cargo.toml", "/a/out more.rs", "/a"] {
            assert!(!starts_with_source_path(other), "{other}");
        }
    }

    #[test]
    fn other_path_is_found_after_source_paths() {
        let paths = Paths(vec![(PathBuf::from("/home/u/toolhold"), "/toolhold".to_owned())]);
        let check = |text: &str| {
            paths.check_allowed(Path::new("binary"), text.as_bytes(), starts_with_source_path)
        };
        assert_eq!(check("\0/home/u/toolhold/src/a.rs\0/home/u/toolhold/b.h\0"), Ok(()));
        let found =
            check("\0/home/u/toolhold/src/a.rs\0/home/u/toolhold/target/out\0").unwrap_err();
        assert!(found.ends_with(": /home/u/toolhold/target/out"), "{found}");
    }
}
