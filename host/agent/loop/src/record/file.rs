//! Adds entries to a session file. Only one process at a time can open the file for writing.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use toolhold_data_dir::PrivateFolder;

use super::entry::SessionEntry;
use super::load::Recorded;
use super::{MAX_ENTRIES, MAX_LINE};
use crate::AgentError;

const LOCK_ATTEMPTS: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(25);

/// A session file that is open for writing. No other process can write to the file.
#[derive(Clone, Debug)]
pub struct SessionFile(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    file: File,
    /// Held while the session runs.
    _lock: File,
    id: String,
    bytes: u64,
    limit: u64,
    entries: usize,
}

/// Takes the lock of a session. Blocks.
///
/// Tries for a while, because a new child process keeps its parent's open files until it executes
/// its program. So the lock of a parent that has just ended may be free only a moment later.
fn take_lock(folder: &PrivateFolder, id: &str) -> Result<File, AgentError> {
    let name = format!("{id}.lock");
    for attempt in 0..LOCK_ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(LOCK_WAIT);
        }
        if let Some(lock) = folder.try_lock(&name).map_err(AgentError::io(id))? {
            return Ok(lock);
        }
    }
    Err(AgentError::Running(id.to_owned()))
}

impl SessionFile {
    /// Opens or creates the file of the session `id`, and reads its content. Cuts off an incomplete
    /// last line, which a killed process may have left. Blocks.
    pub(super) fn open(
        folder: &PrivateFolder,
        id: &str,
        limit: u64,
    ) -> Result<(Self, Recorded), AgentError> {
        let lock = take_lock(folder, id)?;
        let opened = folder.appended(&format!("{id}.jsonl")).and_then(|mut file| {
            let recorded = Recorded::read(&mut file)?;
            if file.metadata()?.len() > recorded.bytes {
                file.set_len(recorded.bytes)?;
            }
            file.seek(SeekFrom::End(0))?;
            Ok((file, recorded))
        });
        let (file, recorded) = opened.map_err(AgentError::io(id))?;
        let open = Open {
            file,
            _lock: lock,
            id: id.to_owned(),
            bytes: recorded.bytes,
            limit,
            entries: recorded.entries,
        };
        Ok((Self(Arc::new(Mutex::new(open))), recorded))
    }

    /// Adds an entry, and returns its number. Fails if the entry or the session would be too large.
    pub(crate) async fn append(&self, entry: &SessionEntry) -> Result<usize, AgentError> {
        let mut line = serde_json::to_vec(entry).map_err(|error| self.failed(error.into()))?;
        let bytes = line.len();
        if bytes > MAX_LINE {
            let id = self.0.lock().unwrap_or_else(PoisonError::into_inner).id.clone();
            return Err(AgentError::LargeEntry { id, bytes, limit: MAX_LINE });
        }
        line.push(b'\n');
        let open = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            open.write_line(&line)
        });
        written.await.map_err(|error| self.failed(error.into()))?
    }

    /// Reads the session file with `read_file`, on a thread for blocking work.
    ///
    /// # Errors
    ///
    /// Returns an error if `read_file` can't read the file.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read_file: fn(&mut File) -> std::io::Result<T>,
    ) -> Result<T, AgentError> {
        let open = Arc::clone(&self.0);
        let reading = tokio::task::spawn_blocking(move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            // Reading moves the file's position, but entries are always appended at the end.
            let content = read_file(&mut open.file);
            content.map_err(AgentError::io(&open.id))
        });
        reading.await.map_err(|error| self.failed(error.into()))?
    }

    fn failed(&self, error: std::io::Error) -> AgentError {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        AgentError::Io { id: open.id.clone(), source: error }
    }
}

impl Open {
    /// Writes the line of an entry, and returns the entry's number. Blocks.
    fn write_line(&mut self, line: &[u8]) -> Result<usize, AgentError> {
        let new_length = self.bytes + line.len() as u64;
        if new_length > self.limit {
            let id = self.id.clone();
            return Err(AgentError::TooLarge { id, bytes: new_length, limit: self.limit });
        }
        if self.entries >= MAX_ENTRIES {
            let why =
                format!("the session has {MAX_ENTRIES} entries, the limit. Start another session");
            return Err(AgentError::Io { id: self.id.clone(), source: std::io::Error::other(why) });
        }
        if let Err(error) = self.file.write_all(line) {
            // Remove the written part of this line, so that the next entry doesn't follow it.
            let _ = self.file.set_len(self.bytes);
            return Err(AgentError::Io { id: self.id.clone(), source: error });
        }
        self.bytes = new_length;
        let number = self.entries;
        self.entries += 1;
        Ok(number)
    }
}
