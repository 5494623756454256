//! The trust gate: denies or asks, depending on the trust in a tool's plugin and in the caller.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::action::{Action, Trust};
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// The operator's trust in plugins.
#[derive(Clone, Debug, Default)]
pub struct ProviderTrust {
    /// Trust in plugins by name, if the configuration sets it.
    pub plugins: HashMap<String, Placed<Trust>>,
}

impl ProviderTrust {
    fn get(&self, provider: &str) -> Option<&Placed<Trust>> {
        if self.plugins.is_empty() { None } else { self.plugins.get(provider) }
    }

    /// Returns the trust in a call. This is the lower of the trust in its plugin and the trust in
    /// its caller.
    pub(crate) fn least(&self, action: &Action<'_>) -> Trust {
        match self.get(action.provider) {
            // Later variants are trusted less.
            Some(plugin) => plugin.value.max(action.trust),
            None => action.trust,
        }
    }

    /// Checks whether every call of the plugin's tool is denied.
    pub(crate) fn denies_all(&self, provider: &str, harmless: bool) -> bool {
        self.get(provider).is_some_and(|trust| refuses(trust.value, harmless))
    }

    /// Returns the denial or question of this gate. Returns `None` if the gate allows the call.
    pub(crate) fn decide(&self, action: &Action<'_>) -> Option<Decision> {
        let least = self.least(action);
        if !refuses(least, action.is_harmless()) {
            let needs_approval = action.doubtful && !action.is_harmless();
            return needs_approval.then(ask_about_doubtful);
        }
        let rule = match least {
            Trust::Blocked => "trust = \"blocked\"",
            _ => "trust = \"quarantined\", which denies calls that act or reach the network",
        };
        let plugin = self.get(action.provider).filter(|plugin| plugin.value == least);
        let (place, remedy): (_, Cow<'static, str>) = match plugin {
            Some(plugin) => {
                let table = format!("plugins.{}", action.provider);
                let line = "trust = \"verified\"";
                let remedy = plugin.place.remedy_to_set("To allow it", &table, line);
                (plugin.place.text.clone(), remedy)
            }
            None => (
                "set by the caller".into(),
                "No configuration key can change this: the caller set this trust for the call."
                    .into(),
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

fn ask_about_doubtful() -> Decision {
    Decision {
        verdict: Verdict::Ask,
        gate: Gate::Trust,
        rule: "calls that the caller doubts need approval if they act or reach the network".into(),
        place: "set by the caller".into(),
        remedy: "No configuration key can change this: the caller doubts this call.".into(),
    }
}

fn refuses(trust: Trust, harmless: bool) -> bool {
    match trust {
        Trust::Trusted | Trust::Verified => false,
        Trust::Quarantined => !harmless,
        Trust::Blocked => true,
    }
}
