//! Reads a snapshot of the audit log: its last entries, or the entries of one call.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolhold_config::Folders;
use toolhold_contract::HostError;
use toolhold_data_dir::PrivateFolder;

use super::chain::{self, Key, SealedRecord};
use super::files::{self, CURRENT};
use super::head::Head;
use super::lines::Lines;
use super::log::LogLock;

/// A snapshot of the audit log.
pub struct Trail {
    path: PathBuf,
    /// The open log. `None` means that the log has no entries yet.
    pub(super) opened: Option<OpenLog>,
}

pub(super) struct OpenLog {
    pub(super) key: Key,
    pub(super) head: Option<Head>,
    pub(super) files: Vec<LogFile>,
}

pub(super) struct LogFile {
    pub(super) name: String,
    /// The number in the file's name. The current file has no number.
    pub(super) number: Option<u64>,
    pub(super) file: File,
    pub(super) size: u64,
}

/// The last entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the entry, starting with 1.
    pub seq: u64,
    /// The hash of the entry in hexadecimal. A copy outside of the folder reveals later changes of
    /// all entries up to this one.
    pub hash: String,
}

impl Trail {
    /// Opens the log in the folders of a user. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be read, or if its key is lost or damaged.
    pub fn open(folders: &Folders) -> Result<Self, HostError> {
        let path = folders.operator_data().join(files::FOLDER);
        let opened = OpenLog::open(&path).map_err(HostError::io(path.display().to_string()))?;
        Ok(Self { path, opened })
    }

    /// Returns the folder of the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last entry, as the file `head` states it. Returns `None` if the log has no
    /// entries yet.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the file is missing or damaged, or if the end of the log is missing.
    pub fn head(&self) -> Result<Option<ChainHead>, HostError> {
        let Some(opened) = &self.opened else { return Ok(None) };
        let Some(head) = opened.head else {
            return Err(self.damaged(
                files::HEAD,
                "the file is missing or damaged, so the end of the log is unknown",
            ));
        };
        // The current file has no number, unless another process has just finished it.
        let has_end = opened.files.iter().any(|log| {
            let may_be_of_head = log.number.is_none_or(|number| number == head.file);
            may_be_of_head && log.size >= head.end
        });
        if head.end > 0 && !has_end {
            return Err(self.damaged(CURRENT, "the end of the log is cut off"));
        }
        if head.link.seq == 0 {
            return Ok(None);
        }
        Ok(Some(ChainHead { seq: head.link.seq, hash: chain::to_hex(&head.link.hash) }))
    }

    fn damaged(&self, name: &str, what: &str) -> HostError {
        let error = io::Error::new(
            ErrorKind::InvalidData,
            format!("{what}; `toolhold audit verify` shows details"),
        );
        HostError::io(self.path.join(name).display().to_string())(error)
    }

    /// Returns all entries of one call: the intent, the approval and the outcome. The hashes aren't
    /// verified.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the log can't be read.
    pub fn of_call(&self, id: &str) -> Result<Vec<Value>, HostError> {
        let call_field = format!("\",\"call\":\"{id}\"");
        let mut records = Vec::new();
        for log in self.files() {
            self.each_line(log, |line| {
                let kind = chain::kind(line);
                if kind.is_empty() {
                    return;
                }
                let kind_end = chain::BEFORE_KIND + "\"kind\":\"".len() + kind.len();
                if line[kind_end..].starts_with(call_field.as_bytes()) {
                    records.extend(serde_json::from_slice(line).ok());
                }
            })?;
        }
        Ok(records)
    }

    /// Returns the last `count` entries, the oldest first.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the log can't be read.
    pub fn last(&self, count: usize) -> Result<Vec<Value>, HostError> {
        let mut records: Vec<Value> = Vec::new();
        for log in self.files().iter().rev() {
            let mut last_lines: VecDeque<Vec<u8>> = VecDeque::new();
            let missing = count - records.len();
            self.each_line(log, |line| {
                if last_lines.len() == missing {
                    last_lines.pop_front();
                }
                if missing > 0 {
                    last_lines.push_back(line.to_vec());
                }
            })?;
            let mut parsed: Vec<Value> =
                last_lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect();
            parsed.append(&mut records);
            records = parsed;
            if records.len() >= count {
                break;
            }
        }
        Ok(records)
    }

    /// Returns the size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files().iter().map(|log| log.size).sum()
    }

    /// Checks whether an entry could be written to the existing files. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// Returns the reason why no entry can be written.
    pub fn check_writable(&self) -> io::Result<()> {
        let folder = match PrivateFolder::open(&self.path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(files::at(&self.path)(error)),
        };
        folder.check_closed().map_err(files::at(&self.path))?;
        for name in [files::HEAD, CURRENT] {
            let path = self.path.join(name);
            if existing_file(folder.file(name)).map_err(files::at(&path))?.is_some() {
                folder.appended(name).map_err(files::at(&path))?;
            }
        }
        Ok(())
    }

    pub(super) fn files(&self) -> &[LogFile] {
        self.opened.as_ref().map_or(&[], |opened| &opened.files)
    }

    /// Calls a function with each line that has the form of an entry.
    pub(super) fn each_line(
        &self,
        log: &LogFile,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), HostError> {
        let mut lines = Lines::new(&log.file, 0, log.size);
        loop {
            match lines.next() {
                Ok(Some(line)) => {
                    if SealedRecord::parse(line.bytes).is_some() {
                        visit(line.bytes);
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let path = self.path.join(&log.name);
                    return Err(HostError::io(path.display().to_string())(error));
                }
            }
        }
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let folder = match PrivateFolder::open(path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Reads the key first, because a log with a key always has a head.
        let key = files::key(&folder)?;
        let head = existing_file(folder.file(files::HEAD))?;
        // Opens the files under the lock, so that all of them show the same moment.
        let lock = head.as_ref().map(LogLock::new).transpose()?;
        let at_head = match &head {
            Some(file) => Head::read(file)?,
            None => None,
        };
        let mut names = Vec::new();
        for number in files::rotated(&folder)? {
            names.push((Some(number), files::name(number)));
        }
        names.push((None, CURRENT.to_owned()));
        let mut logs = Vec::new();
        for (number, name) in names {
            if let Some(file) = existing_file(folder.file(&name))? {
                let size = file.metadata()?.len();
                logs.push(LogFile { name, number, file, size });
            }
        }
        drop(lock);
        let Some(key) = key else {
            // A writer may have created the log since the first look, so the log is opened again if
            // there is a key now.
            return match files::key(&folder)? {
                Some(_) => Self::open(path),
                None if logs.iter().any(|log| log.size > 0) => Err(io::Error::new(
                    ErrorKind::NotFound,
                    "`key`, the key of the records, is missing; restore it",
                )),
                None => Ok(None),
            };
        };
        Ok(Some(Self { key, head: at_head, files: logs }))
    }
}

pub(super) fn current(path: &Path) -> io::Result<Option<File>> {
    existing_file(PrivateFolder::open(path)?.file(CURRENT))
}

fn existing_file(file: io::Result<File>) -> io::Result<Option<File>> {
    match file {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
