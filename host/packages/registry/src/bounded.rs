//! Reads a small file of the operator's within a limit, if it exists.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use toolhold_component::file;

/// A file of at most so many bytes. `None`: it doesn't exist. Blocks.
///
/// # Errors
///
/// It can't be read, isn't a file, or is larger.
pub(crate) fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A part of the path that isn't a folder.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(format!("it can't be read: {error}")),
        Ok(_) => {}
    }
    let opened = file::open(path).map_err(|error| error.to_string())?;
    let metadata = opened.metadata().map_err(|error| format!("it can't be read: {error}"))?;
    if !metadata.is_file() {
        return Err("it isn't a file".to_owned());
    }
    let mut bytes = Vec::new();
    opened
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it can't be read: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("it is larger than {most} bytes, the limit"));
    }
    Ok(Some(bytes))
}
