//! Reads and changes the small JSON files in Toolhold's data folder. Only one process at a time
//! changes a file.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use toolhold_contract::HostError;

use crate::PrivateFolder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a file. Larger files are refused, because files are read at each start.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Hexadecimal digits of a secret.
const DIGITS: usize = 64;

/// Reads the state `name` of `folder`. Returns the default if the state is missing.
///
/// # Errors
///
/// [`HostError::Io`] if the folder or the file can't be trusted, or the file is damaged. A damaged
/// file isn't treated as empty, because it may contain a denial.
pub fn read<T: DeserializeOwned + Default>(folder: &Path, name: &str) -> Result<T, HostError> {
    match PrivateFolder::open(folder) {
        Ok(opened) => {
            read_in(&opened, name).map_err(HostError::io(folder.join(name).display().to_string()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(HostError::io(folder.display().to_string())(error)),
    }
}

/// Checks whether the state `name` of `folder` may exist. This is faster than [`read`].
pub fn exists(folder: &Path, name: &str) -> bool {
    let access = rustix::fs::access(folder.join(name), rustix::fs::Access::EXISTS);
    let is_missing = matches!(access, Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR));
    !is_missing
}

/// Changes the state `name` of `folder`, one process at a time. If `change` succeeds, the state is
/// written. Creates the folder if it doesn't exist.
///
/// # Errors
///
/// Returns the errors of [`read`] and of `change`. Also fails if the file can't be written.
pub fn update<T, R>(
    folder: &Path,
    name: &str,
    change: impl FnOnce(&mut T) -> Result<R, HostError>,
) -> Result<R, HostError>
where
    T: DeserializeOwned + Default + Serialize,
{
    update_with(folder, name, &format!("{name}.lock"), PrivateFolder::put, change)
}

/// The lock of a folder whose files are changed only by [`update_lightly`]. The files share this
/// lock, so that a removed file leaves no lock of its own behind.
pub const LOCK: &str = "lock";

/// Changes the state like [`update`], but doesn't wait for the disk. A power failure may lose the
/// last change. All states of the folder share [`LOCK`].
///
/// # Errors
///
/// Returns the errors of [`update`].
pub fn update_lightly<T, R>(
    folder: &Path,
    name: &str,
    change: impl FnOnce(&mut T) -> Result<R, HostError>,
) -> Result<R, HostError>
where
    T: DeserializeOwned + Default + Serialize,
{
    update_with(folder, name, LOCK, PrivateFolder::put_lightly, change)
}

/// Returns the secret `name` of `folder`: 32 random bytes as 64 hexadecimal digits. The first use
/// creates the secret. Other users can't read it.
///
/// # Errors
///
/// [`HostError::Io`] if the folder or the file can't be trusted, the file isn't a secret, or the
/// system has no random bytes.
pub fn secret(folder: &Path, name: &str) -> Result<String, HostError> {
    let opened =
        PrivateFolder::make(folder).map_err(HostError::io(folder.display().to_string()))?;
    secret_in(&opened, name).map_err(|error| file_error(folder, name, error))
}

/// Returns 32 random bytes as 64 hexadecimal digits.
///
/// # Errors
///
/// Returns the system's error if the system has no random bytes.
pub fn random_digits() -> io::Result<String> {
    let mut bytes = [0; DIGITS / 2];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads a secret, or creates it at the first use. The lock prevents two processes from creating
/// two secrets.
fn secret_in(folder: &PrivateFolder, name: &str) -> io::Result<String> {
    let _lock = folder.lock(LOCK)?;
    match folder.secret(name) {
        Ok(file) => read_secret(file),
        Err(error) if error.kind() == ErrorKind::NotFound => create_secret(folder, name),
        Err(error) => Err(error),
    }
}

/// Reads the digits of a secret. A line end may follow the digits.
fn read_secret(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(DIGITS as u64 + "\r\n".len() as u64).read_to_string(&mut text)?;
    let digits = text.trim_end();
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "the file isn't a secret of Toolhold; remove the file, and Toolhold creates a new \
             secret",
        ));
    }
    Ok(digits.to_owned())
}

fn create_secret(folder: &PrivateFolder, name: &str) -> io::Result<String> {
    let digits = random_digits()?;
    folder.put(name, format!("{digits}\n").as_bytes())?;
    Ok(digits)
}

fn file_error(folder: &Path, name: &str, error: io::Error) -> HostError {
    HostError::io(folder.join(name).display().to_string())(error)
}

/// Changes a state. `lock` is the name of the lock, and `put` writes the file. If `change` fails or
/// changes nothing, writes nothing.
fn update_with<T, R>(
    folder: &Path,
    name: &str,
    lock: &str,
    put: impl FnOnce(&PrivateFolder, &str, &[u8]) -> io::Result<()>,
    change: impl FnOnce(&mut T) -> Result<R, HostError>,
) -> Result<R, HostError>
where
    T: DeserializeOwned + Default + Serialize,
{
    let opened =
        PrivateFolder::make(folder).map_err(HostError::io(folder.display().to_string()))?;
    let _lock = opened.lock(lock).map_err(|error| file_error(folder, name, error))?;
    let mut value: T = read_in(&opened, name).map_err(|error| file_error(folder, name, error))?;

    let before = serde_json::to_vec_pretty(&value)
        .map_err(|error| file_error(folder, name, error.into()))?;
    let result = change(&mut value)?;
    let after = serde_json::to_vec_pretty(&value)
        .map_err(|error| file_error(folder, name, error.into()))?;
    if after.len() as u64 > MAX_BYTES {
        let error = io::Error::new(
            ErrorKind::FileTooLarge,
            "the file is full; remove entries that you no longer need",
        );
        return Err(file_error(folder, name, error));
    }
    if after != before {
        put(&opened, name, &after).map_err(|error| file_error(folder, name, error))?;
    }
    Ok(result)
}

fn read_in<T: DeserializeOwned + Default>(folder: &PrivateFolder, name: &str) -> io::Result<T> {
    let file = match folder.file(name) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(error),
    };
    // One byte above the size lets the read end without growing the buffer.
    let size = file.metadata()?.len().min(MAX_BYTES);
    let mut text = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1);
    // One byte above the limit shows that the file is too large.
    file.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let mebibytes = MAX_BYTES >> 20;
        return Err(damaged(&format!("larger than {mebibytes} MiB")));
    }
    serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!(
            "the file is damaged ({why}); fix the file, or remove it to start with an empty file"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    type Kept = BTreeMap<String, u32>;

    #[test]
    fn secret_is_created_once_and_private() {
        let root = tempfile::tempdir().expect("a folder is made");
        let folder = root.path().join("kept");
        let made = secret(&folder, "token").expect("is made");
        assert_eq!(made.len(), DIGITS);
        assert_eq!(secret(&folder, "token").ok(), Some(made.clone()));
        assert_ne!(secret(&folder, "other").ok(), Some(made));
        let file = folder.join("token");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("its mode is set");
        let error = secret(&folder, "token").expect_err("others can read it").to_string();
        assert!(error.contains("chmod go-rwx"), "{error}");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its mode is set");
        for wrong in ["", "abc", &"g".repeat(DIGITS), &"0".repeat(DIGITS + 8)] {
            fs::write(&file, wrong).expect("it is written");
            assert!(secret(&folder, "token").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn state_is_read_back() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path().join("data");
        assert_eq!(read::<Kept>(&folder, "kept.json").expect("nothing is no mistake"), Kept::new());
        assert!(!folder.exists(), "reading makes nothing");
        let before =
            update(&folder, "kept.json", |kept: &mut Kept| Ok(kept.insert("a".to_owned(), 1)))
                .expect("it is kept");
        assert_eq!(before, None);
        let failed = update(&folder, "kept.json", |kept: &mut Kept| {
            kept.insert("a".to_owned(), 2);
            Err::<(), _>(HostError::Config("no".to_owned()))
        });
        failed.expect_err("the change failed");
        assert_eq!(
            read::<Kept>(&folder, "kept.json").expect("it is there"),
            Kept::from([("a".to_owned(), 1)])
        );
    }

    #[test]
    fn parallel_updates_lose_nothing() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path();
        fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("its mode is set");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for number in 0..10 {
                        update(folder, "kept.json", |kept: &mut Kept| {
                            Ok(kept.insert(format!("{thread}.{number}"), 0))
                        })
                        .expect("it is kept");
                    }
                });
            }
        });
        assert_eq!(read::<Kept>(folder, "kept.json").expect("it is there").len(), 40);
    }

    #[test]
    fn damaged_file_is_a_named_error_and_is_not_changed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path().join("data");
        update(&folder, "kept.json", |kept: &mut Kept| Ok(kept.insert("a".to_owned(), 1)))
            .expect("it is kept");
        for damage in ["", "{", "[]", "{\"a\": \"b\"}", &" ".repeat(5 << 20)] {
            fs::write(folder.join("kept.json"), damage).expect("it is damaged");
            let error = read::<Kept>(&folder, "kept.json").expect_err("it is damaged").to_string();
            assert!(error.contains("data/kept.json") && error.contains("remove it"), "{error}");
            update(&folder, "kept.json", |_: &mut Kept| Ok(())).expect_err("it is damaged");
            assert_eq!(fs::read_to_string(folder.join("kept.json")).expect("it is there"), damage);
        }
    }

    #[test]
    fn folder_that_others_can_write_to_is_not_trusted() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(root.path(), Permissions::from_mode(0o777)).expect("its mode is set");
        let error =
            read::<Kept>(root.path(), "kept.json").expect_err("others may write").to_string();
        assert!(
            error.contains(&root.path().display().to_string()) && error.contains("chmod go-rwx"),
            "{error}"
        );
        update(root.path(), "kept.json", |_: &mut Kept| Ok(())).expect_err("others may write");
        assert_eq!(fs::read_dir(root.path()).expect("it is there").count(), 0);
    }
}
