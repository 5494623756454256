//! Paths of the machine that builds, which don't go into what it builds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{packages, read, verify};
use crate::cargo::{self, WASM};
use crate::machine;

/// Where sources lie on this machine, each with the name that it gets in what is built.
pub(crate) struct Paths(Vec<(PathBuf, String)>);

impl Paths {
    /// Those of the sources that both workspaces use.
    pub(crate) fn of_this_machine(target: &str) -> Result<Paths, String> {
        let own = cargo::root();
        let mut paths = vec![(own.to_owned(), "/berth".to_owned())];
        let folders =
            [packages::folders(own, target)?, packages::folders(&cargo::plugins(), WASM)?].concat();
        // The folders in which cargo keeps the sources of packages; usually a single one.
        let others: BTreeSet<&Path> = folders
            .iter()
            .filter(|folder| !folder.starts_with(own))
            .filter_map(|folder| folder.parent())
            .collect();
        paths.extend(others.into_iter().map(|folder| (folder.to_owned(), "/crates".to_owned())));
        // The standard library names itself like this where its sources aren't installed.
        let version = machine::rustc(&["-vV"])?;
        let commit = version
            .lines()
            .find_map(|line| line.strip_prefix("commit-hash: "))
            .unwrap_or("unknown");
        paths.push((machine::sysroot()?.join("lib/rustlib/src/rust"), format!("/rustc/{commit}")));
        Ok(Paths(paths))
    }

    /// Has the Rust compilers that `cargo` starts write the other names.
    pub(crate) fn hidden_from<'a>(&self, cargo: &'a mut Command) -> &'a mut Command {
        // Flags of whoever builds would make another binary.
        cargo
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags("--remap-path-prefix").join("\x1f"))
    }

    /// The flags with which C compilers write the other names: `assert` tells of its file.
    pub(crate) fn c_flags(&self) -> String {
        // As a shell takes them apart.
        let quoted = |flag: String| format!("'{}'", flag.replace('\'', r"'\''"));
        self.flags("-ffile-prefix-map").into_iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    fn flags(&self, option: &str) -> Vec<String> {
        self.0.iter().map(|(from, to)| format!("{option}={}={to}", from.display())).collect()
    }

    /// Fails if one of the paths is in the binary.
    pub(crate) fn are_absent_from(&self, binary: &Path) -> Result<(), String> {
        self.are_only_where(binary, &read(binary)?, |_| false)
    }

    /// Fails if one of the paths is in what was compiled from C for `target`.
    pub(crate) fn are_absent_from_c_of(&self, target: &str) -> Result<(), String> {
        let builds = cargo::target().join(target).join("debug/build");
        let list = |folder: &Path| {
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
        };
        let archives: Vec<PathBuf> = list(&builds)
            .flat_map(|package| list(&package.join("out")).collect::<Vec<_>>())
            .filter(|file| file.extension().is_some_and(|kind| kind == "a"))
            .collect();
        if archives.is_empty() {
            return Err(format!(
                "nothing below {} was compiled from C, which is not so",
                builds.display()
            ));
        }
        archives.iter().try_for_each(|archive| self.are_absent_from(archive))
    }

    /// Fails if a binary that was built without hiding them has paths that wouldn't have been
    /// hidden: others than those that the compilers write, which are of files with sources.
    pub(crate) fn are_those_of_sources_in(&self, binary: &Path) -> Result<(), String> {
        let bytes = read(binary)?;
        let loaded = verify::loaded(&bytes)
            .ok_or_else(|| format!("{} is no 64-bit little-endian ELF file", binary.display()))?;
        loaded.into_iter().try_for_each(|part| self.are_only_where(binary, part, names_a_source))
    }

    fn are_only_where(
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
                        "{} names a path of this machine: {shown}",
                        file.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a text begins with the name of a file with sources. Rust puts other text right behind
/// it.
fn names_a_source(text: &str) -> bool {
    let name = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || "/._-+@".contains(c)))
        .next()
        .unwrap_or_default();
    name.contains(".rs") || [".c", ".h"].iter().any(|kind| name.ends_with(kind))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Paths, names_a_source};

    #[test]
    fn paths_of_sources_are_told_from_others() {
        for source in
            ["/a/src/lib.rs", "/a/src/lib.rsan error", "/a/src/./parser.c", "/a/b.rs:1 of"]
        {
            assert!(names_a_source(source), "{source}");
        }
        for other in ["/a/target/debug/build/x-1/out", "/a/Cargo.toml", "/a/out more.rs", "/a"] {
            assert!(!names_a_source(other), "{other}");
        }
    }

    #[test]
    fn a_path_that_no_compiler_wrote_is_found_behind_others() {
        let paths = Paths(vec![(PathBuf::from("/home/u/berth"), "/berth".to_owned())]);
        let look =
            |text: &str| paths.are_only_where(Path::new("binary"), text.as_bytes(), names_a_source);
        assert_eq!(look("\0/home/u/berth/src/a.rs\0/home/u/berth/b.h\0"), Ok(()));
        let found = look("\0/home/u/berth/src/a.rs\0/home/u/berth/target/out\0").unwrap_err();
        assert!(found.ends_with(": /home/u/berth/target/out"), "{found}");
    }
}
