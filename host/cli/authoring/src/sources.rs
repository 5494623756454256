//! Finds the sources of a plugin, and watches them for `toolhold plugin dev`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use toolhold_core::HostError;
use toolhold_system::watch::{FileStamp, FolderWatch};

/// Folders that builds and installations make.
const MADE: [&str; 6] = ["target", "build", "dist", "node_modules", "deps", "__pycache__"];

const MADE_ENDINGS: [&str; 4] = [".wasm", ".wasm.new", ".wasm.minisig", ".pyc"];

/// Files that package managers write.
const LOCK_FILES: [&str; 2] = ["Cargo.lock", "package-lock.json"];

/// The most watched folders.
const MAX_FOLDERS: usize = 1_000;
const MAX_FILES: usize = 10_000;
const MAX_DEPTH: usize = 16;

pub(crate) struct Sources {
    root: PathBuf,
    watch: FolderWatch,
    stamps: BTreeMap<PathBuf, FileStamp>,
}

impl Sources {
    pub(crate) fn watch(root: &Path) -> Result<Self, HostError> {
        let watch = FolderWatch::new().map_err(HostError::io("watching the sources"))?;
        let mut sources = Self { root: root.to_owned(), watch, stamps: BTreeMap::new() };
        sources.stamps = sources.read_stamps()?;
        Ok(sources)
    }

    /// Waits until a source changes. Changes of other files don't end the wait.
    pub(crate) fn wait(&mut self) -> Result<(), HostError> {
        loop {
            self.watch.wait(&[]).map_err(HostError::io("watching the sources"))?;
            let stamps = self.read_stamps()?;
            if stamps != self.stamps {
                self.stamps = stamps;
                return Ok(());
            }
        }
    }

    /// Reads the stamps of all sources. Each folder is watched before its files are read, so that
    /// no change is missed.
    fn read_stamps(&self) -> Result<BTreeMap<PathBuf, FileStamp>, HostError> {
        walk(&self.root, |folder| self.watch_folder(folder), is_source)
    }

    /// Watches a folder. Only a failure for the root is an error.
    fn watch_folder(&self, folder: &Path) -> Result<(), HostError> {
        match self.watch.watch(folder) {
            Err(error) if folder == self.root => {
                Err(HostError::io(format!("watching {}", folder.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the stamps of the files that `includes` accepts. Calls `enter` before reading a folder.
/// Skips outputs and downloads.
fn walk(
    root: &Path,
    enter: impl Fn(&Path) -> Result<(), HostError>,
    includes: impl Fn(&str) -> bool,
) -> Result<BTreeMap<PathBuf, FileStamp>, HostError> {
    let mut stamps = BTreeMap::new();
    let mut pending = vec![(root.to_owned(), 0)];
    let mut entered = 0;
    while let Some((folder, depth)) = pending.pop() {
        entered += 1;
        enter(&folder)?;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let file_name = entry.file_name();
            let name: &str = &file_name.to_string_lossy();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                let may_have_sources = !name.starts_with('.') && !MADE.contains(&name);
                let known_folders = entered + pending.len();
                let is_within_limits = depth < MAX_DEPTH && known_folders < MAX_FOLDERS;
                if may_have_sources && is_within_limits {
                    pending.push((entry.path(), depth + 1));
                }
            } else if includes(name)
                && stamps.len() < MAX_FILES
                && let Some(stamp) = FileStamp::at(&entry.path())
            {
                stamps.insert(entry.path(), stamp);
            }
        }
    }
    Ok(stamps)
}

/// Files that decide which native code a build runs.
const NATIVE: [&str; 4] = ["build.rs", "Cargo.toml", "rust-toolchain", "rust-toolchain.toml"];

/// Folders with programs and settings that a build uses.
const NATIVE_FOLDERS: [&str; 3] = [".cargo", ".venv/bin", "node_modules/.bin"];

/// Reads the stamps of files that decide which native code a build runs.
pub(crate) fn native_stamps(root: &Path) -> Result<BTreeMap<PathBuf, FileStamp>, HostError> {
    let mut stamps = walk(root, |_| Ok(()), |name| NATIVE.contains(&name))?;
    for folder in NATIVE_FOLDERS {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        for entry in entries.take(MAX_FILES) {
            if let Some(stamp) = FileStamp::at(&entry.path()) {
                stamps.insert(entry.path(), stamp);
            }
        }
    }
    Ok(stamps)
}

/// Checks whether a file is newer than each source below `root`. Blocks.
pub(crate) fn is_newer_than_sources(file: &Path, root: &Path) -> bool {
    let Some(built_at) = modified(file) else { return false };
    let Ok(stamps) = walk(root, |_| Ok(()), is_source) else { return false };
    let mut sources: Vec<PathBuf> = stamps.into_keys().collect();
    // `walk` skips this folder, but the folder itself changes if a dependency is installed.
    let dependencies = root.join("deps");
    if dependencies.is_dir() {
        sources.push(dependencies);
    }
    sources.iter().all(|source| modified(source).is_some_and(|at| at < built_at))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Checks whether a file name belongs to a source. Outputs, lock files and temporary files of
/// editors aren't sources.
fn is_source(name: &str) -> bool {
    let is_output = MADE_ENDINGS.iter().any(|ending| name.ends_with(ending));
    let is_of_editor = name.starts_with('.') || name.ends_with('~') || name.ends_with(".swp");
    let is_lock_file = LOCK_FILES.contains(&name);
    !(is_output || is_of_editor || is_lock_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_with_the_authors_rights_is_told_from_other_sources() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        };
        for name in ["src/lib.rs", "plugin.py", "target/build.rs"] {
            write(name);
            assert!(native_stamps(folder.path()).unwrap().is_empty(), "{name}");
        }
        let mut before = 0;
        for name in ["build.rs", "macros/Cargo.toml", ".cargo/config.toml", ".venv/bin/python"] {
            write(name);
            before += 1;
            assert_eq!(native_stamps(folder.path()).unwrap().len(), before, "{name}");
        }
    }

    #[test]
    fn sources_are_seen_and_what_is_made_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "");
        let mut sources = Sources::watch(folder.path()).unwrap();
        let before = sources.stamps.clone();
        for made in [
            "target/a.rs",
            "build/x",
            ".git/index",
            "mine.wasm",
            "mine.wasm.new",
            "mine.wasm.minisig",
            "Cargo.lock",
            ".plugin.py.swp",
            "src/__pycache__/a.pyc",
        ] {
            write(made, "");
            assert_eq!(sources.read_stamps().unwrap(), before, "{made}");
        }
        write("src/lib.rs", "changed");
        sources.wait().unwrap();
        // Also in a folder that is new.
        write("src/more/new.rs", "");
        sources.wait().unwrap();
        assert!(sources.stamps.contains_key(&folder.path().join("src/more/new.rs")));
        fs::remove_file(folder.path().join("src/lib.rs")).unwrap();
        sources.wait().unwrap();
    }
}
