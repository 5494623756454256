//! The adapter for contract 0.1, which is frozen. It converts between the types of 0.1 and those of
//! the current contract, and calls what the current contract calls: it has no rule and no function
//! of its own.

pub(crate) mod bindings;
mod definition;
mod exports;
mod imports;
mod types;

pub(crate) use exports::{CallTool, apply, call_tool, list_filters, list_tools};
pub(crate) use imports::link;
