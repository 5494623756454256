//! Reads a component's file up to a size limit, and computes its digest.

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
    /// The path leads to a folder, a FIFO or a device.
    #[error("it isn't a file")]
    NotAFile,
    /// The file is larger than [`MAX_COMPONENT`].
    #[error("it is too large; the limit is {} MiB", MAX_COMPONENT >> 20)]
    TooLarge,
}

/// Returns the SHA-256 of bytes in hexadecimal, in lower case.
pub fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks whether a text has the form of a [`digest`]: 64 hexadecimal digits in lower case.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Opens the file of a component. Blocks.
///
/// # Errors
///
/// The file can't be opened.
pub fn open(path: &Path) -> Result<File, ComponentFileError> {
    // With NONBLOCK, opening a FIFO doesn't wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
    Ok(file.into())
}

/// Reads a component. Blocks.
///
/// # Errors
///
/// Returns an error if the file can't be read, isn't a regular file, or is too large.
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
    /// The bytes of the file. They come from `include_bytes!`, or were read and leaked.
    Plain(&'static [u8]),
    /// The file, compressed with Zstandard.
    Compressed {
        /// The compressed bytes.
        bytes: &'static [u8],
        /// Another compressed file. Content that both files contain isn't stored again.
        base: &'static [u8],
    },
}

impl EmbeddedFile {
    /// Returns the bytes of the file, decompressed.
    ///
    /// # Errors
    ///
    /// The compressed bytes are damaged, belong to another base, or have more than
    /// [`MAX_COMPONENT`] bytes when decompressed.
    pub fn read(self) -> io::Result<Cow<'static, [u8]>> {
        match self {
            Self::Plain(bytes) => Ok(bytes.into()),
            Self::Compressed { bytes, base } => {
                let base = decompress(base, &[])?;
                Ok(decompress(bytes, &base)?.into())
            }
        }
    }
}

/// Decompresses a file. `base` is the decompressed content that the file doesn't repeat.
fn decompress(bytes: &[u8], base: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = Vec::new();
    let decoder = zstd::Decoder::with_ref_prefix(bytes, base)?;
    decoder.take(MAX_COMPONENT as u64 + 1).read_to_end(&mut file)?;
    if file.len() > MAX_COMPONENT {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_a_base_is_read() {
        let file = b"\0asm\x0d\0\x01\0".repeat(100);
        let base: &[u8] = zstd::bulk::compress(&file, 9).expect("it is compressed").leak();
        let bytes = compressed(&file, &file);
        assert_eq!(read(bytes, base).expect("it is whole"), file);
        assert!(read(&bytes[..bytes.len() - 1], base).is_err(), "the bytes are cut");
        assert!(read(bytes, &[]).is_err(), "the base is missing");
        let large = compressed(&vec![0; MAX_COMPONENT + 1], &file);
        assert!(read(large, base).is_err(), "the file is too large");
    }

    fn read(bytes: &'static [u8], base: &'static [u8]) -> io::Result<Cow<'static, [u8]>> {
        EmbeddedFile::Compressed { bytes, base }.read()
    }

    fn compressed(file: &[u8], base: &[u8]) -> &'static [u8] {
        let mut encoder =
            zstd::Encoder::with_ref_prefix(Vec::new(), 1, base).expect("the base is one");
        io::Write::write_all(&mut encoder, file).expect("memory takes it");
        encoder.finish().expect("memory takes it").leak()
    }
}
