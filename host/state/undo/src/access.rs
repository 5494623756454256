//! Gives the owner of a file missing permissions during an undo, and removes them afterwards.
//!
//! A command may have removed these permissions with `chmod 000` or `chmod -R a-w`. The owner has
//! them while an undo needs them. Afterwards, the permissions are the same as before.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::rules::Rule;
use super::saved_path;

/// The permissions that an owner needs for a directory, and for a file that is read or written.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Temporary permissions. Dropping this value removes them.
#[derive(Debug, Default)]
pub(crate) struct Access {
    given: RefCell<Vec<(OwnedFd, Given)>>,
    /// A file with a line for each permission, in case this process is killed.
    notes: Option<File>,
}

/// A permission that is given for a time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Given {
    #[serde(with = "saved_path")]
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
    before: u32,
    now: u32,
}

impl Given {
    /// Takes the permission back, unless somebody has set the permissions since.
    pub(crate) fn take_back(&self, handle: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH) else { return };
        let is_object = (stat.st_dev, stat.st_ino) == (self.device, self.inode);
        let is_unchanged = stat.st_mode & 0o7777 == self.now;
        if is_object && is_unchanged {
            let _ = set(handle, self.before);
        }
    }
}

impl Access {
    /// Notes each permission in a file.
    pub(crate) fn noting(notes: File) -> Self {
        Self { notes: Some(notes), given: RefCell::default() }
    }

    /// Gives the owner the permissions that an undo needs for a directory.
    ///
    /// # Errors
    ///
    /// [`Errno::ACCESS`] if the owner already has the permissions, or another user owns the
    /// directory.
    pub(crate) fn give_directory(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, DIRECTORY)
    }

    /// Gives the owner the permissions that an undo needs for a file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`give_directory`](Self::give_directory).
    pub(crate) fn give_file(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, FILE)
    }

    /// Records that the permissions of an object are final, so that they aren't removed.
    pub(crate) fn keep(&self, device: u64, inode: u64) {
        self.given.borrow_mut().retain(|(_, given)| (given.device, given.inode) != (device, inode));
    }

    /// Returns the permissions of an object, without temporary ones.
    pub(crate) fn own_mode(&self, stat: &Stat) -> u32 {
        let mode = stat.st_mode & 0o7777;
        for (_, given) in self.given.borrow().iter() {
            if (given.device, given.inode, given.now) == (stat.st_dev, stat.st_ino, mode) {
                return given.before;
            }
        }
        mode
    }

    /// Gives the owner these permissions, and records them.
    fn give(&self, handle: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH)?;
        let before = stat.st_mode & 0o7777;
        let is_owner = stat.st_uid == rustix::process::geteuid().as_raw();
        if !is_owner || before & bits == bits || Rule::Permissions.is_off() {
            return Err(Errno::ACCESS);
        }
        let now = before | bits;
        let path = std::fs::read_link(link(handle)).unwrap_or_default();
        let given = Given { path, device: stat.st_dev, inode: stat.st_ino, before, now };
        if let Some(mut notes) = self.notes.as_ref() {
            let mut line = serde_json::to_vec(&given).unwrap_or_default();
            line.push(b'\n');
            // Writing the note may fail if the disk is full. The undo continues without it.
            let _ = notes.write_all(&line);
        }
        set(handle, now)?;
        let handle = rustix::io::fcntl_dupfd_cloexec(handle, 0)?;
        self.given.borrow_mut().push((handle, given));
        Ok(())
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        for (handle, given) in self.given.take().into_iter().rev() {
            given.take_back(handle.as_fd());
        }
        if let Some(notes) = &self.notes {
            let _ = notes.set_len(0);
        }
    }
}

fn set(handle: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::chmodat(CWD, link(handle), mode, AtFlags::empty())
}

fn link(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
