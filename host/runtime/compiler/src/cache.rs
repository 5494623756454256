//! Stores compiled code in a folder that only this user can change, and removes the least recently
//! used.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use toolhold_data_dir::PrivateFolder;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiled;

/// Most bytes of all files in the cache. The least recently used files are removed first.
const MAX_BYTES: u64 = 2 << 30;

/// Most files in the cache. A folder may have 1,024 plugins with three files each, in a few
/// versions. A folder with more files takes long to search.
const MAX_FILES: usize = 8192;

/// Files and bytes that a process stores between two searches of the folder. The cache may exceed
/// its limits by this amount.
const FILES_BETWEEN: u32 = 64;
const BYTES_BETWEEN: u64 = 64 << 20;

/// Most bytes of a stored offer of a component. A larger offer is asked for at each start.
pub(crate) const MAX_OFFER: u64 = 16 << 20;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Most bytes of a remembered failure.
const MAX_REASON: u64 = 16 * 1024;

/// A reason why a cache can't store and map code.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file can't be written.
    #[error("code can't be stored: {0}")]
    Store(#[source] io::Error),
    /// The file can't be opened after that.
    #[error("stored code can't be opened: {0}")]
    Open(#[source] io::Error),
    /// The engine doesn't map the file.
    #[error("code can't be mapped from it: {0:#}")]
    Map(wasmtime::Error),
}

/// A folder that only this user can change. Compiled code can't be checked, so code is mapped only
/// from such a folder.
#[derive(Debug)]
pub struct Cache {
    folder: PrivateFolder,
    path: PathBuf,
    left: Mutex<Allowance>,
}

/// The files and bytes that may be stored before the next search of the folder.
#[derive(Debug, Default)]
struct Allowance {
    files: u32,
    bytes: u64,
}

impl Cache {
    /// Opens the folder, or creates it. If the folder can't be trusted, the caller continues
    /// without a cache.
    ///
    /// # Errors
    ///
    /// Returns the reason if the folder can't be trusted.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.to_owned();
        let folder = PrivateFolder::make(&path)?;
        folder.check_closed()?;
        Ok(Self { folder, path, left: Mutex::default() })
    }

    /// Returns the path of a file of the cache.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the remembered failure for a key.
    pub(crate) fn failure(&self, key: &str) -> Option<String> {
        let file = self.folder.file(&failure_name(key)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        let mut reason = String::new();
        file.take(MAX_REASON).read_to_string(&mut reason).ok()?;
        Some(reason)
    }

    /// Remembers a failure for a key.
    pub(crate) fn put_failure(&self, key: &str, reason: &str) -> io::Result<PathBuf> {
        let name = failure_name(key);
        self.put(&name, reason.as_bytes())?;
        Ok(self.path(&name))
    }

    /// Maps the component for a key. Returns `None` if the component isn't in the cache, or if an
    /// incompatible engine stored it.
    pub(crate) fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let file = match self.folder.file(key) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("can't use {key} from the compile cache: {error}");
                return None;
            }
        };
        // [`prune`](Self::prune) removes the least recently used files. If the time can't be set,
        // the time of compiling is used.
        let _ = file.set_modified(SystemTime::now());
        match compiled::map_cached(engine, &file) {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!("can't use {key} from the compile cache: {error:#}");
                None
            }
        }
    }

    /// Reads the bytes that are stored under a key. Returns `None` if there are no bytes, or more
    /// than [`MAX_OFFER`].
    pub(crate) fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        let mut file = self.folder.file(key).ok()?;
        let metadata = file.metadata().ok()?;
        if metadata.len() > MAX_OFFER {
            return None;
        }
        // A start reads several of these files, so their times are written only once a day. This is
        // precise enough for [`prune`](Self::prune).
        let modified = metadata.modified().ok()?;
        if modified.elapsed().is_ok_and(|age| age > DAY) {
            let _ = file.set_modified(SystemTime::now());
        }
        let mut bytes = vec![0; usize::try_from(metadata.len()).ok()?];
        file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Stores bytes under a key. A mapped file must never change, so a new file replaces the old
    /// file with the same name.
    pub(crate) fn put(&self, key: &str, code: &[u8]) -> io::Result<()> {
        self.folder.put(key, code)?;
        let size = code.len() as u64;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = left.files == 0 || left.bytes < size;
        if is_due {
            *left = Allowance { files: FILES_BETWEEN, bytes: BYTES_BETWEEN };
        } else {
            left.files -= 1;
            left.bytes -= size;
        }
        drop(left);

        if is_due {
            self.prune(MAX_FILES, MAX_BYTES);
        }
        Ok(())
    }

    /// Removes the file of a key, if there is one.
    pub(crate) fn remove(&self, key: &str) {
        let _ = self.folder.remove(key);
    }

    /// Tests whether code can be stored and mapped. Removes the code after that.
    ///
    /// # Errors
    ///
    /// The code can't be stored, or not mapped after that.
    pub fn test(&self, engine: &Engine, code: &[u8]) -> Result<(), CacheError> {
        let key = format!("tried-{}.cwasm", std::process::id());
        self.folder.put(&key, code).map_err(CacheError::Store)?;
        let result = match self.folder.file(&key) {
            Ok(file) => compiled::map_cached(engine, &file).map(drop).map_err(CacheError::Map),
            Err(error) => Err(CacheError::Open(error)),
        };
        let _ = self.folder.remove(&key);
        result
    }

    /// Removes the least recently used files until the remaining files are within the limits.
    /// Processes that have mapped a removed file can still use its code.
    fn prune(&self, files: usize, bytes: u64) {
        let names = self.folder.names(usize::MAX).unwrap_or_default();
        let mut entries: Vec<(SystemTime, u64, String)> = names
            .into_iter()
            .filter_map(|name| {
                let metadata = self.folder.file(&name).and_then(|file| file.metadata()).ok()?;
                let last_used = metadata.modified().ok()?;
                Some((last_used, metadata.len(), name))
            })
            .collect();
        entries.sort_unstable_by_key(|(last_used, ..)| std::cmp::Reverse(*last_used));

        let mut total = 0;
        for (index, (_, size, name)) in entries.iter().enumerate() {
            total += size;
            if index >= files || total > bytes {
                let _ = self.folder.remove(name);
            }
        }
    }
}

/// Returns the name of the file that records a failure. The name contains Toolhold's version,
/// because other versions may have other limits.
pub(crate) fn failure_name(key: &str) -> String {
    format!("{key}.{}.failed", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_files_are_removed_first() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(&root.path().join("cache")).expect("the folder is created");
        for (age, name) in ["newest", "newer", "older", "oldest"].into_iter().enumerate() {
            cache.folder.put(name, &[0; 100]).expect("the file is stored");
            let then = SystemTime::now() - Duration::from_secs(60 * age as u64);
            cache
                .folder
                .file(name)
                .and_then(|file| file.set_modified(then))
                .expect("the file's time is set");
        }
        let names = || cache.folder.names(10).expect("the folder can be read");
        cache.prune(3, 1000);
        assert_eq!(names(), ["newer", "newest", "older"]);
        cache.prune(3, 250);
        assert_eq!(names(), ["newer", "newest"]);
    }
}
