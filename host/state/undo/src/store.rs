//! `UndoStore`: lists the saved calls of a user, finds the latest call in a directory, and plans
//! and performs its undo.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_contract::text::counted;

use super::access::Access;
use super::beside::RunningCalls;
use super::changes::UndoConflict;
use super::folder::{ASIDE, Folder, UndoEntry, UndoLimits};
use super::given::access_for;
use super::journal::{Journal, SaveRules};
use super::moved_in::MovedIn;
use super::plan::UndoPlan;
use super::restore::Restoration;
use super::saved::SavedCall;

/// The reason why an undo was not done, or not completed.
#[derive(Debug)]
pub enum UndoError {
    /// No changes of that call are saved.
    NotSaved,
    /// The call is undone already.
    AlreadyUndone,
    /// The call still runs.
    Running,
    /// The saved call can't be read. Nothing was changed.
    Unreadable(io::Error),
    /// Some paths were not restored. All other paths are as before the call. Another undo of the
    /// call continues with the remaining paths.
    Partial {
        /// The paths that are restored.
        done: usize,
        /// The paths that aren't.
        left: Vec<UndoConflict>,
    },
}

impl fmt::Display for UndoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Paths that are shown.
        const SHOWN: usize = 20;
        match self {
            Self::NotSaved => f.write_str("no changes of this call are saved"),
            Self::AlreadyUndone => f.write_str("this call is already undone"),
            Self::Running => f.write_str(
                "this call still runs; nothing was changed. Undo the call when it has ended",
            ),
            Self::Unreadable(error) => write!(f, "nothing was changed: {error}"),
            Self::Partial { done, left } => {
                write!(f, "{} restored; not restored:", counted(*done, "path"))?;
                left.iter().take(SHOWN).try_for_each(|one| write!(f, "\n  {one}"))?;
                match left.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\n  and {}", counted(more, "more path")),
                }
            }
        }
    }
}

impl std::error::Error for UndoError {}

/// All saved calls of the user.
#[derive(Clone, Debug)]
pub struct UndoStore(Arc<Folder>);

impl UndoStore {
    /// Returns the store in a folder. The first change creates the folder.
    pub fn in_folder(path: PathBuf, bounds: UndoLimits) -> Self {
        Self(Arc::new(Folder {
            path,
            bounds,
            running: RunningCalls::default(),
            moved_in: MovedIn::default(),
        }))
    }

    /// Returns the journal of a new call. `required`: whether a change is refused if its old state
    /// can't be saved.
    pub fn journal(&self, about: UndoEntry, required: bool) -> Journal {
        let rules = SaveRules { required, call_bytes: self.0.bounds.call_bytes };
        Journal::new(Arc::clone(&self.0), about, rules)
    }

    /// Returns the saved calls, the newest first.
    ///
    /// # Errors
    ///
    /// The system's, if the folder can't be read or trusted.
    pub fn list(&self) -> io::Result<Vec<UndoEntry>> {
        let mut calls = self.0.list()?;
        calls.retain(|about| !about.call.contains(ASIDE));
        Ok(calls)
    }

    /// Returns the newest call in a directory, by any caller, that isn't undone. Calls that changed
    /// only times are omitted. Calls with an incomplete undo come last.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be read or trusted.
    pub fn latest_in(&self, directory: &Path) -> io::Result<Option<UndoEntry>> {
        let calls = self.0.list()?;
        let next = calls.iter().filter(|about| about.is_next());
        // After the undo of another call, an incomplete undo may now be possible.
        let left = calls.iter().filter(|about| !about.undone && about.left > 0);
        for about in next.chain(left) {
            let read = SavedCall::read(&self.0, &about.call)?;
            if read.is_some_and(|read| read.changes_below(directory)) {
                return Ok(Some(about.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the calls of the same agent turn that aren't undone, newest first. If the call
    /// belongs to no turn, returns only this call.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be read or trusted.
    pub fn turn_of(&self, about: &UndoEntry) -> io::Result<Vec<UndoEntry>> {
        if about.turn.is_none() {
            return Ok(vec![about.clone()]);
        }
        let mut calls = self.0.list()?;
        calls.retain(|it| !it.undone && it.turn == about.turn && it.session == about.session);
        Ok(calls)
    }

    /// Plans an undo of the call.
    ///
    /// # Errors
    ///
    /// [`UndoError::NotSaved`], [`UndoError::AlreadyUndone`], [`UndoError::Running`] or
    /// [`UndoError::Unreadable`] if the call can't be undone.
    pub fn plan(&self, call: &str) -> Result<UndoPlan, UndoError> {
        self.plan_only(call, None)
    }

    /// Plans an undo of the path `only` and everything below it. Changes of this path since the
    /// call are lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`plan`](Self::plan).
    pub fn plan_only(&self, call: &str, only: Option<&Path>) -> Result<UndoPlan, UndoError> {
        UndoPlan::new(&Access::default(), &self.0, &self.saved(call)?, only)
            .map_err(UndoError::Unreadable)
    }

    /// Restores what the call changed, path by path.
    ///
    /// # Errors
    ///
    /// [`UndoError`].
    pub fn undo(&self, call: &str) -> Result<UndoPlan, UndoError> {
        self.undo_only(call, None)
    }

    /// Restores the path `only` and everything below it. Changes of this path since the call are
    /// lost.
    ///
    /// # Errors
    ///
    /// [`UndoError`] if the undo isn't done or isn't complete.
    pub fn undo_only(&self, call: &str, only: Option<&Path>) -> Result<UndoPlan, UndoError> {
        let _lock = self.0.lock().map_err(UndoError::Unreadable)?;
        let read = self.saved(call)?;
        let access = access_for(&read.folder);
        let mut plan =
            UndoPlan::new(&access, &self.0, &read, only).map_err(UndoError::Unreadable)?;
        let conflicts = Restoration::new(&access, &self.0, &read, &plan, only.is_some()).run();
        // The permissions given for a time are taken back before anything is reported.
        drop(access);
        plan.conflicts.extend(conflicts);
        plan.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        plan.conflicts.dedup_by(|one, other| one.path == other.path);
        let is_over = plan.conflicts.iter().all(|conflict| conflict.is_lost);
        self.0.use_reserve();
        let mark_result = match only {
            Some(_) => Ok(()),
            None if is_over => read.mark_undone(),
            None => read.mark_left(plan.conflicts.len()),
        };
        if let Err(error) = mark_result {
            tracing::warn!("the note that a call is undone can't be saved: {error}");
        }
        if plan.conflicts.is_empty() {
            return Ok(plan);
        }
        let done = plan
            .changes
            .iter()
            .filter(|change| !plan.conflicts.iter().any(|conflict| conflict.path == change.path))
            .count();
        Err(UndoError::Partial { done, left: plan.conflicts })
    }

    /// Sets aside the saved states of an undone call that may run again. The undo of concurrent
    /// calls still uses these states, but they aren't listed.
    pub fn set_aside(&self, call: &str) {
        if let Err(error) = self.0.set_aside(call) {
            tracing::warn!("the changes of the call {call} can't be set aside: {error}");
        }
    }

    fn saved(&self, call: &str) -> Result<SavedCall, UndoError> {
        let read = SavedCall::read(&self.0, call)
            .map_err(UndoError::Unreadable)?
            .ok_or(UndoError::NotSaved)?;
        if read.about.undone {
            Err(UndoError::AlreadyUndone)
        } else if read.is_running() {
            Err(UndoError::Running)
        } else {
            Ok(read)
        }
    }
}
