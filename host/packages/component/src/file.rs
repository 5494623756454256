//! Reads a component's file up to a size limit, and computes its digest.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use zstd::zstd_safe::{self, DCtx};

/// Most bytes of a component. A larger component is refused.
pub const MAX_COMPONENT: usize = 64 << 20;

/// Bytes that are read at most. One byte above the limit shows that a component is too large.
const READ_LIMIT: u64 = MAX_COMPONENT as u64 + 1;

/// The reason why the file of a component can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ComponentFileError {
    /// The file can't be opened or read.
    #[error("the component can't be read: {0}")]
    Read(#[from] io::Error),
    /// The path leads to a folder, a FIFO or a device.
    #[error("the component isn't a file")]
    NotAFile,
    /// The file is larger than [`MAX_COMPONENT`].
    #[error("the component is too large; the limit is {} MiB", MAX_COMPONENT >> 20)]
    TooLarge,
}

/// Returns the SHA-256 of `wasm` in lower-case hexadecimal.
pub fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks whether a text is a [`digest`]: 64 hexadecimal digits in lower case.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Opens the file of a component. Blocks.
///
/// # Errors
///
/// Returns an error if the file can't be opened.
pub fn open(path: &Path) -> Result<File, ComponentFileError> {
    // `NONBLOCK` is needed, because opening a FIFO otherwise waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from)?;
    Ok(file.into())
}

/// Reads a component. Blocks.
///
/// # Errors
///
/// Fails if the file can't be read, isn't a regular file, or is too large.
pub fn read(file: File) -> Result<Vec<u8>, ComponentFileError> {
    if !file.metadata()?.is_file() {
        return Err(ComponentFileError::NotAFile);
    }
    let mut wasm = Vec::new();
    file.take(READ_LIMIT).read_to_end(&mut wasm)?;
    if wasm.len() > MAX_COMPONENT {
        return Err(ComponentFileError::TooLarge);
    }
    Ok(wasm)
}

/// A file in the program.
#[derive(Clone, Copy, Debug)]
pub enum EmbeddedFile {
    /// The uncompressed bytes.
    Plain(&'static [u8]),
    /// The file, compressed with Zstandard.
    Compressed {
        /// The compressed bytes.
        bytes: &'static [u8],
        /// Another compressed file. Its content isn't repeated in `bytes`.
        base: &'static [u8],
    },
}

impl EmbeddedFile {
    /// Returns the decompressed bytes of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the compressed bytes are damaged, belong to another base, or have more
    /// than [`MAX_COMPONENT`] bytes when decompressed.
    pub fn read(self) -> io::Result<Cow<'static, [u8]>> {
        match self {
            Self::Plain(bytes) => Ok(bytes.into()),
            Self::Compressed { bytes, base } => {
                let no_dictionary = &[];
                let dictionary = decompress(base, no_dictionary)?;
                Ok(decompress(bytes, &dictionary)?.into())
            }
        }
    }
}

/// Decompresses `bytes`. `base` is the dictionary of the compression, and is empty without a
/// dictionary.
fn decompress(bytes: &[u8], base: &[u8]) -> io::Result<Vec<u8>> {
    let size = zstd_safe::get_frame_content_size(bytes).ok().flatten();
    let size = usize::try_from(size.ok_or(io::ErrorKind::InvalidData)?).unwrap_or(usize::MAX);
    if size > MAX_COMPONENT {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // A decoder of streams would fill a second buffer of this size.
    let mut file = Vec::with_capacity(size);
    let mut context = DCtx::create();
    context
        .ref_prefix(base)
        .and_then(|_| context.decompress(&mut file, bytes))
        .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
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
        encoder.set_pledged_src_size(Some(file.len() as u64)).expect("nothing is written yet");
        io::Write::write_all(&mut encoder, file).expect("memory takes it");
        encoder.finish().expect("memory takes it").leak()
    }
}
