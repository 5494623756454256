//! The form of a rule: which node defines something, and how its names are found.

use code_model::Kind;
use tree_sitter::Node;

/// A kind of node that defines something, or that others stand in.
pub(crate) struct Rule {
    pub(crate) node: &'static str,
    pub(crate) kind: Kind,
    pub(crate) find: Find,
    pub(crate) opens: Opens,
}

/// Finds the names that a node defines. It gets the rule's kind and the source, and adds what it
/// finds.
pub(crate) type Find =
    for<'t> fn(node: Node<'t>, kind: Kind, place: Place, source: &[u8], found: &mut Vec<Found<'t>>);

/// A name that a node defines.
#[derive(Default)]
pub(crate) struct Found<'t> {
    /// `None`: the node defines nothing, but other definitions stand in its container.
    pub(crate) name: Option<Node<'t>>,
    pub(crate) kind: Option<Kind>,
    /// Names between the surrounding scope and this one.
    pub(crate) container: String,
    /// Other than by the rule.
    pub(crate) opens: Option<Opens>,
}

/// The content of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// Nothing of its own.
    Nothing,
    /// Fields and methods.
    Type,
    /// Functions and variables.
    Module,
    /// Local variables.
    Body,
    /// Nothing that matters.
    Skipped,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Module,
    Type,
    Body,
}
