//! Definitions of built-in tools for the tests of calls in text, as printed by `toolhold tools
//! --json`.

use toolhold_core::Definition;

/// The definitions of some built-in tools.
pub(crate) fn definitions() -> Vec<Definition> {
    serde_json::from_str(include_str!("definitions.json")).unwrap()
}

/// Returns the definition of a built-in tool.
pub(crate) fn definition(name: &str) -> Definition {
    definitions().into_iter().find(|definition| definition.name == name).unwrap()
}
