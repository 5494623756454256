//! `toolhold generate`: files that are made of the command line.

pub(crate) mod completions;
pub(crate) mod man;
