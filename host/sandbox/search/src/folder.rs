//! Hands out the entries of a directory to the threads that search it, each once.

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
    /// Its real path and a slash: the prefix of every path in it.
    pub(super) prefix: Vec<u8>,
    /// Levels below the root; 0 for the root.
    pub(super) depth: u32,
    /// The rules of the ignore files in this directory and in those above.
    pub(super) ignores: Option<Arc<Ignores>>,
    /// Its entries.
    pub(super) names: Names,
    /// The index of the next entry that a thread takes.
    next: AtomicUsize,
    /// Whether the queue holds a task that asks for help with this folder.
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

    /// Takes the next entry that isn't a directory. Each entry is taken once, by one of the
    /// threads.
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

    /// Checks whether entries are left to take.
    pub(super) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.names.len()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
