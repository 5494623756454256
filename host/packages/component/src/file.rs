//! Reads the file of a component within its limit, and computes its digest.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

/// Most bytes of a component.
pub const MAX_COMPONENT: usize = 64 << 20;

/// A reason why the file of a component can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ComponentFileError {
    /// The file can't be opened or read.
    #[error("it can't be read: {0}")]
    Read(#[from] io::Error),
    /// The path is that of a folder, a FIFO or a device.
    #[error("it isn't a file")]
    NotAFile,
    /// The file is larger than [`MAX_COMPONENT`].
    #[error("it is too large; the limit is {} MiB", MAX_COMPONENT >> 20)]
    TooLarge,
}

/// SHA-256 in hexadecimal.
pub fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens the file of a component. Blocks.
///
/// # Errors
///
/// The file can't be opened.
pub fn open(path: &Path) -> Result<File, ComponentFileError> {
    // NONBLOCK: opening a FIFO must not wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
    Ok(opened.into())
}

/// Reads a component. Blocks.
///
/// # Errors
///
/// The file can't be read, isn't a regular file, or is too large.
pub fn read(file: File) -> Result<Vec<u8>, ComponentFileError> {
    if !file.metadata()?.is_file() {
        return Err(ComponentFileError::NotAFile);
    }
    let mut wasm = Vec::new();
    file.take(MAX_COMPONENT as u64 + 1).read_to_end(&mut wasm)?;
    if wasm.len() > MAX_COMPONENT {
        return Err(ComponentFileError::TooLarge);
    }
    Ok(wasm)
}

/// A file that is built into the program.
#[derive(Clone, Copy, Debug)]
pub enum EmbeddedFile {
    /// The bytes of the file: from `include_bytes!`, or read and leaked.
    Plain(&'static [u8]),
    /// A range of an archive, so that files with much in common take little space.
    Archived {
        /// Files one after the other, compressed together with Zstandard.
        archive: &'static [u8],
        /// Bytes before the file in the decompressed archive.
        start: usize,
        /// Bytes of the file.
        size: usize,
    },
}

impl EmbeddedFile {
    /// The bytes of the file. Decompresses an archive up to the file's end, at about 1 GB/s.
    ///
    /// # Errors
    ///
    /// The archive is damaged, or ends before the file does.
    pub fn read(self) -> io::Result<Cow<'static, [u8]>> {
        match self {
            Self::Plain(bytes) => Ok(bytes.into()),
            Self::Archived { archive, start, size } => {
                let mut archive = zstd::Decoder::with_buffer(archive)?;
                io::copy(&mut archive.by_ref().take(start as u64), &mut io::sink())?;
                let mut bytes = vec![0; size];
                archive.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_an_archive_is_read() {
        let [first, second] = [b"\0asm\x0d\0\x01\0".repeat(100), b"code".repeat(100)];
        let archive = zstd::bulk::compress(&[first.as_slice(), &second].concat(), 9);
        let archive: &[u8] = archive.expect("it is compressed").leak();
        let file = |start, size| EmbeddedFile::Archived { archive, start, size }.read();
        assert_eq!(file(0, first.len()).expect("it is whole"), first);
        assert_eq!(file(first.len(), second.len()).expect("it is whole"), second);
        assert!(file(first.len(), second.len() + 1).is_err(), "the archive ends before the file");
        let archive = &archive[..archive.len() - 9];
        let cut = EmbeddedFile::Archived { archive, start: first.len(), size: second.len() };
        assert!(cut.read().is_err(), "the archive is cut");
    }
}
