//! The folder of all sessions.

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

const MAX_SESSIONS: usize = 100_000;

/// The first bytes of a session file, which are searched for the directory and the first task.
const HEAD_BYTES: u64 = 256 * 1024;

/// Most bytes of a title.
const MAX_TITLE: usize = 200;

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
    /// Whether a model has answered, or may have answered after the start of a long file.
    #[serde(skip)]
    pub has_answer: bool,
    /// The session of the agent that delegated this session, or `None` if a person started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

#[derive(Default)]
struct SessionHead {
    directory: String,
    title: String,
    has_answer: bool,
    within: Option<String>,
}

struct StoredFile {
    id: String,
    changed: SystemTime,
    bytes: u64,
}

impl StoredFile {
    fn newest_first(&self, other: &Self) -> Ordering {
        other.changed.cmp(&self.changed).then(other.id.cmp(&self.id))
    }
}

impl SessionStore {
    /// Opens the store in Toolhold's data folder.
    pub fn new(folders: &Folders) -> Self {
        Self { path: folders.data.join("agent") }
    }

    /// Creates a session whose file has at most `limit` bytes. Returns the file and the session's
    /// ID. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session file can't be created.
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
    /// Fails if the session doesn't exist, if another process has it open, or if its file can't be
    /// read.
    pub fn open(&self, id: &str, limit: u64) -> Result<(SessionFile, Recorded), AgentError> {
        // Fail if the file is missing, because `SessionFile::open` would create it.
        self.file(id)?;
        let folder = PrivateFolder::open(&self.path).map_err(self.failed())?;
        SessionFile::open(&folder, id, limit)
    }

    /// Opens the file of a session for reading. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session doesn't exist or its file can't be read.
    pub fn file(&self, id: &str) -> Result<File, AgentError> {
        if !is_id(id) {
            return Err(unknown(id));
        }
        let folder = PrivateFolder::open(&self.path).map_err(|_| unknown(id))?;
        folder.file(&format!("{id}.jsonl")).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => unknown(id),
            _ => AgentError::Io { id: id.to_owned(), source: error },
        })
    }

    /// Lists the `max_sessions` sessions that were changed last, newest first. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be read.
    pub fn list(&self, max_sessions: usize) -> Result<Vec<StoredSession>, AgentError> {
        let mut files = self.files()?;
        files.sort_by(StoredFile::newest_first);
        let mut sessions = Vec::new();
        for file in files.into_iter().take(max_sessions) {
            // List a session with a damaged file without directory and title, so that the person
            // can remove the session.
            let head = self.head(&file.id).unwrap_or_default();
            let changed = file.changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            sessions.push(StoredSession {
                id: file.id,
                changed: changed.as_secs(),
                bytes: file.bytes,
                directory: head.directory,
                title: head.title,
                // The part that wasn't read may contain an answer.
                has_answer: head.has_answer || file.bytes > HEAD_BYTES,
                within: head.within,
            });
        }
        Ok(sessions)
    }

    /// Returns the ID of the last changed session in this directory. Sub-agents' sessions and
    /// sessions without a task are ignored. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be read.
    pub fn last_in(&self, directory: &str) -> Result<Option<String>, AgentError> {
        let mut files = self.files()?;
        files.sort_by(StoredFile::newest_first);
        for file in files {
            let Some(head) = self.head(&file.id) else { continue };
            let has_task = !head.title.is_empty();
            let is_of_person = head.within.is_none();
            if head.directory == directory && has_task && is_of_person {
                return Ok(Some(file.id));
            }
        }
        Ok(None)
    }

    /// Returns the provider and the model of a session's last task. Returns `None` if the session
    /// has no task. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session doesn't exist or its file can't be read.
    pub fn last_model(&self, id: &str) -> Result<Option<(String, String)>, AgentError> {
        let mut file = self.file(id)?;
        let recorded = Recorded::read(&mut file).map_err(AgentError::io(id))?;
        Ok(recorded.task.map(|task| (task.settings.provider, task.settings.model)))
    }

    /// Removes a session. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the session doesn't exist, if it is open, or if its file can't be removed.
    pub fn remove(&self, id: &str) -> Result<(), AgentError> {
        // Only check that the file exists. Its content isn't read, so that a damaged session can be
        // removed, too.
        self.file(id)?;
        let folder = PrivateFolder::open(&self.path).map_err(self.failed())?;
        let lock_name = format!("{id}.lock");
        let Some(lock) = folder.try_lock(&lock_name).map_err(AgentError::io(id))? else {
            return Err(AgentError::Running(id.to_owned()));
        };
        let removed = folder.remove(&format!("{id}.jsonl"));
        drop(lock);
        // A lock file that remains does no harm, so ignore errors.
        let _ = folder.remove(&lock_name);
        removed.map_err(AgentError::io(id))
    }

    /// Removes the sessions that weren't changed for `age`, except running sessions. Blocks.
    pub fn remove_old(&self, age: Duration) {
        let Ok(files) = self.files() else { return };
        let now = SystemTime::now();
        for file in files {
            if now.duration_since(file.changed).is_ok_and(|since| since > age) {
                let _ = self.remove(&file.id);
            }
        }
    }

    /// Returns the session files in any order. Unreadable files are left out.
    fn files(&self) -> Result<Vec<StoredFile>, AgentError> {
        let folder = match PrivateFolder::open(&self.path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed()(error)),
        };
        // Each session has a file and a lock.
        let max_names = 2 * MAX_SESSIONS;
        let names = folder.names(max_names).map_err(self.failed())?;
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

    /// Reads the directory and the first task of a session, and whether an answer follows. Returns
    /// `None` if the first line is unreadable.
    fn head(&self, id: &str) -> Option<SessionHead> {
        let file = self.file(id).ok()?;
        let mut lines = BufReader::new(file.take(HEAD_BYTES)).lines();
        let first_line = lines.next()?.ok()?;
        let SessionEntry::Began(began) = serde_json::from_str(&first_line).ok()? else {
            return None;
        };
        let mut first_task = String::new();
        for line in lines.by_ref() {
            if let Ok(line) = line
                && let Ok(SessionEntry::Task(task)) = serde_json::from_str(&line)
            {
                first_task = crate::events::text_of(&task.parts);
                break;
            }
        }
        let has_answer = lines.any(|line| line.is_ok_and(|line| line.starts_with("{\"answer\":")));
        let title = toolhold_core::text::cut(&first_task, MAX_TITLE);
        let title = toolhold_core::text::neutral_line(title);
        Some(SessionHead { directory: began.directory, title, has_answer, within: began.within })
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> AgentError + use<> {
        let what = self.path.display().to_string();
        move |source| AgentError::Host(toolhold_core::HostError::Io { what, source })
    }
}

/// Makes an ID of the seconds since 1970 and random digits. IDs sort by time.
fn new_id() -> Result<String, AgentError> {
    let mut random = [0_u8; 6];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| AgentError::Io { id: "new".to_owned(), source: error.into() })?;
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
