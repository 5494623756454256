//! Tools that are switched off, all of them or those of a plugin.

use std::collections::BTreeMap;

use crate::Decision;

/// What is switched off, and by which line.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// All tools are.
    pub all: Option<Decision>,
    /// All tools of these plugins and providers are.
    pub providers: BTreeMap<String, Decision>,
}

impl Switches {
    /// The refusal of a call of a tool of `provider`, where that is switched off.
    pub fn off(&self, provider: &str) -> Option<&Decision> {
        self.all.as_ref().or_else(|| self.providers.get(provider))
    }
}
