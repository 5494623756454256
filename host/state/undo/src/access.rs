//! Gives the owner of an object missing permissions during an undo, and removes them afterwards. A
//! command may have removed these permissions with `chmod 000` or `chmod -R a-w`.

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

/// The permissions that the owner gets for a directory and for a file.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// The bits of a mode without the type of the object: permissions, and bits such as set-user-ID.
pub(crate) const MODE_BITS: u32 = 0o7777;

/// Temporary permissions. Dropping this value removes them.
#[derive(Debug, Default)]
pub(crate) struct Access {
    given: RefCell<Vec<(OwnedFd, Given)>>,
    /// A line for each given permission. If this process is killed, a later undo reads the lines
    /// and removes the permissions.
    notes: Option<File>,
}

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
    /// Restores the earlier mode. Does nothing if the mode was changed in the meantime, or if the
    /// handle is of another object.
    pub(crate) fn take_back(&self, handle: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH) else { return };
        let is_object = (stat.st_dev, stat.st_ino) == (self.device, self.inode);
        let is_unchanged = stat.st_mode & MODE_BITS == self.now;
        if is_object && is_unchanged {
            let _ = set(handle, self.before);
        }
    }
}

impl Access {
    pub(crate) fn noting(notes: File) -> Self {
        Self { notes: Some(notes), given: RefCell::default() }
    }

    /// Fails with [`Errno::ACCESS`] if the owner already has the permissions, or if another user
    /// owns the directory.
    pub(crate) fn give_directory(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, DIRECTORY)
    }

    pub(crate) fn give_file(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, FILE)
    }

    /// Makes the current permissions of an object final.
    pub(crate) fn keep(&self, device: u64, inode: u64) {
        self.given.borrow_mut().retain(|(_, given)| (given.device, given.inode) != (device, inode));
    }

    /// Returns the mode of an object without its temporary permissions.
    pub(crate) fn own_mode(&self, stat: &Stat) -> u32 {
        let mode = stat.st_mode & MODE_BITS;
        for (_, given) in self.given.borrow().iter() {
            if (given.device, given.inode, given.now) == (stat.st_dev, stat.st_ino, mode) {
                return given.before;
            }
        }
        mode
    }

    /// Adds permissions to an object of this user until this value is dropped. Fails with
    /// [`Errno::ACCESS`] if the owner already has the permissions, or if another user owns the
    /// object.
    fn give(&self, handle: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH)?;
        let before = stat.st_mode & MODE_BITS;
        let is_owner = stat.st_uid == rustix::process::geteuid().as_raw();
        let has_permissions = before & bits == bits;
        if !is_owner || has_permissions || Rule::Permissions.is_off_in_test() {
            return Err(Errno::ACCESS);
        }
        let now = before | bits;
        // The path and the line are needed only after a crash, so the undo continues without them.
        let path = std::fs::read_link(link(handle)).unwrap_or_default();
        let given = Given { path, device: stat.st_dev, inode: stat.st_ino, before, now };
        if let Some(mut notes) = self.notes.as_ref() {
            let mut line = serde_json::to_vec(&given).unwrap_or_default();
            line.push(b'\n');
            // The disk may be full. The undo continues without the line.
            let _ = notes.write_all(&line);
        }
        set(handle, now)?;
        let lowest_descriptor = 0;
        let own_handle = rustix::io::fcntl_dupfd_cloexec(handle, lowest_descriptor)?;
        self.given.borrow_mut().push((own_handle, given));
        Ok(())
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        for (handle, given) in self.given.take().into_iter().rev() {
            given.take_back(handle.as_fd());
        }
        // After a normal end, no later undo needs the lines.
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
