//! Appends entries to the audit log from any number of processes, rotates its files, and removes
//! old files.
//!
//! A process that appends holds the lock of the file `head`, which states the end of the log and
//! the last entry. If a process is killed after it wrote an entry and before it wrote the head, the
//! log has more entries than the head states. The next writer reads these entries and continues
//! after the last one. An incomplete entry, after a killed process or on a full disk, stays in the
//! file. The next entry states its length and its hash, so that nothing else can replace it.
//!
//! If a process writes many entries in a row without entries of other processes between them, it
//! keeps the lock for a short time ([`Log::hold`]). Until it releases the lock, it only appends,
//! and the head is not updated.

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

/// Maximum time to wait for another process to release the lock. That process needs microseconds,
/// or milliseconds for many entries, unless it is suspended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of immediate attempts before each pause.
const TRIES: u32 = 100;
const REST: Duration = Duration::from_micros(50);

/// Number of entries in a row after which a process keeps the lock. Before that, each entry takes
/// the lock separately, so that other waiting processes get it.
const IN_ROW: u32 = 16;

/// Reason that is recorded when the head doesn't state where the log ends.
const LOST: Option<&str> = Some("the head was lost: records may be missing before this one");

/// Maximum number of bytes of an entry in addition to its body.
const AROUND: u64 = 320;

/// The size and the number of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Largest file, in bytes.
    pub(super) file: u64,
    /// Number of finished files that aren't removed. 0 means all.
    pub(super) keep: u64,
    /// Whether written records will be synced.
    pub(super) durable: bool,
}

/// The log, open for writing.
pub(super) struct Log {
    folder: Arc<PrivateFolder>,
    key: Key,
    head: Arc<File>,
    /// The lock, while this process holds it.
    held: Option<LogLock<Arc<File>>>,
    /// Whether the lock is kept after an entry.
    keeps: bool,
    /// Number of entries in a row without an entry of another process between them.
    in_row: u32,
    bounds: Bounds,
    current: Option<Current>,
    line: Vec<u8>,
    unsynced: Unsynced,
}

/// The current file, with the state that this process knows.
struct Current {
    file: Arc<File>,
    at: Head,
    /// The next entry's statement about the bytes before it.
    before: Before,
}

/// The bytes between the last record and the end of the file.
#[derive(Default)]
struct Before {
    /// The last line needs a line end.
    open: bool,
    /// The length in bytes and the hash of an incomplete record.
    torn: Option<(u64, Hash)>,
    /// Why the end was searched for in the log itself.
    note: Option<&'static str>,
}

/// Files with unsynced records.
#[derive(Default)]
pub(super) struct Unsynced {
    files: Vec<Arc<File>>,
    folder: Option<Arc<PrivateFolder>>,
}

impl Unsynced {
    /// Adds the files of another value.
    pub(super) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.folder = other.folder.or(self.folder.take());
    }

    /// Syncs the files and the folder.
    ///
    /// # Errors
    ///
    /// The system's.
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
    /// Opens the log in Toolhold's data folder. Creates the log if it doesn't exist.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error with the name of a file that can't be trusted.
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
                // This check comes before reading the key. If there is a key, the head existed
                // before, so a log without a head and without entries was emptied.
                if Head::read(&head).map_err(files::at(&at_head))?.is_none() {
                    Head::START
                        .write(&head)
                        .and_then(|()| head.sync_data())
                        .map_err(files::at(&at_head))?;
                }
                files::made_key(&folder).map_err(files::at(&path.join(files::KEY)))?
            }
        };
        Ok(Self {
            folder,
            key,
            head,
            held: None,
            keeps: false,
            in_row: 0,
            bounds,
            current: None,
            line: Vec::new(),
            unsynced: Unsynced::default(),
        })
    }

    /// Returns the key of the chain.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Appends an entry. `body` begins with `{`, the time and the kind, and ends with the last
    /// field. When the function returns, the system has the entry, which then survives this
    /// process.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The next writer finds an entry that was only partly written.
    pub(super) fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let is_held = self.held.is_some();
        if !is_held {
            self.held = Some(LogLock::new(Arc::clone(&self.head))?);
        }
        let result = self.append_locked(body, is_held);
        if result.is_err() || !self.keeps {
            self.held = None;
        }
        result
    }

    /// Checks whether this process has written many records in a row, and doesn't keep the lock
    /// yet.
    pub(super) fn can_hold(&self) -> bool {
        self.in_row >= IN_ROW && !self.keeps
    }

    /// Keeps the lock from the next entry on. Other processes wait for the lock, so the caller must
    /// call [`Self::release`] soon.
    pub(super) fn hold(&mut self) {
        self.keeps = true;
    }

    /// Writes the end of the log to the head and releases a kept lock.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.keeps = false;
        self.in_row = 0;
        // The lock is given back at the end of this function, after the write.
        let lock = self.held.take();
        if lock.is_some()
            && let Some(current) = &self.current
        {
            current.at.write(&self.head)?;
        }
        Ok(())
    }

    /// Appends an entry under the lock. With `is_held`, this process has held the lock since its
    /// last entry, so no other process has written.
    fn append_locked(&mut self, body: &[u8], is_held: bool) -> io::Result<()> {
        self.in_row += 1;
        // After a failure, the state of the log is read again.
        let mut current = match self.current.take() {
            Some(current) if is_held || current.is_as_known()? => current,
            known => {
                self.in_row = 0;
                self.locate_end(known)?
            }
        };
        if current.at.end > 0 && current.at.end + body.len() as u64 + AROUND > self.bounds.file {
            self.write(&mut current, &short(Kind::End))?;
            current = self.locate_end(None)?;
        }
        if current.at.end == 0 {
            self.begin(&mut current)?;
        }
        if let Some(note) = current.before.note.take() {
            let mut body = short(Kind::Note);
            write!(body, ",\"note\":\"{note}\"")?;
            self.write(&mut current, &body)?;
        }
        self.write(&mut current, body)?;
        self.current = Some(current);
        Ok(())
    }

    /// Returns the files that must be synced so that all entries so far survive a power failure.
    pub(super) fn take_unsynced(&mut self) -> Unsynced {
        let unsynced = std::mem::take(&mut self.unsynced);
        if self.bounds.durable
            && let Some(current) = &self.current
        {
            self.unsynced.files.push(Arc::clone(&current.file));
        }
        unsynced
    }

    fn write(&mut self, current: &mut Current, body: &[u8]) -> io::Result<()> {
        let before = &mut current.before;
        self.line.clear();
        if std::mem::take(&mut before.open) {
            self.line.push(b'\n');
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
            let end = current.at.end + torn.map_or(0, |(bytes, _)| bytes) + self.line.len() as u64;
            current.at = Head { end, link, ended: chain::kind(body) == b"end", ..current.at };
        }
        // A kept lock is released together with writing the head. After a failure, the lock isn't
        // kept.
        if !self.keeps || current.at.ended || written.is_err() {
            current.at.write(&self.head)?;
        }
        written
    }

    /// Writes the first entry of a file, which states the file's position in the chain.
    fn begin(&mut self, current: &mut Current) -> io::Result<()> {
        let at = current.at;
        let rotated = files::rotated(&self.folder)?;
        let oldest = rotated.first().copied().unwrap_or(at.file);
        let kept = if self.bounds.keep == 0 {
            oldest
        } else {
            oldest.max(at.file.saturating_sub(self.bounds.keep))
        };
        let mut body = short(Kind::Begin);
        let previous = chain::to_hex(&at.link.hash);
        let version = env!("CARGO_PKG_VERSION");
        write!(
            body,
            ",\"file\":{},\"oldest\":{kept},\"previous\":\"{previous}\",\"toolhold\":\"{version}\"",
            at.file
        )?;
        self.write(current, &body)?;
        // Old files are removed after the removal is recorded. A file that is removed without an
        // entry is detected.
        for number in rotated {
            if number < kept {
                self.folder.remove(&files::name(number))?;
            }
        }
        Ok(())
    }

    /// Opens the current file.
    fn opened(&mut self) -> io::Result<Arc<File>> {
        let file = Arc::new(self.folder.appended(CURRENT)?);
        if self.bounds.durable {
            self.unsynced.files.push(Arc::clone(&file));
            self.unsynced.folder = Some(Arc::clone(&self.folder));
        }
        Ok(file)
    }

    /// Finds the end of the log in its files. One of the files may already be open. Call this
    /// function only under the lock.
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
            _ => self.opened()?,
        };
        let size = file.metadata()?.len();
        if size < head.end {
            // The missing records leave a gap in the numbers for good.
            tracing::error!(
                "the end of the audit log is missing: {} of {} bytes are left; `toolhold audit verify` shows details",
                size,
                head.end
            );
            // The start of an incomplete entry is unknown here, so the entry isn't recognised.
            let before = Before { open: is_open(&file, size)?, torn: None, note };
            return Ok(Current { file, at: Head { end: size, ..head }, before });
        }
        let at = follow(&self.key, &file, head, size)?;
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

    /// Finds the end of the log if the head doesn't state it. The end is after the last entry of
    /// the newest file.
    fn search_end(&self) -> io::Result<(Head, Option<&'static str>)> {
        let rotated = files::rotated(&self.folder)?;
        let newest = match self.folder.file(CURRENT) {
            Ok(file) if file.metadata()?.len() > 0 => Some(file),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (file, ended) = match (newest, rotated.last()) {
            (Some(file), _) => (file, false),
            (None, Some(last)) => (self.folder.file(&files::name(*last))?, true),
            (None, None) => return Ok((Head::START, LOST)),
        };
        let size = file.metadata()?.len();
        let begin = files::begin(&file)?.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, "`head` is missing, and the log doesn't show its end; move the folder away to start a new log")
        })?;
        let head = Head {
            file: begin.file,
            end: 0,
            link: Link { seq: begin.seq - 1, hash: begin.previous },
            ended: false,
        };
        let mut end = follow(&self.key, &file, head, size)?;
        if ended {
            end.ended = true;
        }
        Ok((end, LOST))
    }

    /// Starts the next file if the head's file is finished.
    ///
    /// If a process was killed here, the finished file still needs its number. After a power
    /// failure, the file may even have its new name but not its end.
    fn next_file(&self, head: Head) -> io::Result<Option<Head>> {
        let name = files::name(head.file);
        let file = head.file + 1;
        match self.folder.file(&name) {
            Ok(found) => {
                let last = follow(&self.key, &found, head, found.metadata()?.len())?;
                Ok(Some(Head { file, end: 0, ended: false, ..last }))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) if head.ended => {
                self.folder.rename(CURRENT, &name)?;
                Ok(Some(Head { file, end: 0, ended: false, ..head }))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The next writer also finds the end of the log without the head.
        let _ = self.release();
    }
}

impl Current {
    /// Sets the note of the next entry, unless it already has a note.
    fn noting(mut self, note: Option<&'static str>) -> Self {
        self.before.note = self.before.note.or(note);
        self
    }

    /// Checks whether no other process has written since the last entry. If another process
    /// finished the file, it wrote a last entry, so the file's size has changed.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error if the file is missing.
    fn is_as_known(&self) -> io::Result<bool> {
        let found = rustix::fs::fstat(&*self.file)?;
        if found.st_nlink == 0 {
            return Err(io::Error::new(ErrorKind::NotFound, "the file was removed during a write"));
        }
        Ok(u64::try_from(found.st_size) == Ok(self.at.end))
    }
}

/// Returns the last entry after `head` in an unbroken chain.
fn follow(key: &Key, file: &File, mut head: Head, size: u64) -> io::Result<Head> {
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

/// Returns the beginning of a record about the log itself.
fn short(kind: Kind) -> Vec<u8> {
    let mut body = b"{\"ts\":\"".to_vec();
    time::write(&mut body, SystemTime::now());
    body.extend_from_slice(b"\",\"kind\":\"");
    body.extend_from_slice(kind.as_str().as_bytes());
    body.push(b'"');
    body
}

/// Checks whether the file ends with an incomplete line.
fn is_open(file: &File, size: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    Ok(last != [b'\n'])
}

/// A lock that is held until it is dropped.
pub(super) struct LogLock<F: Deref<Target = File>>(F);

impl<F: Deref<Target = File>> LogLock<F> {
    /// Waits for the lock, with a time limit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] if another process holds the lock.
    pub(super) fn new(file: F) -> io::Result<Self> {
        let mut since = None;
        for tried in 0_u32.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock)
                    if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE =>
                {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "another process holds the lock; check for a stopped process",
                    ));
                }
                Err(TryLockError::WouldBlock) if tried < TRIES => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(REST),
            }
        }
        Ok(Self(file))
    }
}

impl<F: Deref<Target = File>> Drop for LogLock<F> {
    fn drop(&mut self) {
        // If this fails, closing the descriptor releases the lock.
        let _ = self.0.unlock();
    }
}
