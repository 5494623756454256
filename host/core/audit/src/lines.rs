//! Reads a file of the audit log line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use super::chain::Hash;

/// Maximum length of a line. A longer line is returned in pieces, because it can't be an entry.
const MAX_LINE: u64 = 64 * 1024;

/// Bytes that are read from a file at a time.
const BUFFER: usize = 64 * 1024;

pub(super) struct Lines<'a> {
    reader: BufReader<Part<'a>>,
    line: Vec<u8>,
    at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Positions in the file: the start of the line, and the position after its line end.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: &'a [u8],
    pub(super) whole: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a File, from: u64, to: u64) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER, Part { file, at: from, to }),
            line: Vec::new(),
            at: from,
        }
    }

    /// Returns the next line without its line end. A very long line is returned in pieces.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let length = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line)? as u64;
        if length == 0 {
            return Ok(None);
        }
        let from = self.at;
        self.at += length;
        let whole = self.line.last() == Some(&b'\n');
        let bytes = if whole { &self.line[..self.line.len() - 1] } else { &self.line[..] };
        Ok(Some(Line { from, to: self.at, bytes, whole }))
    }
}

/// A part of a file. Reads don't move the file's position.
pub(super) struct Part<'a> {
    pub(super) file: &'a File,
    pub(super) at: u64,
    pub(super) to: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.to.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Part<'_> {
    /// Returns the SHA-256 hash of the part.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn hash(mut self) -> io::Result<Hash> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(hasher.finalize().into()),
                read => hasher.update(&buffer[..read]),
            }
        }
    }
}
