//! Records the folders that calls have moved into caches. The files in these folders belong to the
//! user, not to the cache.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::access::Access;
use super::files::DirEntryRef;
use super::state::Identity;

#[derive(Debug, Default)]
pub(crate) struct MovedIn(Mutex<HashSet<Identity>>);

impl MovedIn {
    pub(crate) fn folders(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a folder between a path and its cache was moved into the cache.
    pub(crate) fn has_above(&self, path: &Path, cache: &Path) -> bool {
        let known = self.folders();
        if known.is_empty() {
            return false;
        }
        let access = Access::default();
        for folder in path.ancestors().skip(1).take_while(|folder| *folder != cache) {
            let handle = DirEntryRef::find(&access, folder).and_then(|place| place.handle());
            if let Ok(handle) = handle
                && let Some(identity) = Identity::at(&handle)
                && known.contains(&identity)
            {
                return true;
            }
        }
        false
    }
}
