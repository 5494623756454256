//! The folder of all sessions. Creates, lists and finds sessions, and removes old sessions.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use toolhold_core::config::Folders;
use toolhold_data_dir::PrivateFolder;

use super::entry::SessionEntry;
use super::file::SessionFile;
use super::load::Recorded;
use crate::AgentError;

/// Most sessions that are listed.
const MAX_SESSIONS: usize = 100_000;

/// The bytes at the start of a session file that are read for its directory and its first task.
const HEAD: u64 = 256 * 1024;

/// The sessions of the user.
#[derive(Clone, Debug)]
pub struct SessionStore {
    path: PathBuf,
}

/// A session in a list.
#[derive(Clone, Debug, Serialize)]
pub struct StoredSession {
    /// The session's ID.
    pub id: String,
    /// When the session was last changed, in seconds since 1970.
    pub changed: u64,
    /// The size of the session file.
    pub bytes: u64,
    /// The working directory.
    pub directory: String,
    /// The first task, on one line.
    pub title: String,
    /// The session of the agent that delegated the work to this session. `None`: a person started
    /// the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// The content of the first lines of a session.
#[derive(Default)]
struct SessionHead {
    directory: String,
    /// The first task, on one line.
    title: String,
    within: Option<String>,
}

/// The file of a session.
struct StoredFile {
    id: String,
    /// The time of the last change.
    changed: SystemTime,
    bytes: u64,
}

impl StoredFile {
    /// Compares two files by the time of the last change. If the times are equal, compares the IDs.
    fn newest_first(&self, other: &Self) -> Ordering {
        other.changed.cmp(&self.changed).then(other.id.cmp(&self.id))
    }
}

impl SessionStore {
    /// Makes the store of the sessions in Toolhold's data folder.
    pub fn new(folders: &Folders) -> Self {
        Self { path: folders.data.join("agent") }
    }

    /// Creates a session whose file has at most `limit` bytes. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the session file can't be created.
    pub fn create(&self, limit: u64) -> Result<(SessionFile, String), AgentError> {
        let folder = PrivateFolder::make(&self.path).map_err(self.failed())?;
        let id = new_id()?;
        let (file, _) = SessionFile::open(&folder, &id, limit)?;
        Ok((file, id))
    }

    /// Opens a session to resume it. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the session doesn't exist, if another process has it open, or if its
    /// file can't be read.
    pub fn open(&self, id: &str, limit: u64) -> Result<(SessionFile, Recorded), AgentError> {
        self.file(id)?;
        let folder = PrivateFolder::open(&self.path).map_err(self.failed())?;
        SessionFile::open(&folder, id, limit)
    }

    /// Opens the file of a session for reading. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the session doesn't exist or its file can't be read.
    pub fn file(&self, id: &str) -> Result<File, AgentError> {
        if !is_id(id) {
            return Err(unknown(id));
        }
        let folder = PrivateFolder::open(&self.path).map_err(|_| unknown(id))?;
        folder.file(&format!("{id}.jsonl")).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => unknown(id),
            _ => AgentError::io(id)(error),
        })
    }

    /// Lists the sessions, with the session that was changed last first. Blocks.
    ///
    /// # Errors
    ///
    /// The folder can't be read.
    pub fn list(&self, most: usize) -> Result<Vec<StoredSession>, AgentError> {
        let mut files = self.files()?;
        files.sort_by(StoredFile::newest_first);
        let sessions = files.into_iter().take(most).map(|StoredFile { id, changed, bytes }| {
            let SessionHead { directory, title, within } = self.head(&id).unwrap_or_default();
            let changed = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            StoredSession { id, changed: changed.as_secs(), bytes, directory, title, within }
        });
        Ok(sessions.collect())
    }

    /// Returns the ID of the session that was changed last in this directory. Blocks.
    ///
    /// # Errors
    ///
    /// The folder can't be read.
    pub fn last_in(&self, directory: &str) -> Result<Option<String>, AgentError> {
        let mut files = self.files()?;
        files.sort_by(StoredFile::newest_first);
        for file in files {
            let Some(head) = self.head(&file.id) else { continue };
            // A session without a task has nothing to go on with.
            let has_task = !head.title.is_empty();
            let is_of_person = head.within.is_none();
            if head.directory == directory && has_task && is_of_person {
                return Ok(Some(file.id));
            }
        }
        Ok(None)
    }

    /// Removes a session. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the session doesn't exist, if it is open, or if its file can't be
    /// removed.
    pub fn remove(&self, id: &str) -> Result<(), AgentError> {
        // The session's content isn't read, so damaged sessions can be removed too.
        self.file(id)?;
        let folder = PrivateFolder::open(&self.path).map_err(self.failed())?;
        let lock_name = format!("{id}.lock");
        let Some(lock) = folder.try_lock(&lock_name).map_err(AgentError::io(id))? else {
            return Err(AgentError::Running(id.to_owned()));
        };
        let removed = folder.remove(&format!("{id}.jsonl"));
        drop(lock);
        let _ = folder.remove(&lock_name);
        removed.map_err(AgentError::io(id))
    }

    /// Removes the sessions that weren't changed for this time and don't run. Blocks.
    pub fn remove_old(&self, age: Duration) {
        let Ok(files) = self.files() else { return };
        let now = SystemTime::now();
        for file in files {
            if now.duration_since(file.changed).is_ok_and(|since| since > age) {
                let _ = self.remove(&file.id);
            }
        }
    }

    /// Lists the files of all sessions.
    fn files(&self) -> Result<Vec<StoredFile>, AgentError> {
        let folder = match PrivateFolder::open(&self.path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed()(error)),
        };
        let names = folder.names(2 * MAX_SESSIONS).map_err(self.failed())?;
        let mut files = Vec::new();
        for name in &names {
            let Some(id) = name.strip_suffix(".jsonl") else { continue };
            if !is_id(id) {
                continue;
            }
            let Ok(metadata) = std::fs::symlink_metadata(self.path.join(name)) else { continue };
            let Ok(changed) = metadata.modified() else { continue };
            files.push(StoredFile { id: id.to_owned(), changed, bytes: metadata.len() });
        }
        Ok(files)
    }

    /// Reads the first lines of a session.
    fn head(&self, id: &str) -> Option<SessionHead> {
        let file = self.file(id).ok()?;
        let mut lines = BufReader::new(file.take(HEAD)).lines();
        let first = lines.next()?.ok()?;
        let SessionEntry::Began(began) = serde_json::from_str(&first).ok()? else { return None };
        let task = lines.find_map(|line| match serde_json::from_str(&line.ok()?).ok()? {
            SessionEntry::Task(task) => Some(task),
            _ => None,
        });
        let text = task.map(|task| crate::events::text_of(&task.parts)).unwrap_or_default();
        let title = toolhold_core::text::neutral_line(toolhold_core::text::cut(&text, 200));
        Some(SessionHead { directory: began.directory, title, within: began.within })
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> AgentError + use<> {
        let what = self.path.display().to_string();
        move |source| AgentError::Host(toolhold_core::HostError::Io { what, source })
    }
}

/// Makes an ID that sorts by time: the seconds since 1970, and random digits.
fn new_id() -> Result<String, AgentError> {
    let mut random = [0_u8; 6];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| AgentError::io("new")(error.into()))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{:x}-{digits}", now.as_secs()))
}

fn unknown(id: &str) -> AgentError {
    AgentError::Unknown(toolhold_core::text::neutral_line(id))
}

fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 64
        && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
