//! Stores compiled code in a folder that only this user can change.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use toolhold_data_dir::PrivateFolder;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiled;

/// Most bytes of all files. The least recently used files are removed.
const MAX_BYTES: u64 = 2 << 30;

/// Most files in the folder. They are enough for 1,024 plugins with three files each, in a few
/// versions. With more files, a search of the folder would take long.
const MAX_FILES: usize = 8192;

/// Files and bytes that a process may store before it searches the folder again and removes old
/// files. In the meantime, the cache may exceed its limits by this amount.
const FILES_BETWEEN: u32 = 64;
const BYTES_BETWEEN: u64 = 64 << 20;

/// Largest stored offer of a component in bytes. A larger offer isn't stored.
pub(crate) const MAX_OFFER: u64 = 16 << 20;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Most bytes of a remembered failure that are read.
const MAX_REASON: u64 = 16 * 1024;

/// The reason why a cache can't store and map code.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file can't be written.
    #[error("compiled code can't be stored: {0}")]
    Store(#[source] io::Error),
    /// The written file can't be opened.
    #[error("stored compiled code can't be opened: {0}")]
    Open(#[source] io::Error),
    /// The engine refuses the file.
    #[error("the stored compiled code can't be mapped: {0:#}")]
    Map(wasmtime::Error),
}

/// A folder that only this user can change. Code in any other folder must not be mapped, because
/// compiled code can't be checked.
#[derive(Debug)]
pub struct Cache {
    folder: PrivateFolder,
    path: PathBuf,
    allowance: Mutex<Allowance>,
}

/// Files and bytes that may be stored before the next search of the folder.
#[derive(Debug, Default)]
struct Allowance {
    files: u32,
    bytes: u64,
}

impl Cache {
    /// Opens or creates the folder of a cache.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be created or other users can change it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let private_folder = PrivateFolder::make(folder)?;
        private_folder.check_closed()?;
        Ok(Self { folder: private_folder, path: folder.to_owned(), allowance: Mutex::default() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn failure(&self, key: &str) -> Option<String> {
        let file = self.folder.file(&failure_name(key)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        let mut reason = String::new();
        file.take(MAX_REASON).read_to_string(&mut reason).ok()?;
        Some(reason)
    }

    pub(crate) fn put_failure(&self, key: &str, reason: &str) -> io::Result<PathBuf> {
        let name = failure_name(key);
        self.put(&name, reason.as_bytes())?;
        Ok(self.path(&name))
    }

    /// Maps the code of a component. Returns `None` if the code is missing, or if the engine
    /// refuses the code.
    pub(crate) fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let file = match self.folder.file(key) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("can't use {key} from the compile cache: {error}");
                return None;
            }
        };
        // `prune` removes the files with the oldest times first. If the time can't be set, the file
        // is only removed earlier.
        let _ = file.set_modified(SystemTime::now());
        match compiled::map_cached(engine, &file) {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!("can't use {key} from the compile cache: {error:#}");
                None
            }
        }
    }

    /// Reads the bytes that are stored under a key. Returns `None` if the file is missing, has more
    /// than [`MAX_OFFER`] bytes or can't be read.
    pub(crate) fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        let mut file = self.folder.file(key).ok()?;
        let metadata = file.metadata().ok()?;
        if metadata.len() > MAX_OFFER {
            return None;
        }
        // `prune` removes the files with the oldest times first. Toolhold reads many files at each
        // start, so it updates their times only once a day.
        let modified = metadata.modified().ok()?;
        if modified.elapsed().is_ok_and(|age| age > DAY) {
            let _ = file.set_modified(SystemTime::now());
        }
        let mut bytes = vec![0; usize::try_from(metadata.len()).ok()?];
        file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Stores bytes in a new file under a key. An older file is replaced and not changed, because
    /// it may be mapped. Prunes the folder when the allowance is used up.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder.put(key, bytes)?;

        let size = bytes.len() as u64;
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = allowance.files == 0 || allowance.bytes < size;
        if is_due {
            *allowance = Allowance { files: FILES_BETWEEN, bytes: BYTES_BETWEEN };
        } else {
            allowance.files -= 1;
            allowance.bytes -= size;
        }
        drop(allowance);

        if is_due {
            self.prune(MAX_FILES, MAX_BYTES);
        }
        Ok(())
    }

    pub(crate) fn remove(&self, key: &str) {
        let _ = self.folder.remove(key);
    }

    /// Tests whether code can be stored and mapped, and removes the code again.
    ///
    /// # Errors
    ///
    /// Returns an error if the code can't be stored or mapped.
    pub fn test(&self, engine: &Engine, code: &[u8]) -> Result<(), CacheError> {
        let key = format!("tried-{}.cwasm", std::process::id());
        self.folder.put(&key, code).map_err(CacheError::Store)?;
        let result = match self.folder.file(&key) {
            Ok(file) => match compiled::map_cached(engine, &file) {
                Ok(_) => Ok(()),
                Err(error) => Err(CacheError::Map(error)),
            },
            Err(error) => Err(CacheError::Open(error)),
        };
        // A file that can't be removed is pruned later.
        let _ = self.folder.remove(&key);
        result
    }

    /// Removes the least recently used files beyond `max_files` files or `max_bytes` bytes. A
    /// process that has mapped a removed file keeps its code.
    fn prune(&self, max_files: usize, max_bytes: u64) {
        let names = self.folder.names(usize::MAX).unwrap_or_default();
        let mut entries: Vec<(SystemTime, u64, String)> = Vec::new();
        for name in names {
            // Another process may have removed the file.
            let Ok(file) = self.folder.file(&name) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let Ok(last_used) = metadata.modified() else { continue };
            entries.push((last_used, metadata.len(), name));
        }
        entries.sort_unstable_by_key(|(last_used, ..)| std::cmp::Reverse(*last_used));

        let mut total = 0;
        for (index, (_, size, name)) in entries.iter().enumerate() {
            total += size;
            if index >= max_files || total > max_bytes {
                // A file that can't be removed stays until the folder is pruned again.
                let _ = self.folder.remove(name);
            }
        }
    }
}

/// Returns the name of the file with a failure. The name contains Toolhold's version, because other
/// versions may have other limits.
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
