//! Opens a bundle's file, and writes a new file without overwriting an existing file.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

/// Opens a regular file. Returns the file and its length.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    // `NONBLOCK` is needed, because opening a FIFO otherwise waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this isn't a file"));
    }
    Ok((file, metadata.len()))
}

/// Creates a file with the content that `write` writes. The file is renamed to `path` when it is
/// complete. An existing file is never overwritten.
pub(crate) fn write_new<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<&File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let mut writer = io::BufWriter::new(&file);
    let result = match write(&mut writer) {
        Ok(()) => finish(&mut writer, temporary.as_os_str(), path).map_err(E::from),
        Err(error) => Err(error),
    };
    if result.is_err() {
        // Ignore an error here, because the result already has a more important error.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Stores the written bytes on the disk, and renames the file.
fn finish(writer: &mut io::BufWriter<&File>, temporary: &OsStr, path: &Path) -> io::Result<()> {
    writer.flush()?;
    writer.get_ref().sync_all()?;
    rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?;
    Ok(())
}
