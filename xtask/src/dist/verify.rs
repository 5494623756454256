//! What has to hold of what is handed out, tried on the thing itself.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::archive::Archive;
use super::{printed, read};
use crate::{cargo, step};

/// Fails for a binary that asks for a loader, and so for libraries of the machine it runs on.
pub(crate) fn is_static(binary: &Path) -> Result<(), String> {
    match interpreter(&read(binary)?) {
        Some(false) => Ok(()),
        Some(true) => Err(format!("{} is not static: it names a loader", binary.display())),
        None => Err(format!("{} is no 64-bit little-endian ELF file", binary.display())),
    }
}

/// Runs the install script into an empty folder, twice, and takes everything away again.
pub(crate) fn installs(archive: &Archive) -> Result<(), String> {
    step::headline("install into an empty folder");
    let prefix = fresh_folder("prefix")?;
    let script = |more: &[&str]| {
        let mut install = Command::new(archive.folder().join("install.sh"));
        install.arg("--prefix").arg(&prefix).args(more);
        printed(&mut install).map(drop)
    };
    script(&[])?;
    script(&[])?;
    printed(Command::new(prefix.join("bin/berth")).arg("--version"))?;
    script(&["--uninstall"])?;
    let left = fs::read_dir(&prefix).map_or(0, Iterator::count);
    if left == 0 {
        Ok(())
    } else {
        Err(format!("install.sh --uninstall left {left} entries in {}", prefix.display()))
    }
}

/// Runs the binary where there is nothing but itself and `/proc`: no library, no `/tmp`, no shell,
/// no home.
pub(crate) fn runs_alone(binary: &Path) -> Result<(), String> {
    step::headline("run in an empty root folder");
    let root = fresh_folder("root")?;
    let made =
        ["proc", "work", "tmp"].iter().try_for_each(|folder| fs::create_dir(root.join(folder)));
    let made = made.and_then(|()| fs::copy(binary, root.join("berth")).map(drop));
    let stranger = cargo::target().join("dist-build/plugins/bench.wasm");
    made.and_then(|()| fs::copy(&stranger, root.join("stranger.wasm")).map(drop))
        .map_err(|error| format!("can't fill {}: {error}", root.display()))?;
    for check in CHECKS {
        (check.run)(&Alone { root: &root })
            .map_err(|why| format!("in an empty root folder, {}: {why}", check.name))?;
    }
    Ok(())
}

struct Check {
    name: &'static str,
    run: fn(&Alone<'_>) -> Result<(), String>,
}

const CHECKS: [Check; 7] = [
    Check { name: "`berth` does not start", run: |alone| alone.prints(&["--version"], "berth ") },
    Check {
        name: "the tools are not all there",
        run: |alone| alone.prints(&["tools"], "list_directory"),
    },
    Check {
        name: "the file tools don't work",
        run: |alone| {
            alone.prints(
                &[
                    "--set",
                    "tools.autonomy=full",
                    "call",
                    "write",
                    "path=note.txt",
                    "content=tied up\n",
                ],
                "note.txt",
            )?;
            alone.prints(&["call", "read", "path=note.txt"], "tied up")?;
            alone.prints(&["call", "grep", "pattern=t[ij]ed"], "note.txt")
        },
    },
    Check {
        name: "built-in plugins were compiled anew",
        run: |alone| {
            if alone.cached() == 0 {
                Ok(())
            } else {
                Err("there is code in the cache, so what the binary carries is not used".to_owned())
            }
        },
    },
    Check {
        name: "a stranger's plugin can't be compiled",
        run: |alone| {
            alone.prints(&["plugin", "inspect", "/stranger.wasm"], "bench")?;
            alone.prints(&["--plugin", "/stranger.wasm", "tools"], "bench__echo")?;
            if alone.cached() > 0 {
                Ok(())
            } else {
                Err("there is no code in the cache".to_owned())
            }
        },
    },
    Check {
        name: "the doctor finds a failure",
        run: |alone| alone.prints(&["doctor"], "Berth works here"),
    },
    Check { name: "the demo fails", run: |alone| alone.prints(&["demo"], "") },
];

/// An empty root folder with the binary in it.
struct Alone<'a> {
    root: &'a Path,
}

impl Alone<'_> {
    /// Runs `berth` with these arguments, which has to succeed and to print `expected`.
    fn prints(&self, arguments: &[&str], expected: &str) -> Result<(), String> {
        // As whoever builds, who needs no rights for it: a user namespace gives the right to change
        // the root.
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--root"])
            .arg(self.root);
        unshare
            .args(["--wd=/work", "--mount-proc", "--", "/berth"])
            .args(arguments)
            .stdin(Stdio::null());
        unshare.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, folder) in
            [("CONFIG", "/own/config"), ("DATA", "/own/data"), ("CACHE", "/own/cache")]
        {
            unshare.env(format!("BERTH_{name}_DIR"), folder);
        }
        let printed =
            printed(&mut unshare).map_err(|why| format!("berth {}: {why}", arguments.join(" ")))?;
        if printed.contains(expected) {
            Ok(())
        } else {
            Err(format!("berth {} printed no {expected:?}:\n{printed}", arguments.join(" ")))
        }
    }

    /// How many files with compiled code the cache has.
    fn cached(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
        }
        count(&self.root.join("own/cache"))
    }
}

/// An empty folder to work in, with nothing in it from an earlier run.
pub(crate) fn fresh_folder(name: &str) -> Result<PathBuf, String> {
    let folder = cargo::target().join("dist-build").join(name);
    let removed = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
    removed
        .and_then(|()| fs::create_dir_all(&folder))
        .map_err(|error| format!("can't make {} empty: {error}", folder.display()))?;
    Ok(folder)
}

/// Whether a program names a loader: a program header of the type `PT_INTERP`. Nothing where it is
/// no program for 64 bits, lowest byte first.
fn interpreter(elf: &[u8]) -> Option<bool> {
    Some(headers(elf)?.iter().any(|(kind, _)| *kind == 3))
}

/// What of a program is in memory when it runs, without what only a debugger reads. Nothing where
/// it is no such program.
pub(super) fn loaded(elf: &[u8]) -> Option<Vec<&[u8]>> {
    let loaded = headers(elf)?.into_iter().filter(|(kind, _)| *kind == 1);
    loaded.map(|(_, bytes)| elf.get(bytes)).collect()
}

/// The program headers: the type of each (`PT_LOAD` is 1, `PT_INTERP` 3), and where the bytes are
/// that it is about.
fn headers(elf: &[u8]) -> Option<Vec<(u64, Range<usize>)>> {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let header = |index: u64| {
        let at = usize::try_from(table + index * size).ok()?;
        let (from, length) =
            (usize::try_from(number(at + 8, 8)?).ok()?, usize::try_from(number(at + 32, 8)?).ok()?);
        Some((number(at, 4)?, from..from.checked_add(length)?))
    };
    (0..count).map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::{interpreter, loaded};

    #[test]
    fn a_loader_is_found() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        assert_eq!(interpreter(&elf), Some(false));
        elf[64 + 56] = 3;
        assert_eq!(interpreter(&elf), Some(true));
        assert_eq!(interpreter(&elf[..100]), None);
        elf[64] = 1;
        elf[64 + 8] = 10;
        elf[64 + 32] = 5;
        assert_eq!(loaded(&elf), Some(vec![&elf[10..15]]));
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
    }
}
