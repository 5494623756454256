//! Adds entries to a session file. Only one process at a time has the file open for writing. If a
//! process is killed, its incomplete last line is removed.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use toolhold_data_dir::PrivateFolder;

use super::entry::SessionEntry;
use super::load::Recorded;
use super::{MAX_ENTRIES, MAX_LINE};
use crate::AgentError;

/// How often a lock is tried, and the time between.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(25);

/// A session file that is open for more entries. No other process can add entries to it.
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
/// If the lock is taken, tries again for a moment. The reason: a child process inherits the open
/// files of its parent until it runs its program, even if the parent has just ended.
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
    /// Opens the file of the session `id`, which may be new. The incomplete last line of a killed
    /// process is cut off. Blocks.
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

    /// Adds an entry, and returns its number.
    ///
    /// # Errors
    ///
    /// Returns an error if the entry can't be written, or if the session would exceed its size
    /// limit.
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
            let bytes = open.bytes + line.len() as u64;
            if bytes > open.limit {
                let id = open.id.clone();
                return Err(AgentError::TooLarge { id, bytes, limit: open.limit });
            }
            if open.entries >= MAX_ENTRIES {
                let why = format!("it has {MAX_ENTRIES} entries, the limit: start another session");
                return Err(AgentError::io(&open.id)(std::io::Error::other(why)));
            }
            if let Err(error) = open.file.write_all(&line) {
                // A part of a line would spoil the next line.
                let bytes = open.bytes;
                let _ = open.file.set_len(bytes);
                return Err(AgentError::io(&open.id)(error));
            }
            open.bytes = bytes;
            open.entries += 1;
            Ok(open.entries - 1)
        });
        written.await.map_err(|error| self.failed(error.into()))?
    }

    fn failed(&self, error: std::io::Error) -> AgentError {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        AgentError::io(&open.id)(error)
    }
}
