//! Reads the audit log in order for exports. A reader starts at any position, continues across
//! files, and follows the log as it grows.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde::{Deserialize, Serialize};
use toolhold_config::Folders;
use toolhold_contract::HostError;
use toolhold_data_dir::PrivateFolder;

use super::chain::{self, Hash, Key, Link, SealedRecord};
use super::files::{self, CURRENT};
use super::lines::Lines;
use super::time;

/// Most bytes of records that are read at once.
const MAX_BYTES: usize = 1024 * 1024;

/// Number of attempts to list the files when one seems to be missing. Another process may have
/// rotated a file meanwhile.
const TRIES: usize = 3;

/// Bytes before the time of a record, and the time's own.
const TIME: std::ops::Range<usize> = 7..34;

/// A position in the log: the number and the hash of the entry before it. The default is the
/// beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The number of the entry, or 0 before the first entry.
    pub seq: u64,
    /// The hash of the entry in hexadecimal, or zeros before the first entry.
    pub hash: String,
}

impl Default for LogPosition {
    fn default() -> Self {
        Self::from(Link::START)
    }
}

impl From<Link> for LogPosition {
    fn from(link: Link) -> Self {
        Self { seq: link.seq, hash: chain::to_hex(&link.hash) }
    }
}

/// Where a [`RecordReader`] begins.
#[derive(Clone, Debug)]
pub enum ReadFrom {
    /// After this record.
    Position(LogPosition),
    /// At the first record of this time or later.
    Time(SystemTime),
}

/// An entry as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The line of the entry, without its line end.
    pub line: Vec<u8>,
    /// The position after the entry: its own number and hash.
    pub position: LogPosition,
    /// The hash of the previous entry, which this entry's hash covers.
    pub previous: String,
    /// Whether the entry is unchanged and follows the previous entry.
    pub intact: bool,
    /// The number of entries that are missing before this entry. If this entry is
    /// [`intact`](Self::intact), whole files are missing. Usually they were removed because of
    /// `keep`, which [`Trail::verify`](crate::Trail::verify) checks.
    pub missing: u64,
}

/// Reads entries in their order. A reader holds no lock, so it never delays a writer.
pub struct RecordReader {
    path: PathBuf,
    from: ReadFrom,
    /// The open log. `None` means that nothing was ever recorded.
    opened: Option<Opened>,
}

struct Opened {
    folder: PrivateFolder,
    key: Key,
    changes: OwnedFd,
    /// Records before this time are passed over.
    from: Option<Vec<u8>>,
    after: Link,
    /// The current file. `None` means that no file has been started.
    file: Option<LogPart>,
}

/// The file that is read.
struct LogPart {
    number: u64,
    file: File,
    at: u64,
    /// Whether the last entry of the file was read.
    ended: bool,
}

impl RecordReader {
    /// Opens the log in the folders of a user. Creates and changes nothing. If nothing has been
    /// recorded yet, reading starts with the first entry.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be read or trusted, if its key is lost, or if the
    /// entry of the position is missing or different.
    pub fn open(folders: &Folders, from: ReadFrom) -> Result<Self, HostError> {
        let path = folders.data.join(files::FOLDER);
        let mut reader = Self { path, from, opened: None };
        reader.find()?;
        Ok(reader)
    }

    /// Returns the beginning of the key's SHA-256 hash, which identifies the key without revealing
    /// it. Returns `None` if there is no key yet.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the folder if the key can't be read.
    pub fn key_id(&self) -> Result<Option<String>, HostError> {
        self.opened
            .as_ref()
            .map(|opened| files::key_id(&opened.folder))
            .transpose()
            .map_err(HostError::io(self.path.join(files::KEY).display().to_string()))
    }

    /// Returns the next entries, at most `most` entries and one mebibyte. The list is empty if
    /// there are no more entries at the moment.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the folder if the log can't be read.
    pub fn read(&mut self, most: usize) -> Result<Vec<LogRecord>, HostError> {
        self.find()?;
        let Some(opened) = &mut self.opened else { return Ok(Vec::new()) };
        opened.read(most).map_err(HostError::io(self.path.display().to_string()))
    }

    /// Waits until the log changes, or until `most` has passed.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] with the folder if waiting fails.
    pub fn wait(&mut self, most: Duration) -> Result<(), HostError> {
        let Some(opened) = &self.opened else {
            std::thread::sleep(most.min(Duration::from_secs(1)));
            return Ok(());
        };
        opened.wait(most).map_err(HostError::io(self.path.display().to_string()))
    }

    /// Opens the log, unless it is already open or nothing has been recorded.
    fn find(&mut self) -> Result<(), HostError> {
        if self.opened.is_none() {
            self.opened = Opened::new(&self.path, &self.from)
                .map_err(HostError::io(self.path.display().to_string()))?;
        }
        Ok(())
    }
}

impl Opened {
    fn new(path: &std::path::Path, from: &ReadFrom) -> io::Result<Option<Self>> {
        let folder = match PrivateFolder::open(path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_empty_log(from)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // The folder is watched before it is read, so that no change between the two is missed.
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_FROM;
        inotify::add_watch(&changes, path, what)?;
        let Some(key) = files::key(&folder)? else {
            // A writer creates the key before the first entry, so the reader looks for the key
            // again.
            if files::has_current_records(&folder) && files::key(&folder)?.is_none() {
                return Err(io::Error::new(
                    ErrorKind::NotFound,
                    "`key`, the key of the records, is missing; restore it",
                ));
            }
            check_empty_log(from)?;
            return Ok(None);
        };
        let mut opened = Self { folder, key, changes, from: None, after: Link::START, file: None };
        match from {
            ReadFrom::Position(position) => opened.seek(position)?,
            ReadFrom::Time(moment) => {
                let mut text = Vec::new();
                time::write(&mut text, *moment);
                opened.seek_time(text)?;
            }
        }
        Ok(Some(opened))
    }

    /// Returns the started files in order, each with its first entry.
    fn files(&self) -> io::Result<Vec<(File, files::Begin)>> {
        let mut tries_left = TRIES;
        loop {
            let found = self.list_files()?;
            let is_whole = found.windows(2).all(|pair| pair[1].1.file == pair[0].1.file + 1);
            tries_left -= 1;
            if is_whole || tries_left == 0 {
                return Ok(found);
            }
        }
    }

    fn list_files(&self) -> io::Result<Vec<(File, files::Begin)>> {
        let mut names: Vec<String> =
            files::rotated(&self.folder)?.into_iter().map(files::name).collect();
        names.push(CURRENT.to_owned());
        let mut found = Vec::new();
        for name in names {
            match self.folder.file(&name) {
                Ok(file) => {
                    if let Some(begin) = begin(&file, &name)? {
                        found.push((file, begin));
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Goes behind the record of a position.
    fn seek(&mut self, position: &LogPosition) -> io::Result<()> {
        let Some(hash) = chain::from_hex(position.hash.as_bytes()) else {
            return Err(invalid(format!("`{}` isn't the hash of a record", position.hash)));
        };
        let wanted = Link { seq: position.seq, hash };
        let mut found = self.files()?;
        let index = found.iter().rposition(|(_, begin)| begin.seq <= wanted.seq);
        if let Some(index) = index {
            let (file, begin) = found.swap_remove(index);
            let mut lines = Lines::new(&file, 0, file.metadata()?.len());
            while let Some(line) = lines.next()? {
                if !line.whole {
                    continue;
                }
                let Some(sealed) = SealedRecord::parse(line.bytes) else { continue };
                if sealed.link == wanted {
                    let ended = chain::kind(line.bytes) == b"end";
                    self.after = wanted;
                    let number = begin.file;
                    let at = line.to;
                    self.file = Some(LogPart { number, file, at, ended });
                    return Ok(());
                }
            }
            return Err(changed(wanted.seq));
        }

        // The file of the record was removed, or the position is before the first record.
        if let Some((_, begin)) = found.first()
            && begin.seq == wanted.seq + 1
            && begin.previous != wanted.hash
        {
            return Err(changed(wanted.seq));
        }
        if found.is_empty() && wanted != Link::START {
            return Err(changed(wanted.seq));
        }
        self.after = wanted;
        self.begin_with(found.into_iter().next());
        Ok(())
    }

    /// Moves to the file that contains a time.
    fn seek_time(&mut self, from: Vec<u8>) -> io::Result<()> {
        let mut found = self.files()?;
        let index =
            found.iter().rposition(|(_, begin)| begin.ts.as_bytes() <= &from[..]).unwrap_or(0);
        if index < found.len() {
            let (file, begin) = found.swap_remove(index);
            // Entries before this file aren't missing, because they weren't requested.
            self.after = Link { seq: begin.seq - 1, hash: begin.previous };
            self.begin_with(Some((file, begin)));
        }
        self.from = Some(from);
        Ok(())
    }

    /// Reads from the beginning of this file.
    fn begin_with(&mut self, file: Option<(File, files::Begin)>) {
        self.file =
            file.map(|(file, begin)| LogPart { number: begin.file, file, at: 0, ended: false });
    }

    fn read(&mut self, most: usize) -> io::Result<Vec<LogRecord>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        loop {
            // The kind of change doesn't matter, because the present files are read.
            self.forget_changes()?;
            self.read_file(most, &mut bytes, &mut records)?;
            if records.len() >= most || bytes >= MAX_BYTES || !self.go_on()? {
                return Ok(records);
            }
        }
    }

    /// Reads on in the current file.
    fn read_file(
        &mut self,
        most: usize,
        bytes: &mut usize,
        records: &mut Vec<LogRecord>,
    ) -> io::Result<()> {
        let Some(part) = &mut self.file else { return Ok(()) };
        let size = part.file.metadata()?.len();
        if size < part.at {
            return Err(invalid(format!(
                "the end of file {} is missing: {size} of {} bytes are left; `toolhold audit verify` shows details",
                part.number, part.at
            )));
        }
        let mut lines = Lines::new(&part.file, part.at, size);
        while records.len() < most && *bytes < MAX_BYTES && !part.ended {
            let Some(line) = lines.next()? else { break };
            if !line.whole {
                // A line without an end is still being written.
                break;
            }
            part.at = line.to;
            let Some(sealed) = SealedRecord::parse(line.bytes) else { continue };
            part.ended = chain::kind(line.bytes) == b"end";
            let record = check(&self.key, &self.after, &sealed, line.bytes);
            self.after = sealed.link;
            if let Some(from) = self.from.as_deref()
                && let Some(time) = line.bytes.get(TIME)
                && time < from
            {
                continue;
            }
            *bytes += record.line.len();
            records.push(record);
        }
        Ok(())
    }

    /// Moves to the next file if the current file has ended and a next file exists. Returns whether
    /// there may be more entries to read.
    fn go_on(&mut self) -> io::Result<bool> {
        let Some(part) = &self.file else {
            let first = self.files()?.into_iter().next();
            self.begin_with(first);
            return Ok(self.file.is_some());
        };
        // A cheap check comes first, since usually nothing has changed.
        let newest = match self.folder.file(CURRENT) {
            Ok(file) => begin(&file, CURRENT)?.map(|begin| begin.file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let has_next = newest.is_some_and(|number| number > part.number);
        if !has_next {
            return Ok(false);
        }
        // The last entries of the file may have been written after it was read.
        let number = part.number;
        let size = part.file.metadata()?.len();
        if !part.ended && has_line(&part.file, part.at, size)? {
            return Ok(true);
        }
        let next = self.files()?.into_iter().find(|(_, begin)| begin.file > number);
        if next.is_none() {
            return Ok(false);
        }
        self.begin_with(next);
        Ok(true)
    }

    fn wait(&self, most: Duration) -> io::Result<()> {
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let most = Timespec { tv_sec: seconds, tv_nsec: most.subsec_nanos().into() };
        let mut watched = [PollFd::new(&self.changes, PollFlags::IN)];
        match poll(&mut watched, Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_changes(&self) -> io::Result<()> {
        loop {
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.changes, &mut [0; 4096])) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the first entry of a file, or `None` if it hasn't been written yet.
///
/// # Errors
///
/// Returns an error if the file begins with anything else, because its position in the log is then
/// unknown.
fn begin(file: &File, name: &str) -> io::Result<Option<files::Begin>> {
    if !has_line(file, 0, file.metadata()?.len())? {
        return Ok(None);
    }
    match files::begin(file)? {
        Some(begin) => Ok(Some(begin)),
        None => Err(invalid(format!(
            "{name} doesn't begin like a file of the log; `toolhold audit verify` shows details"
        ))),
    }
}

/// Checks whether a part of a file has a whole line.
fn has_line(file: &File, from: u64, to: u64) -> io::Result<bool> {
    Ok(Lines::new(file, from, to).next()?.is_some_and(|line| line.whole))
}

/// Returns the entry of a line, compared with the previous entry.
fn check(key: &Key, after: &Link, sealed: &SealedRecord<'_>, line: &[u8]) -> LogRecord {
    let next = after.seq + 1;
    let missing = sealed.link.seq.saturating_sub(next);
    let mut previous: Hash = after.hash;
    // The first entry of a file states the previous hash, because the previous files may have been
    // removed.
    if missing > 0
        && let Some(begin) = files::begin_of(line)
    {
        previous = begin.previous;
    }
    let in_place = sealed.link.seq == next || previous != after.hash;
    LogRecord {
        line: line.to_vec(),
        position: sealed.link.into(),
        previous: chain::to_hex(&previous),
        intact: in_place && sealed.follows(key, &previous),
        missing,
    }
}

/// Checks that a reader can start in a log without entries. Only the first position exists in this
/// log.
fn check_empty_log(from: &ReadFrom) -> io::Result<()> {
    match from {
        ReadFrom::Position(position) if position.seq > 0 => Err(changed(position.seq)),
        _ => Ok(()),
    }
}

fn changed(seq: u64) -> io::Error {
    invalid(format!(
        "record {seq}, the position to continue from, is missing or was changed; `toolhold audit verify` shows details"
    ))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
