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

/// The folder for the files of the bundle that is being installed, and the file of its lock.
const UNPACKED: &str = "bundle";
const LOCK: &str = "bundle.lock";

/// A verified bundle. Its files are in a private folder until this value is dropped.
#[derive(Debug)]
pub struct Bundle {
    signer: Signer,
    index: Index,
    /// The folder around the folder with the files.
    parent: PrivateFolder,
    folder: PrivateFolder,
    path: PathBuf,
    /// The lock prevents another process from unpacking a bundle into the same folder.
    _lock: File,
}

/// Verifies a bundle and unpacks it into the folder `within`, which belongs to Toolhold. The bundle
/// is refused while another bundle is unpacked there. Blocks.
///
/// The index, its signature, the headers, their order and the total length are checked before the
/// first write. The digest of each file is checked during the write. `today` is in UTC.
///
/// # Errors
///
/// Returns the first fault of the bundle. After an error there are no files.
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
    let mut tar = Tar { file, position: 0, length };
    let index = tar.read_small(INDEX, MAX_INDEX).map_err(|error| error.at(path))?;
    let signature =
        tar.read_small(SIGNATURE, MAX_SIGNATURE as u64).map_err(|error| error.at(path))?;
    let signer = verify_bundle(&index, &signature, keys, today)?;
    check_written_form(&signature)?;
    let index = Index::read(&index)?;
    tar.check(&index).map_err(|error| error.at(path))?;

    let bundle = prepare_folder(within, signer, index)?;
    // On failure, the bundle is dropped with the files that were written.
    bundle.unpack(&mut tar).map_err(|error| error.at(path))?;
    Ok(bundle)
}

/// Checks that Toolhold would write the same bytes for this signature. The untrusted comment of a
/// signature isn't signed, so anybody could otherwise change the comment.
fn check_written_form(signature: &[u8]) -> Result<(), BundleError> {
    if let Ok(parsed) = Signature::read(signature)
        && parsed.to_string().as_bytes() == signature
    {
        return Ok(());
    }
    Err(BundleError::refused("its signature has a form that Toolhold doesn't write"))
}

/// Locks the folder `within`, and creates an empty folder in it for the files of a bundle.
fn prepare_folder(within: &Path, signer: Signer, index: Index) -> Result<Bundle, BundleError> {
    let folder_error = |error| BundleError::file(within, error);
    let parent = PrivateFolder::make(within).map_err(folder_error)?;
    let Some(lock) = parent.try_lock(LOCK).map_err(folder_error)? else {
        return Err(BundleError::refused(
            "another command has a bundle open; wait until that command ends, or end it",
        ));
    };
    remove_unpacked(&parent).map_err(folder_error)?;
    let folder = parent.folder(UNPACKED).map_err(folder_error)?;
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
    /// Returns an error if the file can't be opened.
    pub fn file(&self, name: &str) -> Option<io::Result<File>> {
        self.index.files.iter().find(|entry| entry.name == name)?;
        Some(match name.split_once('/') {
            Some((folder, file)) => self.folder.folder(folder).and_then(|inner| inner.file(file)),
            None => self.folder.file(name),
        })
    }

    /// Copies the contents from the tar into the folder, and compares them with the index.
    fn unpack(&self, tar: &mut Tar) -> Result<(), TarError> {
        for entry in &self.index.files {
            // The header was checked before.
            tar.skip(BLOCK as u64)?;
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

/// Removes the unpacked files. Also removes files from a process that was killed.
fn remove_unpacked(parent: &PrivateFolder) -> io::Result<()> {
    match parent.remove_folder(UNPACKED) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// A reason why a bundle is refused, or can't be read.
enum TarError {
    Refused(String),
    Read(io::Error),
}

impl TarError {
    /// Adds the path of the bundle.
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

/// The file of a bundle, and the position at which the next bytes are read.
struct Tar {
    file: File,
    position: u64,
    length: u64,
}

impl Tar {
    /// Fills the buffer with the next bytes.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), TarError> {
        self.file.seek(SeekFrom::Start(self.position))?;
        match self.file.read_exact(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(TarError::Refused("it is cut off".into()));
            }
            result => result?,
        }
        self.position += buffer.len() as u64;
        Ok(())
    }

    /// Skips bytes, in the position and in the file itself.
    fn skip(&mut self, bytes: u64) -> Result<(), TarError> {
        self.position += bytes;
        self.file.seek(SeekFrom::Start(self.position))?;
        Ok(())
    }

    /// Reads the padding after content of this length, and checks that the padding is zero.
    fn read_padding(&mut self, length: u64) -> Result<(), TarError> {
        let size = usize::try_from(padded(length) - length).unwrap_or(BLOCK);
        let mut block = [0; BLOCK];
        let padding = &mut block[..size];
        self.read(padding)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(TarError::Refused("it has bytes between its files".into()));
        }
        Ok(())
    }

    /// Reads the next file. Its name must be `name`.
    fn read_small(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, TarError> {
        let mut block = [0; BLOCK];
        self.read(&mut block)?;
        let length = match stated_length(&block) {
            Some(length) if block == header(name, length) => length,
            _ => {
                return Err(TarError::Refused(format!(
                    "it isn't a bundle, or `{name}` is in the wrong place"
                )));
            }
        };
        if length > limit {
            return Err(TarError::Refused(format!(
                "`{name}` is {length} bytes; the limit is {limit}"
            )));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.read(&mut bytes)?;
        self.read_padding(length)?;
        Ok(bytes)
    }

    /// Checks everything but the contents of the files, and returns to the position before.
    fn check(&mut self, index: &Index) -> Result<(), TarError> {
        let first_file = self.position;
        let length = first_file + index.length();
        if self.length != length {
            return Err(TarError::Refused(format!(
                "it is {} bytes, but {length} by its index",
                self.length
            )));
        }

        for entry in &index.files {
            let mut block = [0; BLOCK];
            self.read(&mut block)?;
            if block != header(&entry.name, entry.length) {
                return Err(TarError::Refused(format!(
                    "there is something else in the place of `{}`",
                    entry.name
                )));
            }
            self.position += entry.length;
            self.read_padding(entry.length)?;
        }

        let mut end = [0; END as usize];
        self.read(&mut end)?;
        if end.iter().any(|byte| *byte != 0) {
            return Err(TarError::Refused("it has bytes after its files".into()));
        }
        self.position = first_file;
        Ok(())
    }
}
