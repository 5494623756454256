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

/// The folder for the unpacked files, and the lock for this folder.
const UNPACKED: &str = "bundle";
const LOCK: &str = "bundle.lock";

/// A verified bundle. Its files are in a private folder until this value is dropped.
#[derive(Debug)]
pub struct Bundle {
    signer: Signer,
    index: Index,
    /// The folder that contains `folder`.
    parent: PrivateFolder,
    folder: PrivateFolder,
    path: PathBuf,
    /// Other processes can't unpack a bundle into the same folder while this file is locked.
    _lock: File,
}

/// Verifies a bundle and unpacks it into Toolhold's folder `within`. The bundle is refused while
/// another bundle is unpacked there. Blocks.
///
/// The index, its signature, the headers, their order and the total length are checked before the
/// first write. The digest of each file is checked during the write.
///
/// # Errors
///
/// Returns the first fault of the bundle. After an error, no unpacked files are left.
pub fn open(
    path: &Path,
    keys: &[TrustedKey],
    today: Date,
    within: &Path,
) -> Result<Bundle, BundleError> {
    let (file, length) = files::open(path).map_err(|error| BundleError::file(path, error))?;
    if length > MAX_BUNDLE {
        return Err(BundleError::Refused(format!(
            "the bundle is {length} bytes; the limit is {MAX_BUNDLE}"
        )));
    }
    let mut tar = Tar { file, position: 0, length };
    let signed_index = tar.read_small(INDEX, MAX_INDEX).map_err(|error| error.at(path))?;
    let signature =
        tar.read_small(SIGNATURE, MAX_SIGNATURE as u64).map_err(|error| error.at(path))?;
    let signer = verify_bundle(&signed_index, &signature, keys, today)?;
    check_written_form(&signature)?;
    let index = Index::read(&signed_index)?;
    tar.check(&index).map_err(|error| error.at(path))?;

    let bundle = prepare_folder(within, signer, index)?;
    // If unpacking fails, dropping `bundle` removes the written files.
    bundle.unpack(&mut tar).map_err(|error| error.at(path))?;
    Ok(bundle)
}

/// Checks that Toolhold would write the signature's file with exactly these bytes. Otherwise, the
/// file could contain any text, because its untrusted comment isn't signed.
fn check_written_form(signature: &[u8]) -> Result<(), BundleError> {
    if let Ok(parsed) = Signature::read(signature)
        && parsed.to_string().as_bytes() == signature
    {
        return Ok(());
    }
    Err(BundleError::refused("the signature doesn't have the form that Toolhold writes"))
}

/// Locks the folder `within`, and creates an empty folder for the files of the bundle in it.
fn prepare_folder(within: &Path, signer: Signer, index: Index) -> Result<Bundle, BundleError> {
    let parent = PrivateFolder::make(within).map_err(|error| BundleError::file(within, error))?;
    let lock = parent.try_lock(LOCK).map_err(|error| BundleError::file(within, error))?;
    let Some(lock) = lock else {
        return Err(BundleError::refused(
            "another command has a bundle open; wait until that command ends, or end it",
        ));
    };
    remove_unpacked(&parent).map_err(|error| BundleError::file(within, error))?;
    let folder = parent.folder(UNPACKED).map_err(|error| BundleError::file(within, error))?;
    Ok(Bundle { signer, index, parent, folder, path: within.join(UNPACKED), _lock: lock })
}

impl Bundle {
    /// Returns the signer of the bundle.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Returns the files of the bundle, by name.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.index.files
    }

    /// Returns the path of the private folder with the files.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of the bundle for reading. Returns `None` if no file has this name.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be opened.
    pub fn file(&self, name: &str) -> Option<io::Result<File>> {
        let is_listed = self.index.files.iter().any(|entry| entry.name == name);
        if !is_listed {
            return None;
        }
        let opened = match name.split_once('/') {
            Some((folder, file)) => self.folder.folder(folder).and_then(|inner| inner.file(file)),
            None => self.folder.file(name),
        };
        Some(opened)
    }

    /// Copies the contents from the tar into the folder, and compares their digests with the index.
    fn unpack(&self, tar: &mut Tar) -> Result<(), TarError> {
        for entry in &self.index.files {
            // [`Tar::check`] has already checked the header, which is one block.
            tar.skip(BLOCK as u64)?;
            // [`Index::read`] accepts no folder except `PLUGINS`.
            let mut target = match entry.name.split_once('/') {
                Some((PLUGINS, file)) => self.folder.folder(PLUGINS)?.updated(file)?,
                _ => self.folder.updated(&entry.name)?,
            };
            let mut content = (&mut tar.file).take(entry.length);
            let (length, digest) = copy_hashed(&mut content, &mut target)?;
            if length != entry.length || digest != entry.sha256 {
                return Err(TarError::Refused(format!(
                    "the content of `{}` doesn't match the index",
                    entry.name
                )));
            }
            tar.skip(padded(length))?;
        }
        Ok(())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = remove_unpacked(&self.parent);
    }
}

/// Removes the unpacked files. A process that was killed may have left them.
fn remove_unpacked(parent: &PrivateFolder) -> io::Result<()> {
    match parent.remove_folder(UNPACKED) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

enum TarError {
    Refused(String),
    Read(io::Error),
}

impl TarError {
    fn at(self, path: &Path) -> BundleError {
        match self {
            Self::Refused(reason) => BundleError::Refused(reason),
            Self::Read(error) => BundleError::file(path, error),
        }
    }
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// A bundle, and the position of the next bytes.
struct Tar {
    file: File,
    position: u64,
    length: u64,
}

impl Tar {
    /// Fills the buffer with the bytes at the current position.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), TarError> {
        self.file.seek(SeekFrom::Start(self.position))?;
        match self.file.read_exact(buffer) {
            Ok(()) => {
                self.position += buffer.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(TarError::Refused("the file is truncated".into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Skips bytes. Also sets the position of the file itself, because [`Bundle::unpack`] copies
    /// the contents directly from the file.
    fn skip(&mut self, bytes: u64) -> Result<(), TarError> {
        self.position += bytes;
        self.file.seek(SeekFrom::Start(self.position))?;
        Ok(())
    }

    /// Reads the padding after content of this length. Padding that isn't zero is refused.
    fn read_padding(&mut self, length: u64) -> Result<(), TarError> {
        // Padding is always shorter than a block.
        let padding_length = (padded(length) - length) as usize;
        let mut block = [0; BLOCK];
        let padding = &mut block[..padding_length];
        self.read(padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(TarError::Refused("the padding between the files isn't zero".into()));
        }
        Ok(())
    }

    /// Reads the next file. Refuses a file with another name than `name`, or with more than `limit`
    /// bytes.
    fn read_small(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, TarError> {
        let mut block = [0; BLOCK];
        self.read(&mut block)?;
        let length = match stated_length(&block) {
            Some(length) if block == header(name, length) => length,
            // The block isn't a header, or is the header of another file.
            _ => {
                return Err(TarError::Refused(format!(
                    "the file isn't a bundle, or `{name}` is in the wrong place"
                )));
            }
        };
        if length > limit {
            return Err(TarError::Refused(format!(
                "`{name}` is {length} bytes; the limit is {limit}"
            )));
        }
        // `limit` is small, so the length fits into memory.
        let mut bytes = vec![0; length as usize];
        self.read(&mut bytes)?;
        self.read_padding(length)?;
        Ok(bytes)
    }

    /// Checks everything except the contents of the files. Then returns to the first file.
    fn check(&mut self, index: &Index) -> Result<(), TarError> {
        let first_file_start = self.position;
        let expected_length = first_file_start + index.length();
        if self.length != expected_length {
            return Err(TarError::Refused(format!(
                "the file is {} bytes, but the index says {expected_length} bytes",
                self.length
            )));
        }

        for entry in &index.files {
            let mut block = [0; BLOCK];
            self.read(&mut block)?;
            if block != header(&entry.name, entry.length) {
                return Err(TarError::Refused(format!(
                    "another entry is in the place of `{}`",
                    entry.name
                )));
            }
            self.position += entry.length;
            self.read_padding(entry.length)?;
        }

        let mut end = [0; END as usize];
        self.read(&mut end)?;
        if end.iter().any(|byte| *byte != 0) {
            return Err(TarError::Refused("the padding after the files isn't zero".into()));
        }
        self.position = first_file_start;
        Ok(())
    }
}
