//! An unfinished file among the stored answers, which can't be read before it is complete.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;

use toolhold_data_dir::PrivateFolder;

use super::{OverflowId, OverflowStore};

/// A text that is written piece by piece. The text can't be read before it has an ID. Without an
/// ID, it is removed when it is dropped.
#[derive(Debug)]
pub(super) struct PartialFile {
    folder: PrivateFolder,
    name: String,
    file: File,
    /// Whether the file has an ID.
    is_kept: bool,
    pub(super) bytes: u64,
    pub(super) characters: usize,
    pub(super) lines: usize,
}

impl PartialFile {
    /// Creates an empty file.
    ///
    /// # Errors
    ///
    /// The folder can't be created or trusted.
    pub(super) fn create(store: &OverflowStore) -> io::Result<Self> {
        let folder = PrivateFolder::make(&store.folder)?;
        let name = format!("partial-{}", OverflowId::new(false)?.as_str());
        let file = folder.updated(&name)?;
        Ok(Self { folder, name, file, is_kept: false, bytes: 0, characters: 0, lines: 0 })
    }

    /// Appends a text after making room for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk is full.
    pub(super) fn write(&mut self, text: &str, store: &OverflowStore) -> io::Result<()> {
        store.reserve(&self.folder, text.len() as u64)?;
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        self.characters += text.chars().count();
        self.lines += text.bytes().filter(|byte| *byte == b'\n').count();
        Ok(())
    }

    /// Appends the whole content of another file.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`write`](Self::write).
    pub(super) fn append(&mut self, mut other: Self, store: &OverflowStore) -> io::Result<()> {
        store.reserve(&self.folder, other.bytes)?;
        other.file.rewind()?;
        self.bytes += io::copy(&mut other.file, &mut self.file)?;
        self.characters += other.characters;
        self.lines += other.lines;
        Ok(())
    }

    /// Returns at most `most` bytes, starting at an offset.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read.
    pub(super) fn read(&self, offset: u64, most: u64) -> io::Result<Vec<u8>> {
        let length = self.bytes.saturating_sub(offset).min(most);
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Gives the file an ID in a session.
    ///
    /// # Errors
    ///
    /// The file is gone.
    pub(super) fn keep(mut self, session: &str) -> io::Result<OverflowId> {
        // Commands print what others have written.
        let id = OverflowId::new(true)?;
        self.folder.rename(&self.name, &id.file(session))?;
        self.is_kept = true;
        Ok(id)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.folder.remove(&self.name);
        }
    }
}
