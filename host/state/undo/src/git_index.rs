//! Decides whether git's index is unchanged, apart from the times of files and from caches.
//!
//! `git status` and `git diff` write the times of files into `.git/index`, so that they read fewer
//! files next time. `git add` and other commands write the staged files. Both change the same file.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::hex::hex;

/// Longest path, by the kernel.
const MAX_PATH: u64 = 4096;

/// Longest number before a path of version 4.
const MAX_NUMBER: u64 = 10;

/// Bytes of an entry before its mode: times, device and inode.
const BEFORE_MODE: u64 = 24;

/// Bytes of an entry between its mode and its object: user, group and size.
const AFTER_MODE: u64 = 12;

/// The flag of an entry that has more flags.
const EXTENDED: u16 = 0x4000;

/// Extensions that git can create again from the entries, the objects and the files.
const CACHES: [&[u8; 4]; 5] = [b"EOIE", b"FSMN", b"IEOT", b"TREE", b"UNTR"];

/// Checks whether the path may be the index of a repository, a worktree or a submodule.
pub(crate) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "index")
}

/// Returns a digest of an index, without the times and numbers of files and without caches. Returns
/// `None` if the form of the file is unknown. `open` opens the file at its beginning, and returns
/// its size.
pub(crate) fn staged<R: Read>(open: impl Fn() -> io::Result<(R, u64)>) -> Option<String> {
    // The index doesn't contain the length of object names, which depends on SHA-1 or SHA-256.
    [20, 32].into_iter().find_map(|name_bytes| {
        let (file, size) = open().ok()?;
        let left = size.checked_sub(name_bytes)?;
        let mut index = Index {
            file: BufReader::new(file).take(left),
            hash: Sha256::new(),
            object: name_bytes,
            buffer: Vec::new(),
        };
        index.read().ok()?;
        Some(hex(&index.hash.finalize()))
    })
}

/// An index up to its checksum.
struct Index<R: Read> {
    file: io::Take<BufReader<R>>,
    hash: Sha256,
    /// Bytes of an object's name.
    object: u64,
    buffer: Vec<u8>,
}

impl<R: Read> Index<R> {
    /// Reads the whole index.
    fn read(&mut self) -> io::Result<()> {
        self.take(4)?;
        if self.buffer != b"DIRC" {
            return Err(unknown());
        }
        let version = self.number()?;
        let count = self.number()?;
        if !(2..=4).contains(&version) {
            return Err(unknown());
        }
        for _ in 0..count {
            self.entry(version)?;
        }
        while self.file.limit() > 0 {
            self.extension()?;
        }
        Ok(())
    }

    fn entry(&mut self, version: u32) -> io::Result<()> {
        self.skip(BEFORE_MODE)?;
        self.take(4)?;
        self.skip(AFTER_MODE)?;
        self.take(self.object)?;
        let mut bytes = BEFORE_MODE + 4 + AFTER_MODE + self.object + 2;
        self.take(2)?;
        let flags = u16::from_be_bytes([self.buffer[0], self.buffer[1]]);
        if version > 2 && flags & EXTENDED != 0 {
            self.take(2)?;
            bytes += 2;
        }
        if version == 4 {
            // A number comes before the path. The highest bit of a byte means that another byte
            // follows.
            let mut digits = 0;
            loop {
                self.take(1)?;
                digits += 1;
                let is_last = self.buffer[0] & 0x80 == 0;
                if is_last {
                    break;
                }
                if digits == MAX_NUMBER {
                    return Err(unknown());
                }
            }
        }
        self.buffer.clear();
        let read = (&mut self.file).take(MAX_PATH + 1).read_until(0, &mut self.buffer)? as u64;
        if self.buffer.last() != Some(&0) {
            return Err(unknown());
        }
        self.hash.update(&self.buffer);
        if version < 4 {
            // The entry is padded with one to eight zeros.
            let fill = (bytes + read).next_multiple_of(8) - (bytes + read);
            self.take(fill)?;
        }
        Ok(())
    }

    fn extension(&mut self) -> io::Result<()> {
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
        if io::copy(&mut data, &mut self.hash)? == size { Ok(()) } else { Err(unknown()) }
    }

    /// Reads bytes into the buffer and adds them to the digest. `bytes` is at most the length of an
    /// object's name.
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.buffer.clear();
        if (&mut self.file).take(bytes).read_to_end(&mut self.buffer)? as u64 != bytes {
            return Err(unknown());
        }
        self.hash.update(&self.buffer);
        Ok(())
    }

    fn number(&mut self) -> io::Result<u32> {
        self.take(4)?;
        let bytes = self.buffer.first_chunk().ok_or_else(unknown)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Skips bytes that aren't a part of the digest.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.file).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(unknown()) }
    }
}

fn unknown() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
