//! Lists the saved calls of a user and undoes them.

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

/// The reason why an undo was not done or not completed.
#[derive(Debug)]
pub enum UndoError {
    /// No changes of the call are saved.
    NotSaved,
    /// The call is undone already.
    AlreadyUndone,
    /// The call still runs.
    Running,
    /// The saved call can't be read. Nothing was changed.
    Unreadable(io::Error),
    /// Some paths were not restored. A later undo of the call continues with these paths.
    Partial {
        /// The number of restored paths.
        done: usize,
        /// The paths that were not restored.
        left: Vec<UndoConflict>,
    },
}

impl fmt::Display for UndoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
                for conflict in left.iter().take(SHOWN) {
                    write!(f, "\n  {conflict}")?;
                }
                if left.len() > SHOWN {
                    write!(f, "\n  and {}", counted(left.len() - SHOWN, "more path"))?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for UndoError {}

/// All saved calls of the user.
#[derive(Clone, Debug)]
pub struct UndoStore(Arc<Folder>);

impl UndoStore {
    /// Opens the store in a folder. The first change creates the folder.
    pub fn in_folder(path: PathBuf, bounds: UndoLimits) -> Self {
        Self(Arc::new(Folder {
            path,
            bounds,
            running: RunningCalls::default(),
            moved_in: MovedIn::default(),
        }))
    }

    /// Makes the journal of a new call. With `required`, a change is refused if the old state can't
    /// be saved.
    pub fn journal(&self, entry: UndoEntry, required: bool) -> Journal {
        let rules = SaveRules { required, call_bytes: self.0.bounds.call_bytes };
        Journal::new(Arc::clone(&self.0), entry, rules)
    }

    /// Returns the saved calls, the newest first.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be read or trusted.
    pub fn list(&self) -> io::Result<Vec<UndoEntry>> {
        let mut calls = self.0.list()?;
        // The folder of an undone call is set aside if a new call has the same ID.
        calls.retain(|entry| !entry.call.contains(ASIDE));
        Ok(calls)
    }

    /// Returns the paths that the call changed, by their names after the call.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the saved changes can't be read.
    pub fn changed_paths(&self, call: &str) -> io::Result<Vec<PathBuf>> {
        let Some(saved_call) = SavedCall::read(&self.0, call)? else { return Ok(Vec::new()) };
        Ok(saved_call.changed_paths())
    }

    /// Returns the newest call in `directory` that isn't undone, by any caller. Calls that changed
    /// only times are omitted. Calls with an incomplete undo come last.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be read or trusted.
    pub fn latest_in(&self, directory: &Path) -> io::Result<Option<UndoEntry>> {
        let calls = self.0.list()?;
        let not_undone = calls.iter().filter(|entry| entry.is_next());
        // Calls with an incomplete undo are offered again, because the undo of another call may
        // have resolved their conflicts.
        let incomplete = calls.iter().filter(|entry| !entry.undone && entry.left > 0);
        for entry in not_undone.chain(incomplete) {
            let saved_call = SavedCall::read(&self.0, &entry.call)?;
            if saved_call.is_some_and(|saved_call| saved_call.changes_below(directory)) {
                return Ok(Some(entry.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the calls of the same agent turn that aren't undone, the newest first. If the call
    /// of `entry` belongs to no turn, returns only `entry`.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the folder can't be read or trusted.
    pub fn turn_of(&self, entry: &UndoEntry) -> io::Result<Vec<UndoEntry>> {
        if entry.turn.is_none() {
            return Ok(vec![entry.clone()]);
        }
        let mut calls = self.0.list()?;
        calls.retain(|other| {
            let is_same_turn = other.turn == entry.turn && other.session == entry.session;
            is_same_turn && !other.undone
        });
        Ok(calls)
    }

    /// Plans an undo of the call.
    ///
    /// # Errors
    ///
    /// Returns an [`UndoError`] if the call can't be undone.
    pub fn plan(&self, call: &str) -> Result<UndoPlan, UndoError> {
        let only = None;
        self.plan_only(call, only)
    }

    /// Plans an undo of a call. With `only`, only this path and the paths below it are restored,
    /// and the later changes of these paths are lost.
    ///
    /// # Errors
    ///
    /// Returns an [`UndoError`] if the call can't be undone.
    pub fn plan_only(&self, call: &str, only: Option<&Path>) -> Result<UndoPlan, UndoError> {
        let access = Access::default();
        let saved = self.saved(call)?;
        UndoPlan::new(&access, &self.0, &saved, only).map_err(UndoError::Unreadable)
    }

    /// Restores the paths that the call changed.
    ///
    /// # Errors
    ///
    /// Returns an [`UndoError`] if the undo isn't done or isn't complete.
    pub fn undo(&self, call: &str) -> Result<UndoPlan, UndoError> {
        let only = None;
        self.undo_only(call, only)
    }

    /// Restores the paths that the call changed. With `only`, only this path and the paths below it
    /// are restored, and the later changes of these paths are lost.
    ///
    /// # Errors
    ///
    /// Returns an [`UndoError`] if the undo isn't done or isn't complete.
    pub fn undo_only(&self, call: &str, only: Option<&Path>) -> Result<UndoPlan, UndoError> {
        let _lock = self.0.lock().map_err(UndoError::Unreadable)?;
        let saved_call = self.saved(call)?;
        let access = access_for(&saved_call.folder);
        let mut plan =
            UndoPlan::new(&access, &self.0, &saved_call, only).map_err(UndoError::Unreadable)?;
        let overwrites_later_changes = only.is_some();
        let conflicts =
            Restoration::new(&access, &self.0, &saved_call, &plan, overwrites_later_changes).run();
        // Dropping `access` removes the temporary permissions.
        drop(access);
        plan.conflicts.extend(conflicts);
        plan.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        plan.conflicts.dedup_by(|one, other| one.path == other.path);
        // If only lost paths remain, the undo is over, because no later undo can restore them.
        let is_over = plan.conflicts.iter().all(|conflict| conflict.is_lost);
        self.0.use_reserve();
        let mark_result = match only {
            Some(_) => Ok(()),
            None if is_over => saved_call.mark_undone(),
            None => saved_call.mark_left(plan.conflicts.len()),
        };
        if let Err(error) = mark_result {
            tracing::warn!("recording that a call is undone failed: {error}");
        }
        if plan.conflicts.is_empty() {
            return Ok(plan);
        }
        let mut done = 0;
        for change in &plan.changes {
            let is_in_conflict = plan.conflicts.iter().any(|conflict| conflict.path == change.path);
            if !is_in_conflict {
                done += 1;
            }
        }
        Err(UndoError::Partial { done, left: plan.conflicts })
    }

    /// Hides an undone call from the list, because the call may run again with the same ID. Undos
    /// of concurrent calls still use its saved states.
    pub fn set_aside(&self, call: &str) {
        if let Err(error) = self.0.set_aside(call) {
            tracing::warn!("setting aside the saved changes of the call {call} failed: {error}");
        }
    }

    /// Reads the changes of a call that has saved changes, isn't undone and doesn't run.
    fn saved(&self, call: &str) -> Result<SavedCall, UndoError> {
        let saved_call = SavedCall::read(&self.0, call)
            .map_err(UndoError::Unreadable)?
            .ok_or(UndoError::NotSaved)?;
        if saved_call.entry.undone {
            Err(UndoError::AlreadyUndone)
        } else if saved_call.is_running() {
            Err(UndoError::Running)
        } else {
            Ok(saved_call)
        }
    }
}
