//! Finds and matches files below granted directories, at native speed.
//!
//! The walk opens every directory and file by handle, checks the rules for its real path, and reads
//! only regular files. If a guest changes the tree during a search, the search can miss files, but
//! it never reads files outside of the grants.

mod budget;
mod count;
mod directory;
mod engine;
mod filter;
mod find;
mod folder;
mod grep;
mod guard;
mod ignores;
mod model;
mod queue;
mod root;
mod rules;
#[cfg(test)]
mod tests;
mod walk;

pub use count::count;
pub use find::find;
pub use grep::grep;
pub use model::{
    Control, Entries, EntryKind, Line, Lines, MAX_CONTEXT, MAX_LINE_CHARS, MAX_RESULTS, Pattern,
    Scope, SearchCounts, SearchEnding, SearchEntry, SearchError, SkipCounts,
};
