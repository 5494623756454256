//! Compares git's index without the times of files and without caches.
//!
//! `git status` and `git diff` write the times of files into `.git/index`. `git add` writes the
//! staged files into the same file.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::hex::hex;

/// The longest path in Linux.
const MAX_PATH: u64 = 4096;

/// Most bytes of the number before a path in version 4.
const MAX_NUMBER: u64 = 10;

/// The bytes of the signature, of a number, and of the name of an extension.
const WORD: u64 = 4;

/// The bytes of an entry before its mode: times, device and inode.
const BEFORE_MODE: u64 = 24;

const MODE: u64 = 4;

/// The bytes of an entry between its mode and its object: user, group and size.
const AFTER_MODE: u64 = 12;

const FLAGS: u64 = 2;

/// The flag for a second field of flags, which exists from version 3 on.
const EXTENDED: u16 = 0x4000;

/// The versions of the format. Version 4 shortens the paths.
const VERSION_2: u32 = 2;
const VERSION_4: u32 = 4;

/// The bytes of the names of objects, with SHA-1 and with SHA-256.
const OBJECT_NAMES: [u64; 2] = [20, 32];

/// The length of an entry before version 4 is a multiple of this number of bytes.
const ALIGNMENT: u64 = 8;

/// Extensions that git can create again from the entries, the objects and the files.
const CACHES: [&[u8; 4]; 5] = [b"EOIE", b"FSMN", b"IEOT", b"TREE", b"UNTR"];

pub(crate) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "index")
}

/// Returns a digest of the staged files in an index. The digest doesn't depend on caches, or on the
/// times, devices and inodes of files. Returns `None` if the format is unknown. `open` opens the
/// file at its start and returns its size.
pub(crate) fn staged<R: Read>(open: impl Fn() -> io::Result<(R, u64)>) -> Option<String> {
    // The index doesn't say how long object names are, so both lengths are tried.
    OBJECT_NAMES.into_iter().find_map(|object_name_bytes| {
        let (file, size) = open().ok()?;
        // The checksum at the end is as long as an object name.
        let content_bytes = size.checked_sub(object_name_bytes)?;
        let mut index = Index {
            file: BufReader::new(file).take(content_bytes),
            hash: Sha256::new(),
            object_name_bytes,
            buffer: Vec::new(),
        };
        index.read().ok()?;
        Some(hex(&index.hash.finalize()))
    })
}

/// An index without its checksum.
struct Index<R: Read> {
    file: io::Take<BufReader<R>>,
    hash: Sha256,
    object_name_bytes: u64,
    buffer: Vec<u8>,
}

impl<R: Read> Index<R> {
    fn read(&mut self) -> io::Result<()> {
        self.take(WORD)?;
        if self.buffer != b"DIRC" {
            return Err(unknown());
        }
        let version = self.number()?;
        let entry_count = self.number()?;
        if !(VERSION_2..=VERSION_4).contains(&version) {
            return Err(unknown());
        }
        for _ in 0..entry_count {
            self.read_entry(version)?;
        }
        while self.file.limit() > 0 {
            self.read_extension()?;
        }
        Ok(())
    }

    /// Reads an entry, and adds it to the digest without times, devices and inodes.
    fn read_entry(&mut self, version: u32) -> io::Result<()> {
        self.skip(BEFORE_MODE)?;
        self.take(MODE)?;
        self.skip(AFTER_MODE)?;
        self.take(self.object_name_bytes)?;
        self.take(FLAGS)?;
        let mut length = BEFORE_MODE + MODE + AFTER_MODE + self.object_name_bytes + FLAGS;
        let flags = u16::from_be_bytes([self.buffer[0], self.buffer[1]]);
        if version > VERSION_2 && flags & EXTENDED != 0 {
            self.take(FLAGS)?;
            length += FLAGS;
        }
        if version == VERSION_4 {
            self.take_path_number()?;
        }

        // The path ends with a NUL byte.
        self.buffer.clear();
        let mut rest = (&mut self.file).take(MAX_PATH + 1);
        length += rest.read_until(0, &mut self.buffer)? as u64;
        if self.buffer.last() != Some(&0) {
            return Err(unknown());
        }
        self.hash.update(&self.buffer);
        if version < VERSION_4 {
            // Further NUL bytes fill the entry.
            let padding = length.next_multiple_of(ALIGNMENT) - length;
            self.take(padding)?;
        }
        Ok(())
    }

    /// Adds the number before a path in version 4 to the digest. The highest bit of a byte is set
    /// if another byte follows.
    fn take_path_number(&mut self) -> io::Result<()> {
        for _ in 0..MAX_NUMBER {
            self.take(1)?;
            let has_more = self.buffer[0] & 0x80 != 0;
            if !has_more {
                return Ok(());
            }
        }
        Err(unknown())
    }

    /// Reads an extension, and adds it to the digest unless it is a cache.
    fn read_extension(&mut self) -> io::Result<()> {
        let mut name = [0; 4];
        self.file.read_exact(&mut name)?;
        if CACHES.contains(&&name) {
            let mut size = [0; 4];
            self.file.read_exact(&mut size)?;
            return self.skip(u32::from_be_bytes(size).into());
        }
        self.hash.update(name);
        let size = u64::from(self.number()?);
        let mut data = (&mut self.file).take(size);
        let copied = io::copy(&mut data, &mut self.hash)?;
        if copied == size { Ok(()) } else { Err(unknown()) }
    }

    /// Reads bytes into the buffer, and adds them to the digest. `bytes` is at most the length of
    /// an object's name, so the buffer stays small.
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.buffer.clear();
        let read = (&mut self.file).take(bytes).read_to_end(&mut self.buffer)? as u64;
        if read != bytes {
            return Err(unknown());
        }
        self.hash.update(&self.buffer);
        Ok(())
    }

    fn number(&mut self) -> io::Result<u32> {
        self.take(WORD)?;
        let bytes = self.buffer.first_chunk().ok_or_else(unknown)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Skips bytes without adding them to the digest.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.file).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(unknown()) }
    }
}

fn unknown() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
