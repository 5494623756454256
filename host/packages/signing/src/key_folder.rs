//! Creates, lists and reads the user's own keys, in a folder that no other user may enter.

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

/// A folder with keys: `NAME.key` is secret, `NAME.pub` is for others.
#[derive(Clone, Debug)]
pub struct KeyFolder(PathBuf);

/// The files of a new key.
#[derive(Clone, Debug)]
pub struct KeyFiles {
    /// The secret one.
    pub secret: PathBuf,
    /// The public one.
    pub public: PathBuf,
    /// The public key.
    pub key: PublicKey,
}

impl KeyFolder {
    /// The folder of keys in Toolhold's folder for configuration.
    pub fn new(config: &Path) -> Self {
        Self(config.join(KEY_FOLDER))
    }

    /// The path of a secret key.
    pub fn secret(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{SECRET}"))
    }

    /// Makes a key and writes its files. An older key is never overwritten. Blocks.
    ///
    /// # Errors
    ///
    /// The name isn't valid or is taken, or the files can't be written.
    pub fn create(&self, name: &str, password: Option<&str>) -> Result<KeyFiles, SigningError> {
        check_name(name)?;
        if let Some(parent) = self.0.parent() {
            PrivateFolder::make(parent).map_err(|error| SigningError::file(parent, error))?;
        }
        let folder = PrivateFolder::make(&self.0).map_err(|error| self.error(error))?;
        folder.check_closed().map_err(|error| self.error(error))?;
        let key = SecretKey::generate()?;
        let secret = key.to_file(password)?;
        let secret_name = format!("{name}{SECRET}");
        let public_name = format!("{name}{PUBLIC}");
        write_new(&folder, &secret_name, secret.as_bytes(), 0o600)
            .map_err(|error| SigningError::file(&self.0.join(&secret_name), error))?;
        let public = key.public().to_file();
        write_new(&folder, &public_name, public.as_bytes(), 0o644)
            .map_err(|error| SigningError::file(&self.0.join(&public_name), error))?;
        Ok(KeyFiles {
            secret: self.0.join(secret_name),
            public: self.0.join(public_name),
            key: key.public().clone(),
        })
    }

    /// The names of the keys, with the public keys. Blocks.
    ///
    /// # Errors
    ///
    /// The folder can't be trusted, or a file isn't a public key.
    pub fn all(&self) -> Result<Vec<(String, PublicKey)>, SigningError> {
        let folder = match PrivateFolder::open(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(|error| self.error(error))?,
        };
        let files = folder.names(MAX_KEYS).map_err(|error| self.error(error))?;
        files
            .iter()
            .filter_map(|file| file.strip_suffix(PUBLIC))
            .filter(|name| is_name(name))
            .map(|name| {
                let file = format!("{name}{PUBLIC}");
                let path = self.0.join(&file);
                let text = folder
                    .file(&file)
                    .and_then(|file| read_bounded(file, MAX_FILE))
                    .map_err(|error| SigningError::file(&path, error))?;
                let key = String::from_utf8_lossy(&text).parse().map_err(|error| {
                    SigningError::PublicKeyFile { path: path.display().to_string(), error }
                })?;
                Ok((name.to_owned(), key))
            })
            .collect()
    }

    fn error(&self, error: io::Error) -> SigningError {
        SigningError::file(&self.0, error)
    }
}

/// Reads a secret key. Its file and the folder of it have to be the user's alone, as those that
/// [`KeyFolder`] and minisign make are. Blocks, also for the password if it needs one.
///
/// # Errors
///
/// The file can't be trusted or read, or the password is wrong.
pub fn read_secret_key(path: &Path, password: &PasswordSource) -> Result<SecretKey, SigningError> {
    let bytes = read_secret_file(path).map_err(|error| SigningError::file(path, error))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid(path, SecretKeyError::NotText))?;
    let password = if SecretKey::needs_password(text).map_err(|error| invalid(path, error))? {
        Some(password.read(&format!("Password of {}", path.display()), false)?)
    } else {
        None
    };
    SecretKey::from_file(text, password.as_ref().map(|password| password.as_str()))
        .map_err(|error| invalid(path, error))
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

/// Writes a file whose name has to be free.
fn write_new(folder: &PrivateFolder, name: &str, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let aside = format!(".{name}.new.{}", std::process::id());
    folder.put_with_mode(&aside, bytes, mode)?;
    folder.rename(&aside, name).map_err(|error| {
        let _ = folder.remove(&aside);
        match error.kind() {
            ErrorKind::AlreadyExists => std::io::Error::new(
                ErrorKind::AlreadyExists,
                "the file exists and is not overwritten; use another name",
            ),
            _ => error,
        }
    })
}
