//! A directory that is searched: its handle, where it lies, and what is in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::FileType;

use super::directory::Names;
use super::ignores::Ignores;

/// See the module.
#[derive(Debug)]
pub(super) struct Folder {
    /// The directory.
    pub(super) fd: OwnedFd,
    /// Its real path and a slash: what every path in it begins with.
    pub(super) prefix: Vec<u8>,
    /// 0 for the root.
    pub(super) depth: u32,
    /// What the ignore files of this directory and of those above say.
    pub(super) ignores: Option<Arc<Ignores>>,
    /// What is in it.
    pub(super) names: Names,
    /// The next entry that a thread takes.
    next: AtomicUsize,
    /// Whether a task asks for help with this folder.
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

    /// Takes the next entry that is no directory. Every entry is taken once, by whatever thread.
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

    /// Whether entries are left to take.
    pub(super) fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.names.len()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
