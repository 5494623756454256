//! Selects the tools of a large catalogue that a task needs.
//!
//! [`select`] does no I/O. It takes the definitions of tools and the words of a task, and returns
//! the tools for a model, each with a reason. Tools are ranked by their words ([`ToolIndex`]) and
//! by the vectors of a model, if there are vectors. Servers write the descriptions, so descriptions
//! are untrusted. One server's descriptions decide at most about half of the places.

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
