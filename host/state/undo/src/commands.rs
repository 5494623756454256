//! Saves the changes that a call's commands make.

use std::io;
use std::path::Path;
use std::sync::Arc;

use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::caches::{Caches, Rename};
use super::journal::{Journal, SaveRules};

/// Decides whether the changes of a path are saved.
pub type Scope = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Saves the changes that a call's commands make.
pub struct CommandJournal {
    journal: Arc<Journal>,
    rules: SaveRules,
    /// The paths to save. `None` means all paths.
    scope: Option<Scope>,
    caches: Caches,
    /// Whether the call may run only because its changes can be undone.
    relies_on_undo: bool,
}

impl CommandJournal {
    /// Makes a recorder that saves changes in the call's `journal`. A call that `relies_on_undo`
    /// may run only because its changes can be undone, so changes outside of `scope` are refused.
    pub fn new(
        journal: Arc<Journal>,
        rules: SaveRules,
        scope: Option<Scope>,
        relies_on_undo: bool,
    ) -> Self {
        let caches = journal.caches();
        Self { journal, rules, scope, caches, relies_on_undo }
    }

    /// Handles the change of a path outside of the scope. If the call may run only because its
    /// changes can be undone, the change is refused. In other calls, the change is made and not
    /// saved.
    fn leave_out(&self, path: &Path) -> io::Result<()> {
        if self.relies_on_undo {
            self.journal.record_loss(path, "`transaction_scope` excludes it", self.rules)
        } else {
            Ok(())
        }
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
        if !self.covers(changed.path) {
            return self.leave_out(changed.path);
        }
        if self.caches.may_skip(changed) {
            Ok(())
        } else {
            self.journal.change(changed, self.rules)
        }
    }

    fn before_rename(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        match (self.covers(from.path), self.covers(to.path)) {
            (true, true) => match self.caches.rename(from, to) {
                Rename::Skipped => Ok(()),
                Rename::Replaces => self.journal.change(to, self.rules),
                Rename::Moves => self.journal.rename(from, to, self.rules),
            },
            (true, false) => {
                self.leave_out(to.path)?;
                self.before_change(from)
            }
            (false, true) => {
                self.leave_out(from.path)?;
                self.before_change(to)
            }
            (false, false) => self.leave_out(from.path),
        }
    }

    fn before_link(&self, from: &ChangedPath<'_>, to: &ChangedPath<'_>) -> io::Result<()> {
        self.caches.link(from, to);
        self.before_change(from)?;
        self.before_change(to)
    }

    fn is_required(&self) -> bool {
        self.rules.required
    }

    fn unrecorded(&self, reason: &str) {
        self.journal.unrecorded(reason);
    }
}
