//! Signs the files of components and ceilings, and reads the signatures beside a file. The user of
//! the command names them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::verify::MAX_SIGNATURES;
use crate::{EXTENSION, MAX_SIGNATURE, SecretKey, Signature, SigningError, Statement};

/// Lines of one signature.
const SIGNATURE_LINES: usize = 4;

/// Signs the component in a file. The signature is written beside it, in place of an older one.
/// Returns its path. Blocks.
///
/// `name`: the plugin's name, for a component whose manifest doesn't say it.
///
/// # Errors
///
/// The component can't be read, has no name, or another one; the signature can't be written.
pub fn sign_file(
    component: &Path,
    name: Option<&str>,
    key: &SecretKey,
) -> Result<(PathBuf, Statement), SigningError> {
    let wasm = read_component(component)?;
    let statement = Statement::of_plugin(&wasm, name).map_err(|error| SigningError::Statement {
        path: component.display().to_string(),
        error,
    })?;
    let signature = Signature::sign(&wasm, &statement.to_string(), key)?;
    let path = signature_path(component);
    let written = write_beside(&path, signature.to_string().as_bytes());
    written.map_err(|error| SigningError::file(&path, error))?;
    Ok((path, statement))
}

/// Signs the text of a ceiling. The signature is written beside its file, in place of an older one.
/// Returns its path. Blocks.
///
/// # Errors
///
/// The signature can't be made or written.
pub fn sign_ceiling(file: &Path, text: &str, key: &SecretKey) -> Result<PathBuf, SigningError> {
    let signature = Signature::sign(text.as_bytes(), &Statement::Ceiling.to_string(), key)?;
    let path = signature_path(file);
    let written = write_beside(&path, signature.to_string().as_bytes());
    written.map_err(|error| SigningError::file(&path, error))?;
    Ok(path)
}

/// Reads the component in a file. Blocks.
///
/// # Errors
///
/// The component can't be read, or is too large.
pub fn read_component(path: &Path) -> Result<Vec<u8>, SigningError> {
    toolhold_component::file::open(path)
        .and_then(toolhold_component::file::read)
        .map_err(|error| SigningError::Component { path: path.display().to_string(), error })
}

/// The path of the signature of a file.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(EXTENSION);
    path.into()
}

/// Reads the signatures that lie beside a file, in one file, one after the other. Blocks.
///
/// # Errors
///
/// The file can't be read, isn't a regular file, or is too large.
pub fn read_signatures_beside(file: &Path) -> Result<Vec<Vec<u8>>, SigningError> {
    let path = signature_path(file);
    // NONBLOCK: opening a FIFO must not wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let read = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened
            .map_err(Into::into)
            .and_then(|it| read_bounded(it.into(), MAX_SIGNATURES * MAX_SIGNATURE)),
    };
    let bytes = read.map_err(|error| SigningError::file(&path, error))?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    Ok(lines.chunks(SIGNATURE_LINES).map(<[&[u8]]>::concat).collect())
}

/// Joins several signatures to the content of one file. Anything else is left out.
pub fn join_signatures(signatures: &[Vec<u8>]) -> Vec<u8> {
    let readable = signatures.iter().filter_map(|one| Signature::read(one).ok());
    readable.take(MAX_SIGNATURES).map(|one| one.to_string()).collect::<String>().into_bytes()
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_bounded(file: File, limit: usize) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it isn't a file"));
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let reason = format!("the file is too large; the limit is {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

/// Writes a file that others may read: to a new name, then renamed, so that nobody sees half of it.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&aside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}
