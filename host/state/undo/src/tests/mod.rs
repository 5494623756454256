//! Tests of undo: a scene with a tree and a store, and journals that hear of each change.

mod another;
mod in_caches;
mod later_changes;
mod moves;
mod names;
#[path = "../../../../../tests/not_tried.rs"]
mod not_tried;
mod objects;
mod random;
mod room;
mod several_calls;
mod trees;

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::*;

struct Scene {
    root: tempfile::TempDir,
    store: UndoStore,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let store = UndoStore::in_folder(root.path().join("undo"), UndoLimits::default());
        fs::create_dir(root.path().join("tree")).expect("a folder is made");
        Self { root, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join("tree").join(name)
    }

    fn journal(&self, call: &str) -> Journal {
        self.store.journal(UndoEntry::new(call, "write", "s", SystemTime::now()), false)
    }
}

fn handle(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).ok()
}

impl Journal {
    /// A path is about to change, found by its name.
    fn before(&self, path: &Path) -> std::io::Result<()> {
        let handles = [Some(path), path.parent()].map(|path| path.and_then(handle));
        self.before_change(&changed(path, &handles))
    }

    fn before_move(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        let [from_handles, to_handles] =
            [from, to].map(|path| [Some(path), path.parent()].map(|path| path.and_then(handle)));
        self.before_rename(&changed(from, &from_handles), &changed(to, &to_handles))
    }
}

fn changed<'a>(path: &'a Path, handles: &'a [Option<OwnedFd>; 2]) -> ChangedPath<'a> {
    let [object, parent] = handles.each_ref().map(|it| it.as_ref().map(AsFd::as_fd));
    ChangedPath { path, object, parent }
}

/// Returns all that can be seen of a tree, times included.
fn seen(root: &Path) -> Vec<(PathBuf, u32, i64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let there = fs::symlink_metadata(&path).expect("it is there");
        let contents = if there.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .expect("it is read")
                    .map(|entry| entry.expect("an entry").path()),
            );
            Vec::new()
        } else if there.is_symlink() {
            fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("it is read")
        };
        all.push((path, there.mode(), there.mtime(), there.mtime_nsec(), contents));
    }
    all.sort();
    all
}

/// A call, and what it does.
type TestCall<'a> = (&'a str, &'a dyn Fn(&Journal));

/// Calls that end one after the other.
fn calls(scene: &Scene, each: &[TestCall<'_>]) {
    for (call, act) in each {
        let journal = scene.journal(call);
        act(&journal);
        journal.finish().expect("it changed something");
    }
}

fn moved(journal: &Journal, from: &Path, to: &Path) {
    journal.before_move(from, to).expect("it is saved");
    fs::rename(from, to).expect("it is moved");
}
