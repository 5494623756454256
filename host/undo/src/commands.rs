//! The changes of the commands of a call, which have rules of their own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use toolhold_contract::ChangeRecorder;

use super::caches::Caches;
use super::files::Place;
use super::journal::{Journal, SaveRules};

/// Says whether the changes of a path are saved.
pub type Scope = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Saves what the commands of a call change.
pub struct CommandJournal {
    journal: Arc<Journal>,
    rules: SaveRules,
    /// `None`: all paths are saved.
    scope: Option<Scope>,
    caches: Caches,
}

impl CommandJournal {
    /// Saves into the call's journal the changes of the paths in `scope`.
    pub fn new(journal: Arc<Journal>, rules: SaveRules, scope: Option<Scope>) -> Self {
        Self { journal, rules, scope, caches: Caches::default() }
    }

    /// Saves what is at a path, since something else gets it.
    fn replace(&self, path: &Path) -> io::Result<()> {
        let replaced = Place::find(path).ok().and_then(|place| place.handle());
        self.journal.change(path, replaced.as_ref().map(AsFd::as_fd), self.rules)
    }

    fn covers(&self, path: &Path) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope(path))
    }
}

impl std::fmt::Debug for CommandJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandJournal").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl ChangeRecorder for CommandJournal {
    fn before_change(&self, path: &Path, object: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match self.covers(path) && !self.caches.contain(path) {
            true => self.journal.change(path, object, self.rules),
            false => Ok(()),
        }
    }

    fn before_rename(&self, from: &Path, object: BorrowedFd<'_>, to: &Path) -> io::Result<()> {
        match (self.covers(from), self.covers(to)) {
            (true, true) => match [from, to].map(|path| self.caches.contain(path)) {
                [true, true] => Ok(()),
                [_, into_cache] => {
                    self.caches.moves(from, to, into_cache);
                    self.journal.rename(from, object, to, self.rules)
                }
            },
            (true, false) => self.journal.change(from, Some(object), self.rules),
            (false, true) => self.replace(to),
            (false, false) => Ok(()),
        }
    }

    fn is_required(&self) -> bool {
        self.rules.required
    }

    fn unrecorded(&self, reason: &str) {
        self.journal.unrecorded(reason);
    }
}
