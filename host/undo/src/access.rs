//! Permissions that the owner of a file may always give back.
//!
//! A command may have taken them: `chmod 000`, `chmod -R a-w`. They are given for as long as an
//! undo needs them, and then are as they were.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;

use super::rules::Rule;

/// What an owner needs of a directory, and of a file that is read or written.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// The permissions that are given. They are taken back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Access {
    given: RefCell<Vec<Given>>,
}

#[derive(Debug)]
struct Given {
    handle: OwnedFd,
    device: u64,
    inode: u64,
    before: u32,
    now: u32,
}

impl Access {
    /// Gives the owner what is needed of a directory.
    ///
    /// # Errors
    ///
    /// [`Errno::ACCESS`] if the owner has it already, or if another user owns it.
    pub(crate) fn give_directory(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, DIRECTORY)
    }

    /// Gives the owner what is needed of a file.
    ///
    /// # Errors
    ///
    /// Those of [`give_directory`](Self::give_directory).
    pub(crate) fn give_file(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        self.give(handle, FILE)
    }

    /// The permissions of an object are set for good.
    pub(crate) fn keep(&self, device: u64, inode: u64) {
        self.given.borrow_mut().retain(|given| (given.device, given.inode) != (device, inode));
    }

    fn give(&self, handle: BorrowedFd<'_>, bits: u32) -> Result<(), Errno> {
        let stat = rustix::fs::statat(handle, "", AtFlags::EMPTY_PATH)?;
        let before = stat.st_mode & 0o7777;
        let is_owner = stat.st_uid == rustix::process::geteuid().as_raw();
        if !is_owner || before & bits == bits || Rule::Permissions.is_off() {
            return Err(Errno::ACCESS);
        }
        let now = before | bits;
        set(handle, now)?;
        let handle = rustix::io::fcntl_dupfd_cloexec(handle, 0)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        self.given.borrow_mut().push(Given { handle, device, inode, before, now });
        Ok(())
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        for given in self.given.take().into_iter().rev() {
            let stat = rustix::fs::statat(&given.handle, "", AtFlags::EMPTY_PATH);
            if stat.is_ok_and(|stat| stat.st_mode & 0o7777 == given.now) {
                let _ = set(given.handle.as_fd(), given.before);
            }
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
