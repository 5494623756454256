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

const EVENT_BYTES: usize = 4096;

/// Pause before the next look for a log that doesn't exist yet.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of bytes of entries that are returned at once.
const MAX_BYTES: usize = 1024 * 1024;

/// Number of attempts to list the files. A file can seem to be missing while another process
/// rotates it.
const TRIES: usize = 3;

/// The byte range of the time in an entry.
const TIME: std::ops::Range<usize> = 7..34;

/// A position in the log, given by the entry before it. The default is the beginning.
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

/// Where a [`RecordReader`] starts.
#[derive(Clone, Debug)]
pub enum ReadFrom {
    /// After this entry.
    Position(LogPosition),
    /// At the first entry of this time or later.
    Time(SystemTime),
}

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The line of the entry, without its line end.
    pub line: Vec<u8>,
    /// The position after this entry.
    pub position: LogPosition,
    /// The hash of the previous entry.
    pub previous: String,
    /// Whether the hash is correct and the entry follows the previous entry.
    pub intact: bool,
    /// The number of entries that are missing before this entry. If this entry is
    /// [`intact`](Self::intact), whole files were removed, usually because of the limit `keep`.
    /// [`Trail::verify`](crate::Trail::verify) checks the reason.
    pub missing: u64,
}

/// Reads entries in order. A reader holds no lock, so it never delays a writer.
pub struct RecordReader {
    path: PathBuf,
    from: ReadFrom,
    /// The open log. `None` means that the log has no entries yet.
    opened: Option<Opened>,
}

struct Opened {
    folder: PrivateFolder,
    key: Key,
    changes: OwnedFd,
    /// Entries before this time are skipped.
    from: Option<Vec<u8>>,
    after: Link,
    /// The current file. `None` means that the log has no file yet.
    file: Option<LogPart>,
}

struct LogPart {
    number: u64,
    file: File,
    at: u64,
    ended: bool,
}

impl RecordReader {
    /// Opens the log in the folders of a user. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be read, if the key is lost, or if the entry of the
    /// position is missing or different.
    pub fn open(folders: &Folders, from: ReadFrom) -> Result<Self, HostError> {
        let path = folders.operator_data().join(files::FOLDER);
        let mut reader = Self { path, from, opened: None };
        reader.open_if_needed()?;
        Ok(reader)
    }

    /// Returns the beginning of the key's SHA-256 hash, or `None` if there is no key yet.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the key can't be read.
    pub fn key_id(&self) -> Result<Option<String>, HostError> {
        let Some(opened) = &self.opened else { return Ok(None) };
        let id = files::key_id(&opened.folder)
            .map_err(HostError::io(self.path.join(files::KEY).display().to_string()))?;
        Ok(Some(id))
    }

    /// Returns the next entries, at most `most` entries and about one MiB. The list is empty if
    /// there are no further entries at the moment.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the log can't be read.
    pub fn read(&mut self, most: usize) -> Result<Vec<LogRecord>, HostError> {
        self.open_if_needed()?;
        let Some(opened) = &mut self.opened else { return Ok(Vec::new()) };
        opened.read(most).map_err(HostError::io(self.path.display().to_string()))
    }

    /// Waits until the log changes, or until `most` has passed.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if waiting fails.
    pub fn wait(&mut self, most: Duration) -> Result<(), HostError> {
        let Some(opened) = &self.opened else {
            // A missing folder can't be watched.
            std::thread::sleep(most.min(PAUSE));
            return Ok(());
        };
        opened.wait(most).map_err(HostError::io(self.path.display().to_string()))
    }

    fn open_if_needed(&mut self) -> Result<(), HostError> {
        if self.opened.is_none() {
            self.opened = Opened::new(&self.path, &self.from)
                .map_err(HostError::io(self.path.display().to_string()))?;
        }
        Ok(())
    }
}

impl Opened {
    /// Opens the log, and moves to the position `from`. Returns `None` if there is no log yet.
    fn new(path: &std::path::Path, from: &ReadFrom) -> io::Result<Option<Self>> {
        let folder = match PrivateFolder::open(path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_empty_log(from)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };

        // The watch starts before the reading, so that no change is missed.
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_FROM;
        inotify::add_watch(&changes, path, events)?;

        let Some(key) = files::key(&folder)? else {
            check_key_not_lost(&folder)?;
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

    /// Returns the files in order, with their first entries.
    fn files(&self) -> io::Result<Vec<(File, files::Begin)>> {
        let mut tries_left = TRIES;
        loop {
            let found = self.list_files()?;
            let numbers: Vec<u64> = found.iter().map(|(_, begin)| begin.file).collect();
            let is_whole = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
            tries_left -= 1;
            // A file that was renamed during the listing leaves a gap, so the files are listed
            // again. A gap in the last list means that a file was removed.
            if is_whole || tries_left == 0 {
                return Ok(found);
            }
        }
    }

    /// Lists the files once. A file that another process renames during the listing may be missing
    /// in the result.
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

    /// Moves behind the entry of a position.
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

        // No file begins before the position: either its file was removed, or the position is the
        // beginning of the log.
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

    /// Moves to the file that contains the moment `from`.
    fn seek_time(&mut self, from: Vec<u8>) -> io::Result<()> {
        let mut found = self.files()?;
        let last_before = found.iter().rposition(|(_, begin)| begin.ts.as_bytes() <= &from[..]);
        let index = last_before.unwrap_or(0);
        if index < found.len() {
            let (file, begin) = found.swap_remove(index);
            // Entries before this file weren't requested, so they aren't missing.
            self.after = Link { seq: begin.seq - 1, hash: begin.previous };
            self.begin_with(Some((file, begin)));
        }
        self.from = Some(from);
        Ok(())
    }

    fn begin_with(&mut self, file: Option<(File, files::Begin)>) {
        self.file =
            file.map(|(file, begin)| LogPart { number: begin.file, file, at: 0, ended: false });
    }

    /// Returns the next entries of all files, at most `most` entries.
    fn read(&mut self, most: usize) -> io::Result<Vec<LogRecord>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        loop {
            // Forgets changes before reading, so that a change during the reading ends the next
            // wait.
            self.forget_changes()?;
            self.read_file(most, &mut bytes, &mut records)?;
            let is_full = records.len() >= most || bytes >= MAX_BYTES;
            if is_full || !self.move_on()? {
                return Ok(records);
            }
        }
    }

    /// Adds the next entries of the current file to `records`, and their lengths to `bytes`.
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
        while !part.ended {
            let is_full = records.len() >= most || *bytes >= MAX_BYTES;
            if is_full {
                break;
            }
            let Some(line) = lines.next()? else { break };
            if !line.whole {
                break;
            }
            part.at = line.to;
            let Some(sealed) = SealedRecord::parse(line.bytes) else { continue };
            part.ended = chain::kind(line.bytes) == b"end";
            let record = checked_record(&self.key, &self.after, &sealed, line.bytes);
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

    /// Returns the number of the newest file, or `None` if this file has no entry yet.
    fn newest_number(&self) -> io::Result<Option<u64>> {
        match self.folder.file(CURRENT) {
            Ok(file) => Ok(begin(&file, CURRENT)?.map(|begin| begin.file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves to the next file if the current file is finished. Returns whether more entries may
    /// follow.
    fn move_on(&mut self) -> io::Result<bool> {
        let Some(current) = &self.file else {
            let first = self.files()?.into_iter().next();
            self.begin_with(first);
            return Ok(self.file.is_some());
        };
        let number = current.number;
        let has_next = self.newest_number()?.is_some_and(|newest| newest > number);
        if !has_next {
            return Ok(false);
        }
        // Entries may have been written to the current file after the last read, so they are read
        // first.
        let size = current.file.metadata()?.len();
        if !current.ended && has_line(&current.file, current.at, size)? {
            return Ok(true);
        }
        let next = self.files()?.into_iter().find(|(_, begin)| begin.file > number);
        if next.is_none() {
            return Ok(false);
        }
        self.begin_with(next);
        Ok(true)
    }

    /// Waits until a file of the log changes, until `timeout` has passed, or until a signal
    /// arrives.
    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
        let mut watched = [PollFd::new(&self.changes, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_changes(&self) -> io::Result<()> {
        loop {
            match rustix::io::retry_on_intr(|| {
                rustix::io::read(&self.changes, &mut [0; EVENT_BYTES])
            }) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the first entry of a file, or `None` if the file has no entry yet.
///
/// # Errors
///
/// Returns an error if the file starts with something else, because the file's position in the log
/// is then unknown.
fn begin(file: &File, name: &str) -> io::Result<Option<files::Begin>> {
    if !has_line(file, 0, file.metadata()?.len())? {
        return Ok(None);
    }
    match files::begin(file)? {
        Some(begin) => Ok(Some(begin)),
        None => Err(invalid(format!(
            "{name} lacks the first entry that every file of the log has; `toolhold audit verify` \
             shows details"
        ))),
    }
}

fn has_line(file: &File, from: u64, to: u64) -> io::Result<bool> {
    Ok(Lines::new(file, from, to).next()?.is_some_and(|line| line.whole))
}

/// Checks an entry against `after`, the link of the previous entry.
fn checked_record(key: &Key, after: &Link, sealed: &SealedRecord<'_>, line: &[u8]) -> LogRecord {
    let expected_seq = after.seq + 1;
    let missing = sealed.link.seq.saturating_sub(expected_seq);
    let mut previous: Hash = after.hash;
    // The first entry of a file repeats the previous hash, because the previous file may have been
    // removed.
    if missing > 0
        && let Some(begin) = files::begin_of(line)
    {
        previous = begin.previous;
    }
    let starts_after_gap = previous != after.hash;
    let is_in_place = sealed.link.seq == expected_seq || starts_after_gap;
    LogRecord {
        line: line.to_vec(),
        position: sealed.link.into(),
        previous: chain::to_hex(&previous),
        intact: is_in_place && sealed.follows(key, &previous),
        missing,
    }
}

/// Checks that a log without a key has no entries.
fn check_key_not_lost(folder: &PrivateFolder) -> io::Result<()> {
    // A writer may have created the key and an entry after the first look, so the reader looks for
    // the key again.
    if files::has_current_records(folder) && files::key(folder)?.is_none() {
        return Err(io::Error::new(
            ErrorKind::NotFound,
            "`key`, the key of the records, is missing; restore it",
        ));
    }
    Ok(())
}

/// Checks the starting point in a log without entries. Only the beginning exists there.
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
