//! `toolhold generate`: makes files from the definition of the command line.

pub(crate) mod completions;
pub(crate) mod man;
