//! Gives each entry of a directory to one search thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::FileType;

use super::directory::Names;
use super::ignores::Ignores;

#[derive(Debug)]
pub(super) struct Folder {
    pub(super) fd: OwnedFd,
    /// The real path of the directory, and a slash.
    pub(super) prefix: Vec<u8>,
    pub(super) depth: u32,
    /// The rules of the ignore files in the directory and its parents.
    pub(super) ignores: Option<Arc<Ignores>>,
    pub(super) names: Names,
    next_index: AtomicUsize,
    /// Whether the queue has a task to help with this folder.
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
            next_index: AtomicUsize::new(0),
            offered: AtomicBool::new(false),
        }
    }

    /// Takes the next entry that isn't a directory, and returns its index in `names`. Only one
    /// thread gets each entry. Returns `None` after the last entry.
    pub(super) fn take_file(&self) -> Option<usize> {
        loop {
            let index = self.next_index.fetch_add(1, Ordering::Relaxed);
            if index >= self.names.len() {
                return None;
            }
            if self.names.kind(index) != FileType::Directory {
                return Some(index);
            }
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.next_index.load(Ordering::Relaxed) < self.names.len()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
