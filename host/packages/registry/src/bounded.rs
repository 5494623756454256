//! Reads a small file of the operator, if the file exists.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use toolhold_component::file::{self, ComponentFileError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum BoundedFileError {
    #[error(transparent)]
    File(#[from] ComponentFileError),
    #[error("the file is too large; the limit is {0} bytes")]
    TooLarge(u64),
}

/// Reads a file of at most `limit` bytes. Returns `None` if the file doesn't exist. Fails if the
/// file can't be read, isn't a regular file, or is larger. Blocks.
pub(crate) fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, BoundedFileError> {
    // For a link without a target, this succeeds, so that opening the link fails below.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A part of the path is a file instead of a folder.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(ComponentFileError::Read(error).into()),
        Ok(_) => {}
    }

    let file = file::open(path)?;
    let metadata = file.metadata().map_err(ComponentFileError::Read)?;
    if !metadata.is_file() {
        return Err(ComponentFileError::NotAFile.into());
    }
    let mut bytes = Vec::new();
    // One more byte shows that the file is too large.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(ComponentFileError::Read)?;
    if bytes.len() as u64 > limit {
        return Err(BoundedFileError::TooLarge(limit));
    }
    Ok(Some(bytes))
}
