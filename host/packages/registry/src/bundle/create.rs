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

/// A file for a new bundle.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its name there; see [`is_bundled_name`](crate::bundle::is_bundled_name).
    pub name: String,
    /// The content of the file.
    pub content: EntryContent,
}

/// Where the content of a new file comes from.
#[derive(Clone, Debug)]
pub enum EntryContent {
    /// The content itself.
    Bytes(Vec<u8>),
    /// A regular file.
    File(PathBuf),
}

/// An opened content.
enum Source {
    Bytes(io::Cursor<Vec<u8>>),
    File(File, PathBuf),
}

/// Writes a bundle. Its file must not exist yet. Blocks.
///
/// # Errors
///
/// A name isn't one that a bundle may have, or comes twice; a file can't be read, changes
/// meanwhile, or is too large; the bundle can't be written. Nothing is left then.
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
    let mut listed = Vec::new();
    let mut sources = Vec::new();
    for entry in entries {
        let mut source = Source::open(entry.content)?;
        let (length, sha256) = source.pass(&mut io::sink())?;
        listed.push(IndexEntry { name: entry.name, length, sha256 });
        sources.push(source);
    }
    let index = Index::new(listed)?;
    let bytes = serde_json::to_vec_pretty(&index).map_err(|error| {
        BundleError::Refused(format!("the bundle's index can't be written: {error}"))
    })?;
    let signature = Signature::sign(&bytes, &Statement::Bundle.to_string(), key)?.to_string();
    files::write_new(path, |out| {
        write_entry(out, INDEX, &bytes)?;
        write_entry(out, SIGNATURE, signature.as_bytes())?;
        for (entry, source) in index.files.iter().zip(&mut sources) {
            out.write_all(&header(&entry.name, entry.length))?;
            if source.pass(out)? != (entry.length, entry.sha256.clone()) {
                let reason = format!("`{}` changed while it was read; try again", entry.name);
                return Err(Failure::Bundle(BundleError::Refused(reason)));
            }
            pad(out, entry.length)?;
        }
        out.write_all(&[0; END as usize])?;
        Ok(())
    })
    .map_err(|failure| match failure {
        Failure::Write(error) => BundleError::file(path, error),
        Failure::Bundle(error) => error,
    })?;
    Ok(index)
}

/// The bundle can't be written, or something else is wrong.
enum Failure {
    Write(io::Error),
    Bundle(BundleError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        Self::Bundle(error)
    }
}

fn write_entry(out: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    out.write_all(&header(name, length))?;
    out.write_all(bytes)?;
    pad(out, length)
}

fn pad(out: &mut impl Write, length: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(padded(length) - length), out).map(drop)
}

impl Source {
    fn open(content: EntryContent) -> Result<Self, BundleError> {
        Ok(match content {
            EntryContent::Bytes(bytes) => Self::Bytes(io::Cursor::new(bytes)),
            EntryContent::File(path) => {
                let (file, _) =
                    files::open(&path).map_err(|error| BundleError::file(&path, error))?;
                Self::File(file, path)
            }
        })
    }

    /// Reads all of it from the beginning and writes it. Returns its length and digest.
    fn pass(&mut self, out: &mut impl Write) -> Result<(u64, String), BundleError> {
        match self {
            Self::Bytes(bytes) => pass(bytes, out),
            Self::File(file, path) => pass(file, out).map_err(|error| match error {
                BundleError::File { error, .. } => BundleError::file(path, error),
                other => other,
            }),
        }
    }
}

fn pass(from: &mut (impl Read + Seek), out: &mut impl Write) -> Result<(u64, String), BundleError> {
    from.rewind().map_err(bundle_failure)?;
    let (length, digest) =
        copy_hashed(&mut from.take(MAX_ENTRY + 1), out).map_err(bundle_failure)?;
    if length > MAX_ENTRY {
        return Err(BundleError::Refused(format!(
            "a file is too large; the limit is {MAX_ENTRY} bytes"
        )));
    }
    Ok((length, digest))
}

fn bundle_failure(error: io::Error) -> BundleError {
    BundleError::file("the bundle".as_ref(), error)
}

/// Copies all, and returns its length and digest.
pub(crate) fn copy_hashed(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, String)> {
    let mut buffer = vec![0; 128 << 10];
    let mut hasher = Sha256::new();
    let mut length = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        length += read as u64;
        if length > MAX_BUNDLE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
        }
    }
    let mut digest = String::new();
    for byte in hasher.finalize() {
        let _ = write!(digest, "{byte:02x}");
    }
    Ok((length, digest))
}
