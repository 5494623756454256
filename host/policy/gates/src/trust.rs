//! The trust gate: decides by the trust in a tool's plugin and in the caller.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::action::{Action, Trust};
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;

/// The operator's trust in plugins.
#[derive(Clone, Debug, Default)]
pub struct ProviderTrust {
    /// Trust in plugins, by their names. Plugins that the configuration doesn't mention are
    /// missing.
    pub plugins: HashMap<String, Placed<Trust>>,
}

impl ProviderTrust {
    fn get(&self, provider: &str) -> Option<&Placed<Trust>> {
        if self.plugins.is_empty() { None } else { self.plugins.get(provider) }
    }

    /// Returns the trust in a call: the lower of the trust in its plugin and the trust in its
    /// caller.
    pub(crate) fn trust_in(&self, action: &Action<'_>) -> Trust {
        match self.get(action.provider) {
            // Later variants are trusted less.
            Some(plugin) => plugin.value.max(action.trust),
            None => action.trust,
        }
    }

    pub(crate) fn denies_all(&self, provider: &str, harmless: bool) -> bool {
        self.get(provider).is_some_and(|trust| refuses(trust.value, harmless))
    }

    /// Returns the denial of a call that has too little trust. Asks about a call that the caller
    /// has marked as doubtful. Returns `None` for other calls.
    pub(crate) fn decide(&self, action: &Action<'_>) -> Option<Decision> {
        let trust = self.trust_in(action);
        if !refuses(trust, action.is_harmless()) {
            let needs_approval = action.doubtful && !action.is_harmless();
            return if needs_approval { Some(ask_about_doubtful()) } else { None };
        }
        // Only blocked and quarantined calls are denied.
        let rule = match trust {
            Trust::Blocked => "trust = \"blocked\"",
            _ => "trust = \"quarantined\", which denies calls that act or reach the network",
        };
        // If the plugin has more trust than the caller, the trust of the caller decides.
        let plugin = self.get(action.provider).filter(|plugin| plugin.value == trust);
        let (place, remedy) = match plugin {
            Some(plugin) => {
                let table = format!("plugins.{}", action.provider);
                let line = "trust = \"verified\"";
                let remedy = plugin.place.remedy_to_set("To allow it", &table, line);
                (plugin.place.text.clone(), remedy)
            }
            None => (
                Cow::Borrowed("set by the caller"),
                Cow::Borrowed(
                    "No configuration key can change this: the caller set the trust of this call.",
                ),
            ),
        };
        let rule = Cow::Borrowed(rule);
        Some(Decision { verdict: Verdict::Deny, gate: Gate::Trust, rule, place, remedy })
    }
}

fn ask_about_doubtful() -> Decision {
    Decision {
        verdict: Verdict::Ask,
        gate: Gate::Trust,
        rule: "the caller marked this call as doubtful, and doubtful calls that act or reach the \
               network need approval"
            .into(),
        place: "set by the caller".into(),
        remedy: "No configuration key can change this: the caller marked this call as \
                 doubtful."
            .into(),
    }
}

fn refuses(trust: Trust, harmless: bool) -> bool {
    match trust {
        Trust::Trusted | Trust::Verified => false,
        Trust::Quarantined => !harmless,
        Trust::Blocked => true,
    }
}
