//! Signs the files of components and ceilings, and reads the signatures next to a file. The user
//! names these files in a command.

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

/// Signs the component in a file. Writes the signature next to the file, and replaces an older
/// signature. Returns the signature's path and statement. Blocks.
///
/// A component without a manifest needs the plugin's `name`.
///
/// # Errors
///
/// Returns an error if the component can't be read, if it has no name or another name, or if the
/// signature can't be written.
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
    let path = write_signature(component, &signature)?;
    Ok((path, statement))
}

/// Signs the text of a ceiling. Writes the signature next to the ceiling's file, and replaces an
/// older signature. Returns the signature's path. Blocks.
///
/// # Errors
///
/// Returns an error if the signature can't be made or written.
pub fn sign_ceiling(file: &Path, text: &str, key: &SecretKey) -> Result<PathBuf, SigningError> {
    let signature = Signature::sign(text.as_bytes(), &Statement::Ceiling.to_string(), key)?;
    write_signature(file, &signature)
}

/// Writes the signature of a file next to the file. Returns the signature's path.
fn write_signature(file: &Path, signature: &Signature) -> Result<PathBuf, SigningError> {
    let path = signature_path(file);
    write_public(&path, signature.to_string().as_bytes())
        .map_err(|error| SigningError::file(&path, error))?;
    Ok(path)
}

/// Reads the component in a file. Blocks.
///
/// # Errors
///
/// Returns an error if the component can't be read, or if it is too large.
pub fn read_component(path: &Path) -> Result<Vec<u8>, SigningError> {
    toolhold_component::file::open(path)
        .and_then(toolhold_component::file::read)
        .map_err(|error| SigningError::Component { path: path.display().to_string(), error })
}

/// Returns the path of the signature of a file.
pub fn signature_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(EXTENSION);
    path.into()
}

/// Reads the signatures of a file. They are one after the other in one file next to it. Without
/// this file, there are no signatures. Blocks.
///
/// # Errors
///
/// Returns an error if the file can't be read, isn't a regular file, or is too large.
pub fn read_signatures_beside(file: &Path) -> Result<Vec<Vec<u8>>, SigningError> {
    let path = signature_path(file);
    // With NONBLOCK, opening a FIFO doesn't wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let descriptor = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(descriptor) => descriptor,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(SigningError::file(&path, errno.into())),
    };
    let bytes = read_bounded(descriptor.into(), MAX_SIGNATURES * MAX_SIGNATURE)
        .map_err(|error| SigningError::file(&path, error))?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    Ok(lines.chunks(SIGNATURE_LINES).map(<[&[u8]]>::concat).collect())
}

/// Joins several signatures into the content of one file. Items that aren't signatures are left
/// out.
pub fn join_signatures(signatures: &[Vec<u8>]) -> Vec<u8> {
    let readable = signatures.iter().filter_map(|bytes| Signature::read(bytes).ok());
    let texts = readable.take(MAX_SIGNATURES).map(|signature| signature.to_string());
    texts.collect::<String>().into_bytes()
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

/// Writes a file that other users may read. The file gets its name after it is complete.
fn write_public(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let result = write_new(temporary.as_ref(), bytes).and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
