//! Remembers the folders that calls have moved into caches, since what is in them is the user's.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::access::Access;
use super::files::DirEntryRef;
use super::state::Identity;

/// The folders that calls have moved into caches. What is in them is the user's.
#[derive(Debug, Default)]
pub(crate) struct MovedIn(Mutex<HashSet<Identity>>);

impl MovedIn {
    pub(crate) fn folders(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a path in a cache is in one of them.
    pub(crate) fn has_above(&self, path: &Path, cache: &Path) -> bool {
        let known = self.folders();
        let access = Access::default();
        let is_known = |folder: &Path| {
            let handle = DirEntryRef::find(&access, folder).and_then(|place| place.handle());
            let folder = handle.ok().and_then(|handle| Identity::at(&handle));
            folder.is_some_and(|folder| known.contains(&folder))
        };
        let mut above = path.ancestors().skip(1).take_while(|folder| *folder != cache);
        !known.is_empty() && above.any(is_known)
    }
}
