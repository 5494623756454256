//! The types of a block in a model's text that may be a call.

use crate::marks::Family;

/// A block that may be a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The whole block.
    pub(crate) raw: String,
    /// The offset at which the body begins.
    pub(crate) body: usize,
    /// The offset at which the body of a fenced block ends.
    pub(crate) body_end: usize,
    /// Whether the end of the block was found. A complete JSON value needs no end.
    pub(crate) is_closed: bool,
    /// Whether it is unclear where code blocks end, in this block or before it.
    pub(crate) is_ambiguous: bool,
    /// Whether the block may belong to the quotation before it.
    pub(crate) is_quoted: bool,
    /// Whether the tags of the block are nested too deeply.
    pub(crate) is_too_deep: bool,
}

/// The kind of a block, detected from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A fenced block, with the text after its opening fence.
    Fence(String),
    /// A fenced block of JSON at the beginning of a message.
    JsonFence,
    Tag(Family),
    /// `tool/argument>value`
    Line,
}
