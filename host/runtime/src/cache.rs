//! Compiled code kept from one run to the next.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use berth_system::private::PrivateFolder;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiled;

/// Components whose code is kept, and the bytes of it all: what was not used for longest goes
/// first.
const MAX_FILES: usize = 1000;
const MAX_BYTES: u64 = 2 << 30;

/// Bytes of a reason why something can't be compiled.
const MAX_REASON: u64 = 16 * 1024;

/// A folder that only this user can change. Compiled code can't be checked, so it is mapped from
/// nowhere else.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PrivateFolder,
    path: PathBuf,
}

impl Cache {
    /// Opens the folder, making it where it is missing. `Err` says why it can't be trusted; the
    /// caller compiles anew instead.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.to_owned();
        let folder = PrivateFolder::make(&path)?;
        folder.check_closed()?;
        Ok(Self { folder, path })
    }

    /// Where something of this name is kept.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Why what would have this key could not be compiled, where that was tried.
    pub(crate) fn failure(&self, key: &str) -> Option<String> {
        let file = self.folder.file(&failure_name(key)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        let mut reason = String::new();
        file.take(MAX_REASON).read_to_string(&mut reason).ok()?;
        Some(reason)
    }

    /// Keeps why it could not be.
    pub(crate) fn put_failure(&self, key: &str, reason: &str) -> io::Result<PathBuf> {
        let name = failure_name(key);
        self.folder.put(&name, reason.as_bytes())?;
        self.prune(MAX_FILES, MAX_BYTES);
        Ok(self.path(&name))
    }

    /// The component of a key, where it was kept by a compatible engine.
    pub(crate) fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let file = match self.folder.file(key) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("not used from the compile cache: {key}: {error}");
                return None;
            }
        };
        // For [`prune`](Self::prune): it is in use. Where the time can't be set, it counts from the
        // compiling.
        let _ = file.set_modified(SystemTime::now());
        compiled::of_the_cache(engine, &file)
            .map_err(|error| tracing::warn!("not used from the compile cache: {key}: {error:#}"))
            .ok()
    }

    /// Keeps code under a key. A file that is mapped must never change, and is not: the new one
    /// only takes its name.
    pub(crate) fn put(&self, key: &str, code: &[u8]) -> io::Result<()> {
        self.folder.put(key, code)?;
        self.prune(MAX_FILES, MAX_BYTES);
        Ok(())
    }

    /// Whether code is kept and mapped: tried with some, which is taken out again.
    pub(crate) fn tried(&self, engine: &Engine, code: &[u8]) -> Result<(), String> {
        let key = format!("tried-{}.cwasm", std::process::id());
        self.folder.put(&key, code).map_err(|error| format!("code can't be kept: {error}"))?;
        let file = self
            .folder
            .file(&key)
            .map_err(|error| format!("code that was kept can't be opened: {error}"));
        let mapped = file.and_then(|file| {
            compiled::of_the_cache(engine, &file)
                .map(drop)
                .map_err(|error| format!("code can't be mapped from it: {error:#}"))
        });
        let _ = self.folder.remove(&key);
        mapped
    }

    /// Removes what has not been used for longest, until no more than so much is left. Code that is
    /// mapped stays with whoever maps it.
    fn prune(&self, files: usize, bytes: u64) {
        let names = self.folder.names(usize::MAX).unwrap_or_default();
        let used = |name: String| {
            let metadata = self.folder.file(&name).and_then(|file| file.metadata()).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), name))
        };
        let mut kept: Vec<(SystemTime, u64, String)> = names.into_iter().filter_map(used).collect();
        kept.sort_unstable_by_key(|(used, ..)| std::cmp::Reverse(*used));
        let mut total = 0;
        for (index, (_, size, name)) in kept.iter().enumerate() {
            total += size;
            if index >= files || total > bytes {
                let _ = self.folder.remove(name);
            }
        }
    }
}

/// The name of what says why there is no code under a key: to this version, since another one may
/// allow more.
pub(crate) fn failure_name(key: &str) -> String {
    format!("{key}.{}.failed", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let cache = Cache::open(&root.path().join("cache")).expect("it is made");
        for (age, name) in ["newest", "newer", "older", "oldest"].into_iter().enumerate() {
            cache.folder.put(name, &[0; 100]).expect("it is kept");
            let then = SystemTime::now() - Duration::from_secs(60 * age as u64);
            cache
                .folder
                .file(name)
                .and_then(|file| file.set_modified(then))
                .expect("its time is set");
        }
        let kept = || cache.folder.names(10).expect("they are there");
        cache.prune(3, 1000);
        assert_eq!(kept(), ["newer", "newest", "older"]);
        cache.prune(3, 250);
        assert_eq!(kept(), ["newer", "newest"]);
    }
}
