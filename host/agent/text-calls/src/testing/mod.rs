//! Definitions of built-in tools for the tests of calls in texts, as `toolhold tools --json` prints
//! them.

use toolhold_core::Definition;

/// The definitions of some built-in tools.
pub(crate) fn definitions() -> Vec<Definition> {
    serde_json::from_str(include_str!("definitions.json")).unwrap()
}

/// The definition of one of them.
pub(crate) fn definition(name: &str) -> Definition {
    definitions().into_iter().find(|definition| definition.name == name).unwrap()
}
