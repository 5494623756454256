//! Reads a small file of the operator's within a limit, if it exists.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use toolhold_component::file::{self, ComponentFileError};

/// A reason why a small file can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BoundedFileError {
    #[error(transparent)]
    File(#[from] ComponentFileError),
    #[error("it is too large; the limit is {0} bytes")]
    TooLarge(u64),
}

/// Reads a file of at most so many bytes. `None`: the file doesn't exist. Blocks.
///
/// # Errors
///
/// The file can't be read, isn't a regular file, or is larger.
pub(crate) fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>, BoundedFileError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A part of the path that isn't a folder.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(ComponentFileError::Read(error).into()),
        Ok(_) => {}
    }
    let opened = file::open(path)?;
    if !opened.metadata().map_err(ComponentFileError::Read)?.is_file() {
        return Err(ComponentFileError::NotAFile.into());
    }
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes).map_err(ComponentFileError::Read)?;
    if bytes.len() as u64 > most {
        return Err(BoundedFileError::TooLarge(most));
    }
    Ok(Some(bytes))
}
