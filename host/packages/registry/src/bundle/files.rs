//! Opens a bundle's file, and writes a new file whose name must not exist yet.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

/// Opens a regular file. Returns the file and its length.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    // With NONBLOCK, opening a FIFO doesn't wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it isn't a file"));
    }
    Ok((file, metadata.len()))
}

/// Writes a new file. The name must not exist yet. The file gets this name after it is complete.
pub(crate) fn write_new<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<&File>) -> Result<(), E>,
) -> Result<(), E> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let mut writer = io::BufWriter::new(&file);
    let result = write(&mut writer).and_then(|()| {
        writer.flush()?;
        file.sync_all()?;
        rustix::fs::renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE)
            .map_err(io::Error::from)?;
        Ok(())
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}
