//! How far what offers a tool, and what asks for a call, is trusted.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::action::{Action, Trust};
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// The trust that the operator has in plugins, by their names.
#[derive(Clone, Debug, Default)]
pub struct ProviderTrust {
    /// Plugins that something is said of.
    pub plugins: HashMap<String, Placed<Trust>>,
}

impl ProviderTrust {
    fn get(&self, provider: &str) -> Option<&Placed<Trust>> {
        if self.plugins.is_empty() { None } else { self.plugins.get(provider) }
    }

    /// How far the call is trusted: the least of its plugin and of what asks for it.
    pub(crate) fn least(&self, action: &Action<'_>) -> Trust {
        self.get(action.provider).map_or(action.trust, |plugin| plugin.value.max(action.trust))
    }

    /// Whether nothing of the plugin's tool passes.
    pub(crate) fn denies_all(&self, provider: &str, harmless: bool) -> bool {
        self.get(provider).is_some_and(|trust| refuses(trust.value, harmless))
    }

    /// What this gate says: a denial, or nothing.
    pub(crate) fn say(&self, action: &Action<'_>) -> Option<Decision> {
        let least = self.least(action);
        if !refuses(least, action.is_harmless()) {
            return None;
        }
        let rule = match least {
            Trust::Blocked => "trust = \"blocked\"",
            _ => "trust = \"quarantined\", which may look, but neither act nor reach the world",
        };
        let plugin = self.get(action.provider).filter(|plugin| plugin.value == least);
        let (place, remedy): (_, Cow<'static, str>) = match plugin {
            Some(plugin) => {
                let own = || {
                    format!(
                        "To allow it, set `trust = \"verified\"` in [plugins.{}].",
                        action.provider
                    )
                };
                (plugin.place.text.clone(), plugin.place.remedy(own))
            }
            None => (
                "what the caller says of itself".into(),
                "No key changes that: the call says that it is trusted no further.".into(),
            ),
        };
        Some(Decision {
            verdict: Verdict::Deny,
            gate: Gate::Trust,
            rule: rule.into(),
            place,
            remedy,
        })
    }
}

fn refuses(trust: Trust, harmless: bool) -> bool {
    match trust {
        Trust::Trusted | Trust::Verified => false,
        Trust::Quarantined => !harmless,
        Trust::Blocked => true,
    }
}
