//! Waits for new entries of the audit log, as `toolhold audit tail --follow` does.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use serde_json::Value;
use toolhold_contract::HostError;

use super::chain::{self, SealedRecord};
use super::lines::Lines;
use super::trail::{Trail, current};

/// New records after the end of a [`Trail`].
pub struct Follow {
    trail: Trail,
    changes: OwnedFd,
    /// The file that is being read, and the position in it.
    file: Option<File>,
    at: u64,
}

impl Trail {
    /// Starts at the end of this trail.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be watched, for example because nothing was ever
    /// recorded.
    pub fn follow(mut self) -> Result<Follow, HostError> {
        let changes = inotify::init(CreateFlags::CLOEXEC)
            .map_err(|errno| cannot_watch(self.path(), errno))?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_FROM;
        inotify::add_watch(&changes, self.path(), what)
            .map_err(|errno| cannot_watch(self.path(), errno))?;
        let last = self.opened.as_mut().and_then(|opened| opened.files.pop());
        let (file, at) = match last {
            // The current file has no number.
            Some(log) if log.number.is_none() => (Some(log.file), log.size),
            _ => (None, 0),
        };
        Ok(Follow { trail: self, changes, file, at })
    }
}

fn cannot_watch(folder: &Path, errno: Errno) -> HostError {
    HostError::io(format!("watching {}", folder.display()))(errno.into())
}

impl Follow {
    /// Waits for the next entries and returns them. Waits without a time limit, and returns at
    /// least one entry.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the folder if waiting or reading fails.
    pub fn wait(&mut self) -> Result<Vec<Value>, HostError> {
        let failed = HostError::io(self.trail.path().display().to_string());
        self.wait_for_new().map_err(failed)
    }

    fn wait_for_new(&mut self) -> io::Result<Vec<Value>> {
        loop {
            let records = self.read_new()?;
            if !records.is_empty() {
                return Ok(records);
            }
            // The events only show that something has changed, so their content isn't needed.
            rustix::io::retry_on_intr(|| rustix::io::read(&self.changes, &mut [0; 4096]))?;
        }
    }

    fn read_new(&mut self) -> io::Result<Vec<Value>> {
        let mut records = Vec::new();
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => match current(self.trail.path())? {
                    Some(file) => file,
                    None => return Ok(records),
                },
            };
            let mut ended = false;
            let mut lines = Lines::new(&file, self.at, file.metadata()?.len());
            while let Some(line) = lines.next()? {
                if !line.whole {
                    // A line without an end is still being written.
                    break;
                }
                self.at = line.to;
                if SealedRecord::parse(line.bytes).is_some() {
                    ended = chain::kind(line.bytes) == b"end";
                    records.extend(serde_json::from_slice(line.bytes).ok());
                }
            }
            if !ended {
                self.file = Some(file);
                return Ok(records);
            }
            self.at = 0;
        }
    }
}
