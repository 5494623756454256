//! Writes a new bundle: the index, its signature, and the files.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toolhold_signing::{SecretKey, Signature, Statement};

use crate::bundle::index::{Index, IndexEntry};
use crate::bundle::tar::{END, header, padded};
use crate::bundle::{BundleError, MAX_BUNDLE, MAX_ENTRIES, MAX_ENTRY, files};

pub(crate) const INDEX: &str = "index.json";
pub(crate) const SIGNATURE: &str = "index.json.minisig";

/// Bytes that are copied at a time.
const BUFFER: usize = 128 << 10;

/// A file for a new bundle.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// The name of the file in the bundle, as for
    /// [`is_bundled_name`](crate::bundle::is_bundled_name).
    pub name: String,
    /// The content of the file.
    pub content: EntryContent,
}

/// The source of a file's content.
#[derive(Clone, Debug)]
pub enum EntryContent {
    /// The content itself.
    Bytes(Vec<u8>),
    /// The path of a regular file.
    File(PathBuf),
}

enum Source {
    Bytes(io::Cursor<Vec<u8>>),
    File(File, PathBuf),
}

/// Writes a bundle to a new file. Blocks.
///
/// # Errors
///
/// Returns an error if a name is not allowed in a bundle or appears twice, if a file is too large,
/// can't be read or changes during the write, or if the bundle can't be written. After an error, no
/// bundle exists.
pub fn create(
    path: &Path,
    mut entries: Vec<NewEntry>,
    key: &SecretKey,
) -> Result<Index, BundleError> {
    if entries.len() > MAX_ENTRIES {
        return Err(BundleError::Refused(format!(
            "the bundle would have {} files; the limit is {MAX_ENTRIES}",
            entries.len()
        )));
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut index_entries = Vec::new();
    let mut sources = Vec::new();
    for entry in entries {
        let mut source = Source::open(entry.content)?;
        let (length, sha256) = source.copy_to(&mut io::sink())?;
        index_entries.push(IndexEntry { name: entry.name, length, sha256 });
        sources.push(source);
    }
    let index = Index::new(index_entries)?;
    let index_json = serde_json::to_vec_pretty(&index).map_err(|error| {
        BundleError::Refused(format!("the bundle's index can't be written: {error}"))
    })?;
    let signature = Signature::sign(&index_json, &Statement::Bundle.to_string(), key)?.to_string();

    let result: Result<(), WriteError> = files::write_new(path, |out| {
        write_entry(out, INDEX, &index_json)?;
        write_entry(out, SIGNATURE, signature.as_bytes())?;
        write_sources(out, &index, &mut sources)?;
        out.write_all(&[0; END as usize])?;
        Ok(())
    });
    match result {
        Ok(()) => Ok(index),
        Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(BundleError::Exists)
        }
        Err(WriteError::Io(error)) => Err(BundleError::file(path, error)),
        Err(WriteError::Bundle(error)) => Err(error),
    }
}

enum WriteError {
    /// The bundle can't be written.
    Io(io::Error),
    /// A file for the bundle can't be read, or has changed.
    Bundle(BundleError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BundleError> for WriteError {
    fn from(error: BundleError) -> Self {
        Self::Bundle(error)
    }
}

/// Writes the files of the index. A file that has changed since the index was made is an error.
fn write_sources(
    out: &mut impl Write,
    index: &Index,
    sources: &mut [Source],
) -> Result<(), WriteError> {
    for (entry, source) in index.files.iter().zip(sources) {
        out.write_all(&header(&entry.name, entry.length))?;
        let (length, sha256) = source.copy_to(out)?;
        if length != entry.length || sha256 != entry.sha256 {
            let reason = format!("`{}` changed while it was read; try again", entry.name);
            return Err(BundleError::Refused(reason).into());
        }
        pad(out, entry.length)?;
    }
    Ok(())
}

fn write_entry(out: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    out.write_all(&header(name, length))?;
    out.write_all(bytes)?;
    pad(out, length)
}

fn pad(out: &mut impl Write, length: u64) -> io::Result<()> {
    let mut zeros = io::repeat(0).take(padded(length) - length);
    io::copy(&mut zeros, out)?;
    Ok(())
}

impl Source {
    fn open(content: EntryContent) -> Result<Self, BundleError> {
        Ok(match content {
            EntryContent::Bytes(bytes) => Self::Bytes(io::Cursor::new(bytes)),
            EntryContent::File(path) => {
                let (file, _length) =
                    files::open(&path).map_err(|error| BundleError::file(&path, error))?;
                Self::File(file, path)
            }
        })
    }

    fn copy_to(&mut self, out: &mut impl Write) -> Result<(u64, String), BundleError> {
        match self {
            Self::Bytes(bytes) => copy_bounded(bytes, out),
            Self::File(file, path) => match copy_bounded(file, out) {
                // `copy_bounded` doesn't know the path of the file.
                Err(BundleError::File { error, .. }) => Err(BundleError::file(path, error)),
                result => result,
            },
        }
    }
}

/// Copies the content from its start. Refuses content of more than [`MAX_ENTRY`] bytes. Returns its
/// length and digest.
fn copy_bounded(
    from: &mut (impl Read + Seek),
    out: &mut impl Write,
) -> Result<(u64, String), BundleError> {
    from.rewind().map_err(bundle_error)?;
    // One more byte shows that the content is too large.
    let mut content = from.take(MAX_ENTRY + 1);
    let (length, digest) = copy_hashed(&mut content, out).map_err(bundle_error)?;
    if length > MAX_ENTRY {
        return Err(BundleError::Refused(format!(
            "a file is too large; the limit is {MAX_ENTRY} bytes"
        )));
    }
    Ok((length, digest))
}

fn bundle_error(error: io::Error) -> BundleError {
    BundleError::file("the bundle".as_ref(), error)
}

/// Copies all bytes. Returns their number and their SHA-256. Fails with more than [`MAX_BUNDLE`].
pub(crate) fn copy_hashed(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, String)> {
    let mut buffer = vec![0; BUFFER];
    let mut hasher = Sha256::new();
    let mut length = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        length += count as u64;
        if length > MAX_BUNDLE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large"));
        }
    }
    let mut digest = String::new();
    for byte in hasher.finalize() {
        // Writing to a string never fails.
        let _ = write!(digest, "{byte:02x}");
    }
    Ok((length, digest))
}
