//! Blocks in a model's text that may be calls.

use crate::marks::TagFamily;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    pub(crate) raw: String,
    /// The start of the body in `raw`.
    pub(crate) body_start: usize,
    /// The end of the body in `raw`, for a fenced block.
    pub(crate) body_end: usize,
    /// Whether the block's end was found. A tag with complete JSON is a call even without its end.
    pub(crate) is_closed: bool,
    /// Whether the end of a code block is unclear, in this block or before it.
    pub(crate) is_ambiguous: bool,
    /// Whether the block may belong to an earlier quotation.
    pub(crate) is_quoted: bool,
    pub(crate) is_too_deep: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A fenced block and the text after its opening fence.
    Fence(String),
    /// A fenced block of JSON at the start of a message.
    JsonFence,
    Tag(TagFamily),
    /// `tool/argument>value`
    Line,
}
