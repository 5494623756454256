//! Undo: saves the files that a call changes before the change, and restores them on request.
//!
//! A [`Journal`] belongs to one call. Before each change, it saves the state of the path. Each path
//! is saved once, until the call moves an object, because paths have another meaning afterwards. At
//! the end of the call, the journal adds the state of each path.
//!
//! [`UndoStore::undo`] compares these states with the current ones. If a file was changed since,
//! the two changes are merged if they don't overlap. Otherwise, nothing is undone. Then the journal
//! is processed backwards. After each step, the path has the old or the new state, so a killed undo
//! can continue.
//!
//! The states are in a private folder: `undo/CALL/` has `about.json`, `journal.jsonl` with a line
//! for each path and each move, `after.json`, and the contents of files by number.

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
