//! Tests of a release, on the finished files.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use super::archive::Archive;
use super::{read, stdout_of};
use crate::{cargo, step};

/// Most bytes of a release that are never loaded. The table of sections and its names need some.
const MOST_UNUSED: usize = 1 << 20;

/// Fails if a binary asks for a loader, and so for libraries of the machine.
pub(crate) fn check_static(binary: &Path) -> Result<(), String> {
    match interpreter(&read(binary)?) {
        Some(false) => Ok(()),
        Some(true) => Err(format!("{} is not static: it names a loader", binary.display())),
        None => Err(format!("{} isn't a 64-bit little-endian ELF file", binary.display())),
    }
}

/// Fails if a binary has symbols or the like. Bytes that are never loaded only make a release
/// larger.
pub(crate) fn check_stripped(binary: &Path) -> Result<(), String> {
    let elf = read(binary)?;
    let used: usize = loaded(&elf).unwrap_or_default().into_iter().map(<[u8]>::len).sum();
    let rest = elf.len().saturating_sub(used);
    if rest > MOST_UNUSED {
        return Err(format!(
            "{} has {rest} bytes that are never loaded: its profile has to strip symbols",
            binary.display()
        ));
    }
    Ok(())
}

/// Runs the install script into an empty folder, twice, and uninstalls again.
pub(crate) fn check_install(archive: &Archive) -> Result<(), String> {
    step::headline("install into an empty folder");
    let prefix = fresh_folder("prefix")?;
    run_script(archive, &prefix, &[])?;
    run_script(archive, &prefix, &[])?;
    stdout_of(Command::new(prefix.join("bin/toolhold")).arg("--version"))?;
    for path in super::contract()? {
        let packed = prefix.join(super::CONTRACT).join(&path);
        let original = cargo::root().join("wit").join(&path);
        if read(&packed)? != read(&original)? {
            return Err(format!("{} isn't the contract of these sources", packed.display()));
        }
    }
    run_script(archive, &prefix, &["--uninstall"])?;
    let left = fs::read_dir(&prefix).map_or(0, Iterator::count);
    if left == 0 {
        Ok(())
    } else {
        Err(format!("install.sh --uninstall left {left} entries in {}", prefix.display()))
    }
}

/// Runs the install script of an archive.
fn run_script(archive: &Archive, prefix: &Path, more: &[&str]) -> Result<(), String> {
    let mut install = Command::new(archive.folder().join("install.sh"));
    install.arg("--prefix").arg(prefix).args(more);
    stdout_of(&mut install).map(drop)
}

/// Runs the binary in a root folder that has only the binary, a plugin, `/proc`, and empty `/work`
/// and `/tmp`: no library, no shell, no home.
pub(crate) fn check_runs_alone(binary: &Path) -> Result<(), String> {
    step::headline("run in an empty root folder");
    let root = fresh_folder("root")?;
    let plugin = cargo::target().join("dist-build/plugins/hostile.wasm");
    fill_root(&root, binary, &plugin)
        .map_err(|error| format!("can't fill {}: {error}", root.display()))?;
    for check in CHECKS {
        (check.run)(&EmptyRoot { root: &root, program: "/toolhold" })
            .map_err(|why| format!("in an empty root folder, {}: {why}", check.name))?;
    }
    Ok(())
}

/// Creates the empty folders of a root folder, and copies the binary and a plugin into the root.
fn fill_root(root: &Path, binary: &Path, plugin: &Path) -> io::Result<()> {
    for folder in ["proc", "work", "tmp"] {
        fs::create_dir(root.join(folder))?;
    }
    fs::copy(binary, root.join("toolhold"))?;
    fs::copy(plugin, root.join("third-party.wasm"))?;
    Ok(())
}

/// Runs the program of an image where it has nothing but the image's files, as in a container.
pub(crate) fn check_image(image: &Path) -> Result<(), String> {
    step::headline("run the image");
    let layout = fresh_folder("layout")?;
    let root = fresh_folder("image")?;
    unpack(image, &layout)?;
    let blobs = fs::read_dir(layout.join("blobs/sha256"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("can't list the image's blobs: {error}"))?;
    for blob in blobs {
        // The layer is the only blob that is compressed with gzip.
        if read(&blob.path())?.starts_with(b"\x1f\x8b") {
            unpack(&blob.path(), &root)?;
        }
    }
    fs::create_dir(root.join("proc"))
        .and_then(|()| fs::write(root.join("work/note.txt"), "tied up\n"))
        .map_err(|error| format!("can't fill {}: {error}", root.display()))?;
    let root = EmptyRoot { root: &root, program: "/usr/bin/toolhold" };
    for (arguments, printed) in [
        (&["--version"][..], "toolhold "),
        (&["call", "read", "path=note.txt"], "tied up"),
        (&["doctor"], "Toolhold works here"),
    ] {
        root.check_prints(arguments, printed).map_err(|why| format!("in the image, {why}"))?;
    }
    Ok(())
}

/// Unpacks an archive into a folder.
fn unpack(archive: &Path, to: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(to);
    stdout_of(&mut tar).map(drop)
}

struct Check {
    name: &'static str,
    run: fn(&EmptyRoot<'_>) -> Result<(), String>,
}

const CHECKS: [Check; 7] = [
    Check {
        name: "`toolhold` does not start",
        run: |root| root.check_prints(&["--version"], "toolhold "),
    },
    Check {
        name: "tools are missing",
        run: |root| root.check_prints(&["tools"], "list_directory"),
    },
    Check {
        name: "the file tools don't work",
        run: |root| {
            root.check_prints(
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
            root.check_prints(&["call", "read", "path=note.txt"], "tied up")?;
            root.check_prints(&["call", "grep", "pattern=t[ij]ed"], "note.txt")
        },
    },
    Check {
        name: "built-in plugins were compiled again",
        run: |root| {
            if root.compiled_here()? == 0 {
                Ok(())
            } else {
                Err("the cache has other compiled code than the binary".to_owned())
            }
        },
    },
    Check {
        name: "a third-party plugin can't be compiled",
        run: |root| {
            root.check_prints(&["plugin", "inspect", "/third-party.wasm"], "hostile")?;
            root.check_prints(
                &["--plugin", "/third-party.wasm", "tools"],
                "hostile__loop_forever",
            )?;
            if root.compiled_here()? > 0 {
                Ok(())
            } else {
                Err("the cache has no compiled code".to_owned())
            }
        },
    },
    Check {
        name: "the doctor finds a failure",
        run: |root| root.check_prints(&["doctor"], "Toolhold works here"),
    },
    Check { name: "the demo fails", run: |root| root.check_prints(&["demo"], "") },
];

/// A root folder with little more than the binary in it.
struct EmptyRoot<'a> {
    root: &'a Path,
    /// The binary's path there.
    program: &'a str,
}

impl EmptyRoot<'_> {
    /// Runs `toolhold` with these arguments. Fails if it fails, or doesn't print `expected`.
    fn check_prints(&self, arguments: &[&str], expected: &str) -> Result<(), String> {
        // A user namespace gives the right to change the root, so the build needs no rights of
        // root.
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--root"])
            .arg(self.root);
        unshare
            .args(["--wd=/work", "--mount-proc", "--", self.program])
            .args(arguments)
            .stdin(Stdio::null());
        unshare.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, folder) in
            [("CONFIG", "/own/config"), ("DATA", "/own/data"), ("CACHE", "/own/cache")]
        {
            unshare.env(format!("TOOLHOLD_{name}_DIR"), folder);
        }
        let stdout = stdout_of(&mut unshare)
            .map_err(|why| format!("toolhold {}: {why}", arguments.join(" ")))?;
        if stdout.contains(expected) {
            Ok(())
        } else {
            Err(format!("toolhold {} didn't print {expected:?}:\n{stdout}", arguments.join(" ")))
        }
    }

    /// The number of files in the cache whose code isn't in the binary, so that it was compiled
    /// there.
    fn compiled_here(&self) -> Result<usize, String> {
        let built_in = compiled_code(&cargo::target().join("dist-build/plugins"))?;
        let cached = compiled_code(&self.root.join("own/cache/compiled"))?;
        Ok(cached.iter().filter(|code| !built_in.contains(code)).count())
    }
}

/// The compiled code in a folder.
fn compiled_code(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = files.flatten().map(|file| file.path());
    let code = paths.filter(|path| path.extension() == Some("cwasm".as_ref()));
    code.map(|path| read(&path)).collect()
}

/// Creates an empty folder, and removes what an earlier run left.
pub(crate) fn fresh_folder(name: &str) -> Result<PathBuf, String> {
    let folder = cargo::target().join("dist-build").join(name);
    let removed = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
    removed
        .and_then(|()| fs::create_dir_all(&folder))
        .map_err(|error| format!("can't make {} empty: {error}", folder.display()))?;
    Ok(folder)
}

/// Whether a program names a loader, with a program header of type `PT_INTERP`. `None` if it isn't
/// a 64-bit little-endian ELF file.
fn interpreter(elf: &[u8]) -> Option<bool> {
    Some(headers(elf)?.iter().any(|(kind, _)| *kind == 3))
}

/// The parts of a program that are loaded into memory, without those for debuggers. `None` if it
/// isn't a 64-bit little-endian ELF file.
pub(super) fn loaded(elf: &[u8]) -> Option<Vec<&[u8]>> {
    let loaded = headers(elf)?.into_iter().filter(|(kind, _)| *kind == 1);
    loaded.map(|(_, bytes)| elf.get(bytes)).collect()
}

/// The program headers: the type of each (`PT_LOAD` is 1, `PT_INTERP` 3), and the range of its
/// bytes in the file.
fn headers(elf: &[u8]) -> Option<Vec<(u64, Range<usize>)>> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = number(elf, 32, 8)?;
    let size = number(elf, 54, 2)?;
    let count = number(elf, 56, 2)?;
    (0..count).map(|index| header(elf, usize::try_from(table + index * size).ok()?)).collect()
}

fn header(elf: &[u8], at: usize) -> Option<(u64, Range<usize>)> {
    let from = usize::try_from(number(elf, at + 8, 8)?).ok()?;
    let length = usize::try_from(number(elf, at + 32, 8)?).ok()?;
    Some((number(elf, at, 4)?, from..from.checked_add(length)?))
}

/// The number in some bytes, the lowest byte first.
fn number(elf: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = elf.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::{interpreter, loaded};

    #[test]
    fn loader_is_found() {
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
