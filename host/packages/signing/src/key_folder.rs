//! Creates, lists and reads the user's keys in a folder that other users can't access.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use toolhold_component::is_name;
use toolhold_data_dir::PrivateFolder;
use zeroize::Zeroizing;

use crate::files::read_bounded;
use crate::secret_key::{MAX_FILE, SecretKeyError};
use crate::{PasswordSource, PublicKey, SecretKey, SigningError};

/// The name of the key folder in Toolhold's configuration folder.
pub const KEY_FOLDER: &str = "keys";

const SECRET: &str = ".key";
const PUBLIC: &str = ".pub";

/// The modes of the files of secret and public keys.
const OWNER_ONLY: u32 = 0o600;
const READABLE_BY_ALL: u32 = 0o644;

/// Most files of the folder that are listed.
const MAX_KEYS: usize = 1000;

/// A folder with keys. `NAME.key` is a secret key, and `NAME.pub` is its public key.
#[derive(Clone, Debug)]
pub struct KeyFolder(PathBuf);

/// The files of a new key.
#[derive(Clone, Debug)]
pub struct KeyFiles {
    /// The file of the secret key.
    pub secret: PathBuf,
    /// The file of the public key.
    pub public: PathBuf,
    /// The public key.
    pub key: PublicKey,
}

impl KeyFolder {
    /// Returns the key folder in Toolhold's configuration folder.
    pub fn new(config: &Path) -> Self {
        Self(config.join(KEY_FOLDER))
    }

    /// Returns the path of a secret key.
    pub fn secret(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{SECRET}"))
    }

    /// Makes a key and writes its files. Existing keys are never overwritten. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the name isn't valid or exists, or if the files can't be written.
    pub fn create(&self, name: &str, password: Option<&str>) -> Result<KeyFiles, SigningError> {
        check_name(name)?;
        // The parent folder is checked too, because a user who can change it could replace the
        // folder.
        if let Some(parent) = self.0.parent() {
            PrivateFolder::make(parent).map_err(|error| SigningError::file(parent, error))?;
        }
        let folder = PrivateFolder::make(&self.0).map_err(|error| self.error(error))?;
        folder.check_closed().map_err(|error| self.error(error))?;
        let key = SecretKey::generate()?;
        let public_key = key.public().clone();

        let secret_name = format!("{name}{SECRET}");
        let secret_path = self.0.join(&secret_name);
        let content = key.to_file(password)?;
        write_new(&folder, &secret_name, content.as_bytes(), OWNER_ONLY)
            .map_err(|error| SigningError::file(&secret_path, error))?;

        let public_name = format!("{name}{PUBLIC}");
        let public_path = self.0.join(&public_name);
        write_new(&folder, &public_name, public_key.to_file().as_bytes(), READABLE_BY_ALL)
            .map_err(|error| SigningError::file(&public_path, error))?;
        Ok(KeyFiles { secret: secret_path, public: public_path, key: public_key })
    }

    /// Reads the public keys with their names. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be trusted, or if a file isn't a public key.
    pub fn all(&self) -> Result<Vec<(String, PublicKey)>, SigningError> {
        let folder = match PrivateFolder::open(&self.0) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.error(error)),
        };
        let files = folder.names(MAX_KEYS).map_err(|error| self.error(error))?;
        let mut keys = Vec::new();
        for file in files {
            let Some(name) = file.strip_suffix(PUBLIC) else { continue };
            if is_name(name) {
                keys.push((name.to_owned(), self.read_public_key(&folder, &file)?));
            }
        }
        Ok(keys)
    }

    fn read_public_key(
        &self,
        folder: &PrivateFolder,
        name: &str,
    ) -> Result<PublicKey, SigningError> {
        let path = self.0.join(name);
        let content = folder
            .file(name)
            .and_then(|file| read_bounded(file, MAX_FILE))
            .map_err(|error| SigningError::file(&path, error))?;
        String::from_utf8_lossy(&content).parse().map_err(|error| SigningError::PublicKeyFile {
            path: path.display().to_string(),
            error,
        })
    }

    fn error(&self, error: io::Error) -> SigningError {
        SigningError::file(&self.0, error)
    }
}

/// Reads a secret key. The file is refused if other users have access to it or its folder. May ask
/// for a password. Blocks.
///
/// # Errors
///
/// Fails if the file can't be trusted or read, or if the password is wrong.
pub fn read_secret_key(path: &Path, source: &PasswordSource) -> Result<SecretKey, SigningError> {
    let bytes = read_secret_file(path).map_err(|error| SigningError::file(path, error))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid(path, SecretKeyError::NotText))?;
    let needs_password = SecretKey::needs_password(text).map_err(|error| invalid(path, error))?;
    let key = if needs_password {
        let prompt = format!("Password of {}", path.display());
        let twice = false;
        let password = source.read(&prompt, twice)?;
        SecretKey::from_file(text, Some(password.as_str()))
    } else {
        SecretKey::from_file(text, None)
    };
    key.map_err(|error| invalid(path, error))
}

/// Reads a file to which other users have no access. The bytes are cleared from memory when they
/// are dropped.
fn read_secret_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidFilename)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        // A file name without a folder is in the current folder.
        _ => Path::new("."),
    };
    let file = PrivateFolder::open(parent)?.secret(name)?;
    Ok(Zeroizing::new(read_bounded(file, MAX_FILE)?))
}

fn invalid(path: &Path, error: SecretKeyError) -> SigningError {
    SigningError::SecretKeyFile { path: path.display().to_string(), error }
}

fn check_name(name: &str) -> Result<(), SigningError> {
    if is_name(name) {
        return Ok(());
    }
    Err(SigningError::KeyName(toolhold_contract::text::neutral_line(name)))
}

/// Writes a file with the permissions `mode`. The file gets `name` only when it is complete. An
/// existing file is never overwritten.
fn write_new(folder: &PrivateFolder, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = format!(".{name}.new.{}", std::process::id());
    folder.put_with_mode(&temporary, bytes, mode)?;
    let Err(error) = folder.rename(&temporary, name) else { return Ok(()) };
    // Ignore an error here, because the error of the rename is more important.
    let _ = folder.remove(&temporary);
    if error.kind() != ErrorKind::AlreadyExists {
        return Err(error);
    }
    let message = "the file exists and is not overwritten; use another name";
    Err(io::Error::new(ErrorKind::AlreadyExists, message))
}
