//! Distributes the entries of a directory to the search threads. Each entry goes to one thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::FileType;

use super::directory::Names;
use super::ignores::Ignores;

/// A directory that is searched.
#[derive(Debug)]
pub(super) struct Folder {
    /// The handle of the directory.
    pub(super) fd: OwnedFd,
    /// The directory's real path and a slash. Every path in the directory begins with this prefix.
    pub(super) prefix: Vec<u8>,
    /// The number of levels below the root. The root has level 0.
    pub(super) depth: u32,
    /// The rules of the ignore files in this directory and in its parents.
    pub(super) ignores: Option<Arc<Ignores>>,
    /// The directory's entries.
    pub(super) names: Names,
    /// The index of the next entry that a thread takes.
    next: AtomicUsize,
    /// Whether the queue has a task for this folder, so that other threads can help.
    pub(super) offered: AtomicBool,
}

impl Folder {
    pub(super) fn new(
        fd: OwnedFd,
        prefix: Vec<u8>,
        depth: u32,
        ignores: Option<Arc<Ignores>>,
        names: Names,
    ) -> Self {
        Self {
            fd,
            prefix,
            depth,
            ignores,
            names,
            next: AtomicUsize::new(0),
            offered: AtomicBool::new(false),
        }
    }

    /// Takes the next entry that isn't a directory. Each entry is taken by only one thread.
    pub(super) fn take_file(&self) -> Option<usize> {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.names.len() {
                return None;
            }
            if self.names.kind(index) != FileType::Directory {
                return Some(index);
            }
        }
    }

    /// Checks whether more entries are available.
    pub(super) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.names.len()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
