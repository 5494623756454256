//! The gates, in their order.

use std::borrow::Cow;

use crate::action::Action;
use crate::autonomy::Autonomy;
use crate::decision::{Decision, Gate, Verdict};

/// The order in which the gates of this crate are asked. It is fixed: what nobody may undo comes first.
pub const GATES: [Gate; 1] = [Gate::Autonomy];

/// A value of the configuration, and where it stands.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it stands: `[tools] in /home/u/.config/berth/berth.toml, line 3`.
    pub place: Cow<'static, str>,
}

impl<T: Default> Default for Placed<T> {
    fn default() -> Self {
        Self { value: T::default(), place: Cow::Borrowed("built in") }
    }
}

/// Everything that calls are decided by.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// How much may happen without a person.
    pub autonomy: Placed<Autonomy>,
}

impl Policy {
    /// Decides on a call.
    ///
    /// Every gate is asked, in the order of [`GATES`]. The first that denies decides; else the first that asks; else the first that
    /// allows. `confirmed`: a person has agreed, so what would ask is allowed. Nothing else changes.
    pub fn decide(&self, action: &Action<'_>, confirmed: bool) -> Decision {
        let mut decided: Option<Decision> = None;
        for gate in GATES {
            let Some(said) = self.say(gate, action) else { continue };
            if said.verdict == Verdict::Deny {
                return said;
            }
            if decided.as_ref().is_none_or(|known| said.verdict > known.verdict) {
                decided = Some(said);
            }
        }
        let mut decision = decided.unwrap_or_else(undecided);
        if confirmed && decision.verdict == Verdict::Ask {
            decision.verdict = Verdict::Allow;
        }
        decision
    }

    fn say(&self, gate: Gate, action: &Action<'_>) -> Option<Decision> {
        match gate {
            Gate::Autonomy => self.autonomy.value.say(&self.autonomy.place, action, false),
            _ => None,
        }
    }
}

/// The refusal of what no gate has said anything about.
pub fn undecided() -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Permissions,
        rule: Cow::Borrowed("the rule that what no gate decides is refused"),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed("It is a fault of Berth's; please tell its maintainers."),
    }
}
