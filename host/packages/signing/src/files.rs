//! Signs the files of components and ceilings, and reads the signatures next to a file. The user
//! names these files in a command.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::encoded::UNTRUSTED;
use crate::signature::MAX_SIGNATURES;
use crate::{EXTENSION, MAX_SIGNATURE, SecretKey, Signature, SigningError, Statement};

/// The number of lines of a signature.
pub(crate) const SIGNATURE_LINES: usize = 4;

/// The start of each line of a signature in a ceiling, where the line is a comment of TOML.
const CEILING_COMMENT: &str = "# ";

/// Signs the component in a file. The signature is written next to the file and replaces an older
/// signature. Returns the signature's path and statement. Blocks.
///
/// A component without a manifest needs the plugin's `name`.
///
/// # Errors
///
/// Fails if the component can't be read, if the plugin has no name or its manifest has another name
/// than `name`, or if the signature can't be written.
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
    write_public(&path, signature.to_string().as_bytes())
        .map_err(|error| SigningError::file(&path, error))?;
    Ok((path, statement))
}

/// Signs the text of a ceiling, and replaces the ceiling's file. The first lines of the file are the
/// signature, in place of an older signature. One file has both, so that one rename replaces both.
/// Blocks.
///
/// # Errors
///
/// Fails if the signature can't be made or the file can't be written.
pub fn sign_ceiling(file: &Path, text: &str, key: &SecretKey) -> Result<(), SigningError> {
    let (_older_signature, text) = split_ceiling(text);
    let signature = Signature::sign(text.as_bytes(), &Statement::Ceiling.to_string(), key)?;
    let mut signed = String::new();
    for line in signature.to_string().lines() {
        signed.push_str(CEILING_COMMENT);
        signed.push_str(line);
        signed.push('\n');
    }
    signed.push_str(text);
    write_public(file, signed.as_bytes()).map_err(|error| SigningError::file(file, error))
}

/// Splits the file of a ceiling into its signature, if there is one, and the signed text.
pub(crate) fn split_ceiling(file: &str) -> (Option<String>, &str) {
    let mut signature = String::new();
    let mut text = file;
    for _ in 0..SIGNATURE_LINES {
        let Some((line, rest)) = text.split_once('\n') else { return (None, file) };
        let Some(line) = line.strip_prefix(CEILING_COMMENT) else { return (None, file) };
        signature.push_str(line);
        signature.push('\n');
        text = rest;
    }
    // Other comments aren't a signature.
    if signature.starts_with(UNTRUSTED.trim_end()) { (Some(signature), text) } else { (None, file) }
}

/// Reads the component in a file. Blocks.
///
/// # Errors
///
/// Fails if the component can't be read or is too large.
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

/// Reads the signatures of a file. The file `NAME.minisig` next to it contains one signature after
/// the other. Returns no signatures if this file doesn't exist. Blocks.
///
/// # Errors
///
/// Fails if the file can't be read, isn't a regular file, or is too large.
pub fn read_signatures_beside(file: &Path) -> Result<Vec<Vec<u8>>, SigningError> {
    let path = signature_path(file);
    // `NONBLOCK` is needed, because opening a FIFO otherwise waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let descriptor = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(descriptor) => descriptor,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(SigningError::file(&path, errno.into())),
    };
    let bytes = read_bounded(descriptor.into(), MAX_SIGNATURES * MAX_SIGNATURE)
        .map_err(|error| SigningError::file(&path, error))?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let mut signatures = Vec::new();
    for signature_lines in lines.chunks(SIGNATURE_LINES) {
        signatures.push(signature_lines.concat());
    }
    Ok(signatures)
}

/// Joins several signatures into the content of one file. Leaves out items that aren't signatures,
/// and all signatures after the first 16.
pub fn join_signatures(signatures: &[Vec<u8>]) -> Vec<u8> {
    let readable = signatures.iter().filter_map(|bytes| Signature::read(bytes).ok());
    let texts = readable.take(MAX_SIGNATURES).map(|signature| signature.to_string());
    texts.collect::<String>().into_bytes()
}

pub(crate) fn read_bounded(file: File, limit: usize) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this isn't a file"));
    }
    let mut bytes = Vec::new();
    // One byte above the limit shows that the file is too large.
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let reason = format!("the file is too large; the limit is {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

/// Writes a file that everybody may read. The file is renamed to `path` only when it is complete,
/// so that nobody reads a part of it.
fn write_public(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let mut result = write_new(temporary.as_ref(), bytes);
    if result.is_ok() {
        result = fs::rename(&temporary, path);
    }
    if result.is_err() {
        // Ignore an error here, because the result already has a more important error.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
