//! The types of a block in a model's text that may be a call.

use crate::marks::Family;

/// A block that may be a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The whole block.
    pub(crate) raw: String,
    /// The offset at which its body begins. The body of a fenced block ends at `body_end`.
    pub(crate) body: usize,
    pub(crate) body_end: usize,
    /// Whether its end was found. A JSON value that is complete needs no end.
    pub(crate) is_closed: bool,
    /// Whether it is unclear which code block ends where, before or in this block.
    pub(crate) is_ambiguous: bool,
    /// Whether it may belong to the quotation before it.
    pub(crate) is_quoted: bool,
    /// Whether its tags are nested too deeply.
    pub(crate) is_too_deep: bool,
}

/// The kind of a block, by its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A fenced block with a word and the rest of the line.
    Fence(String),
    /// A fenced block of JSON that is the first thing in a message.
    JsonFence,
    Tag(Family),
    /// `tool/argument>value`
    Line,
}
