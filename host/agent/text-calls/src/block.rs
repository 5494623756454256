//! The types of a block in a model's text that may be a call.

use crate::marks::Family;

/// A block that may be a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The whole block.
    pub(crate) raw: String,
    /// The offset at which its body begins.
    pub(crate) body: usize,
    /// The offset at which the body of a fenced block ends.
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
    /// A fenced block, with the text behind its fence.
    Fence(String),
    /// A fenced block of JSON at the beginning of a message.
    JsonFence,
    Tag(Family),
    /// `tool/argument>value`
    Line,
}
