//! Undo: saves what a call changes in files before it changes it, and restores it on demand.
//!
//! A [`Journal`] belongs to one call. It gets each change before it is made and saves the state of
//! the path: once, until the call moves something, since paths mean something else then. At the end
//! of the call it adds the state of each path. [`UndoStore::undo`] compares that with the current
//! state. If a file was changed since, the two changes are merged if they don't touch; otherwise
//! nothing is undone. Then the journal is followed backwards. Each step leaves the old or the new
//! state, so an undo that was killed can go on.
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
