//! Creates files without overwriting any.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use toolhold_core::HostError;

use crate::error::CommandError;

/// Writes a new file in one step. Only the owner can read the file. Fails if the file exists.
pub fn create(path: &Path, text: &str) -> Result<(), CommandError> {
    // `symlink_metadata` also finds a broken link.
    if path.symlink_metadata().is_ok() {
        return Err(exists(path));
    }

    // The parent of a plain file name is empty.
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    private_folder(folder)?;

    let mut file =
        tempfile::Builder::new().prefix(".toolhold-").tempfile_in(folder).map_err(writing(path))?;
    file.write_all(text.as_bytes()).map_err(writing(path))?;
    file.as_file().sync_all().map_err(writing(path))?;

    match file.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Err(exists(path)),
        Err(error) => Err(writing(path)(error.error).into()),
    }
}

pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("writing {}", path.display()))
}

/// Creates a folder that only the owner can use. An existing folder keeps its mode.
pub fn private_folder(path: &Path) -> Result<(), CommandError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(HostError::io(format!("making {}", path.display())))?;
    Ok(())
}

/// Returns the error for an existing file.
pub fn exists(path: &Path) -> CommandError {
    let shown = path.display();
    CommandError::Usage(format!(
        "{shown} already exists and is not overwritten; edit the file, and check the result with \
         `toolhold config show`"
    ))
}
