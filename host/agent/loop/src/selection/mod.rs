//! Selects the tools of a large catalogue that a task needs.
//!
//! [`select`] does no I/O. It ranks tools by their words ([`ToolIndex`]), and by vectors if there
//! are vectors. Descriptions come from servers and are untrusted, so one server gets at most about
//! half of the places.

mod fuse;
mod ranking;
mod select;
mod stem;
mod text;

pub use fuse::cosine;
pub use select::{
    IncludedTool, InclusionReason, Selection, SelectionRules, ToolIndex, select, tokens_of,
};
pub use text::{embedded_text, names_tool};
