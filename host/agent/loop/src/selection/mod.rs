//! Selects the tools of a large catalogue that a task needs, without I/O.
//!
//! Pure: the definitions of tools and the words of a task go in, the tools for a model come out,
//! each with its reason ([`select`]). Tools are ranked by their words ([`ToolIndex`]), and together
//! with the vectors of a model where there are some. Descriptions come from servers and are
//! untrusted: what a server writes there decides at most about half of the places.

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
