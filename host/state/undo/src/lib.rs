//! Undo: saves the files that a call changes before the change, and restores them on request.
//!
//! A [`Journal`] belongs to one call. Before a change, it saves the state of the path, once for
//! each path. After a move, paths are saved again, because they may name other objects. At the end
//! of the call, the journal adds the new state of each path.
//!
//! [`UndoStore::undo`] compares the states after the call with the current states. Later changes
//! are merged if they don't overlap with the call's changes. If they overlap, nothing is undone.
//! Then the steps are done, the last change first. A killed undo can be repeated, because each step
//! leaves its path in either the old or the new state.
//!
//! A private folder has the states: `undo/CALL/` has `about.json`, `journal.jsonl` with a line for
//! each path and each move, `after.json`, and the contents of files by number.

mod access;
mod beside;
mod caches;
mod changes;
mod commands;
mod compare;
mod files;
mod folder;
mod git_index;
mod given;
mod hex;
mod journal;
mod later;
mod lines;
mod moved_in;
mod plan;
mod progress;
mod restore;
mod rules;
mod saved;
mod saved_path;
mod state;
mod store;
mod tasks;
#[cfg(test)]
mod tests;

pub use changes::{ChangeKind, UndoChange, UndoConflict};
pub use commands::{CommandJournal, Scope};
pub use folder::{UndoEntry, UndoLimits};
pub use journal::{Journal, SaveRules, SavedChanges};
pub use plan::UndoPlan;
pub use store::{UndoError, UndoStore};
