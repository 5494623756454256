//! An unfinished stored answer.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;

use toolhold_data_dir::PrivateFolder;

use super::{OverflowId, OverflowStore};

/// A text that is written piece by piece. Nobody can read the text before [`keep`](Self::keep)
/// gives it an ID. If the value is dropped before that, the file is removed.
#[derive(Debug)]
pub(super) struct PartialFile {
    folder: PrivateFolder,
    name: String,
    file: File,
    is_kept: bool,
    pub(super) bytes: u64,
    pub(super) characters: usize,
    pub(super) lines: usize,
}

impl PartialFile {
    /// Creates an empty file, which is removed on drop unless [`keep`](Self::keep) is called.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be created or is accessible to other users.
    pub(super) fn create(store: &OverflowStore) -> io::Result<Self> {
        let folder = PrivateFolder::make(&store.folder)?;
        // The random ID only makes the name unique. `keep` gives the answer its own ID.
        let untrusted = false;
        let name = format!("partial-{}", OverflowId::new(untrusted)?.as_str());
        let file = folder.updated(&name)?;
        Ok(Self { folder, name, file, is_kept: false, bytes: 0, characters: 0, lines: 0 })
    }

    /// Appends a text. Older answers are removed to make room for the text.
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

    /// Appends the content of another file.
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

    /// Returns at most `most` bytes from `offset`.
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
    /// Returns an error if the file has been removed.
    pub(super) fn keep(mut self, session: &str) -> io::Result<OverflowId> {
        // The text is the output of a command, which may print text of third parties.
        let untrusted = true;
        let id = OverflowId::new(untrusted)?;
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
