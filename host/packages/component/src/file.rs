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
    /// A folder, a FIFO, a device.
    #[error("it isn't a file")]
    NotAFile,
    /// The file is larger than [`MAX_COMPONENT`].
    #[error("it is larger than {} MiB, which is the limit", MAX_COMPONENT >> 20)]
    TooLarge,
    /// The file isn't valid for Zstandard, or too large after that.
    #[error("it can't be decompressed: {0}")]
    Compression(#[source] io::Error),
}

/// SHA-256 in hexadecimal.
pub fn digest(wasm: &[u8]) -> String {
    Sha256::digest(wasm).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens the file of a component. Blocks.
///
/// # Errors
///
/// It can't be opened.
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
/// It can't be read, isn't a file, or is too large.
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

/// The bytes of a built-in component, which may be compressed with Zstandard.
///
/// # Errors
///
/// They can't be decompressed, or are too large then.
pub fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ComponentFileError> {
    if !bytes.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
        return Ok(bytes.into());
    }
    zstd::bulk::decompress(bytes, MAX_COMPONENT)
        .map(Cow::Owned)
        .map_err(ComponentFileError::Compression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_component_may_be_compressed() {
        let wasm = b"\0asm\x0d\0\x01\0".repeat(100);
        let packed = zstd::bulk::compress(&wasm, 9).expect("it is compressed");
        assert!(packed.len() < wasm.len());
        assert_eq!(unpacked(&packed).expect("it is decompressed"), wasm);
        assert_eq!(unpacked(&wasm).expect("it is as it was"), wasm);
        assert!(unpacked(&packed[..packed.len() - 1]).is_err());
        let large = zstd::bulk::compress(&vec![0; MAX_COMPONENT + 1], 1).expect("it is compressed");
        assert!(unpacked(&large).is_err());
    }
}
