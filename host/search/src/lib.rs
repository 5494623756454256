//! Finding and matching below granted directories, at native speed.
//!
//! The walk enters every directory and opens every file by handle, decides on the real path of
//! each, and reads nothing but regular files. What a guest does to the tree meanwhile can hide
//! things from a search, but never lead it out of what may be read.

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
