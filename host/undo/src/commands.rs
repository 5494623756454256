//! The changes of the commands of a call, which have rules of their own.

use std::io;
use std::path::Path;
use std::sync::Arc;

use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::caches::Caches;
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
    fn before_change(&self, changed: &ChangedPath<'_>) -> io::Result<()> {
        if self.covers(changed.path) && !self.caches.contain(changed.path) {
            self.journal.change(changed, self.rules)
        } else {
            Ok(())
        }
    }

    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        match (self.covers(from.path), self.covers(to.path)) {
            (true, true) => match [from, to].map(|it| self.caches.contain(it.path)) {
                [true, true] => Ok(()),
                [_, into_cache] => {
                    self.caches.moves(from.path, to.path, into_cache);
                    self.journal.rename(from, to, self.rules)
                }
            },
            (true, false) => self.journal.change(from, self.rules),
            (false, true) => self.journal.change(to, self.rules),
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
