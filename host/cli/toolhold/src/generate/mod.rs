//! `toolhold generate`: generates files from the definition of the command line.

pub(crate) mod completions;
pub(crate) mod man;
