//! Refuses calls of tools that are switched off: all tools, or the tools of a plugin.

use std::collections::BTreeMap;

use crate::Decision;

/// The tools that are switched off, each with the decision that says by which line.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// The decision that switches off all tools.
    pub all: Option<Decision>,
    /// The decisions that switch off plugins and providers, by name.
    pub providers: BTreeMap<String, Decision>,
}

impl Switches {
    /// Returns the refusal of calls of `provider`. Returns `None` if its tools are switched on.
    pub fn refusal(&self, provider: &str) -> Option<&Decision> {
        self.all.as_ref().or_else(|| self.providers.get(provider))
    }
}
