//! Creates the user's configuration file once, and never overwrites it.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use toolhold_core::HostError;

use crate::error::CommandError;

/// Writes a private configuration file, unless the file exists. The file is written completely or
/// not at all.
pub fn create(path: &Path, text: &str) -> Result<(), CommandError> {
    // A broken link is an existing path too.
    if path.symlink_metadata().is_ok() {
        return Err(exists(path));
    }

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

/// Converts an error of writing the file at `path`.
pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> HostError {
    HostError::io(format!("writing {}", path.display()))
}

/// Creates a private folder if it doesn't exist. An existing folder doesn't change.
pub fn private_folder(path: &Path) -> Result<(), CommandError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(HostError::io(format!("making {}", path.display())))?;
    Ok(())
}

/// Returns the error that the file exists, with the remedy.
pub fn exists(path: &Path) -> CommandError {
    let shown = path.display();
    CommandError::Usage(format!(
        "{shown} already exists and is not overwritten; edit it, and see the result with `toolhold config show`"
    ))
}
