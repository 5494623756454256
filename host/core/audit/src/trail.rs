//! Reads the audit log at one moment: its last entries, or the entries of one call.

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

/// The entries at one moment, without later entries.
pub struct Trail {
    path: PathBuf,
    /// The open log. `None` means that nothing was ever recorded.
    pub(super) opened: Option<OpenLog>,
}

pub(super) struct OpenLog {
    pub(super) key: Key,
    pub(super) head: Option<Head>,
    /// The files in the order in which they were written.
    pub(super) files: Vec<LogFile>,
}

pub(super) struct LogFile {
    pub(super) name: String,
    /// The number of the file. The current file has no number in its name.
    pub(super) number: Option<u64>,
    pub(super) file: File,
    pub(super) size: u64,
}

/// The last record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the entry, starting with 1.
    pub seq: u64,
    /// The hash of the entry in hexadecimal. If the hash is also stored elsewhere, it can later
    /// show whether any entry up to this one was changed.
    pub hash: String,
}

impl Trail {
    /// Opens the log in the folders of a user. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the folder if it can't be read or trusted, or if its key is lost or
    /// damaged.
    pub fn open(folders: &Folders) -> Result<Self, HostError> {
        let path = folders.data.join(files::FOLDER);
        let opened = OpenLog::open(&path).map_err(HostError::io(path.display().to_string()))?;
        Ok(Self { path, opened })
    }

    /// Returns the folder of the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last entry, from the file `head`. Returns `None` if nothing was ever recorded.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the file is lost or damaged, or if its stated end of the log doesn't
    /// exist.
    pub fn head(&self) -> Result<Option<ChainHead>, HostError> {
        let Some(opened) = &self.opened else { return Ok(None) };
        let Some(head) = opened.head else {
            return Err(self.damaged(
                files::HEAD,
                "the file is missing or damaged, so the end of the log is unknown",
            ));
        };
        // The file may have a number by now, if the next entry has started a new file.
        let has_end = opened
            .files
            .iter()
            .any(|log| log.number.is_none_or(|number| number == head.file) && log.size >= head.end);
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

    /// Returns all entries of one call, by the ID in its answer: the intent, the answer of a
    /// person, and the outcome. The list is empty if there are no entries. The entries aren't
    /// verified.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
    pub fn of_call(&self, id: &str) -> Result<Vec<Value>, HostError> {
        let call_field = format!("\",\"call\":\"{id}\"");
        let mut records = Vec::new();
        for log in self.files() {
            self.each_line(log, |line| {
                let kind = chain::kind(line);
                if kind.is_empty() {
                    return;
                }
                // The field with the ID follows the kind.
                let kind_end = chain::BEFORE_KIND + "\"kind\":\"".len() + kind.len();
                if line[kind_end..].starts_with(call_field.as_bytes()) {
                    records.extend(serde_json::from_slice(line).ok());
                }
            })?;
        }
        Ok(records)
    }

    /// Returns the last `count` entries in order.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the file if the log can't be read.
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

    /// Size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files().iter().map(|log| log.size).sum()
    }

    /// Checks whether an entry could be written to the existing files. The checks are the same as a
    /// writer's. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing can be written, with the file.
    pub fn check_writable(&self) -> io::Result<()> {
        let folder = match PrivateFolder::open(&self.path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(files::at(&self.path)(error)),
        };
        folder.check_closed().map_err(files::at(&self.path))?;
        for name in [files::HEAD, CURRENT] {
            let path = self.path.join(name);
            // A missing file isn't created by the check.
            if there(folder.file(name)).map_err(files::at(&path))?.is_some() {
                folder.appended(name).map_err(files::at(&path))?;
            }
        }
        Ok(())
    }

    pub(super) fn files(&self) -> &[LogFile] {
        self.opened.as_ref().map_or(&[], |opened| &opened.files)
    }

    /// Calls a function with each line in the form of a record.
    pub(super) fn each_line(
        &self,
        log: &LogFile,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), HostError> {
        let mut lines = Lines::new(&log.file, 0, log.size);
        loop {
            match lines.next() {
                Ok(Some(line)) => {
                    if SealedRecord::parse(line.bytes).is_some() {
                        each(line.bytes);
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
        // The key is read first, because the head exists whenever the key exists.
        let key = files::key(&folder)?;
        let head = there(folder.file(files::HEAD))?;
        // The files are opened under the lock, so that all of them show the same moment.
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
            if let Some(file) = there(folder.file(&name))? {
                let size = file.metadata()?.len();
                logs.push(LogFile { name, number, file, size });
            }
        }
        drop(lock);
        let Some(key) = key else {
            return match files::key(&folder)? {
                // The first record was written meanwhile.
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

/// Returns the current file, or `None` if it doesn't exist yet.
pub(super) fn current(path: &Path) -> io::Result<Option<File>> {
    there(PrivateFolder::open(path)?.file(CURRENT))
}

/// Returns the file, or `None` if it doesn't exist.
fn there(file: io::Result<File>) -> io::Result<Option<File>> {
    match file {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
