//! Paths of the machine that builds, which don't go into what it builds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{packages, read};
use crate::cargo::{self, WASM};
use crate::machine;

/// Where sources lie on this machine, each with the name that it gets in what is built.
pub(crate) struct Paths(Vec<(PathBuf, String)>);

impl Paths {
    /// Those of the sources that both workspaces use.
    pub(crate) fn of_this_machine(target: &str) -> Result<Paths, String> {
        let own = cargo::root();
        let mut paths = vec![(own.to_owned(), "/berth".to_owned())];
        let folders = [packages::folders(own, target)?, packages::folders(&cargo::plugins(), WASM)?].concat();
        // The folders in which cargo keeps the sources of packages; usually a single one.
        let others: BTreeSet<&Path> =
            folders.iter().filter(|folder| !folder.starts_with(own)).filter_map(|folder| folder.parent()).collect();
        paths.extend(others.into_iter().map(|folder| (folder.to_owned(), "/crates".to_owned())));
        // The standard library names itself like this where its sources aren't installed.
        let version = machine::rustc(&["-vV"])?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
        paths.push((machine::sysroot()?.join("lib/rustlib/src/rust"), format!("/rustc/{commit}")));
        Ok(Paths(paths))
    }

    /// Has the Rust compilers that `cargo` starts write the other names.
    pub(crate) fn hidden_from<'a>(&self, cargo: &'a mut Command) -> &'a mut Command {
        // Flags of whoever builds would make another binary.
        cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", self.flags("--remap-path-prefix").join("\x1f"))
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
        let bytes = read(binary)?;
        let text = String::from_utf8_lossy(&bytes);
        match self.0.iter().find_map(|(path, _)| text.find(&*path.to_string_lossy())) {
            None => Ok(()),
            Some(at) => {
                let shown: String = text[at..].chars().take_while(|c| !c.is_control()).take(200).collect();
                Err(format!("{} names a path of this machine: {shown}", binary.display()))
            }
        }
    }
}
