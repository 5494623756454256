//! Creates, lists and reads the user's keys in a folder to which other users have no access.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use toolhold_component::is_name;
use toolhold_data_dir::PrivateFolder;
use zeroize::Zeroizing;

use crate::files::read_bounded;
use crate::secret_key::{MAX_FILE, SecretKeyError};
use crate::{PasswordSource, PublicKey, SecretKey, SigningError};

/// The folder of the user's keys in Toolhold's folder for configuration.
pub const KEY_FOLDER: &str = "keys";

const SECRET: &str = ".key";
const PUBLIC: &str = ".pub";

/// The most keys that are listed.
const MAX_KEYS: usize = 1000;

/// A folder with keys. `NAME.key` is secret, and `NAME.pub` is public.
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
    /// Returns the folder of keys in Toolhold's folder for configuration.
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
    /// Returns an error if the name isn't valid or already exists, or if the files can't be
    /// written.
    pub fn create(&self, name: &str, password: Option<&str>) -> Result<KeyFiles, SigningError> {
        check_name(name)?;
        if let Some(parent) = self.0.parent() {
            PrivateFolder::make(parent).map_err(|error| SigningError::file(parent, error))?;
        }
        let folder = PrivateFolder::make(&self.0).map_err(|error| self.error(error))?;
        folder.check_closed().map_err(|error| self.error(error))?;
        let key = SecretKey::generate()?;
        let public_key = key.public().clone();

        let secret_name = format!("{name}{SECRET}");
        let secret = self.0.join(&secret_name);
        let content = key.to_file(password)?;
        write_new(&folder, &secret_name, content.as_bytes(), 0o600)
            .map_err(|error| SigningError::file(&secret, error))?;

        let public_name = format!("{name}{PUBLIC}");
        let public = self.0.join(&public_name);
        write_new(&folder, &public_name, public_key.to_file().as_bytes(), 0o644)
            .map_err(|error| SigningError::file(&public, error))?;
        Ok(KeyFiles { secret, public, key: public_key })
    }

    /// Reads the public keys, each with its name. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be trusted, or if a file isn't a public key.
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

/// Reads a secret key. Only the user may have access to the key's file and its folder.
/// [`KeyFolder`] and minisign create them in this way. Blocks, in some cases for a password.
///
/// # Errors
///
/// Returns an error if the file can't be trusted or read, or if the password is wrong.
pub fn read_secret_key(path: &Path, source: &PasswordSource) -> Result<SecretKey, SigningError> {
    let bytes = read_secret_file(path).map_err(|error| SigningError::file(path, error))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid(path, SecretKeyError::NotText))?;
    let needs_password = SecretKey::needs_password(text).map_err(|error| invalid(path, error))?;
    let key = if needs_password {
        let password = source.read(&format!("Password of {}", path.display()), false)?;
        SecretKey::from_file(text, Some(password.as_str()))
    } else {
        SecretKey::from_file(text, None)
    };
    key.map_err(|error| invalid(path, error))
}

fn read_secret_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidFilename)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
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

/// Writes a file whose name must not exist yet. The file gets this name after it is complete.
fn write_new(folder: &PrivateFolder, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = format!(".{name}.new.{}", std::process::id());
    folder.put_with_mode(&temporary, bytes, mode)?;
    folder.rename(&temporary, name).map_err(|error| {
        let _ = folder.remove(&temporary);
        if error.kind() != ErrorKind::AlreadyExists {
            return error;
        }
        let message = "the file exists and is not overwritten; use another name";
        io::Error::new(ErrorKind::AlreadyExists, message)
    })
}
