//! Appends entries to the audit log, rotates its files and removes old files. Any number of
//! processes can append.
//!
//! A process that appends holds the lock of the file `head`, which states the end of the log and
//! the last entry. A process may be killed after it wrote an entry and before it wrote the head, so
//! the next writer reads the entries after the stated end. An entry can also be incomplete, because
//! a process was killed or the disk was full. An incomplete entry stays in the file. The next entry
//! states its length and its hash, so nobody can replace it.
//!
//! A process that writes many entries in a row keeps the lock for a short time ([`Log::hold`]).
//! While it keeps the lock, it doesn't update the head.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use toolhold_data_dir::PrivateFolder;

use super::chain::{self, Hash, Key, Link, SealedRecord};
use super::files::{self, CURRENT};
use super::head::Head;
use super::kind::Kind;
use super::lines::{Lines, Part};
use super::time;

/// Maximum time to wait for the lock of another process. Processes need the lock for milliseconds,
/// unless they are suspended.
const PATIENCE: Duration = Duration::from_secs(5);

const TRIES_WITHOUT_PAUSE: u32 = 100;
const PAUSE: Duration = Duration::from_micros(50);

/// Number of entries in a row after which a process keeps the lock. Before that, each entry takes
/// the lock separately, so that waiting processes get the lock.
const MANY_IN_ROW: u32 = 16;

/// The note of the next entry if the file `head` is lost.
const LOST_HEAD_NOTE: Option<&str> =
    Some("the head was lost: records may be missing before this one");

/// Maximum number of bytes of an entry in addition to its body.
const BYTES_AROUND_BODY: u64 = 320;

/// The configured limits of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum length of a file in bytes. At this length, a new file is started.
    pub(super) file: u64,
    /// Number of finished files that aren't removed. 0 means all.
    pub(super) keep: u64,
    /// Whether the files are synced after each entry.
    pub(super) durable: bool,
}

pub(super) struct Log {
    folder: Arc<PrivateFolder>,
    key: Key,
    head: Arc<File>,
    held_lock: Option<LogLock<Arc<File>>>,
    keeps_lock: bool,
    /// Number of entries in a row without an entry of another process.
    entries_in_row: u32,
    bounds: Bounds,
    current: Option<Current>,
    line: Vec<u8>,
    unsynced: Unsynced,
}

/// The current file, with the end that this process knows.
struct Current {
    file: Arc<File>,
    at: Head,
    /// What the next entry must state about the bytes before it.
    before: Before,
}

/// The bytes between the last entry and the end of the file.
#[derive(Default)]
struct Before {
    /// Whether the last line has no line end.
    open: bool,
    /// The length in bytes and the hash of an incomplete entry.
    torn: Option<(u64, Hash)>,
    /// A note about a lost head.
    note: Option<&'static str>,
}

/// Files with entries that may not survive a power failure.
#[derive(Default)]
pub(super) struct Unsynced {
    files: Vec<Arc<File>>,
    folder: Option<Arc<PrivateFolder>>,
}

impl Unsynced {
    pub(super) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.folder = other.folder.or(self.folder.take());
    }

    /// Waits until the files and their folder survive a power failure.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        if let Some(folder) = &self.folder {
            rustix::fs::fsync(folder.as_fd())?;
        }
        Ok(())
    }
}

impl Log {
    /// Opens the log in Toolhold's data folder. Creates the log if it is missing.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error if another user can change a file.
    pub(super) fn open(data: &Path, bounds: Bounds) -> io::Result<Self> {
        let path = data.join(files::FOLDER);
        let folder = PrivateFolder::make(data)
            .map_err(files::at(data))?
            .folder(files::FOLDER)
            .map_err(files::at(&path))?;
        let folder = Arc::new(folder);
        let at_head = path.join(files::HEAD);
        let head = Arc::new(folder.updated(files::HEAD).map_err(files::at(&at_head))?);
        let key = match files::key(&folder).map_err(files::at(&path.join(files::KEY)))? {
            Some(key) => key,
            None => {
                let _held = LogLock::new(&*head).map_err(files::at(&at_head))?;
                // The head is written before the key, so a log with a key and an empty head has
                // been changed by somebody.
                if Head::read(&head).map_err(files::at(&at_head))?.is_none() {
                    Head::START
                        .write(&head)
                        .and_then(|()| head.sync_data())
                        .map_err(files::at(&at_head))?;
                }
                files::ensure_key(&folder).map_err(files::at(&path.join(files::KEY)))?
            }
        };
        Ok(Self {
            folder,
            key,
            head,
            held_lock: None,
            keeps_lock: false,
            entries_in_row: 0,
            bounds,
            current: None,
            line: Vec::new(),
            unsynced: Unsynced::default(),
        })
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Appends an entry. `body` begins with `{`, the time and the kind, and ends with the last
    /// field. Returns after the operating system has the entry.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The next writer handles a partly written entry.
    pub(super) fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let was_locked = self.held_lock.is_some();
        if !was_locked {
            self.held_lock = Some(LogLock::new(Arc::clone(&self.head))?);
        }
        let result = self.append_locked(body, was_locked);
        if result.is_err() || !self.keeps_lock {
            self.held_lock = None;
        }
        result
    }

    /// Checks whether this process has written many entries in a row without keeping the lock.
    pub(super) fn can_hold(&self) -> bool {
        self.entries_in_row >= MANY_IN_ROW && !self.keeps_lock
    }

    /// Keeps the lock from the next entry on. Other processes wait, so the caller must call
    /// [`Self::release`] soon.
    pub(super) fn hold(&mut self) {
        self.keeps_lock = true;
    }

    /// Writes the head and releases a kept lock.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.keeps_lock = false;
        self.entries_in_row = 0;
        // Dropping `lock` at the end of the function releases it after the head is written.
        let lock = self.held_lock.take();
        if lock.is_some()
            && let Some(current) = &self.current
        {
            current.at.write(&self.head)?;
        }
        Ok(())
    }

    /// Appends an entry under the lock. `was_locked` says that this process already held the lock,
    /// so no other process has written since the last entry.
    fn append_locked(&mut self, body: &[u8], was_locked: bool) -> io::Result<()> {
        self.entries_in_row += 1;
        // `current` is only put back after a success, so the next call after a failure searches for
        // the end of the log.
        let mut current = match self.current.take() {
            Some(current) if was_locked || current.is_unchanged()? => current,
            known => {
                self.entries_in_row = 0;
                self.locate_end(known)?
            }
        };

        let end_with_entry = current.at.end + body.len() as u64 + BYTES_AROUND_BODY;
        let has_entries = current.at.end > 0;
        if has_entries && end_with_entry > self.bounds.file {
            self.write(&mut current, &start_entry(Kind::End))?;
            current = self.locate_end(None)?;
        }
        if current.at.end == 0 {
            self.begin(&mut current)?;
        }
        if let Some(note) = current.before.note.take() {
            let mut body = start_entry(Kind::Note);
            write!(body, ",\"note\":\"{note}\"")?;
            self.write(&mut current, &body)?;
        }
        self.write(&mut current, body)?;
        self.current = Some(current);
        Ok(())
    }

    /// Returns the files that must be synced for all entries so far.
    pub(super) fn take_unsynced(&mut self) -> Unsynced {
        let unsynced = std::mem::take(&mut self.unsynced);
        if self.bounds.durable
            && let Some(current) = &self.current
        {
            // The next entries go to the same file.
            self.unsynced.files.push(Arc::clone(&current.file));
        }
        unsynced
    }

    /// Writes an entry with its number and its hash.
    fn write(&mut self, current: &mut Current, body: &[u8]) -> io::Result<()> {
        let before = &mut current.before;
        self.line.clear();
        if before.open {
            self.line.push(b'\n');
            before.open = false;
        }
        let from = self.line.len();
        self.line.extend_from_slice(body);
        let torn = before.torn.take();
        if let Some((bytes, hash)) = &torn {
            write!(self.line, ",\"torn\":{bytes},\"torn_sha256\":\"{}\"", chain::to_hex(hash))?;
        }
        let link = chain::seal(&self.key, &current.at.link, &mut self.line, from);
        let written = (&*current.file).write_all(&self.line);
        if written.is_ok() {
            let torn_bytes = torn.map_or(0, |(bytes, _)| bytes);
            let end = current.at.end + torn_bytes + self.line.len() as u64;
            current.at = Head { end, link, ended: chain::kind(body) == b"end", ..current.at };
        }
        // With a kept lock, `release` usually writes the head. The end of a file and a failed write
        // are noted immediately.
        if !self.keeps_lock || current.at.ended || written.is_err() {
            current.at.write(&self.head)?;
        }
        written
    }

    /// Returns the number of the oldest file that `keep` allows. `rotated` are the numbers of the
    /// finished files, and `new` is the number of the new file.
    fn oldest_kept(&self, rotated: &[u64], new: u64) -> u64 {
        let oldest = rotated.first().copied().unwrap_or(new);
        if self.bounds.keep == 0 {
            return oldest;
        }
        oldest.max(new.saturating_sub(self.bounds.keep))
    }

    /// Writes the first entry of a file, which states the file's position in the chain. Then
    /// removes old files.
    fn begin(&mut self, current: &mut Current) -> io::Result<()> {
        let at = current.at;
        let rotated = files::rotated(&self.folder)?;
        let oldest_kept = self.oldest_kept(&rotated, at.file);
        let mut body = start_entry(Kind::Begin);
        let previous = chain::to_hex(&at.link.hash);
        let version = env!("CARGO_PKG_VERSION");
        write!(
            body,
            ",\"file\":{},\"oldest\":{oldest_kept},\"previous\":\"{previous}\",\"toolhold\":\"{version}\"",
            at.file
        )?;
        self.write(current, &body)?;
        // The entry is written before the removal, because a removal without such an entry counts
        // as manipulation.
        for number in rotated {
            if number < oldest_kept {
                self.folder.remove(&files::name(number))?;
            }
        }
        Ok(())
    }

    /// Opens the current file. With `durable`, the file is also queued for a sync.
    fn open_current(&mut self) -> io::Result<Arc<File>> {
        let file = Arc::new(self.folder.appended(CURRENT)?);
        if self.bounds.durable {
            self.unsynced.files.push(Arc::clone(&file));
            self.unsynced.folder = Some(Arc::clone(&self.folder));
        }
        Ok(file)
    }

    /// Finds the end of the log. `known` is the file that this process has open. The caller must
    /// hold the lock.
    fn locate_end(&mut self, known: Option<Current>) -> io::Result<Current> {
        let (mut head, note) = match Head::read(&self.head)? {
            Some(head) => (head, None),
            None => self.search_end()?,
        };
        while let Some(next) = self.next_file(head)? {
            next.write(&self.head)?;
            head = next;
        }
        let file = match known {
            Some(known) if known.at.file == head.file => known.file,
            _ => self.open_current()?,
        };
        let size = file.metadata()?.len();
        if size < head.end {
            // The next entry gets the number after the head's, so the missing entries leave a gap
            // in the numbers forever.
            tracing::error!(
                "the end of the audit log is missing: {} of {} bytes are left; `toolhold audit verify` shows details",
                size,
                head.end
            );
            // An incomplete entry here has no known start, so it is treated as an inserted line.
            let before = Before { open: is_open(&file, size)?, torn: None, note };
            return Ok(Current { file, at: Head { end: size, ..head }, before });
        }
        let at = end_of_chain(&self.key, &file, head, size)?;
        if at.ended {
            at.write(&self.head)?;
            return self.locate_end(None).map(|current| current.noting(note));
        }
        let mut torn = None;
        if at.end < size {
            let hash = Part { file: &file, at: at.end, to: size }.hash()?;
            torn = Some((size - at.end, hash));
        }
        let open = torn.is_some() || is_open(&file, size)?;
        let before = Before { open, torn, note };
        Ok(Current { file, at, before })
    }

    /// Returns the newest file with entries, and whether this file is finished. Returns `None` if
    /// the log has no entries.
    fn newest_file(&self) -> io::Result<Option<(File, bool)>> {
        let rotated = files::rotated(&self.folder)?;
        match self.folder.file(CURRENT) {
            Ok(file) if file.metadata()?.len() > 0 => return Ok(Some((file, false))),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match rotated.last() {
            Some(last) => Ok(Some((self.folder.file(&files::name(*last))?, true))),
            None => Ok(None),
        }
    }

    /// Finds the end of the log without the head: after the last entry of the newest file. Also
    /// returns a note for the log about the lost head.
    fn search_end(&self) -> io::Result<(Head, Option<&'static str>)> {
        let Some((file, is_finished)) = self.newest_file()? else {
            return Ok((Head::START, LOST_HEAD_NOTE));
        };
        let size = file.metadata()?.len();
        let begin = files::begin(&file)?.ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidData,
                "`head` is missing, so the end of the log is unknown; move the folder away to start a new log",
            )
        })?;
        let head = Head {
            file: begin.file,
            end: 0,
            link: Link { seq: begin.seq - 1, hash: begin.previous },
            ended: false,
        };
        let mut end = end_of_chain(&self.key, &file, head, size)?;
        if is_finished {
            end.ended = true;
        }
        Ok((end, LOST_HEAD_NOTE))
    }

    /// Returns the head of the next file if the head's file is finished, and renames the finished
    /// file if necessary. Otherwise returns `None`.
    fn next_file(&self, head: Head) -> io::Result<Option<Head>> {
        let name = files::name(head.file);
        let file = head.file + 1;
        match self.folder.file(&name) {
            // Only finished files are renamed, so this file is finished, even if a power failure
            // has removed its last entry.
            Ok(found) => {
                let last = end_of_chain(&self.key, &found, head, found.metadata()?.len())?;
                return Ok(Some(Head { file, end: 0, ended: false, ..last }));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if !head.ended {
            return Ok(None);
        }
        self.folder.rename(CURRENT, &name)?;
        Ok(Some(Head { file, end: 0, ended: false, ..head }))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // If the head isn't written, the next writer searches for the end of the log.
        let _ = self.release();
    }
}

impl Current {
    fn noting(mut self, note: Option<&'static str>) -> Self {
        self.before.note = self.before.note.or(note);
        self
    }

    /// Checks whether the file still ends with the last entry that this process knows. Every action
    /// of another process writes an entry and changes the size.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error if the file was removed.
    fn is_unchanged(&self) -> io::Result<bool> {
        let found = rustix::fs::fstat(&*self.file)?;
        if found.st_nlink == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "the file was removed during a write"));
        }
        Ok(u64::try_from(found.st_size) == Ok(self.at.end))
    }
}

/// Returns the end of the unbroken chain after `head`.
fn end_of_chain(key: &Key, file: &File, mut head: Head, size: u64) -> io::Result<Head> {
    let mut lines = Lines::new(file, head.end, size);
    while let Some(line) = lines.next()? {
        let Some(record) = SealedRecord::parse(line.bytes) else { continue };
        if record.link.seq == head.link.seq + 1 && record.follows(key, &head.link.hash) {
            head = Head {
                end: line.to,
                link: record.link,
                ended: chain::kind(record.signed) == b"end",
                ..head
            };
        }
    }
    Ok(head)
}

/// Returns the beginning of an entry about the log itself.
fn start_entry(kind: Kind) -> Vec<u8> {
    let mut body = b"{\"ts\":\"".to_vec();
    time::write(&mut body, SystemTime::now());
    body.extend_from_slice(b"\",\"kind\":\"");
    body.extend_from_slice(kind.as_str().as_bytes());
    body.push(b'"');
    body
}

/// Checks whether the last line of a file has no line end.
fn is_open(file: &File, size: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    Ok(last != [b'\n'])
}

/// A file lock. A drop releases the lock.
pub(super) struct LogLock<F: Deref<Target = File>>(F);

impl<F: Deref<Target = File>> LogLock<F> {
    /// Waits for the lock of a file. The lock is polled, because the system's waiting has no time
    /// limit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] if another process holds the lock for too long.
    pub(super) fn new(file: F) -> io::Result<Self> {
        let mut waiting_since = None;
        for tried in 0_u32.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            let waited = waiting_since.get_or_insert_with(Instant::now).elapsed();
            if waited > PATIENCE {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "another process holds the lock; check for a stopped process",
                ));
            }
            // Most processes hold the lock only for a moment, so the first attempts have no pause.
            if tried < TRIES_WITHOUT_PAUSE {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(Self(file))
    }
}

impl<F: Deref<Target = File>> Drop for LogLock<F> {
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock.
        let _ = self.0.unlock();
    }
}
