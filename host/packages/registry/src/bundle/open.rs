//! Verifies the signature and the files of a bundle, and unpacks it into a private folder.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use toolhold_data_dir::PrivateFolder;
use toolhold_signing::{MAX_SIGNATURE, Signature, Signer, TrustedKey, verify_bundle};

use crate::bundle::create::{INDEX, SIGNATURE, copy_hashed};
use crate::bundle::index::{Index, IndexEntry};
use crate::bundle::name::PLUGINS;
use crate::bundle::tar::{BLOCK, END, header, padded, stated_length};
use crate::bundle::{BundleError, MAX_BUNDLE, MAX_INDEX, files};

/// The folder for the files of the bundle that is being installed, and its lock.
const UNPACKED: &str = "bundle";
const LOCK: &str = "bundle.lock";

/// A verified bundle, whose files lie in a private folder until this is dropped.
#[derive(Debug)]
pub struct Bundle {
    signer: Signer,
    index: Index,
    within: PrivateFolder,
    folder: PrivateFolder,
    path: PathBuf,
    /// Nobody else unpacks one meanwhile.
    _lock: File,
}

/// Verifies a bundle and unpacks it into the folder `within`, which is Toolhold's own. It is
/// refused while another one is unpacked there. Blocks.
///
/// Index and signature, the headers, the order and the length of the whole are checked before
/// anything is written; the digest of each file, while it is written.
///
/// `today`: in UTC.
///
/// # Errors
///
/// The bundle is refused, for the first thing that isn't as it has to be. Nothing is left then.
pub fn open(
    path: &Path,
    keys: &[TrustedKey],
    today: Date,
    within: &Path,
) -> Result<Bundle, BundleError> {
    let (file, length) = files::open(path).map_err(|error| BundleError::file(path, error))?;
    if length > MAX_BUNDLE {
        return Err(BundleError::Refused(format!(
            "it is {length} bytes; the limit is {MAX_BUNDLE}"
        )));
    }
    let mut tar = Tar { file, at: 0, length };
    let index = tar.read_small(INDEX, MAX_INDEX).map_err(|error| error.or(path))?;
    let signature =
        tar.read_small(SIGNATURE, MAX_SIGNATURE as u64).map_err(|error| error.or(path))?;
    let signer = verify_bundle(&index, &signature, keys, today)?;
    // The untrusted comment of a signature isn't signed. There is one way to write it.
    let written = Signature::read(&signature).map(|signature| signature.to_string());
    if written.as_ref().map(String::as_bytes) != Ok(&*signature) {
        return Err(BundleError::refused("its signature has a form that Toolhold doesn't write"));
    }
    let index = Index::read(&index)?;
    tar.check(&index).map_err(|error| error.or(path))?;

    let own = |error| BundleError::file(within, error);
    let private = PrivateFolder::make(within).map_err(own)?;
    let lock = private.try_lock(LOCK).map_err(own)?.ok_or_else(|| {
        BundleError::refused(
            "another command has a bundle open; wait until that command ends, or end it",
        )
    })?;
    remove(&private).map_err(own)?;
    let folder = private.folder(UNPACKED).map_err(own)?;
    let bundle =
        Bundle { signer, index, within: private, folder, path: within.join(UNPACKED), _lock: lock };
    // On failure, the bundle is dropped with the files that were written.
    bundle.unpack(&mut tar).map_err(|error| error.or(path))?;
    Ok(bundle)
}

impl Bundle {
    /// The signer of the bundle.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Its files, by name.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.index.files
    }

    /// The private folder with its files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens one of its files for reading. `None`: it has none of this name.
    ///
    /// # Errors
    ///
    /// The file can't be opened.
    pub fn file(&self, name: &str) -> Option<io::Result<File>> {
        self.index.files.iter().find(|entry| entry.name == name)?;
        Some(match name.split_once('/') {
            Some((folder, file)) => self.folder.folder(folder).and_then(|it| it.file(file)),
            None => self.folder.file(name),
        })
    }

    fn unpack(&self, tar: &mut Tar) -> Result<(), Wrong> {
        for entry in &self.index.files {
            tar.skip(BLOCK as u64)?;
            let mut to = match entry.name.split_once('/') {
                Some((PLUGINS, file)) => self.folder.folder(PLUGINS)?.updated(file)?,
                _ => self.folder.updated(&entry.name)?,
            };
            let (length, digest) = copy_hashed(&mut (&mut tar.file).take(entry.length), &mut to)?;
            if (length, &digest) != (entry.length, &entry.sha256) {
                return Err(Wrong::Refused(format!(
                    "the content of `{}` doesn't match the index",
                    entry.name
                )));
            }
            tar.skip(length)?;
            tar.at += padded(length) - length;
        }
        Ok(())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = remove(&self.within);
    }
}

/// Removes the unpacked files, also those that a killed process left.
fn remove(within: &PrivateFolder) -> io::Result<()> {
    match within.remove_folder(UNPACKED) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A reason why a bundle is refused, or can't be read.
enum Wrong {
    Refused(String),
    Read(io::Error),
}

impl Wrong {
    fn or(self, path: &Path) -> BundleError {
        match self {
            Self::Refused(reason) => BundleError::Refused(reason),
            Self::Read(error) => BundleError::file(path, error),
        }
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// The file, at a place.
struct Tar {
    file: File,
    at: u64,
    length: u64,
}

impl Tar {
    /// Reads bytes here; there have to be as many.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Wrong> {
        self.file.seek(SeekFrom::Start(self.at))?;
        match self.file.read_exact(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Wrong::Refused("it is cut off".into()));
            }
            read => read?,
        }
        self.at += buffer.len() as u64;
        Ok(())
    }

    /// Goes on, and places the file there.
    fn skip(&mut self, bytes: u64) -> Result<(), Wrong> {
        self.at += bytes;
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(())
    }

    /// Reads the padding behind a content of this length.
    fn read_padding(&mut self, length: u64) -> Result<(), Wrong> {
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..usize::try_from(padded(length) - length).unwrap_or(BLOCK)];
        self.read(padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Wrong::Refused("it has bytes between its files".into()));
        }
        Ok(())
    }

    /// Reads the file that has to be here.
    fn read_small(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, Wrong> {
        let mut found = [0; BLOCK];
        self.read(&mut found)?;
        let length =
            stated_length(&found).filter(|length| found == header(name, *length)).ok_or_else(
                || Wrong::Refused(format!("it isn't a bundle, or `{name}` is in the wrong place")),
            )?;
        if length > limit {
            return Err(Wrong::Refused(format!(
                "`{name}` is {length} bytes; the limit is {limit}"
            )));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.read(&mut bytes)?;
        self.read_padding(length)?;
        Ok(bytes)
    }

    /// Checks everything but the contents of the files, and comes back here.
    fn check(&mut self, index: &Index) -> Result<(), Wrong> {
        let begin = self.at;
        let length = begin + index.length();
        if self.length != length {
            return Err(Wrong::Refused(format!(
                "it is {} bytes, but {length} by its index",
                self.length
            )));
        }
        for entry in &index.files {
            let mut found = [0; BLOCK];
            self.read(&mut found)?;
            if found != header(&entry.name, entry.length) {
                return Err(Wrong::Refused(format!(
                    "there is something else in the place of `{}`",
                    entry.name
                )));
            }
            self.at += entry.length;
            self.read_padding(entry.length)?;
        }
        let mut end = [0; END as usize];
        self.read(&mut end)?;
        if end.iter().any(|byte| *byte != 0) {
            return Err(Wrong::Refused("it has bytes after its files".into()));
        }
        self.at = begin;
        Ok(())
    }
}
