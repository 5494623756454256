//! Remembers the folders that calls have moved into caches. The files in these folders belong to
//! the user.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::access::Access;
use super::files::DirEntryRef;
use super::state::Identity;

/// The folders that calls have moved into caches. The files in these folders belong to the user.
#[derive(Debug, Default)]
pub(crate) struct MovedIn(Mutex<HashSet<Identity>>);

impl MovedIn {
    pub(crate) fn folders(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a path in a cache is in one of the folders.
    pub(crate) fn has_above(&self, path: &Path, cache: &Path) -> bool {
        let known = self.folders();
        if known.is_empty() {
            return false;
        }
        let access = Access::default();
        let mut above = path.ancestors().skip(1).take_while(|folder| *folder != cache);
        above.any(|folder| {
            let handle = DirEntryRef::find(&access, folder).and_then(|place| place.handle());
            let identity = handle.ok().and_then(|handle| Identity::at(&handle));
            identity.is_some_and(|identity| known.contains(&identity))
        })
    }
}
