//! Saves the changes of a call's commands. Separate rules decide which changes are saved.

use std::io;
use std::path::Path;
use std::sync::Arc;

use toolhold_contract::{ChangeRecorder, ChangedPath};

use super::caches::{Caches, Rename};
use super::journal::{Journal, SaveRules};

/// Says whether the changes of a path are saved.
pub type Scope = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Saves what the commands of a call change.
pub struct CommandJournal {
    journal: Arc<Journal>,
    rules: SaveRules,
    /// The scope of saved paths. `None` if all paths are saved.
    scope: Option<Scope>,
    caches: Caches,
    /// Whether the call may run only because undo can restore its changes.
    relies: bool,
}

impl CommandJournal {
    /// Saves into the call's journal the changes of the paths in `scope`.
    pub fn new(
        journal: Arc<Journal>,
        rules: SaveRules,
        scope: Option<Scope>,
        relies: bool,
    ) -> Self {
        let caches = journal.caches();
        Self { journal, rules, scope, caches, relies }
    }

    /// Handles the change of a path outside the operator's `scope`. Refuses the change if the call
    /// may run only because undo can restore it. Otherwise, the change is made and isn't saved.
    fn leave_out(&self, path: &Path) -> io::Result<()> {
        if self.relies {
            self.journal.lose(path, "`transaction_scope` excludes it", self.rules)
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
        if self.caches.skip(changed) { Ok(()) } else { self.journal.change(changed, self.rules) }
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
