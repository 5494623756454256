//! Waits for new entries of the audit log.

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

const EVENT_BYTES: usize = 4096;

/// Waits for entries that are written after the end of a [`Trail`].
pub struct Follow {
    trail: Trail,
    changes: OwnedFd,
    /// The current file, and the position of the next entry in it.
    file: Option<File>,
    at: u64,
}

impl Trail {
    /// Returns a reader of the entries that are written after the end of this trail.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be watched, for example because it doesn't exist.
    pub fn follow(mut self) -> Result<Follow, HostError> {
        let changes = inotify::init(CreateFlags::CLOEXEC)
            .map_err(|errno| cannot_watch(self.path(), errno))?;
        let events = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_FROM;
        inotify::add_watch(&changes, self.path(), events)
            .map_err(|errno| cannot_watch(self.path(), errno))?;
        let newest = self.opened.as_mut().and_then(|opened| opened.files.pop());
        let (file, at) = match newest {
            Some(log) if log.number.is_none() => (Some(log.file), log.size),
            // The next entry starts a new file.
            _ => (None, 0),
        };
        Ok(Follow { trail: self, changes, file, at })
    }
}

fn cannot_watch(folder: &Path, errno: Errno) -> HostError {
    HostError::io(format!("watching {}", folder.display()))(errno.into())
}

impl Follow {
    /// Waits for new entries without a time limit, and returns them.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if waiting or reading fails.
    pub fn wait(&mut self) -> Result<Vec<Value>, HostError> {
        let to_host_error = HostError::io(self.trail.path().display().to_string());
        self.wait_for_new().map_err(to_host_error)
    }

    fn wait_for_new(&mut self) -> io::Result<Vec<Value>> {
        loop {
            let records = self.read_new()?;
            if !records.is_empty() {
                return Ok(records);
            }
            rustix::io::retry_on_intr(|| rustix::io::read(&self.changes, &mut [0; EVENT_BYTES]))?;
        }
    }

    /// Returns the new entries of the current file and of the files after it.
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
            let mut is_finished = false;
            let mut lines = Lines::new(&file, self.at, file.metadata()?.len());
            while let Some(line) = lines.next()? {
                if !line.whole {
                    break;
                }
                self.at = line.to;
                if SealedRecord::parse(line.bytes).is_some() {
                    is_finished = chain::kind(line.bytes) == b"end";
                    // A line in the form of an entry may be damaged, and is then skipped.
                    records.extend(serde_json::from_slice::<Value>(line.bytes).ok());
                }
            }
            if !is_finished {
                self.file = Some(file);
                return Ok(records);
            }
            self.at = 0;
        }
    }
}
