//! How much may happen without a person, where no rule says so.

use std::borrow::Cow;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;
use crate::permissions::Permissions;

/// How much an agent may do on its own. The earlier, the less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Autonomy {
    /// Nothing acts, whatever permissions say.
    ReadOnly,
    /// What acts asks, unless a permission allows it.
    #[default]
    Supervised,
    /// What only this default would ask for is allowed. What a rule asks for is still asked.
    Full,
}

impl Autonomy {
    /// The name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Supervised => "supervised",
            Self::Full => "full",
        }
    }

    const fn rule(self) -> &'static str {
        match self {
            Self::ReadOnly => "autonomy = \"read-only\"",
            Self::Supervised => "autonomy = \"supervised\"",
            Self::Full => "autonomy = \"full\"",
        }
    }
}

impl Placed<Autonomy> {
    /// What this gate says. `permissions`: for what would allow it. `permitted`: a permission of
    /// the tool has decided already.
    pub(crate) fn say(
        &self,
        action: &Action<'_>,
        permissions: &Permissions,
        permitted: bool,
    ) -> Option<Decision> {
        let (autonomy, place) = (self.value, &self.place);
        let say = |verdict, rule: &'static str, remedy: Cow<'static, str>| {
            Some(Decision {
                verdict,
                gate: Gate::Autonomy,
                rule: rule.into(),
                place: place.text.clone(),
                remedy,
            })
        };
        if autonomy == Autonomy::ReadOnly && action.acts() {
            let remedy = place.remedy(|| {
                "To have it ask instead, set `autonomy = \"supervised\"` in [tools].".to_owned()
            });
            return say(Verdict::Deny, autonomy.rule(), remedy);
        }
        if permitted {
            return None;
        }
        if !action.acts() {
            // Static all through: this is the way of most calls.
            return Some(Decision {
                verdict: Verdict::Allow,
                gate: Gate::Autonomy,
                rule: Cow::Borrowed("the default that what only reads is allowed"),
                place: Cow::Borrowed("built in"),
                remedy: Cow::Borrowed(
                    "To have it ask, give its tool a permission with `action = \"ask\"`.",
                ),
            });
        }
        match autonomy {
            Autonomy::Full => say(
                Verdict::Allow,
                autonomy.rule(),
                "To have it ask, set `autonomy = \"supervised\"` in [tools].".into(),
            ),
            _ => say(Verdict::Ask, autonomy.rule(), permissions.to_allow(action).into()),
        }
    }
}
